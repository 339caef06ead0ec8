//go:build invariants

package sim

import (
	"fmt"
	"strings"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// resultOf makes a result that no other run of a job has.
func (s *Simulator) resultOf(h heldJob) string {
	return fmt.Sprintf(`"r%v-%d%s"`, h.job, h.run.number, strings.Repeat(padding, h.job.size))
}

// record encodes the Job record of a job.
func (s *Simulator) record(j *Job, at int64) []byte {
	return periodic.AppendJob(nil, &periodic.Job{
		Func: []byte(s.ledger.queues[j.queue]), Name: []byte(j.name), Workload: []byte(j.workload()), SchedAt: at, Count: j.record.least,
		Timeout: int32(j.timeout / 1000),
	})
}

// drawPadding draws the padding of a job: seldom any, and then up to half a frame.
func (s *Simulator) drawPadding() int {
	if s.rng.IntN(10) > 0 {
		return 0
	}
	return s.rng.IntN(s.ledger.setup.frame / 2 >> s.rng.IntN(5))
}

// newPeriodicJob makes a Periodic job with a drawn time-out, count and size.
func (s *Simulator) newPeriodicJob(queue int, name string) *Job {
	j := s.ledger.newJob(ofPeriodic, queue, name)
	j.text, j.size = s.rng.IntN(4) == 0, s.drawPadding()
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

// loadKind is what a LOAD has.
type loadKind int

const (
	loadsDump  loadKind = iota // jobs of the last dump
	loadsBadly                 // no sense at its end
	loadsNew                   // two new jobs
)

var loadKinds = play.NewTable(play.Of(2, loadsDump), play.Of(1, loadsBadly), play.Of(1, loadsNew))

// actAsClient lets a Periodic client do one thing.
func (s *Simulator) actAsClient(c *Conn) {
	act := clientActs.Draw(s.rng)
	if s.ledger.live() >= maxJobs {
		act = max(act, removeJob)
	}
	at := int64(0)
	if s.rng.IntN(3) == 0 {
		at = s.server.Now().Wall/1000 + int64(s.rng.IntN(20)-5)
	}
	switch act {
	case submitJob:
		name := ""
		if s.rng.IntN(3) == 0 {
			name = fmt.Sprint("again", s.rng.IntN(4))
		}
		s.submit(c, s.newPeriodicJob(s.rng.IntN(periodicQueues), name), at)
	case loadJobs:
		switch loadKinds.Draw(s.rng) {
		case loadsDump:
			s.loadDump(c)
		case loadsBadly:
			s.loadBadly(c, at)
		case loadsNew:
			s.load(c, []*Job{s.newPeriodicJob(s.rng.IntN(periodicQueues), ""), s.newPeriodicJob(s.rng.IntN(periodicQueues), "")}, []int64{at, at})
		}
	case runJob:
		s.run(c, s.newPeriodicJob(s.rng.IntN(workedQueues), ""))
	case removeJob:
		s.removeAny(c)
	case askForReport:
		c.ask(&Request{cmd: []periodic.Command{periodic.Status, periodic.Dump}[s.rng.IntN(2)]}, nil)
	case disturb:
		switch {
		case s.rng.IntN(20) == 0:
			s.requestShutdown(c)
		case s.rng.IntN(3) == 0:
			s.dropSpare(c)
		default:
			s.listenOrPing(c)
		}
	case useSettings:
		s.configure(c)
	case listenOrPing:
		s.listenOrPing(c)
	}
}

// run submits a job by RUN_JOB.
func (s *Simulator) run(c *Conn, j *Job) {
	r := &Request{cmd: periodic.RunJob, job: j}
	r.onArrival = func() {
		s.ledger.unlessFull(r, func() {
			s.ledger.submitted(j, 0)
			if c.slow && c.framing() == periodic.CRC {
				s.ledger.doubt(j) // NO_WORKER, which ends the job, may wait behind output that the client has not read
			}
			j.owner, j.awaited, r.at = c, true, s.server.Now().Mono
		})
	}
	c.ask(r, s.record(j, 0))
	s.trace.Logf("c%d runs %v", c.id, j)
}

// dropSpare drops the spare queue.
func (s *Simulator) dropSpare(c *Conn) {
	r := &Request{cmd: periodic.DropFunc}
	r.onArrival = func() {
		for _, j := range s.ledger.jobs {
			if j.queue != spareQueue {
				continue
			}
			if r.jobs = append(r.jobs, j); j.by == ofPeriodic && j.inServer != no {
				s.ledger.end(j)
			}
		}
	}
	c.ask(r, periodic.AppendStr8String(nil, s.ledger.queues[spareQueue]))
	s.trace.Logf("c%d drops", c.id)
}

// listenOrPing lets a client of the CRC framing listen to a job, every second time, and else ping.
func (s *Simulator) listenOrPing(c *Conn) {
	if c.framing() == periodic.CRC && s.rng.IntN(2) == 0 {
		s.listen(c, s.rng.IntN(workedQueues), fmt.Sprint("again", s.rng.IntN(4)))
		return
	}
	c.ask(&Request{cmd: periodic.Ping}, nil)
}

// submit submits a job.
func (s *Simulator) submit(c *Conn, j *Job, at int64) {
	r := &Request{cmd: periodic.SubmitJob, job: j}
	r.onArrival = func() { s.ledger.unlessFull(r, func() { s.ledger.submitted(j, at) }) }
	c.ask(r, s.record(j, at))
	s.trace.Logf("c%d submits %v at %d", c.id, j, at)
}

// unlessFull calls onArrival, unless the disk is full and the server must refuse the request.
func (l *Ledger) unlessFull(r *Request, onArrival func()) {
	if r.refused = l.full; !l.full {
		onArrival()
	}
}

// removeAny removes a job that may be there.
func (s *Simulator) removeAny(c *Conn) {
	var all []*Job
	for _, j := range s.ledger.jobs {
		if j.by == ofPeriodic && j.inServer != no && !j.nameless {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return
	}
	s.remove(c, all[s.rng.IntN(len(all))])
}

// remove removes a job by its name. In the ledger all jobs of that name end when the request arrives.
func (s *Simulator) remove(c *Conn, j *Job) {
	r, key, queue := &Request{cmd: periodic.RemoveJob}, j.key(), j.queue
	r.onArrival = func() {
		for _, same := range s.ledger.names[key] {
			if !same.mayBeIn(queue) { // an operation did not move it
				continue
			}
			switch {
			case same.inServer == no:
			case same.moving:
				s.ledger.doubt(same)
			default:
				s.ledger.end(same)
			}
			r.jobs = append(r.jobs, same)
		}
	}
	c.ask(r, periodic.AppendStr8String(periodic.AppendStr8String(nil, s.ledger.queues[j.queue]), j.name))
	s.trace.Logf("c%d removes %v", c.id, j)
}
