package sched

// findNumber returns the numbered job of a number if the job is pending, running or failed.
func (sh *shard) findNumber(hash uint32, space Space, number uint64) (job uint32, ok bool) {
	job, ok = sh.names.find(hash, func(job uint32) bool {
		r := sh.slab.at(job)
		return r.seq == number && r.space == space
	})
	if !ok {
		if job, ok = sh.lookupKept(number); ok {
			r := sh.slab.at(job)
			ok = r.state == failed && r.space == space
		}
	}
	return job, ok && !sh.queueOf(sh.slab.at(job)).dropped
}

// lockNumber returns the numbered job of a number, with its shard locked. The shard is nil when there is no such job.
func (s *Scheduler) lockNumber(space Space, number uint64) (*shard, uint32, *record) {
	hash := s.numberHash(space, number)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if job, ok := sh.findNumber(hash, space, number); ok {
			return sh, job, sh.slab.at(job)
		}
		sh.mu.Unlock()
	}
	return nil, none, nil
}

// FindNumber returns the job of a number in a space of Rules.Numbered. ok is false when there is no such job, or it is
// done.
func (s *Scheduler) FindNumber(space Space, number uint64) (ref JobRef, ok bool) {
	sh, job, r := s.lockNumber(space, number)
	if sh == nil {
		return JobRef{}, false
	}
	defer sh.mu.Unlock()
	return sh.ref(job, r), true
}

// RemoveNumber removes the job of a number, and returns its queue. ok is false, and nothing has changed, when there is
// no such job or a peer holds it.
func (s *Scheduler) RemoveNumber(now Time, space Space, number uint64, sink Sink) (queue string, ok bool) {
	sh, job, r := s.lockNumber(space, number)
	if sh == nil {
		return "", false
	}
	defer sh.unlock(now, sink)
	q := sh.queueOf(r)
	if r.state == reserved {
		return "", false
	}
	sh.removeInAnyState(now, job, r, q, sink)
	return q.name, true
}

// KickNumber makes the failed or delayed job of a number ready, and returns its queue. ok is false, and nothing has
// changed, when there is no such job or it is in another state.
func (s *Scheduler) KickNumber(now Time, space Space, number uint64, sink Sink) (queue string, ok bool) {
	sh, job, r := s.lockNumber(space, number)
	if sh == nil {
		return "", false
	}
	defer sh.unlock(now, sink)
	q := sh.queueOf(r)
	if !sh.kick(now, job, r, q) {
		return "", false
	}
	sh.matchOrDefer(now, q, sink)
	return q.name, true
}

// kick makes a failed or delayed job ready. It returns false when the job is in another state. The caller matches the
// queue.
func (sh *shard) kick(now Time, job uint32, r *record, q *queue) bool {
	switch r.state {
	case failed:
		if sh.retry(now, job, r, q, true) != nil {
			return false
		}
	case delayed:
		sh.addCount(r, atKicked)
		sh.setDue(now, job, r, q, now.Wall)
	default:
		return false
	}
	return true
}

// Kick makes up to n jobs of Rules.Numbered of a queue ready: with ofFailed the jobs that failed first, otherwise the
// delayed jobs that are due first. It kicks no more than a batch, and looks at no more delayed jobs than that. more
// reports whether others may be left.
func (s *Scheduler) Kick(now Time, queue []byte, n int, ofFailed bool, sink Sink) (kicked int, more bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil {
		return 0, false
	}
	for stepLimit := sh.mu.steps + s.batch; kicked < n && !more; {
		var job uint32
		if ofFailed {
			job = sh.firstBuried(q)
		} else {
			job = sh.firstNumbered(&q.delayed)
		}
		if job == none {
			break
		}
		r := sh.slab.at(job)
		sh.countSteps(r.cost())
		if !sh.kick(now, job, r, q) {
			break // there is no memory for the job's name
		}
		kicked++
		more = kicked < n && sh.mu.steps >= stepLimit
	}
	sh.matchOrDefer(now, q, sink)
	return kicked, more
}

// firstBuried returns the numbered job of a queue that failed first, or none.
func (sh *shard) firstBuried(q *queue) uint32 {
	if q.kept == nil {
		return none
	}
	_, job := q.kept[keptBuried].jobs.first()
	return job
}

// firstNumbered returns the first numbered job of an index, or none. It looks at no more jobs than a batch has.
func (sh *shard) firstNumbered(x *index) (first uint32) {
	first, budget := none, sh.s.batch
	x.eachFrom(&sh.buckets, &sh.slab, firstKey, func(job uint32) bool {
		budget--
		if sh.slab.at(job).flags&numbered != 0 {
			first = job
		}
		return first == none && budget > 0
	})
	sh.countSteps((sh.s.batch - budget) / entriesPerStep)
	return first
}

// Peeked is which job of a queue Peek returns.
type Peeked uint8

// The jobs of Peek, all of Rules.Numbered.
const (
	PeekReady   Peeked = iota // the next job to be handed out
	PeekDelayed               // the next job to be due
	PeekBuried                // the job that failed first
)

// Peek returns a job of a queue. ok is false when the queue has none.
func (s *Scheduler) Peek(queue []byte, which Peeked) (ref JobRef, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return JobRef{}, false
	}
	job := none
	switch which {
	case PeekReady:
		if job = q.byNumber.head(&sh.buckets); job == none { // the policy of the queue may have lanes
			job = sh.head(q)
		}
	case PeekDelayed:
		job = sh.firstNumbered(&q.delayed)
	case PeekBuried:
		job = sh.firstBuried(q)
	}
	if job == none || sh.slab.at(job).flags&numbered == 0 {
		return JobRef{}, false
	}
	return sh.ref(job, sh.slab.at(job)), true
}

// ReserveNumber hands the peer the job of a number under tag. The job must be ready, delayed or failed; neither the
// jobs ahead of it nor the queues that the peer watches matter. It returns false, and nothing has changed, when there
// is no such job, or when the policy of its queue keeps the job from starting.
func (s *Scheduler) ReserveNumber(now Time, p *Peer, space Space, number, tag uint64, sink Sink) bool {
	if len(p.watches) >= maxWatches {
		p.prune()
	}
	sh, job, r := s.lockNumber(space, number)
	if sh == nil {
		return false
	}
	defer sh.unlock(now, sink)
	q := sh.queueOf(r)
	if sh.halted || q.limiter != nil && q.limiter.stops(q) || len(p.watches) >= maxWatches {
		return false
	}
	if r.state != ready && r.state != delayed && r.state != failed {
		return false
	}
	w := p.byQueue[q.name]
	unwatched := w == nil || w.ended
	w, err := sh.watchFor(p, q)
	if err != nil {
		return false
	}
	if unwatched {
		defer sh.endWatch(w)
	}
	switch r.state {
	case failed:
		if sh.retry(now, job, r, q, false) != nil {
			return false
		}
	case delayed:
		sh.setDue(now, job, r, q, now.Wall)
	}
	sh.take(job, r, q)
	p.mu.Lock()
	p.unsent += int(r.size)
	p.mu.Unlock()
	sh.assign(now, job, r, q, w, slot{tag: tag, seq: s.lastSlotSeq.Add(1)}, sink)
	return true
}
