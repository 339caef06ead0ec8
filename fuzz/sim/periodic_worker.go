//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/periodic"
)

// Periodic workers: their queues, and everything about their jobs that is neither a request for one nor its end.

// serve sends a worker's CAN_DO or BROADCAST.
func (s *Simulator) serve(c *Conn, queue int) {
	r := &Request{cmd: periodic.CanDo, silent: s.ledger.unacknowledged(c)}
	r.onArrival = func() { c.servedQueues[queue] = true }
	if queue == broadcastQueue {
		r.cmd = periodic.Broadcast
		r.onArrival = func() { c.servedQueues[queue], c.broadcast = true, past(s.ledger.turn) }
	}
	c.ask(r, periodic.AppendStr8String(nil, s.ledger.queues[queue]))
}

// quit sends a worker's CANT_DO. It keeps the jobs that it has.
func (s *Simulator) quit(c *Conn, queue int) {
	r := &Request{cmd: periodic.CantDo, silent: s.ledger.unacknowledged(c)}
	r.onArrival = func() {
		if c.servedQueues[queue] {
			c.servedQueues[queue], c.stoppedServing[queue] = false, past(s.ledger.turn)
		}
		if queue == broadcastQueue {
			c.broadcast = pastTurn{}
		}
	}
	c.ask(r, periodic.AppendStr8String(nil, s.ledger.queues[queue]))
	s.trace.Logf("c%d does q%d no more", c.id, queue)
}

// serving reports whether c may be given a job of a queue. A job may have been assigned in the turn of the CANT_DO.
func (l *Ledger) serving(c *Conn, queue int) bool {
	return c.servedQueues[queue] || c.stoppedServing[queue].in(l.turn)
}

// unacknowledged reports whether the reports of a worker have no answer.
func (l *Ledger) unacknowledged(c *Conn) bool {
	return c.framing() == periodic.Plain || l.setup.periodicVersion < "2023"
}

// acksGrabs reports whether SUCCESS answers a GRAB_JOB before the job does.
func (l *Ledger) acksGrabs(c *Conn) bool {
	return c.peerKind == crcWorker && l.setup.periodicVersion >= "2023"
}

// confirm sends a worker's JOB_ASSIGNED, under the message id of the GRAB_JOB. It changes nothing.
func (s *Simulator) confirm(c *Conn, h heldJob) {
	c.askAs(h.tag, &Request{cmd: periodic.JobAssigned, silent: true}, nil)
	s.trace.Logf("c%d confirms %v", c.id, h.job)
}

// decline sends a worker's JOB_UNASSIGNED: the job is ready again, and has not failed.
func (s *Simulator) decline(c *Conn, h heldJob) {
	j := h.job
	r := &Request{cmd: periodic.JobUnassigned, silent: true}
	r.onArrival = func() {
		s.ledger.reported(h)
		switch {
		case j.run != nil && j.run != h.run: // the request has the message id of this run, and a later one goes on
		case s.ledger.holds(c, j):
			s.ledger.freed(j)
			s.ledger.dueNow(j)
		case s.ledger.mayHold(c, j) || j.holderUnknown:
			s.ledger.freed(j)
			j.forgetPlace()
			j.holderUnknown = true
		}
	}
	c.askAs(h.tag, r, nil)
	s.trace.Logf("c%d declines %v", c.id, j)
}

// assignedLate notes an assignment to a slow reader. It may have waited in the server behind a long reply, from any
// turn since the request came, so the job may have timed out, have another holder or have ended.
func (l *Ledger) assignedLate(c *Conn, j *Job, q *Request) {
	l.trace.Logf("c%d is given %v, now or earlier", c.id, j)
	l.handed++
	switch {
	case j.id == 0 || j.inServer == no && j.turn < q.turn:
		l.trace.Failf("%v is handed out after its end, or before it came", j)
	case j.inServer == no || l.holds(j.holder, j) && j.holder != c && j.turn >= q.turn:
		return
	case l.holds(j.holder, j) && j.holder != c:
		l.trace.Failf("%v is handed to c%d and c%d holds it", j, c.id, j.holder.id)
	}
	l.freed(j)
	j.forgetPlace()
	j.holderUnknown, j.run, j.locks, j.parked = true, nil, nil, false
	j.failures++
	if j.by == ofDisbatch { // a departing worker takes a Disbatch job along
		l.doubt(j)
	}
}

// readyJob returns a job that was ready for c during the whole turn, or nil.
func (l *Ledger) readyJob(c *Conn) *Job {
	for _, j := range l.jobs {
		if j.durable() && j.inServer == sure && j.orderKnown && !l.mayOweReport(c, j) && j.holder == nil && !j.holderUnknown && !j.parked && j.turn < l.turn &&
			j.queue != broadcastQueue && c.servedQueues[j.queue] && max(j.due, j.notBefore) <= l.began && !l.waitsUnread(j) {
			return j
		}
	}
	return nil
}

// waitsUnread reports whether a slow reader may have been assigned j already, in bytes that wait in the server behind a
// long reply.
func (l *Ledger) waitsUnread(j *Job) bool {
	return slices.ContainsFunc(l.net.conns, func(c *Conn) bool { return l.mayHaveUnread(c, j) })
}

// mayHaveUnread is waitsUnread for one connection.
func (l *Ledger) mayHaveUnread(c *Conn, j *Job) bool {
	mayDo := func(queue int) bool { return l.serving(c, queue) || c.stoppedServing[queue].happened } // the worker may have been given the job before its CANT_DO
	if !c.slow || !mayDo(j.queue) && !slices.ContainsFunc(j.otherQueues, mayDo) {
		return false
	}
	return c.waitsFor(j)
}

// waitsFor reports whether an unanswered request of the peer may be answered with j.
func (c *Conn) waitsFor(j *Job) bool {
	for _, r := range c.requests {
		if r.cmd == periodic.GrabJob || r.cmd == periodic.Sleep && j.queue == broadcastQueue {
			return true
		}
	}
	return false
}

// lostUnread notes the end of a connection: a job that it was given and has not read is ready again, at another place
// in the line. One that was broadcast to it or that its worker takes along is lost.
func (l *Ledger) lostUnread(c *Conn) {
	for _, j := range l.jobs {
		switch {
		case j.inServer == no || !l.mayHaveUnread(c, j):
		case j.queue == broadcastQueue || j.holder == nil && j.by == ofDisbatch:
			l.doubt(j)
		case j.holder == nil && j.by != ofDwork:
			j.forgetPlace()
			j.failures++
		}
	}
}

// checkIdle checks, at the end of a turn, that no worker waits while a job is ready for it.
func (l *Ledger) checkIdle() {
	if l.stopping {
		return // nothing is handed out
	}
	l.checkReservesIdle()
	for _, c := range l.net.conns {
		if c.peerKind == gloomSlave && !c.busy && !c.peer.Broken && c.joined.before(l.turn) {
			if j := l.readyJob(c); j != nil {
				l.trace.Failf("c%d waits, although %v is ready for it", c.id, j)
			}
		}
		if !c.worker() || c.peer.Broken || c.slow {
			continue
		}
		for _, r := range c.requests {
			if r.cmd != periodic.GrabJob && r.cmd != periodic.Sleep || r.turn >= l.turn {
				continue
			}
			if j := l.readyJob(c); j != nil {
				l.trace.Failf("c%d waits with a %v, although %v is ready for it", c.id, r.cmd, j)
			}
		}
	}
}

// checkNoJob checks a NO_JOB.
func (l *Ledger) checkNoJob(c *Conn) {
	if l.setup.periodicGrab != "document" {
		l.trace.Failf("c%d is sent NO_JOB", c.id)
	}
	if j := l.readyJob(c); j != nil && !l.underWay && !c.slow && !l.stopping {
		l.trace.Failf("c%d is sent NO_JOB, although %v is ready for it", c.id, j)
	}
	l.trace.Logf("c%d is told that there is no job", c.id)
}

// woken checks the answer to a SLEEP. A broadcast job may be kept for the worker until its next GRAB_JOB, and for no
// other then, even if the job has ended in this turn. asked is the turn of the SLEEP, since which a slow reader may
// have been woken.
func (l *Ledger) woken(c *Conn, body []byte, asked int) {
	if len(body) != 1 || body[0] != byte(periodic.Noop) {
		l.trace.Failf("c%d is sent %x for a SLEEP", c.id, body)
	}
	if l.setup.periodicGrab != "document" || !l.serving(c, broadcastQueue) {
		return
	}
	if !c.slow {
		asked = l.turn // the worker reads at once
	}
	for _, j := range l.jobs {
		if j.by != ofPeriodic || j.queue != broadcastQueue || j.inServer == no && j.turn < asked {
			continue
		}
		if j.inServer != no {
			l.doubt(j)
		}
		c.backlog = append(c.backlog, j)
	}
}
