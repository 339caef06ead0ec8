//go:build invariants

package sim

import (
	"encoding/binary"
	"slices"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
)

// written decodes and checks what the server writes to a connection.
func (l *Ledger) written(c *Conn, b []byte) {
	c.written = append(c.written, b...)
	for len(c.written) > 0 {
		reply := l.periodicReply
		switch {
		case c.gloom():
			reply = l.gloomReply
		case c.peerKind == beanstalkPeer:
			reply = l.beanstalkReply
		case c.peerKind == faktoryPeer:
			reply = l.faktoryReply
		}
		n := reply(c)
		if n == 0 {
			return
		}
		c.written = c.written[n:]
	}
}

// periodicReply checks one frame of the Periodic protocol, and returns its size; 0: it is not complete.
func (l *Ledger) periodicReply(c *Conn) int {
	var r periodic.Response
	n, err := periodic.NextResponse(c.written, c.framing(), periodic.MaxPayload, &r)
	if err != nil {
		l.trace.Failf("c%d is sent %x, which is no frame: %v", c.id, c.written, err)
	}
	if n == 0 || !c.greeted {
		c.greeted = c.greeted || n > 0
		return n
	}
	q := c.requests[r.MsgID]
	if q == nil {
		l.trace.Failf("c%d is sent %x for message %d, which it does not wait for", c.id, r.Body, r.MsgID)
	}
	delete(c.requests, r.MsgID)
	is := func(cmd periodic.Command) bool { return len(r.Body) == 1 && r.Body[0] == byte(cmd) }
	if q.refused != is(periodic.Unknown) && !q.doubtful {
		l.trace.Failf("c%d is sent %x for its %v, want UNKNOWN: %v", c.id, r.Body, q.cmd, q.refused)
	} else if is(periodic.Unknown) {
		l.trace.Logf("c%d is told that its %v is refused", c.id, q.cmd)
		return n
	}
	switch q.cmd {
	case periodic.GrabJob:
		if !l.grabbed(c, q, r.Body) {
			return n
		}
	case periodic.Sleep:
		l.woken(c, r.Body, q.turn)
	case periodic.RunJob:
		l.checkResult(c, q, r.Body)
	case periodic.Acquire:
		l.acquired(c, q, r.Body)
	case periodic.RecvData:
		if l.received(c, q, r.Body) {
			c.requests[r.MsgID] = q
		}
	case periodic.Status:
		if lines := statusLines(l.answerBody(c.framing(), l.setup.periodicVersion, r.Body)); q.crowded {
			l.checkMany(lines)
		}
	case periodic.Dump:
		l.checkDump(q.turn, l.answerBody(c.framing(), l.setup.periodicVersion, r.Body))
	case periodic.ConfigGet:
		l.checkSetting(c, q, r.Body)
	case periodic.Ping:
		if !is(periodic.Pong) {
			l.trace.Failf("c%d is sent %x for its PING, want PONG", c.id, r.Body)
		}
	default:
		if !is(periodic.Success) {
			l.trace.Failf("c%d is sent %x for its %v, want SUCCESS", c.id, r.Body, q.cmd)
		}
		if q.job != nil {
			l.acknowledged(q.job)
		}
		for _, j := range q.loaded {
			l.acknowledged(j)
		}
		l.removed(q.jobs)
		if q.acknowledged != nil {
			q.acknowledged()
		}
	}
	l.trace.Logf("c%d has the answer to its %v", c.id, q.cmd)
	return n
}

// grabbed checks the answer to a GRAB_JOB; false: the answer is no job.
func (l *Ledger) grabbed(c *Conn, q *Request, body []byte) bool {
	is := func(cmd periodic.Command) bool { return len(body) == 1 && body[0] == byte(cmd) }
	switch {
	case l.acksGrabs(c) && !q.acked:
		if !is(periodic.Success) {
			l.trace.Failf("c%d is sent %x for a GRAB_JOB, want SUCCESS before the job", c.id, body)
		}
		c.requests[q.id], q.acked = q, true
		return false
	case is(periodic.NoJob):
		l.checkNoJob(c)
		return false
	case len(body) == 0 || body[0] != byte(periodic.JobAssign):
		l.trace.Failf("c%d is sent %x for a GRAB_JOB, want JOB_ASSIGN or NO_JOB", c.id, body)
	}
	_, j, err := wire.ParseAssign(c.framing(), body)
	if err != nil {
		l.trace.Failf("c%d is sent %x, want a JOB_ASSIGN: %v", c.id, body, err)
	}
	k := l.exactJobOf(j.Workload, "an assignment")
	run := l.runBegun(c, k, string(j.Func))
	if c.slow && q.turn < l.turn && k.queue != broadcastQueue {
		l.assignedLate(c, k, q)
		return true
	}
	l.isIn(k, string(j.Func))
	k.run = run
	l.checkAssigned(c, k, &j)
	if k.queue == broadcastQueue {
		l.broadcastSent(c, k, q.turn)
	} else {
		if !l.serving(c, k.queue) {
			l.trace.Failf("c%d is given %v of q%d, which it does not do", c.id, k, k.queue)
		}
		l.assigned(c, k, string(j.Func), string(j.Name))
	}
	return true
}

// checkResult checks the answer to a RUN_JOB.
func (l *Ledger) checkResult(c *Conn, q *Request, body []byte) {
	j := q.job
	if c.framing() == periodic.CRC && l.setup.periodicVersion != "2019-02" {
		if len(body) == 1 && body[0] == byte(periodic.NoWorker) {
			l.trace.Logf("c%d is told that nobody does %v", c.id, j)
			j.owner = nil
			l.end(j)
			return
		}
		if len(body) == 0 || body[0] != byte(periodic.Data) {
			l.trace.Failf("c%d is sent %x as the result of %v, want DATA", c.id, body, j)
		}
		body = body[1:]
	}
	l.trace.Logf("c%d has the result %s of %v", c.id, brief(body), j)
	if j.owner != c {
		l.trace.Failf("c%d is sent a result of %v, which it does not wait for", c.id, j)
	}
	j.owner = nil
	l.results++
	if l.hasSettings2026(c.framing()) && string(body) == "expired" {
		l.expired(c, q)
		return
	}
	failed, removed, failEnds := l.endResults(c)
	for k := j; k != nil; k = k.next {
		if slices.Contains(k.results, string(body)) || failEnds && string(body) == failed && k.returned > 0 ||
			string(body) == removed && k.inServer != sure && k.next == nil {
			return
		}
	}
	l.trace.Failf("c%d is sent %q as the result of %v, of which workers said %q", c.id, brief(body), j, j.results)
}

// read has the peer read up to n bytes, and notes the jobs that it is assigned.
func (s *Simulator) read(c *Conn, n int) {
	read := c.peer.ReadUpTo(n)
	if c.inLines() {
		s.readLines(c, len(read))
		return
	}
	c.undecoded = append(c.undecoded, read...)
	for len(c.undecoded) > 0 {
		if c.gloom() {
			payload, n, _ := gloom.Next(c.undecoded, 1<<20)
			if n == 0 {
				return
			}
			c.undecoded = c.undecoded[n:]
			var r gloom.Reply
			if gloom.ParseReply(payload, &r) == nil && r.Action != nil {
				c.held = append(c.held, heldJob{job: s.ledger.jobOf(r.Body, "a job"), run: c.nextTold()})
			}
			continue
		}
		var r periodic.Response
		n, _ := periodic.NextResponse(c.undecoded, c.framing(), periodic.MaxPayload, &r)
		if n == 0 {
			return
		}
		c.undecoded = c.undecoded[n:]
		if !c.helloRead {
			c.helloRead = true
		} else if len(r.Body) > 1 && r.Body[0] == byte(periodic.JobAssign) {
			handle, j, _ := wire.ParseAssign(c.framing(), r.Body) // the ledger has decoded it, too
			c.held = append(c.held, heldJob{s.ledger.jobOf(j.Workload, "a job"), c.nextTold(), handle, r.MsgID})
			c.grabs--
		} else if len(r.Body) == 2 && r.Body[0] == byte(periodic.Acquired) {
			if r.Body[1] == 1 {
				c.held = append(c.held, c.acquiring[r.MsgID])
			}
			delete(c.acquiring, r.MsgID)
		} else if len(r.Body) == 1 && r.Body[0] == byte(periodic.NoJob) {
			c.grabs--
		}
	}
}

func laterArgs(seconds int64, step uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, uint64(seconds)), step)
}
