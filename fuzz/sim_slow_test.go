//go:build invariants

package fuzz

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"time"
)

// A slow disk: it is at one group, for as long as it likes, and others go on. What they change is
// not in that group, but in the next.

// commitSlowly begins to commit what has happened, and perhaps what happens meanwhile. The disk is
// at a group when it returns, unless there was nothing more to commit; when over is closed all is
// on disk.
func (s *sim) commitSlowly() (over <-chan struct{}) {
	s.settle()
	g, groups := s.disk.hold(), s.disk.groups()
	over, s.ktsNext = s.server.BeginCommit(), s.kts.clone()
	for left := 1 + s.rng.IntN(2); ; left-- {
		select {
		case <-over:
			s.syncing = false
			s.settle()
			return over
		case <-g.came: // at a sync of the group, or of the new log that it is in
		}
		if n := s.disk.groups(); n > groups { // the one before is on disk
			groups, s.ktsDisk, s.ktsNext = n, s.ktsNext, s.kts.clone()
			s.settle()
			s.inTime()
		}
		if left == 0 {
			s.syncing = false
			return over
		}
		s.syncing = true
		for range s.rng.IntN(12) {
			s.meanwhile()
		}
		s.settle()
		g = s.disk.holdNext(g)
	}
}

// meanwhile is something that happens while the disk is at a sync.
func (s *sim) meanwhile() {
	n := s.rng.IntN(20)
	switch {
	case len(s.conns) == 0:
	case n < 4:
		s.act(s.any())
	case n < 10:
		s.arrive(s.any())
	case n < 12:
		s.read(s.any(), math.MaxInt)
	case n < 15:
		s.lands()
	case n < 17:
		s.partsOwed()
	case n < 18 && s.rng.IntN(4) == 0:
		s.pass(time.Duration(5+s.rng.IntN(30)) * time.Second)
	case n < 18:
		s.pass(time.Duration(s.rng.IntN(3000)) * time.Millisecond)
	case s.stopping:
	case n < 19:
		s.nodeStep()
	default:
		s.misfortune(s.any())
	}
}

// waitsForDisk says whether a peer has asked for something that only the disk keeps from being
// answered.
func (c *simConn) waitsForDisk() bool {
	for _, r := range c.requests {
		if !r.waitsForOthers() {
			return true
		}
	}
	return false
}

// partsOwed has a peer say that it has said all, who waits for the disk alone.
func (s *sim) partsOwed() {
	all := slices.DeleteFunc(slices.Clone(s.conns), func(c *simConn) bool {
		return c.fin || c.garbled || len(c.outgoing) > 0 || c.peer.Closed() || !c.waitsForDisk()
	})
	if len(all) == 0 {
		return
	}
	c := all[s.rng.IntN(len(all))]
	s.say("c%d has said all", c.id)
	c.fin = true
	s.deliver(c, 0)
	s.settle()
}

// inTime checks, when a group is on disk and the next is not, that those who had said all have
// been told what came with the first: what others did later keeps nobody waiting.
func (s *sim) inTime() {
	groups := s.disk.groups()
	for _, c := range s.parted {
		last := 0
		for _, r := range c.requests {
			if !r.waitsForOthers() {
				last = max(last, r.group)
			}
		}
		if last > 0 && last <= groups {
			s.fail("c%d has closed its side, and waits for more than group %d, which is on disk", c.id, last)
		}
	}
}

// drag has checkpoints last until the journal waits for one, or the server ends.
func (d *simDisk) drag() { d.store.CompareAndSwap(nil, &gate{open: make(chan struct{})}) }

func (d *simDisk) hurry() {
	if g := d.store.Swap(nil); g != nil {
		close(g.open)
	}
}

// hurries hears the server's log, and hurries a disk when the journal says that it waits for a checkpoint.
type hurries struct{ disk *simDisk }

// Enabled implements slog.Handler.
func (w hurries) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (w hurries) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the journal waits for the disk" {
		w.disk.hurry()
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (w hurries) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w hurries) WithGroup(string) slog.Handler { return w }
