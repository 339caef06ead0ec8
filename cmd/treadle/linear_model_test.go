package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"treadle/loop/client"
)

// linOp is one operation of a history. An operation without a reply before the kill may have happened or not.
type linOp struct {
	kind     linKind
	name     string
	version  int   // of a job's submission, and of what is said of it later: its workload
	due      int   // of a submission: linFirst..linNow
	priority int64 // of a Gloom job
	gloom    bool  // submitted by a master
	crc      bool  // submitted in the CRC framing: a RUN_JOB ends when the job fails
	worker   int   // who grabs, ends or leaves; of a Gloom job the master
	count    int   // of tasks that are asked for
	slave    bool  // and is a Gloom slave
	result   string
	location string             // of a dwork worker
	tasks    []client.DworkTask // of a dwork request
	known    bool
}

type linKind string

const (
	linSubmit  linKind = "submit"
	linRun     linKind = "run"    // a submission whose result is awaited
	linResult  linKind = "result" // the other end of a run: what it returned
	linExists  linKind = "id_exists"
	linOffer   linKind = "offer" // a master's submission whose response it does not wait for
	linQuit    linKind = "quit"  // a master closes its connection
	linRemove  linKind = "remove"
	linStatus  linKind = "status" // jobs, of these in the hands of workers
	linGrab    linKind = "grab"
	linDone    linKind = "done"
	linFail    linKind = "fail"
	linLater   linKind = "later"          // put off by no time
	linRelease linKind = "release"        // given back under a lease
	linExpired linKind = "expired"        // the lease has ended
	linLeave   linKind = "leave"          // the worker closes its connection
	linBack    linKind = "back"           // who left has a connection again, of the same loop: the end of the old one was noticed
	linRestart linKind = "another leader" // which has started with what is on disk; always optional
	linKilled  linKind = "kill -9, start and read"
)

// acknowledged reports whether the reply to an operation means that its effect is on disk.
func (k linKind) acknowledged() bool {
	return slices.Contains([]linKind{linSubmit, linRemove, linCreate, linComplete, linTransfer, linDelete, linRelease, linBury, linKick}, k)
}

func (o linOp) describe(output string) string {
	text := fmt.Sprintf("%s %s", o.kind, o.name)
	if o.version > 0 {
		text += fmt.Sprintf(" v%d due %d priority %d gloom %v crc %v", o.version, o.due, o.priority, o.gloom, o.crc)
	}
	if o.worker > 0 {
		text += fmt.Sprintf(" worker %d slave %v %s", o.worker, o.slave, o.result)
	}
	for _, t := range o.tasks {
		text += fmt.Sprintf(" %s%v", t.Name, t.After)
	}
	return fmt.Sprintf("%s %s known %v -> %s", text, o.location, o.known, output)
}

// The due times of jobs, as far as they decide the order. Jobs that are due at once or came back are due later than
// jobs with a due time long past.
const (
	linAhead = iota // a Gloom job that a slave died of
	linFirst
	linSecond
	linNow
)

// linJob is a Periodic or a Gloom job.
type linJob struct {
	name     string
	gloom    bool
	version  int
	due      int
	priority int64
	count    int    // what it was put off, or its slaves' deaths
	loose    bool   // nothing is known of its place among those of its key
	holder   int    // 0: nobody
	leaving  bool   // the server has still to notice that the holder has gone
	master   int    // of a Gloom job
	quitting bool   // the same of the master
	orphan   bool   // it has noticed
	waits    string // who waits for it: the version that each submitted, and c when it hears of failures
}

const (
	linDeaths = 4 // end a Gloom job
	linStep   = 2 // what putting a job off adds to its count
)

// ahead reports whether j, which becomes ready, goes ahead of o, which was ready before.
func (j *linJob) ahead(o *linJob) bool {
	switch c := cmp.Or(cmp.Compare(o.priority, j.priority), cmp.Compare(j.due, o.due)); {
	case c != 0:
		return c < 0
	case j.loose && o.loose: // in whichever order, so in one
		return j.name < o.name
	}
	return j.due == linAhead
}

// linState is the state of a function with clients and workers of Periodic and Gloom: its jobs, the results that were
// sent and have not yet arrived, and the states that may be on disk. SUBMIT_JOB and REMOVE_JOB are acknowledged after
// the sync; Gloom jobs are never on disk.
type linState struct {
	line   []linJob // ready, first ones first
	held   []linJob // by name
	asking []int    // workers that were killed over a grab: it may have been answered
	told   []string
	disk   linStore // as linDisk says it
	racy   bool     // loops of their own read the clock: seconds of becoming ready may be in another order
}

func (s linState) equal(o linState) bool {
	return slices.Equal(s.line, o.line) && slices.Equal(s.held, o.held) && slices.Equal(s.asking, o.asking) &&
		slices.Equal(s.told, o.told) && slices.Equal(s.disk, o.disk)
}

// linDisk is the state of a function as it is read from a server that has just started.
func linDisk(jobs []linJob) string {
	var all []string
	for _, j := range jobs {
		if !j.gloom {
			all = append(all, fmt.Sprintf("%s %d %d %d;", j.name, j.version, j.due, j.count))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// linStart returns the state of a function that was read as a linDisk.
func linStart(read string, racy bool) linState {
	s := linState{disk: linStore{read}, racy: racy}
	for text := range strings.SplitSeq(strings.TrimSuffix(read, ";"), ";") {
		j := linJob{loose: true}
		if _, err := fmt.Sscan(text, &j.name, &j.version, &j.due, &j.count); err == nil {
			s = s.enter(j)
		}
	}
	return s
}

// enter puts a job into the ready line.
func (s linState) enter(j linJob) linState {
	j.holder, j.leaving = 0, false
	at := 0
	for at < len(s.line) && !j.ahead(&s.line[at]) {
		at++
	}
	s.line = slices.Insert(slices.Clone(s.line), at, j)
	return s
}

// first reports whether the i-th ready job may be handed out next.
func (s linState) first(i int) bool {
	for k := range i {
		a, b := &s.line[k], &s.line[i]
		if !a.loose || !b.loose || a.priority != b.priority || a.due != b.due {
			return false
		}
	}
	return true
}

func without[T any](all []T, i int) []T { return slices.Delete(slices.Clone(all), i, i+1) }

// give hands the i-th ready job to a worker.
func (s linState) give(i, worker int) linState {
	j := s.line[i]
	s.line = without(s.line, i)
	j.holder = worker
	at := 0
	for at < len(s.held) && s.held[at].name < j.name {
		at++
	}
	s.held = slices.Insert(slices.Clone(s.held), at, j)
	return s
}

// tell answers the clients that wait for a job, or only the clients that are told of failures, and returns the clients
// that wait on.
func (s *linState) tell(waits, result, crcResult string, all bool) (kept string) {
	told := slices.Clone(s.told)
	for _, w := range strings.Fields(waits) {
		id, crc := strings.CutSuffix(w, "c")
		switch {
		case crc:
			told = append(told, id+"="+crcResult)
		case all:
			told = append(told, id+"="+result)
		default:
			kept += w + " "
		}
	}
	slices.Sort(told)
	s.told = told
	return kept
}

// back takes the i-th held job from its holder: the job failed or was delayed, or the holder has left.
func (s linState) back(i int, how linKind) linState {
	j := s.held[i]
	s.held = without(s.held, i)
	switch {
	case j.orphan:
		return s
	case !j.gloom:
		if how != linLeave {
			j.waits = s.tell(j.waits, "", "failed", false)
		}
		if how == linLater {
			j.count += linStep
		}
		j.due = linNow
	case how == linLater:
		j.due = linNow
	case j.count == linDeaths-1:
		s.tell(j.waits, "failed", "", true)
		return s
	default:
		j.count++
		j.priority++
		j.due = linAhead
	}
	j.loose = s.racy && j.due == linNow
	return s.enter(j).saved(false)
}

// saved notes a state that will be on disk, or is.
func (s linState) saved(synced bool) linState {
	s.disk = s.disk.add(linDisk(slices.Concat(s.line, s.held)), synced)
	return s
}

// drift implements linSpec: the server notices that connections have ended, and answers clients that have left.
func (s linState) drift() []linState {
	all := []linState{s}
	for i, j := range s.held {
		if j.leaving {
			all = append(all, s.back(i, linLeave).drift()...)
		}
		if j.quitting {
			next := s
			next.held = slices.Clone(s.held)
			next.held[i].quitting, next.held[i].orphan = false, true
			all = append(all, next.drift()...)
		}
	}
	for i, j := range s.line {
		if j.quitting {
			next := s
			next.line = without(s.line, i)
			all = append(all, next.drift()...)
		}
	}
	for k, worker := range s.asking {
		for i := range s.line {
			if s.first(i) {
				next := s.give(i, worker)
				next.asking = without(s.asking, k)
				all = append(all, next.drift()...)
			}
		}
	}
	return all
}

// named finds the job of a submission or removal.
func named(jobs []linJob, o *linOp) int {
	return slices.IndexFunc(jobs, func(j linJob) bool { return j.name == o.name && j.gloom == o.gloom })
}

// after returns the possible states after an operation.
func (s linState) after(o *linOp, output string) (all []linState) {
	if o.kind == linRestart {
		for _, read := range s.disk {
			next := linStart(read, s.racy)
			next.told = s.told // the results may still arrive
			all = append(all, next)
		}
		return all
	}
	if next, ok := s.step(o, output); ok {
		all = append(all, next)
	}
	return all
}

// step applies an operation; ok is false when its reply is impossible.
func (s linState) step(o *linOp, output string) (_ linState, ok bool) {
	mine := slices.IndexFunc(s.held, func(j linJob) bool { return j.version == o.version && j.holder == o.worker })
	switch o.kind {
	case linSubmit, linRun, linOffer:
		if s, ok = s.submit(o); !ok {
			return s, false
		}
	case linExists:
		return s, named(s.line, o) >= 0 || named(s.held, o) >= 0
	case linResult:
		at := slices.Index(s.told, fmt.Sprint(o.version, "=", output))
		if at < 0 {
			return s, false
		}
		s.told = without(s.told, at)
	case linRemove:
		waits := ""
		if i := named(s.line, o); i >= 0 {
			waits, s.line = s.line[i].waits, without(s.line, i)
		} else if i := named(s.held, o); i >= 0 {
			waits, s.held = s.held[i].waits, without(s.held, i)
		}
		s.tell(waits, "", "removed", true)
	case linStatus:
		return s, output == fmt.Sprint(len(s.line)+len(s.held), " ", len(s.held))
	case linBack:
		return s, !slices.ContainsFunc(slices.Concat(s.line, s.held), func(j linJob) bool {
			return j.holder == o.worker && j.leaving || j.master == o.worker && j.quitting
		})
	case linGrab:
		return s.grab(o, output)
	case linDone:
		if mine >= 0 {
			waits := s.held[mine].waits
			s.held = without(s.held, mine)
			s.tell(waits, o.result, o.result, true)
		}
	case linFail, linLater:
		if mine >= 0 {
			s = s.back(mine, o.kind)
		}
	case linQuit:
		s.line, s.held = slices.Clone(s.line), slices.Clone(s.held)
		for _, jobs := range [][]linJob{s.line, s.held} {
			for i := range jobs {
				if jobs[i].gloom && jobs[i].master == o.worker {
					jobs[i].quitting = true
				}
			}
		}
	case linLeave:
		s.held = slices.Clone(s.held)
		for i := range s.held {
			if j := &s.held[i]; j.holder == o.worker {
				j.leaving = true
			}
		}
	}
	return s.saved(o.known && o.kind.acknowledged()), true
}

// submit applies SUBMIT_JOB, RUN_JOB or a master's submit.
func (s linState) submit(o *linOp) (_ linState, ok bool) {
	wait := ""
	if o.kind == linRun {
		wait = fmt.Sprint(o.version)
		if o.crc {
			wait += "c"
		}
		wait += " "
	}
	j := linJob{name: o.name, gloom: o.gloom, version: o.version, due: o.due, priority: o.priority, master: o.worker, loose: s.racy && o.due == linNow}
	pending, running := named(s.line, o), named(s.held, o)
	switch {
	case o.gloom && (pending >= 0 || running >= 0):
		return s, !o.known // of one that is not known the error may not have come any more
	case running >= 0:
		s.held = slices.Clone(s.held)
		s.held[running].waits += wait
		return s, true
	case pending >= 0:
		j.waits = s.line[pending].waits
		s.line = without(s.line, pending)
	}
	j.waits += wait
	return s.enter(j), true
}

// grab hands a job to a worker. A worker without the reply may have got the job at any time.
func (s linState) grab(o *linOp, output string) (_ linState, ok bool) {
	if !o.known {
		s.asking = append(slices.Clone(s.asking), o.worker)
		slices.Sort(s.asking)
		return s, true
	}
	for i, j := range s.line {
		want := fmt.Sprintf("%s %d", j.name, j.version)
		if count := fmt.Sprint(" ", j.count); !o.slave && !j.gloom {
			want += count
		} else if !o.slave {
			want += " 0"
		}
		if want == output && s.first(i) {
			return s.give(i, o.worker), true
		}
	}
	return s, false
}

func (s linState) stored() linStore { return s.disk }

// linStore is the states that may be on disk: the state that is known to be, and the states after it. Any
// number of the last ones may be lost.
type linStore []string

// add notes a state that will be on disk or, when it is synced, is.
func (d linStore) add(now string, synced bool) linStore {
	switch {
	case synced:
		return linStore{now}
	case d[len(d)-1] != now:
		return append(slices.Clone(d), now)
	}
	return d
}

// linSpec is a state of the model that judges a history.
type linSpec[S any] interface {
	equal(S) bool
	// drift returns the states that may follow without any operation.
	drift() []S
	// after returns the possible states after an operation; none: its reply is impossible.
	after(o *linOp, output string) []S
	stored() linStore
}

// linModel is the model of a server that is killed at the end. Acknowledged changes are on disk then; the other changes
// follow in their order, and any number of the last may be lost.
func linModel[S linSpec[S]](start S) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{start} },
		Step: func(state, input, output any) (next []any) {
			o := input.(linOp)
			for _, s := range state.(S).drift() {
				if o.kind == linKilled {
					if slices.Contains(s.stored(), output.(string)) {
						next = append(next, s)
					}
					continue
				}
				for _, after := range s.after(&o, output.(string)) {
					next = append(next, after)
				}
				if !o.known && o.kind != linGrab {
					next = append(next, s)
				}
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(S).equal(b.(S)) },
		DescribeOperation: func(input, output any) string { return input.(linOp).describe(output.(string)) },
	}
}
