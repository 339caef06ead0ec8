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
	kts46Success     = `"success"`
	kts46NoJob       = `{"type":"JobNotFound"}`
	kts46WrongWorker = `{"type":"InvalidWorkerId"}`
	kts46WrongSig    = `{"type":"InvalidSignature"}`
	kts46Empty       = `{"empty":true}`
)

// kts46Awaits stands, in the answer that a call must get, for the revision that the server gives the task by that call.
const kts46Awaits = "?"

// kts46Arrive lets a call arrive.
func (s *Simulator) kts46Arrive(call *kts46Call) {
	before := s.ledger.kts.changes
	var given []*kts46Task // one of these is handed out
	switch call.method {
	case "getJob", "getTask":
		given = s.ledger.kts46Asked(call)
	case "reportStatus":
		s.ledger.kts46Reported1(call)
	case "acceptTask", "rejectTask", "taskInProgress", "taskFinished":
		s.ledger.kts46Reported2(call)
	case "restartTask", "restartTasks":
		s.ledger.kts46Restarted(call)
	case "projectExists", "jobExists", "getJobsList", "getJobStatus", "getCurrentTasks":
		s.ledger.kts46Queried(call)
	default:
		s.ledger.kts46Ordered(call)
	}
	changed := s.ledger.kts.changes > before
	if changed {
		call.change, call.group = s.ledger.kts.changes, s.ledger.group()
	}
	answered, arrived := "", false
	s.kts46Post(call.v2, call.method, call.args, func(answer string) {
		if answered = answer; arrived {
			s.net.kts.owed--
			s.kts46Answered(call, answer)
		}
	})
	if given != nil {
		s.kts46Given(call, given)
	}
	s.kts46Settled(call.String())
	if _, t, _ := s.ledger.kts.held(kts46WorkerOf(call)); t != nil && strings.Contains(call.want, kts46Awaits) {
		call.want = strings.Replace(call.want, kts46Awaits, kts46StampOf(t.revision, call.v2).text, 1)
	}
	arrived = true
	if answered != "" {
		if changed {
			s.trace.Failf("%v is answered before what it changed is on disk", call)
		}
		s.kts46Answered(call, answered)
	} else {
		s.net.kts.owed++
	}
}

// kts46Answered checks an answer.
func (s *Simulator) kts46Answered(call *kts46Call, answer string) {
	s.trace.Logf("kts46 %v is answered %s", call, answer)
	if answer != call.want {
		s.trace.Failf("%v: got %s, want %s", call, answer, call.want)
	}
	s.ledger.checkOnDisk(call.group, "%v is answered", call)
	s.ledger.kts46Saved.acked = max(s.ledger.kts46Saved.acked, call.change)
	s.kts46Read(call, answer)
}

// kts46WorkerOf is the number of the worker that makes a call; -1: none.
func kts46WorkerOf(call *kts46Call) int {
	worker := -1
	if len(call.args) > 0 {
		_, _ = fmt.Sscanf(fmt.Sprint(call.args[0]), "w%d", &worker)
	}
	return worker
}

// kts46Asked notes a worker's request for a task, and returns the tasks: it must get one of them.
func (l *Ledger) kts46Asked(call *kts46Call) []*kts46Task {
	worker, kinds := kts46WorkerOf(call), kts46Does[false]
	j, t, _ := l.kts.held(worker)
	if call.v2 {
		if t != nil {
			call.want = `{"type":"WorkerHasTask"}`
			return nil
		}
		kinds = nil
		for _, name := range call.args[1].([]string) {
			kinds = append(kinds, slices.Index(kts46Kinds, name))
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
		call.want = kts46Empty
	}
	if given != nil {
		l.kts.changes++
	}
	return given
}

// kts46Given finds out which task was handed out, and notes it.
func (s *Simulator) kts46Given(call *kts46Call, given []*kts46Task) {
	worker, v := kts46WorkerOf(call), s.kts46Look()
	for _, t := range given {
		queued := *t
		t.holder, t.accepted, t.seen = worker+1, !call.v2, s.server.Now().Mono
		t.before, t.revision = t.revision, 0
		if s.ledger.kts.agrees(v) {
			j, _, k := s.ledger.kts.held(worker)
			if !call.v2 {
				s.ledger.kts.fixVersion(j, k, false)
			}
			call.want = fmt.Sprintf("%s/%s %s %s", j.project, j.name, kts46Kinds[k], kts46Awaits)
			s.ledger.handed++
			return
		}
		*t = queued
	}
	s.trace.Failf("after %v: got\n%s%s, want\n%s%sof which it may be given %d", call, v.list, v.tasks,
		s.ledger.kts.list(), s.ledger.kts.tasks(), len(given))
}

// kts46Touched notes that the server gives a task its next revision.
func (l *Ledger) kts46Touched(t *kts46Task) {
	l.kts.changes++
	t.before, t.revision, t.seen = t.revision, 0, l.clock().Mono
}

// kts46Reported1 notes a report of version 1.
func (l *Ledger) kts46Reported1(call *kts46Call) {
	j, t, k := l.kts.held(kts46WorkerOf(call))
	call.want = kts46Refused
	if t == nil || call.args[2] != kts46.NewDateTime(time.UnixMilli(t.revision)) {
		return
	}
	if t.revision%1000 != 0 {
		l.trace.Failf("%v matches, although it is about another revision than %d", call, t.revision)
	}
	call.want = fmt.Sprint(nil)
	switch call.args[1] {
	case "working":
		l.kts46Touched(t)
		call.want = kts46Awaits
	case "abort":
		l.kts.changes++
		l.kts.requeue(j, t, false)
	default:
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	}
}

// kts46Reported2 notes a report of version 2.
func (l *Ledger) kts46Reported2(call *kts46Call) {
	j, t, k := l.kts.held(kts46WorkerOf(call))
	before := call.method == "acceptTask" || call.method == "rejectTask"
	switch {
	case t == nil || t.accepted == before:
		call.want = kts46WrongWorker
		return
	case call.args[1] != kts46StampOf(t.revision, true).text:
		call.want = kts46WrongSig
		return
	}
	call.want = kts46Success
	switch call.method {
	case "rejectTask":
		l.kts.changes++
		l.kts.requeue(j, t, true)
	case "taskFinished":
		l.kts.changes++
		l.kts.finish(j, k)
		l.done++
	default:
		l.kts46Touched(t)
		l.kts.fixVersion(j, k, true)
		t.accepted = true
		call.want = `{"sig":"` + kts46Awaits + `"}`
	}
}
