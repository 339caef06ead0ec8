//go:build invariants

package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"treadle/fuzz/sim/play"
)

// While a slow disk syncs one group of changes, the server continues; changes made meanwhile are in the next group.

// commitSlowly begins to commit everything that has happened. The disk stays at a sync while other things happen. When
// it returns, the disk is at a group, unless nothing was left to commit; when over is closed everything is on disk.
func (s *Simulator) commitSlowly() (over <-chan struct{}) {
	s.settle()
	g, groups := s.ledger.disk.Hold(), s.ledger.disk.Groups()
	over, s.ledger.kts46Saved.next = s.server.BeginCommit(), s.ledger.kts.clone()
	left, after := 1+s.rng.IntN(2), s.rng.Uint64()
	defer func() { s.rng = rand.New(rand.NewPCG(after, 0)) }() // how many numbers are drawn depends on the journal's goroutines
	for ; ; left-- {
		select {
		case <-over:
			s.ledger.syncing = false
			s.settle()
			return over
		case <-g.Reached: // at a sync of the group, or of the new log that it is in
		}
		if n := s.ledger.disk.Groups(); n > groups { // the one before is on disk
			groups, s.ledger.kts46Saved.disk, s.ledger.kts46Saved.next = n, s.ledger.kts46Saved.next, s.ledger.kts.clone()
			s.settle()
			s.ledger.checkHalfClosedInTime()
		}
		if left == 0 {
			s.ledger.syncing = false
			return over
		}
		s.ledger.syncing = true
		for range s.rng.IntN(12) {
			s.stepDuringSync()
		}
		s.settle()
		g = s.ledger.disk.HoldNext(g)
	}
}

// syncSteps are the steps while the disk is at a sync.
var syncSteps = play.NewTable(
	play.Of(4, func(s *Simulator) { s.act(s.anyConn()) }),
	play.Of(6, func(s *Simulator) { s.deliverSome(s.anyConn()) }),
	play.Of(2, func(s *Simulator) { s.read(s.anyConn(), math.MaxInt) }),
	play.Of(3, (*Simulator).deliverCall),
	play.Of(2, (*Simulator).halfCloseOwed),
	play.Of(1, func(s *Simulator) {
		if s.rng.IntN(4) == 0 {
			s.passLong()
		} else {
			s.passUpTo(3 * time.Second)
		}
	}),
	play.Of(1, func(s *Simulator) {
		if !s.ledger.stopping {
			s.disbatchStep()
		}
	}),
	play.Of(1, func(s *Simulator) {
		if !s.ledger.stopping {
			s.breakConn(s.anyConn())
		}
	}),
)

// stepDuringSync does one thing while the disk is at a sync, if there are connections.
func (s *Simulator) stepDuringSync() {
	if next := syncSteps.Draw(s.rng); len(s.net.conns) > 0 {
		next(s)
	}
}

// waitsForDisk reports whether the peer has a request that nothing but the disk keeps from being answered.
func (c *Conn) waitsForDisk() bool {
	for _, r := range c.requests {
		if !r.waitsForOthers() {
			return true
		}
	}
	return false
}

// halfCloseOwed lets a peer that waits for the disk close its side.
func (s *Simulator) halfCloseOwed() {
	all := slices.DeleteFunc(slices.Clone(s.net.conns), func(c *Conn) bool {
		return c.halfClosing || c.garbled || len(c.outgoing) > 0 || c.peer.Closed() || !c.waitsForDisk()
	})
	if len(all) == 0 {
		return
	}
	c := all[s.rng.IntN(len(all))]
	s.trace.Logf("c%d half-closes", c.id)
	c.halfClosing = true
	s.deliver(c, 0)
	s.settle()
}

// checkHalfClosedInTime checks, when a group is on disk and the next is not, that peers that closed their side have the
// answers of that group: changes that others made later must not delay them.
func (l *Ledger) checkHalfClosedInTime() {
	groups := l.disk.Groups()
	for _, c := range l.net.halfClosed {
		last := 0
		for _, r := range c.requests {
			if !r.waitsForOthers() {
				last = max(last, r.group)
			}
		}
		if last > 0 && last <= groups {
			l.trace.Failf("c%d, which has closed its side, waits although group %d is on disk", c.id, last)
		}
	}
}
