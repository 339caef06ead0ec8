package load

import "fmt"

// producerSide is the submitting side of a trial: the next job, the replies, and the time that they took. All its
// producers live in one pump, so nothing here is locked.
type producerSide struct {
	protocol Protocol
	traits   Traits
	jobs     int
	first    uint64 // the id of the first job
	next     int    // the first job not submitted yet, counted from 0
	acked    int
	latency  *Latencies // from submit to acknowledgement
	backlog  *backlog   // nil: no bound

	// In protocols that answer there is one producer, the master. Each of its jobs is acknowledged exactly once, and
	// then answered exactly once.
	acks     *checker
	answered *checker
	answers  *Latencies // from submit to answer
	last     int64      // arrival of the latest answer
}

func newProducerSide(p Protocol, jobs int) *producerSide {
	s := &producerSide{protocol: p, traits: p.Traits(), jobs: jobs, latency: NewLatencies()}
	if s.traits.Answers {
		s.acks, s.answered, s.answers = newChecker(jobs), newChecker(jobs), NewLatencies()
	}
	return s
}

// landed returns the number of submits that are no longer in flight: acknowledged, or answered in protocols that
// answer.
func (s *producerSide) landed() int {
	if s.traits.Answers {
		return s.answered.received
	}
	return s.acked
}

func (s *producerSide) reached() bool { return s.landed() == s.jobs }

func (s *producerSide) progress() int {
	if s.traits.Answers {
		return s.acked + s.answered.received
	}
	return s.acked
}

// check reports the jobs that were not acknowledged, or not answered, in protocols that answer.
func (s *producerSide) check() error {
	if !s.traits.Answers {
		return nil
	}
	if err := s.acks.check(); err != nil {
		return fmt.Errorf("acknowledgements: %w", err)
	}
	if err := s.answered.check(); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	return nil
}

// producer is one connection that submits. Each slot is one request that may be in flight. A reply frees its slot, and
// freed slots are used again in the order in which they were freed; so in protocols without tags, where replies come in
// the order of the requests, the slots come round in order. A master has a slot for each job, and so has a paced
// producer.
type producer struct {
	side   *producerSide
	depth  int     // submits in flight
	sent   []int64 // by slot: moment at which the submit in flight was sent, or was due
	free   []int   // slots without a submit in flight
	cursor int     // the slot of the next reply, in protocols without tags
	paced  bool    // a pacer submits, not the replies
}

// newProducer returns a producer that keeps up to depth jobs unanswered. With Answers, each job of the trial has a slot
// of its own.
func newProducer(s *producerSide, depth int, paced bool) *producer {
	p := &producer{side: s, depth: depth, paced: paced}
	slots := depth
	if s.traits.Answers {
		slots = s.jobs
	}
	p.sent = make([]int64, slots)
	for slot := range slots {
		p.free = append(p.free, slot)
	}
	return p
}

func (p *producer) open(now int64, out []byte) []byte { return p.fill(now, out) }

// fill submits the next jobs on the free slots, as far as there are jobs and the backlog has room.
func (p *producer) fill(now int64, out []byte) []byte {
	s := p.side
	if p.paced {
		return out
	}
	used := 0
	for used < len(p.free) && s.next < s.jobs {
		count := min(len(p.free)-used, s.jobs-s.next, s.backlog.room(s.next))
		if s.traits.Answers {
			count = min(count, s.landed()+p.depth-s.next)
		}
		if count <= 0 && (s.traits.Answers || s.backlog.wait(s.next)) {
			break
		}
		count = max(count, 0) // some jobs arrived meanwhile
		for _, slot := range p.free[used : used+count] {
			out = p.submitNext(now, slot, out)
		}
		used += count
	}
	p.free = append(p.free[:0], p.free[used:]...)
	return out
}

// submitNext submits the next job as sent or due at the given time.
func (p *producer) submitNext(at int64, slot int, out []byte) []byte {
	s := p.side
	p.sent[slot] = at
	out = s.protocol.AppendSubmit(out, uint32(slot), s.first+uint64(s.next), at)
	s.next++
	return out
}

func (p *producer) turn(now int64, in, out []byte) (int, []byte, error) {
	used, err := decode(p.side.protocol, in, func(e *Event) error { return p.handle(now, e) })
	return used, p.fill(now, out), err
}

// handle notes an acknowledgement, which frees its slot, or an answer.
func (p *producer) handle(now int64, e *Event) error {
	s := p.side
	if s.traits.Answers && (e.Kind == Submitted || e.Kind == Answered) {
		return p.handleMaster(now, e)
	}
	if e.Kind != Submitted && (!s.traits.AmbiguousAcks || e.Kind != Finished) {
		return fmt.Errorf("%w: a producer got something else than an acknowledgement or an answer", ErrMalformed)
	}
	slot := int(e.Slot)
	if !s.traits.Tagged {
		slot = p.cursor
		if p.cursor++; p.cursor == len(p.sent) {
			p.cursor = 0
		}
	}
	if slot >= len(p.sent) || s.acked >= s.next {
		return fmt.Errorf("%w: an acknowledgement that no submit asked for", ErrMalformed)
	}
	s.acked++
	s.latency.Record(now - p.sent[slot])
	if !p.paced {
		p.free = append(p.free, slot)
	}
	return nil
}

// handleMaster notes a reply that names its job.
func (p *producer) handleMaster(now int64, e *Event) error {
	s := p.side
	if e.ID >= uint64(s.next) {
		return fmt.Errorf("job %d was acknowledged or answered, and never submitted", e.ID)
	}
	took := now - p.sent[e.ID]
	if e.Kind == Submitted {
		s.acked++
		s.latency.Record(took)
		if err := s.acks.take(e.ID); err != nil {
			return fmt.Errorf("acknowledgements: %w", err)
		}
		return nil
	}
	if !s.acks.has(e.ID) {
		return fmt.Errorf("job %d was answered before it was acknowledged", e.ID)
	}
	s.last = now
	s.answers.Record(took)
	if err := s.answered.take(e.ID); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	return nil
}
