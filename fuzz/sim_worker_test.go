//go:build invariants

package fuzz

import (
	"slices"

	"treadle/codec/periodic"
	"treadle/loop"
)

// What Periodic workers say beside asking for jobs and ending them.

// serves has a worker say that it does the jobs of a queue.
func (c *simConn) serves(s *sim, queue int) {
	r := &simRequest{cmd: periodic.CanDo, silent: s.unacknowledged(c)}
	r.arrive = func() { c.does[queue] = true }
	if queue == broadcast {
		r.cmd = periodic.Broadcast
		r.arrive = func() { c.does[queue], c.tuned = true, 1+s.turn }
	}
	c.ask(r, periodic.AppendStr8String(nil, s.queues[queue]))
}

// quits has a worker say that it does the jobs of a queue no more. It goes on with those that
// it has.
func (c *simConn) quits(s *sim, queue int) {
	r := &simRequest{cmd: periodic.CantDo, silent: s.unacknowledged(c)}
	r.arrive = func() {
		if c.does[queue] {
			c.does[queue], c.quit[queue] = false, 1+s.turn
		}
		if queue == broadcast {
			c.tuned = 0
		}
	}
	c.ask(r, periodic.AppendStr8String(nil, s.queues[queue]))
	s.say("c%d does q%d no more", c.id, queue)
}

// serving says whether c may be given a job of a queue: one that was on its way when it
// arrived may have come in the same turn.
func (c *simConn) serving(s *sim, queue int) bool { return c.does[queue] || c.quit[queue] > s.turn }

// unacknowledged says whether nothing answers what a worker notifies.
func (s *sim) unacknowledged(c *simConn) bool {
	return c.framing() == periodic.Plain || s.era < "2023"
}

// acksGrabs says whether SUCCESS answers a GRAB_JOB before the job.
func (s *sim) acksGrabs(c *simConn) bool { return c.kind == crcWorker && s.era >= "2023" }

// confirms has a worker say that it takes a job, by the message id of the GRAB_JOB: that changes nothing.
func (s *sim) confirms(c *simConn, h heldJob) {
	c.askAs(h.tag, &simRequest{cmd: periodic.JobAssigned, silent: true}, nil)
	s.say("c%d confirms %v", c.id, h.job)
}

// declines has a worker say that it does not take a job after all: it is ready again, and
// has not failed.
func (s *sim) declines(c *simConn, h heldJob) {
	j := h.job
	r := &simRequest{cmd: periodic.JobUnassigned, silent: true}
	r.arrive = func() {
		s.reports(h)
		switch {
		case !h.isLast() && !s.again(h):
		case h.isLast() && s.holds(c, j):
			j.holder, j.turn, j.keyed = nil, s.turn, j.by == ofPeriodic
			j.moves("")
			j.due = s.server.Now().Wall
			j.record.at, j.record.dated = j.due/1000, true
		case s.mayHold(c, j) || j.lost || !h.isLast():
			j.holder, j.keyed, j.turn, j.record.dated = nil, false, s.turn, false
			j.moves("")
			j.lost = true
		}
	}
	c.askAs(h.tag, r, nil)
	s.say("c%d declines %v", c.id, j)
}

// assignedLate is an assignment to a peer that reads slowly. It may have waited in the server
// behind a long reply, from any turn on since q came: its time may be over by now, the job be
// another's, or at its end.
func (s *sim) assignedLate(c *simConn, j *simJob, q *simRequest) {
	s.say("c%d is given %v, now or earlier", c.id, j)
	s.handed++
	switch {
	case j.id == 0 || j.now == gone && j.turn < q.turn:
		s.fail("%v is handed out after its end, or before it came", j)
	case j.now == gone || s.holds(j.holder, j) && j.holder != c && j.turn >= q.turn:
		return
	case s.holds(j.holder, j) && j.holder != c:
		s.fail("%v is handed to c%d and c%d holds it", j, c.id, j.holder.id)
	}
	j.holder, j.keyed, j.turn, j.lost, j.locks, j.parked = nil, false, s.turn, true, nil, false
	j.moves("")
	j.run, j.record.dated = nil, false
	j.failures++
	if j.by == ofDisbatch { // who leaves takes it along
		s.doubt(j)
	}
}

// ready is a job that was there for c all the time since the end of the last turn, or nil.
func (s *sim) ready(c *simConn) *simJob {
	for _, j := range s.jobs {
		if j.by == ofPeriodic && j.now == sure && j.keyed && !s.keptFrom(c, j) && j.holder == nil && !j.lost && !j.parked && j.turn < s.turn &&
			j.queue != broadcast && c.does[j.queue] && max(j.due, j.notBefore) <= s.began && !s.waitsUnread(j) {
			return j
		}
	}
	return nil
}

// waitsUnread says whether a worker that reads slowly may have been given j already: that waits in
// the server, behind a long reply.
func (s *sim) waitsUnread(j *simJob) bool {
	return slices.ContainsFunc(s.conns, func(c *simConn) bool { return s.mayHaveUnread(c, j) })
}

// mayHaveUnread is waitsUnread for one of the workers.
func (s *sim) mayHaveUnread(c *simConn, j *simJob) bool {
	if !c.slow || !c.serving(s, j.queue) && c.quit[j.queue] == 0 { // it may have been given it before it quit
		return false
	}
	for _, r := range c.requests {
		if r.cmd == periodic.GrabJob || r.cmd == periodic.Sleep && j.queue == broadcast {
			return true
		}
	}
	return false
}

// takesAlong is a worker's end: what was broadcast to it and it has not read is nobody's any more.
func (s *sim) takesAlong(c *simConn) {
	for _, j := range s.jobs {
		if j.queue == broadcast && j.now != gone && s.mayHaveUnread(c, j) {
			s.doubt(j)
		}
	}
}

// idles checks, when nothing is in the air, that no worker waits beside a job that it could have.
func (s *sim) idles() {
	if s.stopping {
		return // nothing is handed out
	}
	for _, c := range s.conns {
		if c.kind == gloomSlave && !c.busy && !c.peer.Broken && c.joined > 0 && c.joined <= s.turn {
			if j := s.ready(c); j != nil {
				s.fail("c%d waits, and %v is ready for it", c.id, j)
			}
		}
		if !c.worker() || c.peer.Broken || c.slow {
			continue
		}
		for _, r := range c.requests {
			if r.cmd != periodic.GrabJob && r.cmd != periodic.Sleep || r.turn >= s.turn {
				continue
			}
			if j := s.ready(c); j != nil {
				s.fail("c%d waits with a %v, and %v is ready for it", c.id, r.cmd, j)
			}
		}
	}
}

// noJob checks a NO_JOB.
func (s *sim) noJob(c *simConn) {
	if s.grab != loop.GrabDocument {
		s.fail("c%d is sent NO_JOB", c.id)
	}
	if j := s.ready(c); j != nil && !s.mixed && !c.slow && !s.stopping {
		s.fail("c%d is sent NO_JOB, and %v is ready for it", c.id, j)
	}
	s.say("c%d hears that there is no job", c.id)
}

// wakes checks the answer to a SLEEP. With it a worker may be sent what is broadcast, which
// it gets with its next GRAB_JOB and which is nobody else's then, also if something has ended it
// since, in the same turn. asked is the turn of the SLEEP: who reads slowly was woken by then, perhaps.
func (s *sim) wakes(c *simConn, body []byte, asked int) {
	if len(body) != 1 || body[0] != byte(periodic.Noop) {
		s.fail("c%d is sent %x for a SLEEP", c.id, body)
	}
	if s.grab != loop.GrabDocument || !c.serving(s, broadcast) {
		return
	}
	if !c.slow {
		asked = s.turn // it reads at once
	}
	for _, j := range s.jobs {
		if j.by != ofPeriodic || j.queue != broadcast || j.now == gone && j.turn < asked {
			continue
		}
		if j.now != gone {
			s.doubt(j)
		}
		c.kept = append(c.kept, j)
	}
}
