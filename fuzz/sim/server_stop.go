//go:build invariants

package sim

import (
	"math"
	"slices"
	"time"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/disk"
	"treadle/fuzz/sim/play"
)

// An orderly stop follows a signal or a client's SHUTDOWN. The server hands out no more jobs, and waits until no job
// runs and no peer is owed anything, or until the time for this is over. Then every change that it has made is on disk.

// drainSteps limits how many things happen while a server stops.
const drainSteps = 100

// requestShutdown sends a client's SHUTDOWN, which the server may refuse.
func (s *Simulator) requestShutdown(c *Conn) {
	r := &Request{cmd: periodic.Shutdown, silent: s.ledger.setup.periodicShutdown == "on"}
	r.onArrival = func() { r.refused, s.ledger.shutdownRequested = !r.silent, r.silent }
	c.ask(r, nil)
	s.trace.Logf("c%d asks the server to stop", c.id)
}

// shutDown follows a SHUTDOWN that the server has accepted.
func (s *Simulator) shutDown() {
	s.settle()
	if !s.server.Stopping() {
		s.trace.Failf("a SHUTDOWN does not stop the server")
	}
	s.stop()
}

// stop stops the server as a signal does, and starts it again.
func (s *Simulator) stop() {
	s.trace.Logf("the server is to stop")
	s.policyLeaveAll() // the server would wait for the jobs of these workers
	s.server.BeginStop()
	s.ledger.stopping = true
	held := s.rng.IntN(4) == 0 && s.stopSlowly()
	for left := s.rng.IntN(drainSteps); !held && left > 0 && s.server.HasPending(); left-- {
		s.stepDuringStop()
	}
	if !held && s.server.HasPending() && s.rng.IntN(2) == 0 { // otherwise the stop reaches its time limit
		s.letDrain()
	}
	owes := s.server.HasPending()
	s.trace.Logf("it owes something: %v", owes)
	if !owes {
		s.ledger.checkOwesNothing()
	}
	conns := slices.DeleteFunc(slices.Clone(s.net.conns), func(c *Conn) bool { return c.peer.Closed() })
	s.ledger.disk.FinishCheckpoints()
	if err := s.server.Stop(s.ledger.disk.Release); err != nil {
		s.trace.Failf("the server is told to stop: got %v, want no error", err)
	}
	if !owes {
		s.checkHalfClosed()
		for _, c := range conns {
			s.ledger.checkAllAnswered(c)
		}
	}
	if err := s.server.Check(); err != nil {
		s.trace.Failf("the server's structures, when it has stopped: %v", err)
	}
	s.ledger.disk.Abandon()
	s.ledger.stopping = false
	s.ledger.dropChecks()
	s.serverEnds++
	for _, j := range s.ledger.jobs {
		if !j.orderKnown || j.holder != nil || j.due <= s.ledger.wall { // a peer may have been given the job before the server closed its connection
			j.record.schedKnown = false
		}
	}
	s.ledger.abandoned()
	s.ledger.committed()
	s.startAgain(s.ledger.disk.AfterCrash(disk.Nothing, 0))
}

// stopSlowly keeps the disk at a group for a while; true: until the server gives up waiting.
func (s *Simulator) stopSlowly() bool {
	over := s.commitSlowly()
	if s.rng.IntN(2) == 0 {
		return true
	}
	s.ledger.disk.Release()
	<-over
	s.settle()
	return false
}

// stopSteps are the steps while the server stops. No peer connects.
var stopSteps = play.NewTable(
	play.Of(25, func(s *Simulator) { s.act(s.anyConn()) }),
	play.Of(25, func(s *Simulator) { s.deliverSome(s.anyConn()) }),
	play.Of(20, func(s *Simulator) { s.read(s.anyConn(), math.MaxInt) }),
	play.Of(5, (*Simulator).dworkStep),
	play.Of(5, (*Simulator).deliverCall),
	play.Of(12, (*Simulator).commit),
	play.Of(8, func(s *Simulator) { s.passUpTo(time.Second) }),
)

// stepDuringStop does one thing while the server stops.
func (s *Simulator) stepDuringStop() {
	next := stopSteps.Draw(s.rng)
	if len(s.net.conns) == 0 {
		next = (*Simulator).commit
	}
	next(s)
}

// letDrain lets all peers read and the disk write while the server stops. After that the server may wait for running
// jobs only.
func (s *Simulator) letDrain() {
	for range 10 {
		s.commit()
		for _, c := range s.net.conns {
			s.read(c, math.MaxInt)
		}
		s.pass(100 * time.Millisecond)
	}
	for _, j := range s.ledger.jobs {
		if s.ledger.mayRun(j) {
			return
		}
	}
	if s.server.HasPending() {
		s.trace.Failf("the server does not stop, although no job is running")
	}
}

// mayRun reports whether a worker may have j and the server waits for it: a restart would repeat the job.
func (l *Ledger) mayRun(j *Job) bool {
	there := j.inServer != no || j.by == ofGloom // a job whose master has left runs on
	return j.by != ofDwork && there && (j.holder != nil && !(j.lease() != nil && j.durable()) || j.holderUnknown || l.waitsUnread(j))
}

// checkOwesNothing checks a server that stops because nothing is owed to any peer.
func (l *Ledger) checkOwesNothing() {
	for _, j := range l.jobs {
		if j.by != ofDwork && l.holds(j.holder, j) && !(j.lease() != nil && j.durable()) {
			l.trace.Failf("the server stops, although c%d does %v", j.holder.id, j)
		}
	}
	for _, c := range l.net.conns {
		if n := c.peer.OutboundBuffered(); n > 0 && !c.peer.Closed() {
			l.trace.Failf("the server stops, although c%d has yet to read %d bytes", c.id, n)
		}
	}
	if n := l.net.kts.owed + l.net.dwork.owed; n > 0 {
		l.trace.Failf("the server stops, although %d calls of kts46 and dwork have no answer", n)
	}
}

// waitsForOthers reports whether a request may stay unanswered because of another peer.
func (r *Request) waitsForOthers() bool {
	switch r.cmd {
	case periodic.GrabJob, periodic.Sleep, periodic.RunJob, periodic.RecvData, periodic.WorkData:
		return true
	}
	return false
}

// checkAllAnswered checks a peer's requests when the server has stopped because it owed nothing.
func (l *Ledger) checkAllAnswered(c *Conn) {
	for _, r := range c.requests {
		cut := c.peer.Broken || c.slow && l.underWay // the server may have closed the connection earlier
		if !cut && !r.waitsForOthers() {
			l.trace.Failf("the server has stopped, although c%d has no answer to its %v", c.id, r.cmd)
		}
	}
}

// halfClose closes the peer's side. The peer gets the answers that wait for the disk when they are on disk, unless a
// long reply stands before them.
func (s *Simulator) halfClose(c *Conn) {
	c.halfClosed = !c.slow && !c.peer.Broken && !c.peer.Closed()
	long := false
	for _, r := range c.requests {
		long = long || r.cmd == periodic.Dump || r.cmd == periodic.Status
	}
	if c.halfClosed && !long {
		s.net.halfClosed = append(s.net.halfClosed, c)
	}
	c.peer.HalfClose()
}

// checkHalfClosed checks, when everything is on disk, that peers that closed their side have all answers.
func (s *Simulator) checkHalfClosed() {
	for _, c := range s.net.halfClosed {
		for _, r := range c.requests {
			if !r.waitsForOthers() {
				s.trace.Failf("c%d, which has closed its side, has no answer to its %v, although all is on disk", c.id, r.cmd)
			}
		}
	}
	s.net.halfClosed = nil
}
