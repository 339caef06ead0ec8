package sched

import (
	"math/bits"
	"slices"
)

// Finish ends a job that the peer holds; data goes to those who await it.
// ErrNotFound and ErrNotOwner change nothing.
func (s *Scheduler) Finish(now Time, p *Peer, ref JobRef, data []byte, sink Sink) error {
	sh, err := s.lock(ref)
	if err != nil {
		return s.stale(err)
	}
	defer sh.unlock(now, sink)
	r, err := sh.holding(p, ref)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	q := sh.unhold(ref.Slot, r)
	if r.flags&task != 0 {
		sh.finishTask(now, ref.Slot, r, q, sink)
		sh.moveOn(now, q, sink)
		return nil
	}
	sh.counters.Done++
	sh.end(ref.Slot, r, q, Result, data, sink)
	sh.rematch(now, q, sink)
	return nil
}

// Fail makes a job that the peer holds ready again, due now.
func (s *Scheduler) Fail(now Time, p *Peer, ref JobRef, sink Sink) error {
	sh, r, err := s.release(p, ref)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failAwaits(ref.Slot, r, sink)
	q := sh.unhold(ref.Slot, r)
	sh.fail(now, ref.Slot, r, q, sink)
	return nil
}

// Postpone makes a job that the peer holds due delay seconds from now, to the
// millisecond, and adds step to its count.
func (s *Scheduler) Postpone(now Time, p *Peer, ref JobRef, delay int64, step int32, sink Sink) error {
	// A delay beyond the calendar is as good as never.
	const longest = int64(1) << 50
	delay = max(min(delay, longest/1000), -longest/1000)
	sh, r, err := s.release(p, ref)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failAwaits(ref.Slot, r, sink)
	q := sh.unhold(ref.Slot, r)
	if sh.s.rules[r.space].Deaths == 0 { // else count is the deaths'
		r.count = clampAdd(r.count, step)
	}
	sh.requeue(now, ref.Slot, r, q, now.Wall+delay*1000, sink)
	return nil
}

// release returns a job that the peer holds, with its shard locked.
func (s *Scheduler) release(p *Peer, ref JobRef) (*shard, *record, error) {
	sh, err := s.lock(ref)
	if err != nil {
		return nil, nil, s.stale(err)
	}
	r, err := sh.holding(p, ref)
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	sh.counters.Released++
	return sh, r, nil
}

func clampAdd(a, b int32) int32 {
	return int32(max(min(int64(a)+int64(b), 1<<31-1), -1<<31))
}

// stale counts a report on a job that no shard has, and returns why.
func (s *Scheduler) stale(why error) error {
	s.shards[0].mu.Lock()
	defer s.shards[0].mu.Unlock()
	s.shards[0].counters.Stale++
	return why
}

// lock locks the shard of a reference.
func (s *Scheduler) lock(ref JobRef) (*shard, error) {
	if int(ref.Shard) >= len(s.shards) {
		return nil, ErrNotFound
	}
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	return sh, nil
}

// Remove removes a job by name, whatever its state; false when there is none. Its
// holder's later Finish finds nothing.
func (s *Scheduler) Remove(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return s.remove(now, space, queueName, name, true, sink)
}

// Withdraw is Remove for a job that no peer holds; one that is held stays, and the answer
// is false.
func (s *Scheduler) Withdraw(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return s.remove(now, space, queueName, name, false, sink)
}

func (s *Scheduler) remove(now Time, space Space, queueName, name []byte, held bool, sink Sink) bool {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queueName)]
	if q == nil || s.rules[space].Graph {
		return false
	}
	job, ok := sh.lookup(s.tag(q.id, space, name), q, space, name)
	if !ok {
		return false
	}
	r := sh.slab.at(job)
	if r.state == reserved && !held {
		return false
	}
	sh.leave(job, r, q)
	sh.counters.Removed++
	sh.end(job, r, q, Removed, nil, sink)
	sh.rematch(now, q, sink)
	return true
}

// Drop removes a queue with all its jobs, also those that wait for a lock, unless a
// peer serves it or holds one of its jobs, or it has had tasks or jobs of a space that
// keeps its queues. The queue is gone when Drop returns; its jobs are taken apart by
// the Ticks that follow.
func (s *Scheduler) Drop(name []byte) bool {
	sh := s.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(name)]
	if q == nil || q.workers > 0 || q.running > 0 || s.keepers&q.spaces != 0 {
		return false
	}
	sh.saveDrop(q)
	sh.discard(q)
	return true
}

// discard takes a queue out of sight; its jobs are taken apart by Ticks.
func (sh *shard) discard(q *queue) {
	delete(sh.byName, q.name)
	sh.s.queueCount.Add(-1)
	if q.at >= 0 {
		sh.timers.remove(q)
	}
	q.dropped = true
	sh.dropped = append(sh.dropped, q)
	sh.s.alarmMono(0)
}

// tidy discards a queue that is not used any more and whose name is too long for the peers
// that Drop queues: a name may have megabytes.
func (sh *shard) tidy(q *queue) {
	if len(q.name) > MaxShortQueue && !q.dropped && q.workers == 0 && q.running == 0 && q.tasks == 0 && q.unheld() == 0 {
		sh.discard(q)
	}
}

// Held returns the job of a name that the peer holds, whatever its space, for
// protocols whose workers know jobs by name.
func (s *Scheduler) Held(p *Peer, queueName, name []byte) (JobRef, bool) {
	w := p.byQueue[string(queueName)]
	if w == nil {
		return JobRef{}, false
	}
	sh := w.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(w.held) == 0 {
		return JobRef{}, false
	}
	job, ok := sh.heldBy(w, name)
	if !ok {
		return JobRef{}, false
	}
	return sh.ref(job, sh.slab.at(job)), true
}

// heldBy returns the job of a name that is held under a watch.
func (sh *shard) heldBy(w *watch, name []byte) (uint32, bool) {
	q := w.queue
	for spaces := q.spaces; spaces != 0; spaces &= spaces - 1 {
		space := Space(bits.TrailingZeros16(spaces))
		job, ok := sh.lookup(sh.s.tag(q.id, space, name), q, space, name)
		if !ok {
			continue
		}
		if r := sh.slab.at(job); r.state == reserved && sh.watches[r.home] == w {
			return job, true
		}
	}
	return 0, false
}

// Return gives back the job that the peer was last handed under tag, unstarted: it
// is ready again and those who await it are told nothing.
func (s *Scheduler) Return(now Time, p *Peer, tag uint64, sink Sink) error {
	var from *watch
	newest := uint64(0)
	for _, w := range p.watches {
		order, held := w.shard.newest(w, tag)
		p.looked += 1 + held
		if order > newest {
			from, newest = w, order
		}
	}
	if from == nil {
		return ErrNotFound
	}
	return from.shard.giveBack(now, from, newest, sink)
}

// newest says when a watch's peer was last handed a job under tag; 0: it holds none.
func (sh *shard) newest(w *watch, tag uint64) (order uint64, held int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, h := range w.held {
		if h.tag == tag {
			order = max(order, h.order)
		}
	}
	return order, len(w.held)
}

func (sh *shard) giveBack(now Time, w *watch, order uint64, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	i := slices.IndexFunc(w.held, func(h held) bool { return h.order == order })
	if i < 0 { // its time was over meanwhile
		return ErrNotFound
	}
	job := w.held[i].job
	r := sh.slab.at(job)
	sh.counters.Released++
	q := sh.unhold(job, r)
	sh.requeue(now, job, r, q, now.Wall, sink)
	return nil
}
