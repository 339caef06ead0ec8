package load

import "fmt"

// feed is the submitting side of a trial: which job is next, how many are acknowledged, how long that took. All its
// producers live in one pump, so nothing here is locked.
type feed struct {
	protocol Protocol
	traits   Traits
	jobs     int
	first    uint64 // the id of the first job
	next     int    // the first job not submitted yet, counted from 0
	acked    int
	latency  *Latencies // from submit to acknowledgement
	backlog  *backlog   // nil: no bound
}

func newFeed(p Protocol, jobs int) *feed {
	return &feed{protocol: p, traits: p.Traits(), jobs: jobs, latency: NewLatencies()}
}

func (f *feed) reached() bool { return f.acked == f.jobs }
func (f *feed) progress() int { return f.acked }

// producer is one connection that submits. Each slot is one request that may be in flight. A reply frees its slot, and
// freed slots are used again in the order in which they were freed; so in protocols without tags, where replies come in
// the order of the requests, the slots come round in order.
type producer struct {
	feed   *feed
	sent   []int64 // by slot: when the submit in flight was sent, or was due
	free   []int   // slots without a submit in flight
	cursor int     // the slot of the next reply, in protocols without tags
	paced  bool    // a pacer submits, not the replies
}

func newProducer(f *feed, slots int, paced bool) *producer {
	p := &producer{feed: f, sent: make([]int64, slots), paced: paced}
	for slot := range slots {
		p.free = append(p.free, slot)
	}
	return p
}

func (p *producer) open(now int64, out []byte) []byte { return p.fill(now, out) }

// fill submits the next jobs of the feed on the free slots, as far as there are jobs and the backlog has room.
func (p *producer) fill(now int64, out []byte) []byte {
	f := p.feed
	if p.paced {
		return out
	}
	used := 0
	for used < len(p.free) && f.next < f.jobs {
		count := min(len(p.free)-used, f.jobs-f.next, f.backlog.room(f.next))
		if count <= 0 {
			if f.backlog.wait(f.next) {
				break
			}
			continue
		}
		for _, slot := range p.free[used : used+count] {
			out = p.submitNext(now, slot, out)
		}
		used += count
	}
	p.free = append(p.free[:0], p.free[used:]...)
	return out
}

// submitNext submits the next job of the feed as sent or due at the given time.
func (p *producer) submitNext(at int64, slot int, out []byte) []byte {
	p.sent[slot] = at
	out = p.feed.protocol.AppendSubmit(out, uint32(slot), p.feed.first+uint64(p.feed.next), at)
	p.feed.next++
	return out
}

func (p *producer) turn(now int64, in, out []byte) (int, []byte, error) {
	used, err := decode(p.feed.protocol, in, func(e *Event) error { return p.hear(now, e) })
	return used, p.fill(now, out), err
}

// hear notes an acknowledgement, which frees its slot.
func (p *producer) hear(now int64, e *Event) error {
	f := p.feed
	if e.Kind != Submitted {
		return fmt.Errorf("%w: a producer got something else than an acknowledgement", ErrMalformed)
	}
	slot := int(e.Slot)
	if !f.traits.Tagged {
		slot = p.cursor
		if p.cursor++; p.cursor == len(p.sent) {
			p.cursor = 0
		}
	}
	if slot >= len(p.sent) || f.acked >= f.next {
		return fmt.Errorf("%w: an acknowledgement that no submit asked for", ErrMalformed)
	}
	f.acked++
	f.latency.Record(now - p.sent[slot])
	if !p.paced {
		p.free = append(p.free, slot)
	}
	return nil
}
