package load

import "fmt"

// master is the one connection that submits in a protocol that answers, and the goal of its pump. It sees to it that
// each job is acknowledged exactly once and then answered exactly once.
type master struct {
	protocol Protocol
	jobs     int
	most     int       // submits in flight
	awaits   EventKind // submitted or answered: until when a submit is in flight, and what the pump waits for
	next     int       // the first job not submitted yet
	sent     []int64   // by job: when it was submitted
	acked    *checker
	answered *checker
	ack      *Latencies // from submit to acknowledgement
	answer   *Latencies // from submit to answer
	last     int64      // when the latest answer arrived
}

func newMaster(p Protocol, l Load, awaits EventKind) *master {
	return &master{
		protocol: p, jobs: l.Jobs, most: l.Depth, awaits: awaits, sent: make([]int64, l.Jobs),
		acked: newChecker(l.Jobs), answered: newChecker(l.Jobs), ack: NewLatencies(), answer: NewLatencies(),
	}
}

// landed is how many of the submits are in flight no more.
func (m *master) landed() int {
	if m.awaits == Submitted {
		return m.acked.received
	}
	return m.answered.received
}

func (m *master) reached() bool { return m.landed() == m.jobs }
func (m *master) progress() int { return m.acked.received + m.answered.received }

func (m *master) open(now int64, out []byte) []byte { return m.fill(now, out) }

// fill submits the next jobs, as many as may be in flight.
func (m *master) fill(now int64, out []byte) []byte {
	for end := min(m.jobs, m.landed()+m.most); m.next < end; m.next++ {
		m.sent[m.next] = now
		out = m.protocol.AppendSubmit(out, 0, uint64(m.next), now)
	}
	return out
}

func (m *master) turn(now int64, in, out []byte) (int, []byte, error) {
	used, err := decode(m.protocol, in, func(e *Event) error { return m.hear(now, e) })
	return used, m.fill(now, out), err
}

// hear notes one message of the server.
func (m *master) hear(now int64, e *Event) error {
	if e.Kind != Submitted && e.Kind != Answered {
		return fmt.Errorf("%w: a master got something else than an acknowledgement or an answer", ErrMalformed)
	}
	if e.ID >= uint64(m.next) {
		return fmt.Errorf("job %d was acknowledged or answered, and never submitted", e.ID)
	}
	took := now - m.sent[e.ID]
	if e.Kind == Submitted {
		m.ack.Record(took)
		if err := m.acked.take(e.ID); err != nil {
			return fmt.Errorf("acknowledgements: %w", err)
		}
		return nil
	}
	if !m.acked.has(e.ID) {
		return fmt.Errorf("job %d was answered before it was acknowledged", e.ID)
	}
	m.last = now
	m.answer.Record(took)
	if err := m.answered.take(e.ID); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	return nil
}

// check reports the jobs that were not acknowledged, or not answered. A nil master has none.
func (m *master) check() error {
	if m == nil {
		return nil
	}
	if err := m.acked.check(); err != nil {
		return fmt.Errorf("acknowledgements: %w", err)
	}
	if err := m.answered.check(); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	return nil
}
