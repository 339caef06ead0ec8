//go:build invariants

package sim

import (
	"math"
	"time"

	"treadle/fuzz/sim/play"
)

// maxJobs limits the jobs that may be there, because each step checks all of them.
const maxJobs = 60

// serverSteps are the steps of PlayServer.
var serverSteps = play.NewTable(
	play.Of(40, (*Simulator).connectOrAct),
	play.Of(210, func(s *Simulator) { s.act(s.anyConn()) }),
	play.Of(40, (*Simulator).crcStep),
	play.Of(45, (*Simulator).dworkStep),
	play.Of(15, (*Simulator).disbatchStep),
	play.Of(70, (*Simulator).kts46Step),
	play.Of(90, (*Simulator).httpStep),
	play.Of(60, (*Simulator).lineStep),
	play.Of(50, (*Simulator).policyStep),
	play.Of(10, (*Simulator).cronStep),
	play.Of(200, func(s *Simulator) { s.deliverSome(s.anyConn()) }),
	play.Of(100, (*Simulator).deliverCall),
	play.Of(4, (*Simulator).changeTimeout),
	play.Of(4, (*Simulator).loadCopy),
	play.Of(1, (*Simulator).disconnectMany),
	play.Of(1, (*Simulator).offerMany),
	play.Of(2, (*Simulator).reportLate),
	play.Of(3, (*Simulator).slowCheckpoints),
	play.Of(115, func(s *Simulator) { s.read(s.anyConn(), []int{1, 40, math.MaxInt}[s.rng.IntN(3)]) }),
	play.Of(60, (*Simulator).commitStep),
	play.Of(45, func(s *Simulator) { s.passUpTo(3 * time.Second) }),
	play.Of(30, func(s *Simulator) { s.breakConn(s.anyConn()) }),
	play.Of(5, (*Simulator).passLong),
	play.Of(3, (*Simulator).setClock),
	play.Of(2, (*Simulator).crash),
	play.Of(1, (*Simulator).stop),
	play.Of(1, (*Simulator).toggleFull),
	play.Of(3, func(s *Simulator) { s.audit() }),
)

// minConns is the number of connections below which a step only opens another; maxConns is the largest number.
const minConns, maxConns = 4, 14

// step does the next thing. It depends on the seed and the step's number, and as little as possible on the steps
// before: a step that is left out then changes the others little, and a failure can be made short.
func (s *Simulator) step() {
	next := serverSteps.Draw(s.rng)
	if len(s.net.conns) < minConns {
		next = (*Simulator).connectOrAct
	}
	next(s)
	s.ledger.policy.endTurns()
}

// connectOrAct opens a connection; if there are too many, a peer acts instead.
func (s *Simulator) connectOrAct() {
	if len(s.net.conns) >= maxConns {
		s.act(s.anyConn())
		return
	}
	s.connect(peerKind(s.rng.IntN(int(peerKinds))))
}

// slowCheckpoints holds back the checkpoints of the journal from now on.
func (s *Simulator) slowCheckpoints() {
	s.trace.Logf("checkpoints are slow")
	s.ledger.disk.SlowCheckpoints()
}

// commitStep commits, sometimes with a slow disk.
func (s *Simulator) commitStep() {
	if s.rng.IntN(4) == 0 {
		over := s.commitSlowly()
		s.ledger.disk.Release()
		<-over
	}
	s.commit()
}

// passUpTo lets a drawn time below most pass.
func (s *Simulator) passUpTo(most time.Duration) {
	s.pass(time.Duration(s.rng.IntN(int(most/time.Millisecond))) * time.Millisecond)
}

// passLong lets enough time pass for time-outs.
func (s *Simulator) passLong() { s.pass(time.Duration(5+s.rng.IntN(30)) * time.Second) }

// setClock moves the wall clock, up to an hour forward or back.
func (s *Simulator) setClock() {
	s.settle()
	d := time.Duration(s.rng.IntN(7200)-3600) * time.Second
	s.trace.Logf("the clock is set by %v", d)
	s.server.Jump(d)
	s.pass(0)
}

// toggleFull makes the disk full, or gives it room again.
func (s *Simulator) toggleFull() {
	s.settle()
	s.fill(!s.ledger.full)
	s.trace.Logf("the disk is full: %v", s.ledger.full)
}

// deliverCall lets one call of dwork, kts46 or HTTP arrive.
func (s *Simulator) deliverCall() {
	n := s.net
	all := len(n.dwork.onWay) + len(n.kts.onWay) + len(n.http.onWay)
	if all == 0 {
		return
	}
	s.settle()
	switch i, rest := s.rng.IntN(all), len(n.dwork.onWay)+len(n.kts.onWay); {
	case i < len(n.dwork.onWay):
		s.dworkArrive(take(&n.dwork.onWay, i))
	case i < rest:
		s.kts46Arrive(take(&n.kts.onWay, i-len(n.dwork.onWay)))
	default:
		s.httpArrive(take(&n.http.onWay, i-rest))
	}
	s.settle()
}

// anyConn picks a connection.
func (s *Simulator) anyConn() *Conn { return s.net.conns[s.rng.IntN(len(s.net.conns))] }

// deliverSome lets some of a peer's bytes arrive. In one case of three the turn does not end with that, so that they
// mix with those of other peers.
func (s *Simulator) deliverSome(c *Conn) {
	n := math.MaxInt
	if s.rng.IntN(3) == 0 {
		if n = 1 + s.rng.IntN(60); s.rng.IntN(4) > 0 {
			n = max(n, s.rng.IntN(1+len(c.outgoing))) // a large part of many bytes
		}
	}
	s.deliver(c, n)
	if s.rng.IntN(3) > 0 {
		s.settle()
		return
	}
	s.ledger.underWay = true
	for range s.rng.IntN(3) {
		s.server.RunNext()
	}
	if s.rng.IntN(4) == 0 {
		s.replace(s.anyConn())
	}
}

// replace resets a connection in the middle of a turn, and opens another of its kind.
func (s *Simulator) replace(c *Conn) {
	if !c.peer.Closed() && !s.ledger.stopping {
		s.trace.Logf("c%d is reset at once, and another comes", c.id)
		c.peer.Reset()
		s.connect(c.peerKind)
	}
}

// settle lets the server do everything that it has to do, which ends the turn.
func (s *Simulator) settle() {
	s.server.Settle()
	s.lookAtReserves()
	s.ledger.endTurn()
}

// commit brings all changes to the disk.
func (s *Simulator) commit() {
	s.settle()
	if !s.server.Commit() {
		s.trace.Failf("a commit: got an error of the disk, which has no fault: want none")
	}
	s.lookAtReserves()
	s.operationOver()
	s.ledger.endTurn()
	s.ledger.committed()
	s.trace.Logf("committed")
	s.checkHalfClosed()
}

// lookEvery is how much time passes at most, while workers over HTTP wait for jobs, until the ledger looks at what they
// were given: less than the shortest lease.
const lookEvery = time.Second

// pass lets time pass.
func (s *Simulator) pass(d time.Duration) {
	for s.settle(); d > lookEvery && s.ledger.reservesWait(); d -= lookEvery {
		s.passAtOnce(lookEvery)
	}
	s.passAtOnce(d)
}

// passAtOnce lets time pass, and checks what must have come with it.
func (s *Simulator) passAtOnce(d time.Duration) {
	s.server.Advance(d)
	s.lookAtReserves()
	s.operationOver()
	s.ledger.leasesExpired()
	s.ledger.wall = max(s.ledger.wall, s.server.Now().Wall)
	for _, j := range s.ledger.jobs {
		s.ledger.noteOverdue(j)
	}
	s.ledger.noteOver()
	s.ledger.noteExpired()
	s.ledger.endTurn()
	s.ledger.checkExpired()
	s.ledger.kts46Expired()
	s.ledger.graphExpired()
	s.ledger.policy.checkIdle()
}

// connFaults are what may go wrong with a connection.
var connFaults = play.NewTable(
	play.Of(2, func(s *Simulator, c *Conn) {
		s.trace.Logf("c%d is reset", c.id)
		c.reset = true
		c.peer.Close()
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		s.trace.Logf("c%d half-closes", c.id)
		c.halfClosing = true
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		s.trace.Logf("c%d cannot be written to", c.id)
		c.peer.Broken = true
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		if c.inLines() {
			return
		}
		s.trace.Logf("c%d reads slowly", c.id)
		c.peer.Window, c.slow = s.rng.IntN(500), true
	}),
	play.Of(1, func(_ *Simulator, c *Conn) { c.peer.Window = math.MaxInt }),
)

// breakConn makes something go wrong with a connection.
func (s *Simulator) breakConn(c *Conn) {
	s.settle()
	if c.peer.Closed() {
		return
	}
	connFaults.Draw(s.rng)(s, c)
	s.settle()
}

// A peer sends a malformed request once in a number of acts, and garbage more rarely.
const malformedOnceIn, garbageOnceIn = 40, 400

// act lets a peer do one thing.
func (s *Simulator) act(c *Conn) {
	switch {
	case c.halfClosing || c.garbled || len(c.outgoing) > 4000:
	case c.inLines():
		s.actInLines(c)
	case s.rng.IntN(malformedOnceIn) == 0:
		s.sendMalformed(c)
	case s.rng.IntN(garbageOnceIn) == 0:
		s.sendGarbage(c)
	case c.peerKind == gloomMaster:
		s.actAsMaster(c)
	case c.peerKind == gloomSlave:
		s.actAsSlave(c)
	case c.worker() && (!c.client() || s.rng.IntN(2) == 0):
		s.actAsWorker(c)
	default:
		s.actAsClient(c)
	}
}
