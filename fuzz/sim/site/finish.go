//go:build invariants

package site

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

// finish lets everything behave until all tasks have ended, and stops all hosts. It creates tasks whose first claims
// lose their replies: no server starts any more that would find a claim that the one before forgot, and the play ends
// before such tasks count as orphans.
func (s *site) finish() {
	s.trace.Logf("finish")
	if s.away.Load() {
		s.toggleDatabase()
	}
	for i := range lateTasks {
		s.create(s.ledger.queues[i%len(s.ledger.queues)])
	}
	s.losing = lateTasks
	for range 400 {
		for _, h := range s.hosts {
			switch {
			case h.process == nil:
				s.start(h)
			case len(h.process.workers) < 2:
				s.join(h.process)
			}
		}
		s.deliverAll(nil)
		if s.allEnded() {
			break
		}
	}
	for _, t := range s.ledger.tasks {
		if t.status < store.StatusSucceeded && t.status != store.StatusOrphaned {
			s.trace.Failf("the end: %v has status %d at %q: want it ended or orphaned", t, t.status, t.node)
		}
	}
	for _, h := range s.hosts {
		if h.process != nil && !h.process.stopping {
			s.stopInOrder(h)
		}
	}
	s.trace.Logf("all is done")
}

// deliverAll delivers all messages, of one process or of all, lets workers work, and lets some time pass.
func (s *site) deliverAll(only *process) {
	for round := 0; round < 50; round++ {
		i := slices.IndexFunc(s.messages, func(m *message) bool { return only == nil || m.process == only })
		if i < 0 {
			break
		}
		m := s.messages[i]
		s.messages = slices.Delete(s.messages, i, i+1)
		fault := mongotest.None
		if s.losing > 0 && !m.back && strings.HasPrefix(m.what, `{"findAndModify"`) {
			s.losing--
			fault = mongotest.LoseReply
		}
		s.deliver(m, fault)
	}
	for _, h := range s.hosts {
		if h.process == nil || only != nil && h.process != only {
			continue
		}
		for _, w := range slices.Clone(h.process.workers) {
			if w.task != nil && (only == nil || s.rng.IntN(10) == 0) {
				s.reportTask(w, s.rng.IntN(8) > 0)
			}
		}
	}
	s.pass(200 * time.Millisecond)
}

// abandon ends all goroutines after a play.
func (s *site) abandon() {
	s.away.Store(true)
	for _, h := range s.hosts {
		if h.process != nil {
			s.reap(h.process)
		}
	}
	for _, p := range s.processes {
		for ended := false; !ended; {
			for _, m := range s.messages {
				m.pass(mongotest.LoseCall)
			}
			select {
			case <-p.ended:
				ended = true
			case <-time.After(time.Second):
			}
			synctest.Wait()
			s.mu.Lock()
			s.messages, s.arrived = s.arrived, nil
			s.mu.Unlock()
		}
	}
	time.Sleep(drain) // the driver's goroutines
}
