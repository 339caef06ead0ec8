package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// linOp is one operation on a function that has one job name. What was acknowledged before the
// server was killed is known; of the rest the effect may have happened, and may not.
type linOp struct {
	kind    linKind
	version int    // of submit and run: what the job carries; of run and its end: whose
	worker  int    // of grab, done and fail
	result  string // of done
	known   bool
}

type linKind string

const (
	linSubmit linKind = "submit"
	linRun    linKind = "run"    // a submission whose result is awaited
	linResult linKind = "result" // the other end of a run: what it returned
	linRemove linKind = "remove"
	linGrab   linKind = "grab"
	linDone   linKind = "done"
	linFail   linKind = "fail"
	linCrash  linKind = "kill -9"
)

// linJob is the job as it survives a crash.
type linJob struct {
	there   bool
	version int
}

// linState is everything about the function: the job, who holds it, who waits for it, who was
// told what and has not returned yet, and what the disk may hold.
type linState struct {
	job    linJob
	holder int // 0: nobody
	waits  string
	told   string
	disk   []linJob
}

func (s linState) equal(o linState) bool {
	return s.job == o.job && s.holder == o.holder && s.waits == o.waits && s.told == o.told && slices.Equal(s.disk, o.disk)
}

// end is the job's; those who wait are told.
func (s linState) end(result string) linState {
	for _, id := range strings.Fields(s.waits) {
		s.told += id + "=" + result + " "
	}
	s.job, s.holder, s.waits = linJob{}, 0, ""
	return s
}

// after is the state after an operation that happened; ok is false when it cannot have.
func (s linState) after(o linOp, output string) (_ linState, ok bool) {
	switch o.kind {
	case linSubmit, linRun:
		if s.holder == 0 {
			s.job = linJob{true, o.version}
		}
		if o.kind == linRun {
			s.waits += fmt.Sprint(o.version, " ")
		}
	case linResult:
		entry := fmt.Sprint(o.version, "=", output, " ")
		if !strings.Contains(" "+s.told, " "+entry) {
			return s, false
		}
		s.told = strings.TrimPrefix(strings.Replace(" "+s.told, " "+entry, " ", 1), " ")
	case linRemove:
		s = s.end("")
	case linGrab:
		if !s.job.there || s.holder != 0 || o.known && output != fmt.Sprint(s.job.version) {
			return s, false
		}
		s.holder = o.worker
	case linDone:
		if s.holder == o.worker {
			s = s.end(o.result)
		}
	case linFail:
		if s.holder == o.worker {
			s.holder = 0
		}
	}
	if durable := o.known && (o.kind == linSubmit || o.kind == linRemove); durable {
		s.disk = []linJob{s.job}
	} else if s.disk[len(s.disk)-1] != s.job {
		s.disk = append(slices.Clone(s.disk), s.job)
	}
	return s, true
}

// linModel is a Periodic server that may be killed. What is acknowledged is on disk by then,
// WORK_DONE, WORK_FAIL and RUN_JOB follow in their order, and any number of the last of those
// may be lost.
var linModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{linState{disk: []linJob{{}}}} },
	Step: func(state, input, output any) (next []any) {
		s, o := state.(linState), input.(linOp)
		if o.kind == linCrash {
			for i, d := range s.disk {
				if !slices.Contains(s.disk[:i], d) {
					next = append(next, linState{job: d, disk: []linJob{d}})
				}
			}
			return next
		}
		if !o.known {
			next = append(next, s)
		}
		if after, ok := s.after(o, output.(string)); ok {
			next = append(next, after)
		}
		return next
	},
	Equal: func(a, b any) bool { return a.(linState).equal(b.(linState)) },
	DescribeOperation: func(input, output any) string {
		o := input.(linOp)
		return fmt.Sprintf("%s v%d worker %d %s known %v -> %v", o.kind, o.version, o.worker, o.result, o.known, output)
	},
}
