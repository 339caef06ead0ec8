//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/kts46"
)

// kts46Finish completes all tasks.
func (s *Simulator) kts46Finish() {
	for len(s.net.kts.onWay) > 0 {
		s.kts46Now(s.net.kts.onWay[0])
	}
	s.commit() // the last call of the play may wait for it
	if s.net.kts.owed > 0 {
		s.trace.Failf("the end: %d calls of kts46 have no answer: want one each", s.net.kts.owed)
	}
	for _, w := range s.net.kts.peers {
		w.drop()
		if _, t, _ := s.ledger.kts.held(w.number); t != nil {
			s.kts46Now(&kts46Call{method: "restartTask", args: []any{fmt.Sprint("w", w.number), kts46.DateTime(kts46StampOf(t.revision, false).text)}})
		}
	}
	for before := int64(-1); before != s.ledger.kts.changes; {
		before = s.ledger.kts.changes
		for _, w := range s.net.kts.peers[:2] {
			s.kts46Do(w, w.number == 1)
		}
	}
	for _, j := range s.ledger.kts.sorted() {
		if j.running || j.tasks != [5]kts46Task{} {
			s.trace.Failf("the end: the kts46 job %s/%s is not done, although its workers do all tasks", j.project, j.name)
		}
	}
}

// kts46Now lets a call arrive, and commits what it has changed.
func (s *Simulator) kts46Now(call *kts46Call) {
	s.net.kts.onWay = slices.DeleteFunc(s.net.kts.onWay, func(e *kts46Call) bool { return e == call })
	if call.peer != nil {
		call.peer.waiting = call
	}
	s.kts46Arrive(call)
	s.commit()
}

// kts46Do lets a worker of a version do one task, if there is one.
func (s *Simulator) kts46Do(w *kts46Peer, v2 bool) {
	id := fmt.Sprint("w", w.number)
	if !v2 {
		if s.kts46Now(&kts46Call{method: "getJob", args: []any{id}, peer: w}); w.stamp.text != "" {
			s.kts46Now(&kts46Call{method: "reportStatus", args: []any{id, "finished", kts46.DateTime(w.stamp.text)}, peer: w})
		}
		return
	}
	kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
	if s.kts46Now(&kts46Call{method: "getTask", args: []any{id, kinds}, v2: true, peer: w}); w.stamp.text != "" {
		s.kts46Now(&kts46Call{method: "acceptTask", args: []any{id, w.stamp.text}, v2: true, peer: w})
		s.kts46Now(&kts46Call{method: "taskFinished", args: []any{id, w.stamp.text}, v2: true, peer: w})
	}
}
