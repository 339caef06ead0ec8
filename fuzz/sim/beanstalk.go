//go:build invariants

package sim

import (
	"fmt"
	"math"
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// Clients of beanstalkd's protocol put jobs, do those of every protocol, and bury, kick and delete by the ids of jobs.

// beanstalkAct is something that a client does beside its reports.
type beanstalkAct int

const (
	beanstalkPuts beanstalkAct = iota
	beanstalkReserves
	beanstalkWatches
	beanstalkKicks
	beanstalkKicksOne
	beanstalkDeletes
)

var beanstalkActs = play.NewTable(
	play.Of(8, beanstalkPuts), play.Of(10, beanstalkReserves), play.Of(5, beanstalkWatches), play.Of(1, beanstalkKicks),
	play.Of(2, beanstalkKicksOne), play.Of(2, beanstalkDeletes),
)

// The answers to reports and to verbs by an id; each is the word of a request that is carried out.
const (
	deleted  = "DELETED"
	released = "RELEASED"
	buried   = "BURIED"
	touched  = "TOUCHED"
	kicked   = "KICKED"
)

var beanstalkReports = play.NewTable(play.Of(6, deleted), play.Of(3, released), play.Of(3, buried), play.Of(2, touched))

// usualPriority is the priority of beanstalkd that is the ledger's 0.
const usualPriority = 1024

// maxPut bounds the padding of a job: the server takes 65535 bytes.
const maxPut = 40_000

// actAsBeanstalk lets a client do one thing.
func (s *Simulator) actAsBeanstalk(c *Conn) {
	if len(c.held) > 0 && s.rng.IntN(3) > 0 {
		s.reportBeanstalk(c, s.rng.IntN(len(c.held)), beanstalkReports.Draw(s.rng))
		return
	}
	act := beanstalkActs.Draw(s.rng)
	if s.ledger.live() >= maxJobs {
		act = max(act, beanstalkReserves)
	}
	queue := s.rng.IntN(workedQueues)
	switch act {
	case beanstalkPuts:
		s.put(c, queue)
	case beanstalkReserves:
		switch seconds := []int{0, 1, 5, 20, -1}[s.rng.IntN(5)]; {
		case !c.hasAllAnswers():
		case seconds < 0 && len(c.runs) > 0: // it would hold a job without a time to run for ever
		default:
			s.reserve(c, seconds)
		}
	case beanstalkWatches:
		s.watch(c, queue, s.rng.IntN(4) > 0)
	case beanstalkKicks:
		s.kick(c, queue)
	case beanstalkKicksOne, beanstalkDeletes:
		all := slices.DeleteFunc(slices.Clone(s.ledger.jobs), func(j *Job) bool {
			return j.by != ofBeanstalk || j.nameless || j.inServer == no && s.rng.IntN(8) > 0
		})
		if len(all) == 0 {
			return
		}
		j, word := all[s.rng.IntN(len(all))], deleted
		if act == beanstalkKicksOne {
			word = kicked
		}
		s.askByID(c, heldJob{job: j, handle: []byte(j.name)}, word, "")
	}
}

// put puts a job into a tube.
func (s *Simulator) put(c *Conn, queue int) {
	j := s.ledger.newJob(ofBeanstalk, queue, "")
	j.name, j.nameless = "", true
	j.text, j.size, j.priority = s.rng.IntN(2) == 0, min(s.drawPadding(), maxPut), int64(s.rng.IntN(3)-1)
	j.timeout = []int64{1000, 4000, 60_000}[s.rng.IntN(3)]
	delay := int64(0)
	if s.rng.IntN(4) == 0 {
		delay = int64(s.rng.IntN(15))
	}
	s.use(c, queue)
	body := j.workload()
	r := &Request{cmd: periodic.SubmitJob, job: j}
	r.onArrival = func() {
		if r.refused = s.ledger.full || s.ledger.stopping; !r.refused {
			s.ledger.submitted(j, 0)
			j.put, j.putLatest = j.due, max(s.ledger.wall, j.due)
			j.delayBy(delay)
		}
	}
	c.askLine(r, fmt.Sprintf("put %d %d %d %d\r\n%s\r\n", usualPriority-j.priority, delay, j.timeout/1000, len(body), body))
	s.trace.Logf("c%d puts %v into q%d, of priority %d, after %d s, with %d ms to run", c.id, j, queue, j.priority, delay, j.timeout)
}

// delayBy delays a job that would be due now, by seconds.
func (j *Job) delayBy(seconds int64) {
	if seconds > 0 {
		j.due += seconds * 1000
		j.notBefore = j.due
	}
}

// use changes the tube that puts and kicks are for.
func (s *Simulator) use(c *Conn, queue int) {
	c.askLine(&Request{cmd: periodic.CanDo, lineRequest: lineRequest{word: "USING"}}, fmt.Sprintf("use %s\r\n", s.ledger.queues[queue]))
}

// reserve asks for a job, and waits for it for so many seconds, or for ever if they are negative.
func (s *Simulator) reserve(c *Conn, seconds int) {
	r := &Request{cmd: periodic.GrabJob}
	text := "reserve\r\n"
	if seconds >= 0 {
		text = fmt.Sprintf("reserve-with-timeout %d\r\n", seconds)
	}
	r.onArrival = func() {
		if r.until = never; seconds >= 0 {
			r.until = s.server.Now().Mono + int64(seconds)*1000
		}
	}
	c.grabs++
	c.askLine(r, text)
	s.trace.Logf("c%d reserves, and waits for %d s", c.id, seconds)
}

// never is a Mono that does not come.
const never = 1 << 50

// watch lets a client watch a tube, or ignore it.
func (s *Simulator) watch(c *Conn, queue int, is bool) {
	r, verb := &Request{cmd: periodic.CanDo, lineRequest: lineRequest{word: "WATCHING"}}, "watch"
	r.onArrival = func() { c.servedQueues[queue] = true }
	if !is {
		verb = "ignore"
		r.onArrival = func() {
			if c.servedQueues[queue] {
				c.servedQueues[queue], c.stoppedServing[queue] = false, past(s.ledger.turn)
			}
		}
	}
	c.askLine(r, fmt.Sprintf("%s %s\r\n", verb, s.ledger.queues[queue]))
	s.trace.Logf("c%d says %s of q%d", c.id, verb, queue)
}

// reportBeanstalk lets a client report a job that it holds, or touch it.
func (s *Simulator) reportBeanstalk(c *Conn, i int, word string) {
	h := c.held[i]
	if word == buried && h.job.by != ofBeanstalk { // by the rules of its own protocol that would be a failure
		word = released
	}
	if word != touched {
		c.held = append(c.held[:i:i], c.held[i+1:]...)
	}
	delay, priority := int64(0), int64(s.rng.IntN(3)-1)
	if s.rng.IntN(2) == 0 {
		delay = int64(s.rng.IntN(15))
	}
	switch word {
	case released:
		s.askByID(c, h, word, fmt.Sprintf(" %d %d", usualPriority-priority, delay), priority, delay)
	case buried:
		s.askByID(c, h, word, fmt.Sprintf(" %d", usualPriority-priority), priority)
	default:
		s.askByID(c, h, word, "")
	}
}

// beanstalkVerbs are the commands that have the answers.
var beanstalkVerbs = map[string]string{deleted: "delete", released: "release", buried: "bury", touched: "touch", kicked: "kick-job"}

// askByID sends a command with the id of a job and further arguments. numbers are a priority and a delay of the job.
func (s *Simulator) askByID(c *Conn, h heldJob, word, arguments string, numbers ...int64) {
	j := h.job
	r := &Request{cmd: periodic.WorkDone, job: j, lineRequest: lineRequest{word: word}}
	r.onArrival = func() {
		if h.run != nil {
			if j.holder == c && j.run != nil { // the server knows the job by its id alone
				h.run = j.run
			}
			if word != touched {
				s.ledger.reported(h)
			}
		}
		s.ledger.doByID(c, r, numbers)
	}
	c.askLine(r, fmt.Sprintf("%s %s%s\r\n", beanstalkVerbs[word], h.handle, arguments))
	s.trace.Logf("c%d wants %v %s, %v", c.id, j, word, numbers)
}

// kick has all buried jobs of a tube kicked, or the delayed ones if none is buried.
func (s *Simulator) kick(c *Conn, queue int) {
	s.use(c, queue)
	r := &Request{cmd: periodic.WorkFail, lineRequest: lineRequest{word: kicked}}
	r.onArrival = func() { s.ledger.kicked(r, queue) }
	c.askLine(r, fmt.Sprintf("kick %d\r\n", 1<<20))
	s.trace.Logf("c%d kicks q%d", c.id, queue)
}

// unburyAll kicks, at the end of a play, all jobs that are buried.
func (s *Simulator) unburyAll(c *Conn) {
	s.deliverAll(c)
	for queue := range workedQueues {
		s.kick(c, queue)
	}
	s.deliver(c, math.MaxInt)
	s.commit()
}
