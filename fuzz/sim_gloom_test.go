//go:build invariants

package fuzz

import (
	"fmt"
	"slices"

	"treadle/codec/gloom"
)

// Masters and slaves of the Gloom protocol. A job's id is unique among all masters, for as long as it is there.

// sameIDs is how many ids masters use again and again.
const sameIDs = 3

// submits has a master submit a job, now and then under an id that another has, or has had.
func (s *sim) submits(c *simConn) {
	if s.live() >= mostJobs {
		return
	}
	name := ""
	if s.rng.IntN(3) == 0 {
		name = fmt.Sprint("same", s.rng.IntN(sameIDs))
	}
	j := s.job(ofGloom, s.rng.IntN(worked), name)
	j.priority, j.size = int64(s.rng.IntN(3)), s.large()
	c.tell(&simRequest{job: j, arrive: func() { s.claims(c, j) }},
		gloom.AppendSubmit(nil, fmt.Appendf(nil, "%q", j.name), fmt.Appendf(nil, "%q", s.queues[j.queue]), j.priority, []byte(j.workload())))
	s.say("c%d submits %v as %s", c.id, j, j.name)
}

// claims is the coming of a job with an id, which must be free.
func (s *sim) claims(c *simConn, j *simJob) {
	c.acks = append(c.acks, j)
	j.taken = s.taken(j.name)
	s.ids[j.name] = append(s.ids[j.name], j)
	if j.taken == sure {
		s.say("%v has an id that is taken", j)
		return
	}
	s.comes(j, 0)
	j.owner = c
	if j.taken == maybe {
		s.doubt(j)
	}
}

// taken says whether a job has an id: one that its master has left behind, too, until who does it is done.
func (s *sim) taken(id string) (is certainty) {
	for _, j := range s.ids[id] {
		switch {
		case j.now == gone && j.holder == nil && j.turn < s.turn && !j.lost && !j.parked && j.asks == 0 && !s.waitsUnread(j):
		case j.turn < s.turn && !s.mixed && (j.now == sure || s.holds(j.holder, j)):
			return sure
		default:
			is = maybe
		}
	}
	return is
}

// acknowledgedID checks the answer to a submission. What is wrong with it follows at once.
func (s *sim) acknowledgedID(c *simConn, id []byte) {
	name, _ := gloom.Text(nil, id)
	if len(c.acks) == 0 || c.acks[0].name != string(name) {
		s.fail("c%d is told that %s is submitted, and not what it submitted", c.id, id)
	}
	c.acked, c.acks = c.acks[0], c.acks[1:]
}

// existsID checks that a master is told that an id is taken.
func (s *sim) existsID(c *simConn, id []byte) {
	name, _ := gloom.Text(nil, id)
	j := c.acked
	if j == nil || j.name != string(name) || j.taken == gone {
		s.fail("c%d is told that %s exists, and it does not", c.id, id)
	}
	c.acked = nil
	if j.taken == maybe {
		j.owner = nil
		s.end(j)
	}
	s.say("c%d hears that the id of %v is taken", c.id, j)
}

// admitted is the end of what a master is told of its last submission: it must have been told if its id was taken.
func (s *sim) admitted(c *simConn) {
	if j := c.acked; j != nil && j.taken == sure {
		s.fail("%v of c%d has an id that is taken, and it is not told so", j, c.id)
	}
	c.acked = nil
}

// failedID is the job of an id that has failed.
func (s *sim) failedID(c *simConn, id []byte) *simJob {
	name, _ := gloom.Text(nil, id)
	for _, j := range s.ids[string(name)] {
		if j.owner == c && s.failuresOf(j) >= 4 {
			return j
		}
	}
	s.fail("c%d hears that %s has failed, and no job of its has had four deaths", c.id, id)
	return nil
}

func (s *sim) gloomReply(c *simConn) int {
	payload, n, err := gloom.Next(c.written, 1<<20)
	if n == 0 {
		return 0
	}
	var r gloom.Reply
	if err == nil {
		err = gloom.ParseReply(payload, &r)
	}
	if err != nil {
		s.fail("c%d is sent %q: %v", c.id, c.written, err)
	}
	if r.Error == nil || string(r.Error) != `"`+gloom.IDExists+`"` {
		s.admitted(c)
	}
	switch {
	case r.OK && r.ID != nil:
		s.acknowledgedID(c, r.ID)
	case r.Action != nil:
		typ, _ := gloom.Text(nil, r.Type)
		id, _ := gloom.Text(nil, r.ID)
		if c.busy {
			s.fail("c%d is sent %q and has a job", c.id, payload)
		}
		c.busy = true
		j := s.whole(r.Body, "a job for a slave")
		j.run = s.begins(c, j)
		if !c.serving(s, j.queue) {
			s.fail("c%d is given %v of q%d, which it does not do", c.id, j, j.queue)
		}
		s.assigned(c, j, string(typ), string(id))
	case c.isOdd(&r):
	case r.Error != nil && string(r.Error) == `"`+gloom.JobFailed+`"`:
		j := s.failedID(c, r.Reason)
		j.owner = nil
		s.end(j)
	case string(r.Error) == `"`+gloom.IDExists+`"`:
		s.existsID(c, r.Reason)
	case r.Error != nil:
		s.fail("c%d is sent %q", c.id, payload)
	case r.Body != nil:
		id, _ := gloom.Text(nil, r.ID)
		j := s.known(r.Body, "a response")
		if j.owner != c || j.name != string(id) || !slices.Contains(j.results, string(r.Body)) {
			s.fail("c%d is sent the response %q of %v, of which workers said %q", c.id, r.Body, j, j.results)
		}
		s.say("c%d has the response %s", c.id, brief(r.Body))
		j.owner = nil
		s.results++
	}
	return n
}

func (s *sim) slaves(c *simConn) {
	if c.next == 0 || s.rng.IntN(8) == 0 {
		c.next = 1
		s.joinsQueue(c, []int{0, 1, 2, graph}[s.rng.IntN(worked+1)])
		return
	}
	if len(c.held) == 0 {
		return
	}
	h := c.held[0]
	c.held = c.held[1:]
	result := s.resultOf(h)
	c.tell(&simRequest{arrive: func() { c.busy = false; s.finishes(c, h, result) }}, gloom.AppendRespond(nil, []byte(result)))
	s.say("c%d does %v", c.id, h.job)
}

func (s *sim) joinsQueue(c *simConn, queue int) {
	arrive := func() {
		for i := range c.does {
			if c.does[i] && i != queue {
				c.does[i], c.quit[i] = false, 1+s.turn
			}
		}
		c.does[queue], c.joined = true, 1+s.turn
	}
	c.tell(&simRequest{arrive: arrive}, gloom.AppendJoin(nil, fmt.Appendf(nil, "%q", s.queues[queue])))
	s.say("c%d joins q%d", c.id, queue)
}
