package sched

import (
	"errors"
	"fmt"
	"slices"
)

// size is the bytes by which a job fills a peer's window.
func (j *modelJob) size() int { return packedLen([]byte(j.name), []byte(j.workload)) }

// ahead reports whether a ready job of one queue comes before another for certain.
func (j *modelJob) ahead(o *modelJob) bool {
	switch {
	case j.priority != o.priority:
		return j.priority > o.priority
	case j.second != o.second:
		return j.second < o.second
	}
	return j.stamp < o.stamp
}

// aheadAcross is ahead for jobs of different queues.
func (j *modelJob) aheadAcross(o *modelJob) bool {
	if j.priority == o.priority && j.second == o.second {
		return j.id < o.id
	}
	return j.ahead(o)
}

// heads returns the ready jobs of a queue that no other is ahead of, none while the queue hands out nothing.
func (m *model) heads(queue string) []*modelJob {
	var in, heads []*modelJob
	if m.shut(queue) {
		return nil
	}
	for _, j := range m.jobs {
		if j.queue == queue && j.state == ready {
			in = append(in, j)
		}
	}
	for _, j := range in {
		if !slices.ContainsFunc(in, func(o *modelJob) bool { return o.ahead(j) }) {
			heads = append(heads, j)
		}
	}
	return heads
}

// nextSlot returns the peer with the oldest slot in a queue, of the peers that are not blocked.
func (m *model) nextSlot(queue string) *modelPeer {
	var first *modelPeer
	for _, p := range m.peers {
		if _, ok := p.watches[queue]; !ok || len(p.slots) == 0 || !p.slots[0].wake && p.unsent >= p.window {
			continue
		}
		if first == nil || p.slots[0].age < first.slots[0].age {
			first = p
		}
	}
	return first
}

func (p *modelPeer) claim(size int) modelSlot {
	s := p.slots[0]
	p.slots = slices.Delete(p.slots, 0, 1)
	if !s.wake {
		p.unsent += size
	}
	return s
}

// step takes one delivery, which the rules must allow now.
func (m *model) step(d delivered) error {
	if len(m.owed) > 0 {
		if d != m.owed[0] {
			return fmt.Errorf("want %+v", m.owed[0])
		}
		m.owed = m.owed[1:]
		return nil
	}
	if i := slices.Index(m.anyOrder, d); i >= 0 {
		m.anyOrder = slices.Delete(m.anyOrder, i, i+1)
		return nil
	}
	switch d.effect {
	case Assign, Broadcast, WakeWith:
		return m.stepJob(d)
	case Wake:
		return m.stepWake(d)
	case Removed:
		for i, j := range m.leaving {
			if len(j.waits) > 0 && j.waits[0].peer.id == d.to && j.waits[0].tag == d.tag {
				m.leaving = slices.Delete(m.leaving, i, i+1)
				m.jobs = append(m.jobs, j)
				m.end(j, Removed, "")
				return m.step(d)
			}
		}
	}
	return errors.New("nothing asks for it")
}

func (m *model) stepWake(d delivered) error {
	for _, p := range m.peers {
		if p.id != d.to || len(p.slots) == 0 || !p.slots[0].wake || p.slots[0].tag != d.tag {
			continue
		}
		for queue := range p.watches {
			_, broadcasts := m.workers(queue)
			if broadcasts == 0 && m.nextSlot(queue) == p && (len(m.heads(queue)) > 0 || m.arriving[queue] != nil && !m.shut(queue)) {
				p.claim(0)
				return nil
			}
		}
	}
	return errors.New("it is not this session's turn, or nothing is ready")
}

func (m *model) stepJob(d delivered) error {
	j := m.find(d.job.space, d.job.queue, d.job.name)
	if j == nil {
		return errors.New("there is no such job")
	}
	m.arrive(j)
	if !slices.Contains(m.heads(j.queue), j) {
		return errors.New("it is not first among the ready jobs of its queue")
	}
	if err := m.stepAsker(d, j); err != nil {
		return err
	}
	if _, broadcasts := m.workers(j.queue); (broadcasts > 0) != (d.effect != Assign) {
		return fmt.Errorf("%d workers of the queue are registered for broadcasts", broadcasts)
	}
	p := m.nextSlot(j.queue)
	if p == nil || p.id != d.to || p.slots[0].tag != d.tag || p.slots[0].wake != (d.effect == WakeWith) {
		return fmt.Errorf("it is not this session's turn, or not this slot's: %+v", p)
	}
	if err := m.stepRef(d, j); err != nil {
		return err
	}
	if err := m.stepRun(d, j); err != nil {
		return err
	}
	want := j.delivered()
	want.running, want.run = d.effect == Assign, j.run
	if d.job != want {
		return fmt.Errorf("want %+v", want)
	}
	p.claim(j.size())
	m.started(j.queue)
	if d.effect == Assign {
		m.counted.Assigned++
		j.state, j.holder, j.since = reserved, p, m.now.Mono
		return nil
	}
	m.counted.Broadcast++
	for p := m.nextSlot(j.queue); p != nil; p = m.nextSlot(j.queue) {
		s, effect := p.claim(j.size()), Broadcast
		if s.wake {
			effect = WakeWith
		}
		m.owed = append(m.owed, delivered{to: p.id, tag: s.tag, effect: effect, job: want})
	}
	m.end(j, Result, "")
	return nil
}

func (j *modelJob) delivered() deliveredJob {
	return deliveredJob{
		ref: j.ref, queue: j.queue, space: j.space, name: j.name, workload: j.workload,
		schedAt: j.schedAt, priority: j.priority, count: j.count, timeout: j.timeout, running: j.state == reserved,
	}
}

// stepAsker checks that a peer that reserves receives the first job of all queues that it watches.
func (m *model) stepAsker(d delivered, j *modelJob) error {
	if m.asker == nil {
		return nil
	}
	if d.to != m.asker.id {
		return fmt.Errorf("session %d asked", m.asker.id)
	}
	for queue := range m.asker.watches {
		heads := m.heads(queue)
		if queue == j.queue || len(heads) == 0 {
			continue
		}
		if !slices.ContainsFunc(heads, func(h *modelJob) bool { return !h.aheadAcross(j) }) {
			return fmt.Errorf("queue %q has one that is ahead: %+v", queue, *heads[0])
		}
	}
	return nil
}

// stepRef checks that a job keeps its reference for life and that no other job ever has it.
func (m *model) stepRef(d delivered, j *modelJob) error {
	if j.ref == (JobRef{}) && m.refs[d.job.ref] == nil {
		j.ref = d.job.ref
		m.refs[j.ref] = j
	}
	if m.refs[d.job.ref] != j {
		return fmt.Errorf("its reference was %v, or is another job's", j.ref)
	}
	return nil
}

// stepRun checks that each reservation has a number that no other has, and that a broadcast has
// none.
func (m *model) stepRun(d delivered, j *modelJob) error {
	j.run = d.job.run
	if (d.effect == Assign) != (j.run != Run{}) || m.runs[j.run] != nil {
		return fmt.Errorf("its run is %v", j.run)
	}
	if d.effect == Assign {
		m.runs[j.run] = j
	}
	return nil
}

// arrive makes a job ready that becomes so during the verb, with the jobs that do so before it.
func (m *model) arrive(j *modelJob) {
	a := m.arriving[j.queue]
	if a == nil {
		return
	}
	loose := slices.Index(a.loose, j)
	upTo := slices.Index(a.ordered, j) + 1
	if loose >= 0 {
		upTo = len(a.ordered)
	}
	for _, o := range a.ordered[:upTo] {
		o.state, o.stamp = ready, m.nextStamp()
	}
	a.ordered = a.ordered[upTo:]
	if loose >= 0 {
		a.loose = slices.Delete(a.loose, loose, loose+1)
		m.arriveLoose(a, j)
	}
}

func (m *model) arriveLoose(a *arrivals, j *modelJob) {
	if a.stamp == 0 {
		a.stamp = m.nextStamp()
	}
	j.state, j.stamp = ready, a.stamp
}

// settled ends a verb: every owed delivery has come, and no peer waits beside a ready job.
func (m *model) settled() error {
	for _, a := range m.arriving {
		for _, j := range a.ordered {
			j.state, j.stamp = ready, m.nextStamp()
		}
		for _, j := range a.loose {
			m.arriveLoose(a, j)
		}
	}
	clear(m.arriving)
	m.asker = nil
	if len(m.owed)+len(m.anyOrder) > 0 {
		return fmt.Errorf("did not come: %+v %+v", m.owed, m.anyOrder)
	}
	for _, j := range m.leaving {
		if len(j.waits) > 0 {
			return fmt.Errorf("an await of job %q of a dropped queue was not answered", j.name)
		}
	}
	m.leaving = nil
	ticked := m.ticked
	m.ticked = false
	for queue := range m.queues {
		if m.limited(queue) && !ticked {
			continue // a Tick follows
		}
		if p := m.nextSlot(queue); p != nil && len(m.heads(queue)) > 0 {
			return fmt.Errorf("session %d waits and job %q of queue %q is ready", p.id, m.heads(queue)[0].name, queue)
		}
	}
	return nil
}

// status is the status of a queue.
func (m *model) status(queue string) QueueStatus {
	st := QueueStatus{Name: queue, SchedAt: never}
	st.Workers, _ = m.workers(queue)
	st.Failed = len(m.failedOf(queue))
	pending, immediates := 0, 0
	for _, j := range m.jobs {
		switch {
		case j.queue != queue:
			continue
		case j.state == reserved:
			st.Running++
			st.Interruptible++ // the model has no tasks
		default:
			pending++
			st.SchedAt = min(st.SchedAt, j.second)
			st.Delayed += oneIf(j.state == delayed)
			immediates += oneIf(j.schedAt == 0)
		}
		st.Jobs++
	}
	if pending == 0 || immediates > 0 {
		st.SchedAt = 0
	}
	return st
}

// nextTick is the latest time of the next Tick, by either clock.
func (m *model) nextTick() Time {
	next := Time{Wall: never, Mono: never}
	for _, j := range m.jobs {
		switch {
		case j.state == delayed && j.second < never/1000-1:
			next.Wall = min(next.Wall, j.second*1000+j.past)
		case j.state == reserved:
			next.Mono = min(next.Mono, m.overdue(j))
		}
	}
	for _, j := range m.failed {
		if k := m.keeps(j.queue); k.Age > 0 {
			next.Wall = min(next.Wall, j.failedAt+k.Age)
		}
	}
	for _, r := range m.rates {
		if r.shut {
			next.Mono = min(next.Mono, r.opens())
		}
	}
	if len(m.dropped) > 0 {
		next.Mono = m.now.Mono
	}
	return next
}
