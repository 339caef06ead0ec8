//go:build invariants

package fuzz

import (
	"math"
	"slices"
	"time"

	"treadle/codec/periodic"
)

// How connections and servers end in order. A server does so when it is sent a signal, or a
// client's SHUTDOWN: it hands out no more jobs, who is connected goes on until no job is running and
// nobody is owed anything, or it has lasted too long; and all that the server has heard of is on disk.

// drainSteps is how many things happen at most while a server stops.
const drainSteps = 100

// endsAll has a client ask the server to stop, which it may or may not.
func (s *sim) endsAll(c *simConn) {
	r := &simRequest{cmd: periodic.Shutdown, silent: s.stops == "on"}
	r.arrive = func() { r.refused, s.ending = !r.silent, r.silent }
	c.ask(r, nil)
	s.say("c%d asks the server to stop", c.id)
}

// shutDown is what a SHUTDOWN comes to.
func (s *sim) shutDown() {
	s.settle()
	if !s.server.Stopping() {
		s.fail("a SHUTDOWN does not stop the server")
	}
	s.stop()
}

// stop has the server stop, and starts it again.
func (s *sim) stop() {
	s.say("the server is to stop")
	s.server.BeginStop()
	s.stopping = true
	held := s.rng.IntN(4) == 0 && s.stopsSlowly()
	for left := s.rng.IntN(drainSteps); !held && left > 0 && s.server.Owes(); left-- {
		s.drains()
	}
	if !held && s.server.Owes() && s.rng.IntN(2) == 0 { // else it has lasted too long
		s.behaves()
	}
	owes := s.server.Owes()
	s.say("it owes something: %v", owes)
	if !owes {
		s.owesNothing()
	}
	conns := slices.DeleteFunc(slices.Clone(s.conns), func(c *simConn) bool { return c.peer.Closed() })
	s.disk.hurry()
	if err := s.server.Stop(s.disk.release); err != nil {
		s.fail("the server stops: %v", err)
	}
	if !owes {
		s.lastWords()
		for _, c := range conns {
			s.heard(c)
		}
	}
	if err := s.server.Check(); err != nil {
		s.fail("when the server has stopped: %v", err)
	}
	s.disk.letGo()
	s.stopping, s.swaps, s.aired, s.missing, s.behind, s.misdated = false, nil, nil, nil, nil, ""
	s.crashes++
	for _, j := range s.jobs {
		if !j.keyed || j.holder != nil || j.due <= s.wall { // somebody may have been given it while all were hung up on
			j.record.dated = false
		}
	}
	s.committed()
	s.startAgain(s.disk.afterCrash(nothing, 0))
}

// stopsSlowly has the disk be at a group for a while; true: it still is when the server has waited
// long enough.
func (s *sim) stopsSlowly() bool {
	over := s.commitSlowly()
	if s.rng.IntN(2) == 0 {
		return true
	}
	s.disk.release()
	<-over
	s.settle()
	return false
}

// drains is something that happens while the server stops: nobody new comes.
func (s *sim) drains() {
	n := s.rng.IntN(100)
	switch {
	case len(s.conns) == 0:
		s.commit()
	case n < 25:
		s.act(s.any())
	case n < 50:
		s.arrive(s.any())
	case n < 70:
		s.read(s.any(), math.MaxInt)
	case n < 75:
		s.graphStep()
	case n < 80:
		s.lands()
	case n < 92:
		s.commit()
	default:
		s.pass(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
	}
}

// behaves has all read what there is for them while the server stops, and the disk be as fast as
// they are: then it waits for running jobs alone.
func (s *sim) behaves() {
	for range 10 {
		s.commit()
		for _, c := range s.conns {
			s.read(c, math.MaxInt)
		}
		s.pass(100 * time.Millisecond)
	}
	for _, j := range s.jobs {
		if s.mayRun(j) {
			return
		}
	}
	if s.server.Owes() {
		s.fail("the server does not stop, and no job is running")
	}
}

// mayRun says whether a worker may have j: one that a restart would repeat.
func (s *sim) mayRun(j *simJob) bool {
	there := j.now != gone || j.by == ofGloom // a job whose master has left runs on
	return j.by != ofDwork && there && (j.holder != nil || j.lost || s.waitsUnread(j))
}

// owesNothing checks a server that stops because nobody is owed anything.
func (s *sim) owesNothing() {
	for _, j := range s.jobs {
		if j.by != ofDwork && s.holds(j.holder, j) {
			s.fail("the server stops, and c%d does %v", j.holder.id, j)
		}
	}
	for _, c := range s.conns {
		if n := c.peer.OutboundBuffered(); n > 0 && !c.peer.Closed() {
			s.fail("the server stops, and c%d has yet to read %d bytes", c.id, n)
		}
	}
	if n := s.ktsOwed + s.hubOwed; n > 0 {
		s.fail("the server stops, and %d calls have no answer", n)
	}
}

// waitsForOthers says whether a request may have no answer because of what somebody else has
// not done.
func (r *simRequest) waitsForOthers() bool {
	switch r.cmd {
	case periodic.GrabJob, periodic.Sleep, periodic.RunJob, periodic.RecvData, periodic.WorkData:
		return true
	}
	return false
}

// heard checks that a peer has been told all when the server has stopped because it owed nothing.
func (s *sim) heard(c *simConn) {
	for _, r := range c.requests {
		cut := c.peer.Broken || c.slow && s.mixed // it may have been hung up on before
		if !cut && !r.waitsForOthers() {
			s.fail("the server has stopped, and c%d has no answer to its %v", c.id, r.cmd)
		}
	}
}

// parts is a peer's having said all. What it is owed then it is told, when that is on disk, unless
// a long reply stands before it.
func (s *sim) parts(c *simConn) {
	c.finished = !c.slow && !c.peer.Broken && !c.peer.Closed()
	long := false
	for _, r := range c.requests {
		long = long || r.cmd == periodic.Dump || r.cmd == periodic.Status
	}
	if c.finished && !long {
		s.parted = append(s.parted, c)
	}
	c.peer.Finish()
}

// lastWords checks, when all is on disk, that those who had said all have been told so.
func (s *sim) lastWords() {
	for _, c := range s.parted {
		for _, r := range c.requests {
			if !r.waitsForOthers() {
				s.fail("c%d has closed its side, and never has an answer to its %v", c.id, r.cmd)
			}
		}
	}
	s.parted = nil
}
