//go:build invariants

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// mostJobs limits the jobs that may be there, because each step checks all of them.
const mostJobs = 60

// serverSteps are the steps of PlayServer.
var serverSteps = play.NewTable(
	play.Of(40, (*Simulator).connectOrAct),
	play.Of(210, func(s *Simulator) { s.act(s.any()) }),
	play.Of(40, (*Simulator).crcStep),
	play.Of(45, (*Simulator).graphStep),
	play.Of(15, (*Simulator).nodeStep),
	play.Of(70, (*Simulator).ktsStep),
	play.Of(50, (*Simulator).policyStep),
	play.Of(10, (*Simulator).cronStep),
	play.Of(200, func(s *Simulator) { s.arrive(s.any()) }),
	play.Of(100, (*Simulator).landOne),
	play.Of(4, (*Simulator).changeTimeout),
	play.Of(4, (*Simulator).loadCopy),
	play.Of(1, (*Simulator).disconnectMany),
	play.Of(1, (*Simulator).offerMany),
	play.Of(2, (*Simulator).reportLate),
	play.Of(3, (*Simulator).slowCheckpoints),
	play.Of(115, func(s *Simulator) { s.read(s.any(), []int{1, 40, math.MaxInt}[s.rng.IntN(3)]) }),
	play.Of(60, (*Simulator).commitStep),
	play.Of(45, func(s *Simulator) { s.passUpTo(3 * time.Second) }),
	play.Of(30, func(s *Simulator) { s.breakConn(s.any()) }),
	play.Of(5, (*Simulator).passLong),
	play.Of(3, (*Simulator).setClock),
	play.Of(2, (*Simulator).crash),
	play.Of(1, (*Simulator).stop),
	play.Of(1, (*Simulator).toggleFull),
	play.Of(3, func(s *Simulator) { s.audit() }),
)

// leastConns is the number of connections below which a step only opens another; mostConns is the largest number.
const leastConns, mostConns = 4, 14

// step does the next thing. It depends on the seed and the step's number, and as little as possible on the steps
// before: a step that is left out then changes the others little, and a failure can be made short.
func (s *Simulator) step() {
	next := serverSteps.Draw(s.rng)
	if len(s.net.conns) < leastConns {
		next = (*Simulator).connectOrAct
	}
	next(s)
}

// connectOrAct opens a connection; if there are too many, a peer acts instead.
func (s *Simulator) connectOrAct() {
	if len(s.net.conns) >= mostConns {
		s.act(s.any())
		return
	}
	s.connect(peerKind(s.rng.IntN(int(peerKinds))))
}

// slowCheckpoints holds back the checkpoints of the journal from now on.
func (s *Simulator) slowCheckpoints() {
	s.trace.Say("checkpoints are slow")
	s.ledger.disk.slowCheckpoints()
}

// commitStep commits, sometimes with a slow disk.
func (s *Simulator) commitStep() {
	if s.rng.IntN(4) == 0 {
		over := s.commitSlowly()
		s.ledger.disk.release()
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
	s.trace.Say("the clock is set by %v", d)
	s.server.Jump(d)
	s.pass(0)
}

// toggleFull makes the disk full, or gives it room again.
func (s *Simulator) toggleFull() {
	s.settle()
	s.fill(!s.ledger.full)
	s.trace.Say("the disk is full: %v", s.ledger.full)
}

// landOne lets one call of dwork or kts46 arrive. They arrive in any order, because each has a connection of its own.
func (s *Simulator) landOne() {
	n := len(s.net.flights) + len(s.net.ktsFlights)
	if n == 0 {
		return
	}
	s.settle()
	if i := s.rng.IntN(n); i < len(s.net.flights) {
		f := s.net.flights[i]
		s.net.flights = append(s.net.flights[:i:i], s.net.flights[i+1:]...)
		s.land(f)
	} else {
		i -= len(s.net.flights)
		f := s.net.ktsFlights[i]
		s.net.ktsFlights = append(s.net.ktsFlights[:i:i], s.net.ktsFlights[i+1:]...)
		s.ktsLand(f)
	}
	s.settle()
}

// any picks a connection.
func (s *Simulator) any() *Conn { return s.net.conns[s.rng.IntN(len(s.net.conns))] }

// arrive lets some of a peer's bytes arrive. In one case of three the turn does not end with that, so that they mix
// with those of other peers.
func (s *Simulator) arrive(c *Conn) {
	n := math.MaxInt
	if s.rng.IntN(3) == 0 {
		if n = 1 + s.rng.IntN(60); s.rng.IntN(4) > 0 {
			n = max(n, s.rng.IntN(1+len(c.outgoing))) // of what is large
		}
	}
	s.deliver(c, n)
	if s.rng.IntN(3) > 0 {
		s.settle()
		return
	}
	s.ledger.mixed = true
	for range s.rng.IntN(3) {
		s.server.Turn()
	}
	if s.rng.IntN(4) == 0 {
		s.replace(s.any())
	}
}

// replace resets a connection in the middle of a turn, and opens another of its kind.
func (s *Simulator) replace(c *Conn) {
	if !c.peer.Closed() && !s.ledger.stopping {
		s.trace.Say("c%d is reset at once, and another comes", c.id)
		c.peer.Reset()
		s.connect(c.peerKind)
	}
}

// settle lets the server do everything that it has to do, which ends the turn.
func (s *Simulator) settle() {
	s.server.Settle()
	s.ledger.endTurn()
}

// commit brings all changes to the disk.
func (s *Simulator) commit() {
	s.settle()
	if !s.server.Commit() {
		s.trace.Fail("the disk has failed")
	}
	s.ledger.endTurn()
	s.ledger.committed()
	s.trace.Say("committed")
	s.checkHalfClosed()
}

// pass lets time pass.
func (s *Simulator) pass(d time.Duration) {
	s.settle()
	s.server.Advance(d)
	s.ledger.wall = max(s.ledger.wall, s.server.Now().Wall)
	for _, j := range s.ledger.jobs {
		s.ledger.noteOverdue(j)
	}
	s.ledger.noteExpired()
	s.ledger.endTurn()
	s.ledger.checkExpired()
	s.ledger.ktsExpired()
	s.ledger.graphExpired()
	s.ledger.policy.checkIdle()
}

// connFaults are what may go wrong with a connection.
var connFaults = play.NewTable(
	play.Of(2, func(s *Simulator, c *Conn) {
		s.trace.Say("c%d is reset", c.id)
		c.reset = true
		c.peer.Close()
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		s.trace.Say("c%d says nothing more", c.id)
		c.fin = true
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		s.trace.Say("c%d cannot be written to", c.id)
		c.peer.Broken = true
	}),
	play.Of(1, func(s *Simulator, c *Conn) {
		s.trace.Say("c%d reads slowly", c.id)
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

// act lets a peer do one thing.
func (s *Simulator) act(c *Conn) {
	switch {
	case c.fin || c.garbled || len(c.outgoing) > 4000:
	case s.rng.IntN(40) == 0:
		s.sendMalformed(c)
	case s.rng.IntN(400) == 0:
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

// resultOf makes a result that no other run of a job has.
func (s *Simulator) resultOf(h heldJob) string {
	return fmt.Sprintf(`"r%v-%d%s"`, h.job, h.run.number, strings.Repeat(padding, h.job.size))
}

// workerAct is something that a Periodic worker does beside its reports.
type workerAct int

const (
	askForJob workerAct = iota
	stopServing
	askToSleep
	confirmJob
	startServing
)

var workerActs = play.NewTable(
	play.Of(16, askForJob), play.Of(1, stopServing), play.Of(2, askToSleep), play.Of(2, confirmJob),
	play.Of(3, startServing),
)

// mostAsked is the largest number of requests for a job that a worker has without an answer.
const mostAsked = 3

// actAsWorker lets a Periodic worker do one thing.
func (s *Simulator) actAsWorker(c *Conn) {
	if len(c.held) > 0 && s.rng.IntN(3) > 0 {
		i := s.rng.IntN(len(c.held))
		h := c.held[i]
		c.held = append(c.held[:i:i], c.held[i+1:]...)
		s.reportJob(c, h, drawReport(s.rng, 6))
		return
	}
	queue := []int{0, 1, 2, broadcastQueue, graphQueue}[s.rng.IntN(5)]
	switch act := workerActs.Draw(s.rng); {
	case act == askForJob && c.grabs < mostAsked:
		c.grabs++
		c.ask(&Request{cmd: periodic.GrabJob}, nil)
	case act == stopServing:
		s.quit(c, queue)
	case act == askForJob || act == askToSleep:
		c.ask(&Request{cmd: periodic.Sleep}, nil)
	case act == confirmJob && c.framing() == periodic.CRC && len(c.held) > 0:
		s.confirm(c, c.held[s.rng.IntN(len(c.held))])
	default:
		s.serve(c, queue)
	}
}

// report is how a worker says that a run has ended.
type report int

const (
	reportDone report = iota
	reportFail
	reportDelay
)

// drawReport draws a report: of so many one is a failure and one a delay. It takes one number of rng.
func drawReport(rng *rand.Rand, many int) report {
	switch rng.IntN(many) {
	case 0:
		return reportFail
	case 1:
		return reportDelay
	}
	return reportDone
}

// reportJob lets a worker report a job that it holds.
func (s *Simulator) reportJob(c *Conn, h heldJob, end report) {
	j := h.job
	r := &Request{silent: s.ledger.unacknowledged(c)}
	args := h.handle
	switch end {
	case reportFail:
		r.cmd, r.arrive = periodic.WorkFail, func() { s.ledger.returned(c, h, 0) }
	case reportDelay:
		delay, step := s.rng.IntN(20), s.rng.Int32N(4)
		r.cmd, args = periodic.SchedLater, append(args[:len(args):len(args)], later(int64(delay), uint16(step))...)
		r.arrive = func() {
			s.ledger.countSteps(c, h, step)
			s.ledger.returned(c, h, s.server.Now().Wall+int64(delay)*1000)
		}
	default:
		result := s.resultOf(h)
		if s.rng.IntN(4) == 0 { // not JSON
			result = strings.Trim(result, `"`)
		}
		r.cmd, args = periodic.WorkDone, append(args[:len(args):len(args)], result...)
		r.arrive = func() { s.ledger.finished(c, h, result) }
	}
	c.ask(r, args)
	s.trace.Say("c%d says %v of %v", c.id, r.cmd, j)
}

// record encodes the Job record of a job.
func (s *Simulator) record(j *Job, at int64) []byte {
	return periodic.AppendJob(nil, &periodic.Job{
		Func: []byte(s.ledger.queues[j.queue]), Name: []byte(j.name), Workload: []byte(j.workload()), SchedAt: at, Count: j.record.least, Timeout: int32(j.timeout / 1000),
	})
}

// large draws the padding of a job: seldom any, and then up to half a frame.
func (s *Simulator) large() int {
	if s.rng.IntN(10) > 0 {
		return 0
	}
	return s.rng.IntN(s.ledger.setup.frame / 2 >> s.rng.IntN(5))
}

// fresh makes a Periodic job with a drawn time-out, count and size.
func (s *Simulator) fresh(queue int, name string) *Job {
	j := s.ledger.newJob(ofPeriodic, queue, name)
	j.text, j.size = s.rng.IntN(4) == 0, s.large()
	j.timeout = []int64{600_000, 0, 4000}[s.rng.IntN(3)]
	j.record.least = s.rng.Int32N(3) * s.rng.Int32N(1000)
	j.record.most = j.record.least
	return j
}

// clientAct is something that a Periodic client does. Those before removeJob add jobs.
type clientAct int

const (
	submitJob clientAct = iota
	loadJobs
	runJob
	removeJob
	askForReport
	disturb // stop the server, drop a queue, or listen
	useSettings
	listenOrPing
)

var clientActs = play.NewTable(
	play.Of(10, submitJob), play.Of(2, loadJobs), play.Of(2, runJob), play.Of(2, removeJob),
	play.Of(1, askForReport), play.Of(1, disturb), play.Of(1, useSettings), play.Of(1, listenOrPing),
)

// actAsClient lets a Periodic client do one thing.
func (s *Simulator) actAsClient(c *Conn) {
	act := clientActs.Draw(s.rng)
	if s.ledger.live() >= mostJobs {
		act = max(act, removeJob)
	}
	at := int64(0)
	if s.rng.IntN(3) == 0 {
		at = s.server.Now().Wall/1000 + int64(s.rng.IntN(20)-5)
	}
	switch {
	case act == submitJob:
		name := ""
		if s.rng.IntN(3) == 0 {
			name = fmt.Sprint("again", s.rng.IntN(4))
		}
		s.submit(c, s.fresh(s.rng.IntN(graphQueue), name), at)
	case act == loadJobs:
		switch s.rng.IntN(4) {
		case 0, 1:
			s.loadDump(c)
			return
		case 2:
			s.loadBadly(c, at)
			return
		}
		s.load(c, []*Job{s.fresh(s.rng.IntN(graphQueue), ""), s.fresh(s.rng.IntN(graphQueue), "")}, []int64{at, at})
	case act == runJob:
		j := s.fresh(s.rng.IntN(workedQueues), "")
		r := &Request{cmd: periodic.RunJob, job: j}
		r.arrive = func() {
			s.ledger.unlessFull(r, func() {
				s.ledger.submitted(j, 0)
				if c.slow && c.framing() == periodic.CRC {
					s.ledger.doubt(j) // that nobody does it may be said behind what it has not read
				}
				j.owner, r.at = c, s.server.Now().Mono
			})
		}
		c.ask(r, s.record(j, 0))
		s.trace.Say("c%d runs %v", c.id, j)
	case act == removeJob:
		s.removeAny(c)
	case act == askForReport:
		c.ask(&Request{cmd: []periodic.Command{periodic.Status, periodic.Dump}[s.rng.IntN(2)]}, nil)
	case act == disturb && s.rng.IntN(20) == 0:
		s.requestShutdown(c)
	case act == disturb && s.rng.IntN(3) == 0:
		r := &Request{cmd: periodic.DropFunc}
		r.arrive = func() {
			for _, j := range s.ledger.jobs {
				if j.queue == workedQueues && j.by == ofPeriodic && j.now != gone {
					s.ledger.end(j)
				}
				if j.queue == workedQueues {
					r.jobs = append(r.jobs, j)
				}
			}
		}
		c.ask(r, periodic.AppendStr8String(nil, s.ledger.queues[workedQueues]))
		s.trace.Say("c%d drops", c.id)
	case act == useSettings:
		s.configure(c)
	case c.framing() == periodic.CRC && s.rng.IntN(2) == 0:
		s.listen(c, s.rng.IntN(workedQueues), fmt.Sprint("again", s.rng.IntN(4)))
	default:
		c.ask(&Request{cmd: periodic.Ping}, nil)
	}
}

// submit submits a job.
func (s *Simulator) submit(c *Conn, j *Job, at int64) {
	r := &Request{cmd: periodic.SubmitJob, job: j}
	r.arrive = func() { s.ledger.unlessFull(r, func() { s.ledger.submitted(j, at) }) }
	c.ask(r, s.record(j, at))
	s.trace.Say("c%d submits %v at %d", c.id, j, at)
}

// unlessFull calls arrive, unless the disk is full and the server must refuse the request.
func (l *Ledger) unlessFull(r *Request, arrive func()) {
	if r.refused = l.full; !l.full {
		arrive()
	}
}

// removeAny removes a job that may be there.
func (s *Simulator) removeAny(c *Conn) {
	var all []*Job
	for _, j := range s.ledger.jobs {
		if j.by == ofPeriodic && j.now != gone {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return
	}
	s.remove(c, all[s.rng.IntN(len(all))])
}

func (s *Simulator) remove(c *Conn, j *Job) {
	r := &Request{cmd: periodic.RemoveJob}
	r.arrive = func() {
		for _, same := range s.ledger.names[fmt.Sprint(j.queue, j.by, j.name)] {
			if same.now != gone {
				s.ledger.end(same)
			}
			r.jobs = append(r.jobs, same)
		}
	}
	c.ask(r, periodic.AppendStr8String(periodic.AppendStr8String(nil, s.ledger.queues[j.queue]), j.name))
	s.trace.Say("c%d removes %v", c.id, j)
}
