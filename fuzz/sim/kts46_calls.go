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
func (s *Simulator) ktsArrive(call *ktsCall) {
	before := s.ledger.kts.changes
	var given []*ktsTask // one of these is handed out
	switch call.method {
	case "getJob", "getTask":
		given = s.ledger.ktsAsked(call)
	case "reportStatus":
		s.ledger.ktsReported1(call)
	case "acceptTask", "rejectTask", "taskInProgress", "taskFinished":
		s.ledger.ktsReported2(call)
	case "restartTask", "restartTasks":
		s.ledger.ktsRestarted(call)
	case "projectExists", "jobExists", "getJobsList", "getJobStatus", "getCurrentTasks":
		s.ledger.ktsQueried(call)
	default:
		s.ledger.ktsOrdered(call)
	}
	changed := s.ledger.kts.changes > before
	if changed {
		call.change, call.group = s.ledger.kts.changes, s.ledger.group()
	}
	answered, arrived := "", false
	s.ktsPost(call.v2, call.method, call.args, func(answer string) {
		if answered = answer; arrived {
			s.net.kts.owed--
			s.ktsAnswered(call, answer)
		}
	})
	if given != nil {
		s.ktsGiven(call, given)
	}
	s.ktsSettled(call.String())
	if _, t, _ := s.ledger.kts.held(ktsWorkerOf(call)); t != nil && strings.Contains(call.want, ktsAwaits) {
		call.want = strings.Replace(call.want, ktsAwaits, ktsStampOf(t.revision, call.v2).text, 1)
	}
	arrived = true
	if answered != "" {
		if changed {
			s.trace.Failf("%v is answered before what it changed is on disk", call)
		}
		s.ktsAnswered(call, answered)
	} else {
		s.net.kts.owed++
	}
}

// ktsAnswered checks an answer.
func (s *Simulator) ktsAnswered(call *ktsCall, answer string) {
	s.trace.Logf("kts46 %v is answered %s", call, answer)
	if answer != call.want {
		s.trace.Failf("%v: got %s, want %s", call, answer, call.want)
	}
	s.ledger.checkOnDisk(call.group, "%v is answered", call)
	s.ledger.ktsSaved.acked = max(s.ledger.ktsSaved.acked, call.change)
	s.ktsRead(call, answer)
}

// ktsWorkerOf is the number of the worker that makes a call; -1: none.
func ktsWorkerOf(call *ktsCall) int {
	worker := -1
	if len(call.args) > 0 {
		_, _ = fmt.Sscanf(fmt.Sprint(call.args[0]), "w%d", &worker)
	}
	return worker
}

// ktsAsked notes a worker's request for a task, and returns the tasks: it must get one of them.
func (l *Ledger) ktsAsked(call *ktsCall) []*ktsTask {
	worker, kinds := ktsWorkerOf(call), ktsDoes[false]
	j, t, _ := l.kts.held(worker)
	if call.v2 {
		if t != nil {
			call.want = `{"type":"WorkerHasTask"}`
			return nil
		}
		kinds = nil
		for _, name := range call.args[1].([]string) {
			kinds = append(kinds, slices.Index(ktsKinds, name))
		}
	} else if t != nil {
		l.kts.changes++
		l.kts.requeue(j, t, false)
	}
	given := l.kts.nextTasks(kinds, call.v2)
	if l.stopping {
		given = nil // nothing is handed out
	}
	call.want = fmt.Sprint(nil)
	if call.v2 {
		call.want = ktsEmpty
	}
	if given != nil {
		l.kts.changes++
	}
	return given
}

// ktsGiven finds out which task was handed out, and notes it.
func (s *Simulator) ktsGiven(call *ktsCall, given []*ktsTask) {
	worker, v := ktsWorkerOf(call), s.ktsLook()
	for _, t := range given {
		queued := *t
		t.holder, t.accepted, t.seen = worker+1, !call.v2, s.server.Now().Mono
		t.before, t.revision = t.revision, 0
		if s.ledger.kts.agrees(v) {
			j, _, k := s.ledger.kts.held(worker)
			if !call.v2 {
				s.ledger.kts.fixVersion(j, k, false)
			}
			call.want = fmt.Sprintf("%s/%s %s %s", j.project, j.name, ktsKinds[k], ktsAwaits)
			s.ledger.handed++
			return
		}
		*t = queued
	}
	s.trace.Failf("after %v: got\n%s%s, want\n%s%sof which it may be given %d", call, v.list, v.tasks,
		s.ledger.kts.list(), s.ledger.kts.tasks(), len(given))
}

// ktsTouched notes that the server gives a task its next revision.
func (l *Ledger) ktsTouched(t *ktsTask) {
	l.kts.changes++
	t.before, t.revision, t.seen = t.revision, 0, l.clock().Mono
}

// ktsReported1 notes a report of version 1.
func (l *Ledger) ktsReported1(call *ktsCall) {
	j, t, k := l.kts.held(ktsWorkerOf(call))
	call.want = ktsRefused
	if t == nil || call.args[2] != kts46.NewDateTime(time.UnixMilli(t.revision)) {
		return
	}
	if t.revision%1000 != 0 {
		l.trace.Failf("%v matches, although it is about another revision than %d", call, t.revision)
	}
	call.want = fmt.Sprint(nil)
	switch call.args[1] {
	case "working":
		l.ktsTouched(t)
		call.want = ktsAwaits
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
func (l *Ledger) ktsReported2(call *ktsCall) {
	j, t, k := l.kts.held(ktsWorkerOf(call))
	before := call.method == "acceptTask" || call.method == "rejectTask"
	switch {
	case t == nil || t.accepted == before:
		call.want = ktsWrongWorker
		return
	case call.args[1] != ktsStampOf(t.revision, true).text:
		call.want = ktsWrongSig
		return
	}
	call.want = ktsSuccess
	switch call.method {
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
		call.want = `{"sig":"` + ktsAwaits + `"}`
	}
}
