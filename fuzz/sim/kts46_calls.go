//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// The answers of version 2.
const (
	ktsSuccess     = `"success"`
	ktsNoJob       = `{"type":"JobNotFound"}`
	ktsWrongWorker = `{"type":"InvalidWorkerId"}`
	ktsWrongSig    = `{"type":"InvalidSignature"}`
	ktsEmpty       = `{"empty":true}`
)

// ktsAwaits stands, in the answer that a call must get, for the revision that the server gives the task by that call.
const ktsAwaits = "?"

// ktsArrive lets a call arrive.
func (s *Simulator) ktsArrive(f *ktsCall) {
	before := s.ledger.kts.changes
	var given []*ktsTask // one of these is handed out
	switch f.method {
	case "getJob", "getTask":
		given = s.ledger.ktsAsked(f)
	case "reportStatus":
		s.ledger.ktsReported1(f)
	case "acceptTask", "rejectTask", "taskInProgress", "taskFinished":
		s.ledger.ktsReported2(f)
	case "restartTask", "restartTasks":
		s.ledger.ktsRestarted(f)
	case "projectExists", "jobExists", "getJobsList", "getJobStatus", "getCurrentTasks":
		s.ledger.ktsQueried(f)
	default:
		s.ledger.ktsOrdered(f)
	}
	changed := s.ledger.kts.changes > before
	if changed {
		f.change, f.group = s.ledger.kts.changes, s.ledger.group()
	}
	answered, arrived := "", false
	s.ktsPost(f.v2, f.method, f.args, func(answer string) {
		if answered = answer; arrived {
			s.net.kts.owed--
			s.ktsAnswered(f, answer)
		}
	})
	if given != nil {
		s.ktsGiven(f, given)
	}
	s.ktsSettled(f.String())
	if _, t, _ := s.ledger.kts.held(ktsWorkerOf(f)); t != nil && strings.Contains(f.want, ktsAwaits) {
		f.want = strings.Replace(f.want, ktsAwaits, ktsStampOf(t.revision, f.v2).text, 1)
	}
	arrived = true
	if answered != "" {
		if changed {
			s.trace.Fail("%v is answered before what it changed is on disk", f)
		}
		s.ktsAnswered(f, answered)
	} else {
		s.net.kts.owed++
	}
}

// ktsAnswered checks an answer.
func (s *Simulator) ktsAnswered(f *ktsCall, answer string) {
	s.trace.Say("kts46 %v is answered %s", f, answer)
	if answer != f.want {
		s.trace.Fail("%v: got %s, want %s", f, answer, f.want)
	}
	if n := s.ledger.disk.Groups(); n < f.group {
		s.trace.Fail("%v, of group %d, is answered when %d groups are on disk", f, f.group, n)
	}
	s.ledger.ktsSaved.acked = max(s.ledger.ktsSaved.acked, f.change)
	s.ktsRead(f, answer)
}

// ktsWorkerOf is the number of the worker that makes a call; -1: none.
func ktsWorkerOf(f *ktsCall) int {
	worker := -1
	if len(f.args) > 0 {
		_, _ = fmt.Sscanf(fmt.Sprint(f.args[0]), "w%d", &worker)
	}
	return worker
}

// ktsAsked notes a worker's request for a task, and returns the tasks: it must get one of them.
func (l *Ledger) ktsAsked(f *ktsCall) []*ktsTask {
	worker, kinds := ktsWorkerOf(f), ktsDoes[false]
	j, t, _ := l.kts.held(worker)
	if f.v2 {
		if t != nil {
			f.want = `{"type":"WorkerHasTask"}`
			return nil
		}
		kinds = nil
		for _, name := range f.args[1].([]string) {
			kinds = append(kinds, slices.Index(ktsKinds, name))
		}
	} else if t != nil {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	given := l.kts.nextTasks(kinds, f.v2)
	if l.stopping {
		given = nil // nothing is handed out
	}
	f.want = fmt.Sprint(nil)
	if f.v2 {
		f.want = ktsEmpty
	}
	if given != nil {
		l.kts.changes++
	}
	return given
}

// ktsGiven finds out which task was handed out, and notes it.
func (s *Simulator) ktsGiven(f *ktsCall, given []*ktsTask) {
	worker, v := ktsWorkerOf(f), s.ktsLook()
	for _, t := range given {
		queued := *t
		t.holder, t.accepted, t.seen = worker+1, !f.v2, s.server.Now().Mono
		t.before, t.revision = t.revision, 0
		if s.ledger.kts.agrees(v) {
			j, _, k := s.ledger.kts.held(worker)
			if !f.v2 {
				s.ledger.kts.fixVersion(j, k, false)
			}
			f.want = fmt.Sprintf("%s/%s %s %s", j.project, j.name, ktsKinds[k], ktsAwaits)
			s.ledger.handed++
			return
		}
		*t = queued
	}
	s.trace.Fail("after %v: got\n%s%s, want\n%s%sof which it may be given %d", f, v.list, v.tasks,
		s.ledger.kts.list(), s.ledger.kts.tasks(), len(given))
}

// ktsTouched notes that the server gives a task its next revision.
func (l *Ledger) ktsTouched(t *ktsTask) {
	l.kts.changes++
	t.before, t.revision, t.seen = t.revision, 0, l.clock().Mono
}

// ktsReported1 notes a report of version 1.
func (l *Ledger) ktsReported1(f *ktsCall) {
	j, t, k := l.kts.held(ktsWorkerOf(f))
	f.want = ktsRefused
	if t == nil || f.args[2] != kts46.NewDateTime(time.UnixMilli(t.revision)) {
		return
	}
	if t.revision%1000 != 0 {
		l.trace.Fail("%v matches, although it is about another revision than %d", f, t.revision)
	}
	f.want = fmt.Sprint(nil)
	switch f.args[1] {
	case "working":
		l.ktsTouched(t)
		f.want = ktsAwaits
	case "abort":
		l.kts.changes++
		l.kts.requeue(j, t, false)
	default:
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	}
}

// ktsReported2 notes a report of version 2.
func (l *Ledger) ktsReported2(f *ktsCall) {
	j, t, k := l.kts.held(ktsWorkerOf(f))
	before := f.method == "acceptTask" || f.method == "rejectTask"
	switch {
	case t == nil || t.accepted == before:
		f.want = ktsWrongWorker
		return
	case f.args[1] != ktsStampOf(t.revision, true).text:
		f.want = ktsWrongSig
		return
	}
	f.want = ktsSuccess
	switch f.method {
	case "rejectTask":
		l.kts.changes++
		l.kts.requeue(j, t, true)
	case "taskFinished":
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	default:
		l.ktsTouched(t)
		l.kts.fixVersion(j, k, true)
		t.accepted = true
		f.want = `{"sig":"` + ktsAwaits + `"}`
	}
}
