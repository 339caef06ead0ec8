//go:build invariants

package fuzz

import (
	"math"
	"slices"
	"time"

	"treadle/codec/periodic"
)

// A job that is taken from its worker, because its time is over or it is removed, goes on there, and is reported late.
// That is about the run which the worker was given then, and about no other.

// simRun is a job's being handed to a peer, once.
type simRun struct {
	number int // of all that began in a play
	job    *simJob
	conn   *simConn
	began  int64 // Mono
	cut    int64 // Mono, when its job was last ended, or may have been; 0: never
	vague  bool  // its peer has reported another of the name since: the server cannot tell which
}

// begins is a run's beginning at the server's door.
func (s *sim) begins(c *simConn, j *simJob) *simRun {
	s.runs++
	r := &simRun{number: s.runs, job: j, conn: c, began: s.server.Now().Mono}
	c.runs, c.told = append(c.runs, r), append(c.told, r)
	return r
}

// hears takes the next run that the peer reads of.
func (c *simConn) hears() *simRun {
	r := c.told[0]
	c.told = c.told[1:]
	return r
}

// isLast says whether what its worker says of a run is about the last one of the job, as far as anybody knows: no
// later one has begun, or the worker has that, too, because another time-out has passed, and can only say the name.
func (h heldJob) isLast() bool {
	j, c := h.job, h.run.conn
	return j.run == nil || j.run == h.run || j.holder == c && !c.gloom() && c.framing() == periodic.CRC
}

// again says whether what its worker says of a run may be about a later one: another time-out has passed, and the job
// may have been given to it once more, which is on its way to it.
func (s *sim) again(h heldJob) bool {
	c := h.run.conn
	if c.gloom() || c.framing() != periodic.CRC || h.job.untimed() {
		return false
	}
	least, _ := s.timeouts(h.job)
	return c.slow || h.run.vague || s.server.Now().Mono >= h.run.began+least
}

// namesakes are the other jobs that a worker's report may be about: another time-out has passed, and one of the same
// name was given to it, or is on its way.
func (s *sim) namesakes(h heldJob) (all []*simJob) {
	if h.run.conn.gloom() || !s.again(h) {
		return nil
	}
	for _, j := range s.jobs {
		if j != h.job && j.now != gone && j.queue == h.job.queue && j.name == h.job.name && (j.holder == h.run.conn || !s.holds(j.holder, j)) {
			all = append(all, j)
		}
	}
	return all
}

// reports is a worker's last word about a run.
func (s *sim) reports(h heldJob) {
	run, c := h.run, h.run.conn
	if h.isLast() && h.job.run != nil {
		run = h.job.run
	}
	c.runs = slices.DeleteFunc(c.runs, func(r *simRun) bool { return r == run })
	for _, r := range c.ofName(h.job) {
		r.vague = true
	}
}

// cuts notes that the last run of a job may end without its worker's knowing.
func (s *sim) cuts(j *simJob) {
	if j.run != nil && s.server != nil {
		j.run.cut = s.server.Now().Mono
	}
}

// ofName are the runs that a peer has not reported of jobs which it cannot tell from this one.
func (c *simConn) ofName(j *simJob) (all []*simRun) {
	if c == nil || c.gloom() || c.framing() != periodic.CRC {
		return nil
	}
	for _, r := range c.runs {
		if r != j.run && r.job.queue == j.queue && r.job.name == j.name {
			all = append(all, r)
		}
	}
	return all
}

// timeouts are the shortest and the longest time-out that a job may have had, in milliseconds.
func (s *sim) timeouts(j *simJob) (least, most int64) {
	if j.untimed() {
		return math.MaxInt32, math.MaxInt32
	}
	if j.timeout > 0 {
		return j.timeout, j.timeout
	}
	values := s.config[timeoutSetting].values
	return int64(slices.Min(values)) * 1000, int64(slices.Max(values)) * 1000
}

// unreported checks that a peer which tells jobs by name is given none of a name that it has to report first.
func (s *sim) unreported(c *simConn, j *simJob) {
	for _, r := range c.ofName(j) {
		least, _ := s.timeouts(r.job)
		if r.job.timeout > 0 && r.cut == 0 {
			least *= 2 // its time was over, and another has not passed
		}
		if !c.slow && !r.vague && s.server.Now().Mono < r.began+least {
			s.fail("c%d is given %v, and has not reported %v, run %d, of that name", c.id, j, r.job, r.number)
		}
	}
}

// keptFrom says whether a peer may have to report another run before it is given a job.
func (s *sim) keptFrom(c *simConn, j *simJob) bool {
	return slices.ContainsFunc(c.ofName(j), func(r *simRun) bool {
		_, most := s.timeouts(r.job)
		return s.server.Now().Mono < max(r.cut, r.began+most)+most+1000
	})
}

// late is a worker from which a job is taken while it does it: its time is over, or it is removed and one of its name
// submitted. The worker asks for another, may be given that, and reports the first; then everything is looked at.
func (s *sim) late() {
	if s.full || s.live() >= mostJobs {
		return
	}
	c, client := s.connect([]int{plainWorker, crcWorker}[s.rng.IntN(2)]), s.connect(plainClient)
	says := func(c *simConn) {
		s.deliver(c, math.MaxInt)
		s.settle()
		s.read(c, math.MaxInt)
	}
	grabs := func() {
		c.grabs++
		c.ask(&simRequest{cmd: periodic.GrabJob}, nil)
		says(c)
	}
	adds := func(queue int, name string) {
		j := s.fresh(queue, name)
		j.timeout = 4000
		s.adds(client, j, 0)
		says(client)
	}
	queue := s.rng.IntN(worked)
	c.serves(s, queue)
	grabs()
	adds(queue, "")
	s.read(c, math.MaxInt)
	if len(c.held) == 0 || c.held[0].job.by != ofPeriodic {
		return
	}
	h := c.held[0]
	if s.rng.IntN(2) > 0 {
		s.say("the time of %v is over", h.job)
		s.pass(time.Duration(min(s.limit(h.job), 10_000)+500) * time.Millisecond)
	} else {
		s.removesOne(client, h.job)
		adds(h.job.queue, h.job.name)
	}
	for range 1 + s.rng.IntN(3) {
		grabs()
	}
	s.gives(c, h, s.rng.IntN(3))
	c.held = c.held[1:]
	says(c)
	s.audit()
}

func oneUnless(not bool) int {
	if not {
		return 0
	}
	return 1
}
