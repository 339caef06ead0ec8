//go:build invariants

package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// The CRC framing alone has named locks, and data that a running job publishes.

// streams are the chunks that were published.
type streams struct {
	chunks    map[string][]*chunk // by topic, in their order
	published int                 // number of chunks, which names the next one
}

// chunk is one WORK_DATA.
type chunk struct {
	text string
	sure bool // its sender held the job: it was published
}

// receiver is one RECV_DATA.
type receiver struct {
	queue int
	name  string
	from  int // number of the first chunk that must be sent to it
	last  int // number of the last chunk that was sent to it, from 1
	open  bool
}

// String is the name, unless the server has made it.
func (v *receiver) String() string {
	if len(v.name) == serversNameLength {
		return "a name of the server's"
	}
	return v.name
}

// endOfData is the last DATA of a stream.
const endOfData = "EOF"

// topic is the key of Ledger.streams.
func topic(queue int, name string) string { return fmt.Sprint(queue, ofPeriodic, name) }

// crcStep lets a peer of the CRC framing do something about a job that one of them holds. While none holds any, one
// asks for a job.
func (s *Simulator) crcStep() {
	var busy, all []*Conn
	for _, c := range s.net.conns {
		if c.framing() != periodic.CRC || c.gloom() || c.halfClosing || c.garbled || c.peer.Closed() || len(c.outgoing) > 4000 {
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
		s.actAsWorker(w)
	case s.rng.IntN(3) == 0:
		b := busy[s.rng.IntN(len(busy))]
		h := b.held[0]
		s.listen(w, h.job.queue, h.job.name)
		s.deliverAll(w)
		for range s.rng.IntN(3) { // publish at once: a listener seldom exists when a chunk is published later
			s.publish(b, h)
		}
		w = b
	default:
		w = busy[s.rng.IntN(len(busy))]
		s.whileHolding(w, w.held[s.rng.IntN(len(w.held))])
	}
	if s.rng.IntN(2) == 0 {
		s.deliverAll(w)
	}
}

// crcAct is something that a worker does with a job that it still does.
type crcAct int

const (
	crcAcquires crcAct = iota // a lock
	crcReleases
	crcPublishes
	crcConfirms
	crcDeclines
)

var crcActs = play.NewTable(
	play.Of(2, crcAcquires), play.Of(1, crcReleases), play.Of(2, crcPublishes), play.Of(1, crcConfirms), play.Of(1, crcDeclines),
)

// whileHolding lets a worker do something with a job that it still does.
func (s *Simulator) whileHolding(c *Conn, h heldJob) {
	lock := fmt.Sprint("l", s.rng.IntN(2))
	j := h.job
	switch crcActs.Draw(s.rng) {
	case crcConfirms:
		s.confirm(c, h)
	case crcDeclines:
		c.held = slices.DeleteFunc(c.held, func(o heldJob) bool { return o.tag == h.tag })
		s.decline(c, h)
	case crcAcquires:
		r := &Request{cmd: periodic.Acquire, crcRequest: crcRequest{lock: lock, limit: 1 + s.rng.IntN(2)}}
		r.onArrival = func() {
			if r.job = j; !h.isCurrent() && !s.ledger.maybeLater(h) { // the worker is told that it no longer has the job, and reports it no further
				r.lateAcquire = true
				s.ledger.reported(h)
				return
			}
			r.run = h
			for _, run := range c.runs { // the ACQUIRE counts as a report, and the job may be assigned again before the answer
				run.ambiguous = run.ambiguous || run.queue == j.queue && run.job.name == j.name && !s.ledger.holds(c, j)
			}
			j.acquires++
		}
		// The worker waits for the answer. After a refusal it reports nothing more of the job.
		c.held = slices.DeleteFunc(c.held, func(o heldJob) bool { return o.run == h.run })
		c.acquiring[c.next+1] = h
		args := binary.BigEndian.AppendUint16(periodic.AppendStr8String(nil, lock), uint16(r.limit))
		c.ask(r, append(args, h.handle...))
		s.trace.Logf("c%d wants %s for %v, as one of %d", c.id, lock, j, r.limit)
	case crcReleases:
		r := &Request{cmd: periodic.Release, silent: s.ledger.setup.periodicVersion < "2023"}
		r.onArrival = func() {
			if !h.isCurrent() && !s.ledger.maybeLater(h) {
				return
			}
			delete(j.locks, lock)
		}
		c.ask(r, append(periodic.AppendStr8String(nil, lock), h.handle...))
		s.trace.Logf("c%d gives %s back for %v", c.id, lock, j)
	case crcPublishes:
		s.publish(c, h)
	}
}

// publish sends WORK_DATA of a job.
func (s *Simulator) publish(c *Conn, h heldJob) {
	j := h.job
	s.ledger.streams.published++
	b := &chunk{text: fmt.Sprintf("chunk %d%s", s.ledger.streams.published, strings.Repeat(".", s.rng.IntN(200)))}
	r := &Request{cmd: periodic.WorkData, crcRequest: crcRequest{chunk: b}}
	r.onArrival = func() {
		if j.by == ofPeriodic {
			b.sure = h.isCurrent() && s.ledger.holds(c, j) && !s.ledger.underWay
			key := topic(j.queue, j.name)
			s.ledger.streams.chunks[key] = append(s.ledger.streams.chunks[key], b)
		}
	}
	c.ask(r, append(slices.Clone(h.handle), b.text...))
	s.trace.Logf("c%d publishes %s of %v", c.id, strings.TrimRight(b.text, "."), j)
}

// listen sends a RECV_DATA of a job, which may never come.
func (s *Simulator) listen(c *Conn, queue int, name string) {
	v := &receiver{queue: queue, name: name}
	args := periodic.AppendJob(nil, &periodic.Job{Func: []byte(s.ledger.queues[queue]), Name: []byte(name)})
	c.ask(&Request{cmd: periodic.RecvData, crcRequest: crcRequest{receiver: v}}, args)
	s.trace.Logf("c%d wants the data of %s of q%d", c.id, v, queue)
}

// acquired checks the answer to an ACQUIRE. A job has a lock for sure when its worker was told so, still does it,
// and has asked for nothing since that may have cost it the lock.
func (l *Ledger) acquired(c *Conn, q *Request, body []byte) {
	if len(body) != 2 || body[0] != byte(periodic.Acquired) || body[1] > 1 {
		l.trace.Failf("c%d is sent %x for an ACQUIRE, want ACQUIRED and 0 or 1", c.id, body)
	}
	j := q.job
	l.trace.Logf("c%d has %s for %v: %d", c.id, q.lock, j, body[1])
	if q.lateAcquire && body[1] != 0 {
		l.trace.Failf("c%d gets the lock %q for a run of %v that had ended: want no lock", c.id, q.lock, j)
	} else if q.lateAcquire {
		return
	}
	j.acquires--
	if body[1] == 0 {
		l.reported(q.run)
		j.parked = true
		if j.holder == c { // the job is parked
			l.freed(j)
			j.orderKnown, j.locks = false, nil
		}
		return
	}
	if j.holder != c {
		if j.holderUnknown || j.inServer == no && j.turn == l.turn || j.strayReport.in(l.turn) || c.slow && q.turn <= j.turn {
			return // the holder is unknown; the job ended or was returned in this turn; or a slow reader has yet to read of that
		}
		l.trace.Failf("c%d gets the lock %q for %v, which it does not hold: want no lock", c.id, q.lock, j)
	}
	others := 0
	for _, o := range l.jobs {
		if o != j && o.locks[q.lock] && o.acquires == 0 && l.holds(o.holder, o) {
			others++
		}
	}
	if others >= q.limit && !j.locks[q.lock] { // a job that has the lock may ask again
		l.trace.Failf("%v gets the lock %q, although %[4]d others have it and %[3]d jobs may", j, q.lock, q.limit, others)
	}
	if j.locks == nil {
		j.locks = map[string]bool{}
	}
	j.locks[q.lock] = true
}

// received checks an answer to a RECV_DATA; true: more follow.
func (l *Ledger) received(c *Conn, q *Request, body []byte) bool {
	v := q.receiver
	log := l.streams.chunks[topic(v.queue, v.name)]
	switch {
	case !v.open && len(body) == 1 && body[0] == byte(periodic.NoWorker):
		return false
	case !v.open && len(body) == 1 && body[0] == byte(periodic.Success):
		v.open, v.from = true, len(log)
		return true
	case !v.open || len(body) == 0 || body[0] != byte(periodic.Data):
		l.trace.Failf("c%d is sent %x for a RECV_DATA, want SUCCESS once and then DATA", c.id, body)
	}
	text := string(body[1:])
	at := len(log)
	if text != endOfData {
		at = slices.IndexFunc(log, func(b *chunk) bool { return b.text == text })
		if at < 0 {
			l.trace.Failf("c%d is sent the chunk %q of %q, which was never published", c.id, text, v)
		}
	}
	l.trace.Logf("c%d is told %.9s of %s", c.id, text, v)
	if at < v.last {
		l.trace.Failf("c%d is sent the chunk %q of %q after a later one, or twice", c.id, text, v)
	}
	l.checkMissed(c, v, at)
	v.last = at + 1
	return text != endOfData
}

// checkMissed checks that a receiver has got every chunk that was published for sure before the one that comes next.
func (l *Ledger) checkMissed(c *Conn, v *receiver, next int) {
	log := l.streams.chunks[topic(v.queue, v.name)]
	for i := max(v.from, v.last); i < next; i++ {
		if log[i].sure {
			l.trace.Failf("c%d is not sent the chunk %q of %q, but a later one", c.id, log[i].text, v)
		}
	}
}
