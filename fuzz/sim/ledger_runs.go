//go:build invariants

package sim

import (
	"math"
	"slices"
	"time"

	"treadle/codec/periodic"
)

// A worker that has lost its job, by a time-out or a removal, continues with it and reports it late. Such a report must
// count for the run that the worker was given, and for no other.

// Run is one assignment of a job to a peer.
type Run struct {
	number    int // position among all runs of a play
	job       *Job
	queue     int // index of the job's queue at the hand-out
	conn      *Conn
	began     int64 // Mono
	cut       int64 // Mono, when its job was last ended, or may have been; 0: never
	over      int64 // Mono, when the server has surely found its time-out passed; 0: not yet
	ambiguous bool  // its peer has since reported another run of the same name, and the server cannot tell them apart
}

// runBegun notes that a run begins, of a job in a queue.
func (l *Ledger) runBegun(c *Conn, j *Job, queue string) *Run {
	l.runs++
	r := &Run{number: l.runs, job: j, queue: slices.Index(l.queues, queue), conn: c, began: l.clock().Mono}
	c.runs, c.unreadRuns = append(c.runs, r), append(c.unreadRuns, r)
	return r
}

// nextTold takes the next run that the peer reads the assignment of.
func (c *Conn) nextTold() *Run {
	r := c.unreadRuns[0]
	c.unreadRuns = c.unreadRuns[1:]
	return r
}

// isCurrent reports whether a worker's report of a run counts for the job's last run. It does when no later run is
// known. It also does when the worker has the later run too, and can only report the name.
func (h heldJob) isCurrent() bool {
	j, c := h.job, h.run.conn
	return j.run == nil || j.run == h.run || j.holder == c && c.framing() == periodic.CRC
}

// maybeLater reports whether a worker's report of a run may count for a later run of the job. It may when the time-out
// of the run has passed, since the job may then have been assigned to the same worker again.
func (l *Ledger) maybeLater(h heldJob) bool {
	c := h.run.conn
	if c.framing() != periodic.CRC || h.job.untimed() {
		return false
	}
	least, _ := l.timeouts(h.job)
	return c.slow || h.run.ambiguous || l.clock().Mono >= h.run.began+least
}

// sameName returns the other jobs with the name of a worker's job that its report may count for.
func (l *Ledger) sameName(h heldJob) (all []*Job) {
	if !l.maybeLater(h) {
		return nil
	}
	for _, j := range l.jobs {
		if j != h.job && j.inServer != no && j.queue == h.run.queue && j.name == h.job.name && (j.holder == h.run.conn || !l.holds(j.holder, j)) {
			all = append(all, j)
		}
	}
	return all
}

// reported notes that a worker has reported a run.
func (l *Ledger) reported(h heldJob) {
	run, c := h.run, h.run.conn
	if h.isCurrent() && h.job.run != nil {
		run = h.job.run
	}
	c.runs = slices.DeleteFunc(c.runs, func(r *Run) bool { return r == run })
	for _, r := range c.runsOfName(h.job) {
		r.ambiguous = true
	}
}

// cutOff notes that the last run of a job may end without its worker's knowledge.
func (l *Ledger) cutOff(j *Job) {
	if j.run != nil {
		j.run.cut = l.clock().Mono
	}
}

// runsOfName are the runs that a peer has not reported, of jobs that it cannot tell from j because it knows names only.
func (c *Conn) runsOfName(j *Job) (all []*Run) {
	if c == nil || c.framing() != periodic.CRC {
		return nil
	}
	for _, r := range c.runs {
		if r != j.run && r.queue == j.queue && r.job.name == j.name {
			all = append(all, r)
		}
	}
	return all
}

// timeouts are the shortest and the longest time-out that a job may have had, in milliseconds.
func (l *Ledger) timeouts(j *Job) (least, most int64) {
	if j.untimed() {
		return math.MaxInt32, math.MaxInt32
	}
	if j.timeout > 0 {
		return j.timeout, j.timeout
	}
	values := l.config[timeoutSetting].values
	return int64(slices.Min(values)) * 1000, int64(slices.Max(values)) * 1000
}

// checkUnreported checks that a peer that knows jobs by name is given none of a name that it has not reported.
func (l *Ledger) checkUnreported(c *Conn, j *Job) {
	for _, r := range c.runsOfName(j) {
		least, _ := l.timeouts(r.job)
		if r.job.timeout > 0 && r.cut == 0 {
			least *= 2 // its time was over, and another has not passed
		}
		if !c.slow && !r.ambiguous && l.clock().Mono < r.began+least {
			l.trace.Failf("c%d is given %v, although it has not reported %v, run %d, of that name", c.id, j, r.job, r.number)
		}
	}
}

// unreportedSlack is how much longer, in milliseconds, a peer may owe the report of a run than its time-out and another
// one: the server counts the other one from when it ends the run, --periodic-grace after the first.
const unreportedSlack = 1000

// mayOweReport reports whether a peer may have to report another run before it can be given j.
func (l *Ledger) mayOweReport(c *Conn, j *Job) bool {
	return slices.ContainsFunc(c.runsOfName(j), func(r *Run) bool {
		_, most := l.timeouts(r.job)
		return l.clock().Mono < max(r.cut, r.over, r.began+most)+most+unreportedSlack
	})
}

// noteOver notes, when time has passed, the runs whose time-out the server has found passed. It may have done so late:
// a long time passes at once.
func (l *Ledger) noteOver() {
	now := l.clock().Mono
	for _, c := range l.net.conns {
		for _, r := range c.runs {
			if _, most := l.timeouts(r.job); r.over == 0 && now >= r.began+most {
				r.over = now
			}
		}
	}
}

// reportLate plays a late report. A worker loses a job while it does it, by a time-out or because the job is removed
// and one of its name submitted. The worker asks for another, which may be that one, and reports the first. Then
// everything is audited.
func (s *Simulator) reportLate() {
	if s.ledger.full || s.ledger.live() >= maxJobs {
		return
	}
	c, client := s.connect([]peerKind{plainWorker, crcWorker}[s.rng.IntN(2)]), s.connect(plainClient)
	askForJob := func() {
		c.grabs++
		c.ask(&Request{cmd: periodic.GrabJob}, nil)
		s.exchange(c)
	}
	submitJob := func(queue int, name string) {
		j := s.newPeriodicJob(queue, name)
		j.timeout = 4000
		s.submit(client, j, 0)
		s.exchange(client)
	}
	queue := s.rng.IntN(workedQueues)
	s.serve(c, queue)
	askForJob()
	submitJob(queue, "")
	s.read(c, math.MaxInt)
	if len(c.held) == 0 || c.held[0].job.by != ofPeriodic {
		return
	}
	h := c.held[0]
	if s.rng.IntN(2) > 0 {
		s.trace.Logf("the time of %v is over", h.job)
		s.pass(time.Duration(min(s.ledger.limit(h.job), 10_000)+500) * time.Millisecond)
	} else {
		s.remove(client, h.job)
		submitJob(h.job.queue, h.job.name)
	}
	for range 1 + s.rng.IntN(3) {
		askForJob()
	}
	s.reportJob(c, h, drawReport(s.rng, 3))
	c.held = c.held[1:]
	s.exchange(c)
	s.audit()
}

// oneIf returns 1 if a condition holds and 0 if not, to count with.
func oneIf(holds bool) int {
	if holds {
		return 1
	}
	return 0
}
