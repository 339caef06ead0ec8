//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
)

// Masters and slaves of the Gloom protocol. A job's id is unique among all masters, for as long as it is there.

// sameIDs is the number of ids that masters reuse.
const sameIDs = 3

// actAsMaster sends a master's submission, in one case of three with a reused id.
func (s *Simulator) actAsMaster(c *Conn) {
	if s.ledger.live() >= maxJobs {
		return
	}
	name := ""
	if s.rng.IntN(3) == 0 {
		name = fmt.Sprint("same", s.rng.IntN(sameIDs))
	}
	j := s.ledger.newJob(ofGloom, s.rng.IntN(workedQueues), name)
	j.priority, j.size = int64(s.rng.IntN(3)), s.drawPadding()
	c.tell(&Request{job: j, onArrival: func() { s.ledger.gloomSubmitted(c, j) }},
		gloom.AppendSubmit(nil, fmt.Appendf(nil, "%q", j.name), fmt.Appendf(nil, "%q", s.ledger.queues[j.queue]), j.priority, []byte(j.workload())))
	s.trace.Logf("c%d submits %v as %s", c.id, j, j.name)
}

// gloomSubmitted notes the arrival of a submission: its id must be free.
func (l *Ledger) gloomSubmitted(c *Conn, j *Job) {
	c.acks = append(c.acks, j)
	j.idTaken = l.taken(j.name)
	l.ids[j.name] = append(l.ids[j.name], j)
	if j.idTaken == sure {
		l.trace.Logf("%v has an id that is taken", j)
		return
	}
	l.added(j, 0)
	j.owner = c
	if j.idTaken == maybe {
		l.doubt(j)
	}
}

// taken reports whether an id is taken. The job of a master that has left keeps its id until its slave is done.
func (l *Ledger) taken(id string) (is certainty) {
	for _, j := range l.ids[id] {
		switch {
		case j.inServer == no && j.holder == nil && j.turn < l.turn && !j.holderUnknown && !j.parked && j.acquires == 0 && !l.waitsUnread(j):
		case j.turn < l.turn && !l.underWay && (j.inServer == sure || l.holds(j.holder, j)):
			return sure
		default:
			is = maybe
		}
	}
	return is
}

// acknowledgedID checks the acknowledgement of a submission. An error about it would follow at once.
func (l *Ledger) acknowledgedID(c *Conn, id []byte) {
	name, _ := jsontext.Text(nil, id)
	if len(c.acks) == 0 || c.acks[0].name != string(name) {
		l.trace.Failf("c%d: got the acknowledgement of %s, want that of the first of %v", c.id, id, c.acks)
	}
	c.acked, c.acks = c.acks[0], c.acks[1:]
}

// checkExistsID checks the error that an id is taken.
func (l *Ledger) checkExistsID(c *Conn, id []byte) {
	name, _ := jsontext.Text(nil, id)
	j := c.acked
	if j == nil || j.name != string(name) || j.idTaken == no {
		l.trace.Failf("c%d: got the error that the id %s is taken, which it is not, or not of its last job", c.id, id)
	}
	c.acked = nil
	if j.idTaken == maybe {
		j.owner = nil
		l.end(j)
	}
	l.trace.Logf("c%d is told that the id of %v is taken", c.id, j)
}

// checkAdmitted checks that a master was told of a taken id with its last submission.
func (l *Ledger) checkAdmitted(c *Conn) {
	if j := c.acked; j != nil && j.idTaken == sure {
		l.trace.Failf("c%[2]d submits %[1]v: got no error, want that its id is taken", j, c.id)
	}
	c.acked = nil
}

// ownID finds the job of an id that a master waits for; nil: it waits for none.
func (l *Ledger) ownID(c *Conn, id string) *Job {
	for _, j := range l.ids[id] {
		if j.owner == c {
			return j
		}
	}
	return nil
}

// failedID finds the job that has failed by its id.
func (l *Ledger) failedID(c *Conn, id []byte) *Job {
	name, _ := jsontext.Text(nil, id)
	for _, j := range l.ids[string(name)] {
		if j.owner == c && l.failuresOf(j) >= 4 {
			return j
		}
	}
	l.trace.Failf("c%d is told that %s has failed, although no job of c%[1]d has had four deaths", c.id, id)
	return nil
}

// gloomReply checks the next reply that a Gloom connection has received against what the ledger knows, and returns its
// bytes; 0 if it is incomplete.
func (l *Ledger) gloomReply(c *Conn) int {
	payload, n, err := gloom.Next(c.written, 1<<20)
	if n == 0 {
		return 0
	}
	var r gloom.Reply
	if err == nil {
		err = gloom.ParseReply(payload, &r)
	}
	if err != nil {
		l.trace.Failf("c%d is sent %q, which is no message: %v", c.id, c.written, err)
	}
	if r.Error == nil || string(r.Error) != `"`+gloom.IDExists+`"` {
		l.checkAdmitted(c)
	}
	switch {
	case r.OK && r.ID != nil:
		l.acknowledgedID(c, r.ID)
	case r.Action != nil:
		typ, _ := jsontext.Text(nil, r.Type)
		id, _ := jsontext.Text(nil, r.ID)
		if c.busy {
			l.trace.Failf("c%d is sent the job %q, although it has one", c.id, payload)
		}
		c.busy = true
		j := l.exactJobOf(r.Body, "a job for a slave")
		l.isIn(j, string(typ))
		j.run = l.runBegun(c, j, string(typ))
		if !l.serving(c, j.queue) {
			l.trace.Failf("c%d is given %v of q%d, which it does not do", c.id, j, j.queue)
		}
		l.assigned(c, j, string(typ), string(id))
	case c.isOdd(&r):
	case r.Error != nil && string(r.Error) == `"`+gloom.JobFailed+`"`:
		j := l.failedID(c, r.Reason)
		j.owner = nil
		l.end(j)
	case string(r.Error) == `"`+gloom.IDExists+`"`:
		l.checkExistsID(c, r.Reason)
	case r.Error != nil:
		l.trace.Failf("c%d is sent the error %q, which no request of it explains", c.id, payload)
	case r.Body != nil:
		id, _ := jsontext.Text(nil, r.ID)
		j := l.ownID(c, string(id))
		if j == nil || !slices.Contains(j.results, string(r.Body)) {
			l.trace.Failf("c%d is sent the response %q of %s, %v", c.id, r.Body, id, j)
		}
		l.trace.Logf("c%d has the response %s", c.id, brief(r.Body))
		j.owner = nil
		l.results++
	}
	return n
}

// actAsSlave lets a slave join a type, or respond to the job that it holds.
func (s *Simulator) actAsSlave(c *Conn) {
	if c.next == 0 || s.rng.IntN(8) == 0 {
		c.next = 1
		s.joinQueue(c, jobQueues[s.rng.IntN(len(jobQueues))])
		return
	}
	if len(c.held) == 0 {
		return
	}
	h := c.held[0]
	c.held = c.held[1:]
	result := s.resultOf(h)
	c.tell(&Request{onArrival: func() { c.busy = false; s.ledger.finished(c, h, result) }}, gloom.AppendRespond(nil, []byte(result)))
	s.trace.Logf("c%d does %v", c.id, h.job)
}

// joinQueue lets a slave join a queue. The ledger notes it when the request arrives.
func (s *Simulator) joinQueue(c *Conn, queue int) {
	onArrival := func() {
		for i := range c.servedQueues {
			if c.servedQueues[i] && i != queue {
				c.servedQueues[i], c.stoppedServing[i] = false, past(s.ledger.turn)
			}
		}
		c.servedQueues[queue], c.joined = true, past(s.ledger.turn)
	}
	c.tell(&Request{onArrival: onArrival}, gloom.AppendJoin(nil, fmt.Appendf(nil, "%q", s.ledger.queues[queue])))
	s.trace.Logf("c%d joins q%d", c.id, queue)
}
