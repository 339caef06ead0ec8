//go:build invariants

package fuzz

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"treadle/codec/periodic"
)

// Named locks, and data that a running job publishes: the CRC framing alone has them.

// chunk is one WORK_DATA, of all that were sent in the name of a job.
type chunk struct {
	text string
	sure bool // whoever sent it held the job: it was published
}

// receiver is one RECV_DATA.
type receiver struct {
	queue int
	name  string
	from  int // chunks before need not be sent to it
	last  int // the last one that was, counted from 1
	open  bool
}

// endOfData is the last DATA of a stream.
const endOfData = "EOF"

// topic is what chunks and receivers of a name have in common.
func topic(queue int, name string) string { return fmt.Sprint(queue, ofPeriodic, name) }

// crcStep is something that a peer of the CRC framing does about a job that one of them has;
// where none has, one that waits for a job is seen to.
func (s *sim) crcStep() {
	var busy, all []*simConn
	for _, c := range s.conns {
		if c.framing() != periodic.CRC || c.gloom() || c.fin || c.garbled || c.peer.Closed() || len(c.outgoing) > 4000 {
			continue
		}
		all = append(all, c)
		if len(c.held) > 0 {
			busy = append(busy, c)
		}
	}
	if len(all) == 0 {
		return
	}
	w := all[s.rng.IntN(len(all))]
	switch {
	case len(busy) == 0:
		s.works(w)
	case s.rng.IntN(3) == 0:
		b := busy[s.rng.IntN(len(busy))]
		h := b.held[0]
		s.listens(w, h.job.queue, h.job.name)
		s.deliver(w, math.MaxInt)
		s.settle()
		for range s.rng.IntN(3) { // else hardly anybody listens when something is published
			s.publishes(b, h)
		}
		w = b
	default:
		w = busy[s.rng.IntN(len(busy))]
		s.holding(w, w.held[s.rng.IntN(len(w.held))])
	}
	if s.rng.IntN(2) == 0 {
		s.deliver(w, math.MaxInt)
		s.settle()
	}
}

// holding is something that a worker does with a job that it goes on doing.
func (s *sim) holding(c *simConn, h heldJob) {
	lock := fmt.Sprint("l", s.rng.IntN(2))
	j := h.job
	switch n := s.rng.IntN(7); {
	case n == 5:
		s.confirms(c, h)
	case n == 6:
		c.held = slices.DeleteFunc(c.held, func(o heldJob) bool { return o.tag == h.tag })
		s.declines(c, h)
	case n < 2:
		r := &simRequest{cmd: periodic.Acquire, lock: lock, limit: 1 + s.rng.IntN(2)}
		r.arrive = func() {
			if r.job = j; !h.isLast() && !s.again(h) { // it hears that it has it no more, and says nothing more of it
				r.late = true
				s.reports(h)
				return
			}
			r.run = h
			h.run.vague = h.run.vague || !s.holds(c, j) // it is reported by this, and may come again ahead of the answer
			j.asks++
		}
		// It waits for the answer: one that is refused says nothing more of the job.
		c.held = slices.DeleteFunc(c.held, func(o heldJob) bool { return o.run == h.run })
		c.asking[c.next+1] = h
		args := binary.BigEndian.AppendUint16(periodic.AppendStr8String(nil, lock), uint16(r.limit))
		c.ask(r, append(args, h.handle...))
		s.say("c%d wants %s for %v, as one of %d", c.id, lock, j, r.limit)
	case n == 2:
		r := &simRequest{cmd: periodic.Release, silent: s.era < "2023"}
		r.arrive = func() {
			if !h.isLast() && !s.again(h) {
				return
			}
			delete(j.locks, lock)
		}
		c.ask(r, append(periodic.AppendStr8String(nil, lock), h.handle...))
		s.say("c%d gives %s back for %v", c.id, lock, j)
	default:
		s.publishes(c, h)
	}
}

// publishes has a worker publish data of a job that it goes on doing.
func (s *sim) publishes(c *simConn, h heldJob) {
	j := h.job
	s.published++
	b := &chunk{text: fmt.Sprintf("chunk %d%s", s.published, strings.Repeat(".", s.rng.IntN(200)))}
	r := &simRequest{cmd: periodic.WorkData, chunk: b}
	r.arrive = func() {
		if j.by == ofPeriodic {
			b.sure = h.isLast() && s.holds(c, j) && !s.mixed
			key := topic(j.queue, j.name)
			s.chunks[key] = append(s.chunks[key], b)
		}
	}
	c.ask(r, append(slices.Clone(h.handle), b.text...))
	s.say("c%d publishes %s of %v", c.id, strings.TrimRight(b.text, "."), j)
}

// listens has a client ask for the data of a job, which may never come.
func (s *sim) listens(c *simConn, queue int, name string) {
	v := &receiver{queue: queue, name: name}
	args := periodic.AppendJob(nil, &periodic.Job{Func: []byte(s.queues[queue]), Name: []byte(name)})
	c.ask(&simRequest{cmd: periodic.RecvData, receiver: v}, args)
	s.say("c%d wants the data of %q of q%d", c.id, name, queue)
}

// acquired checks the answer to an ACQUIRE. A lock is held by those that were told so, go on
// doing the job, and have asked for nothing since that may have cost them the lock.
func (s *sim) acquired(c *simConn, q *simRequest, body []byte) {
	if len(body) != 2 || body[0] != byte(periodic.Acquired) || body[1] > 1 {
		s.fail("c%d is sent %x for an ACQUIRE", c.id, body)
	}
	j := q.job
	s.say("c%d has %s for %v: %d", c.id, q.lock, j, body[1])
	if q.late && body[1] != 0 {
		s.fail("c%d gets %s for a run of %v that was taken from it", c.id, q.lock, j)
	} else if q.late {
		return
	}
	j.asks--
	if body[1] == 0 {
		s.reports(q.run)
		j.parked = true
		if j.holder == c { // it is parked
			j.holder, j.keyed, j.turn, j.locks = nil, false, s.turn, nil
			j.moves("")
		}
		return
	}
	if j.holder != c {
		if j.lost || j.now == gone && j.turn == s.turn || j.stale == s.turn+1 || c.slow && q.turn <= j.turn {
			return // nobody knows, or it was ended or given back in this turn, or before who reads slowly hears of it
		}
		s.fail("c%d gets %s for %v, which it does not hold", c.id, q.lock, j)
	}
	others := 0
	for _, o := range s.jobs {
		if o != j && o.locks[q.lock] && o.asks == 0 && s.holds(o.holder, o) {
			others++
		}
	}
	if others >= q.limit && !j.locks[q.lock] { // one that has it may ask again
		s.fail("%v gets %s as one of %d, and %d others have it", j, q.lock, q.limit, others)
	}
	if j.locks == nil {
		j.locks = map[string]bool{}
	}
	j.locks[q.lock] = true
}

// received checks what a RECV_DATA is answered with; true: more will follow.
func (s *sim) received(c *simConn, q *simRequest, body []byte) bool {
	v := q.receiver
	log := s.chunks[topic(v.queue, v.name)]
	switch {
	case !v.open && len(body) == 1 && body[0] == byte(periodic.NoWorker):
		return false
	case !v.open && len(body) == 1 && body[0] == byte(periodic.Success):
		v.open, v.from = true, len(log)
		return true
	case !v.open || len(body) == 0 || body[0] != byte(periodic.Data):
		s.fail("c%d is sent %x for a RECV_DATA", c.id, body)
	}
	text := string(body[1:])
	at := len(log)
	if text != endOfData {
		at = slices.IndexFunc(log, func(b *chunk) bool { return b.text == text })
		if at < 0 {
			s.fail("c%d is sent %q as the data of %q", c.id, text, v.name)
		}
	}
	s.say("c%d hears %.9s of %q", c.id, text, v.name)
	if at < v.last {
		s.fail("c%d is sent %q of %q late or twice", c.id, text, v.name)
	}
	s.missed(c, v, at)
	v.last = at + 1
	return text != endOfData
}

// missed: before what a receiver hears next there is nothing that was published for sure and
// that it has not heard.
func (s *sim) missed(c *simConn, v *receiver, next int) {
	log := s.chunks[topic(v.queue, v.name)]
	for i := max(v.from, v.last); i < next; i++ {
		if log[i].sure {
			s.fail("c%d never hears %q of %q", c.id, log[i].text, v.name)
		}
	}
}
