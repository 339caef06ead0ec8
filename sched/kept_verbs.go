package sched

// KeptJob is a job that was given up, is done or has expired, and is kept. Its bytes are valid until the call that was given
// it returns.
type KeptJob struct {
	Job
	At      int64  // Unix milliseconds of its end
	History []byte // for ParseHistory
	Result  []byte // nil: none is kept
}

// KeptCursor is a place among the kept jobs of a queue, which stand in the order of their end; the zero value is the
// start.
type KeptCursor struct {
	At  int64
	Seq uint64
}

// WalkFailed calls fn, under the shard's lock, for the next failed jobs of a queue behind a cursor, at most n and of
// large ones fewer, and returns the cursor behind them; done says that there are no others.
func (s *Scheduler) WalkFailed(queue []byte, c KeptCursor, n int, fn func(*KeptJob)) (_ KeptCursor, done bool) {
	return s.walkKept(queue, c, n, fn, keptFailed, keptBuried)
}

// WalkDone is WalkFailed for the jobs that are done or have expired.
func (s *Scheduler) WalkDone(queue []byte, c KeptCursor, n int, fn func(*KeptJob)) (_ KeptCursor, done bool) {
	return s.walkKept(queue, c, n, fn, keptDone, keptResult)
}

// walkKept calls fn for the kept jobs of a queue after the cursor c, in the order of their ends, until they have cost n
// steps. It returns the cursor of the last job, and whether there are no further ones.
func (s *Scheduler) walkKept(queue []byte, c KeptCursor, n int, fn func(*KeptJob), uses ...keptUse) (_ KeptCursor, done bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for q := sh.byName[string(queue)]; q != nil && q.kept != nil; {
		next, at := sh.nextKept(q, key{c.At, int64(c.Seq) + 1}, uses)
		switch {
		case next == none:
			return c, true
		case n <= 0:
			return c, false
		}
		r := sh.slab.at(next)
		cost := r.cost() + len(sh.result(next))>>costShift
		sh.countSteps(cost)
		n -= cost
		k := KeptJob{At: r.due, History: sh.history(next, r), Result: sh.result(next)}
		sh.view(next, r, q, &k.Job)
		k.SchedAt, k.Due = 0, 0
		fn(&k)
		c = KeptCursor{at.a, uint64(at.b)}
	}
	return c, true
}

// nextKept returns the first of the jobs of a queue that are kept for some uses, from a key of their lines on, and its key.
func (sh *shard) nextKept(q *queue, from key, uses []keptUse) (first uint32, at key) {
	first = none
	for _, use := range uses {
		job := q.kept[use].jobs.headFrom(&sh.buckets, &sh.slab, from)
		if job == none {
			continue
		}
		r := sh.slab.at(job)
		if k := (key{r.due, int64(r.seq)}); first == none || k.less(at) {
			first, at = job, k
		}
	}
	return first, at
}

// ViewDone calls fn, under the shard's lock, with a finished job that is kept. It returns false if none exists of
// that number.
func (s *Scheduler) ViewDone(queue []byte, seq uint64, fn func(*KeptJob)) bool {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	job, r, q, err := sh.keptJob(queue, seq, finished)
	if err != nil {
		return false
	}
	k := KeptJob{At: r.due, History: sh.history(job, r), Result: sh.result(job)}
	sh.view(job, r, q, &k.Job)
	fn(&k)
	return true
}

// RetryFailed makes a failed job ready, with all its retries before it. ErrDuplicate: its queue has a job of its name by
// now.
func (s *Scheduler) RetryFailed(now Time, queue []byte, seq uint64, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	job, r, q, err := sh.keptJob(queue, seq, failed)
	if err == nil {
		err = sh.retry(now, job, r, q, true)
	}
	if err == nil {
		sh.match(now, q, sink)
	}
	return err
}

// retry is RetryFailed for a job. kicked says that its Counts say so. The caller matches its queue.
func (sh *shard) retry(now Time, job uint32, r *record, q *queue, kicked bool) error {
	name := sh.nameView(job)
	tag := sh.s.tag(q.id, r.space, name)
	if _, taken := sh.lookup(tag, q, r.space, name); taken {
		return ErrDuplicate
	}
	if !sh.names.insert(tag, job) {
		return errFull
	}
	sh.unremember(job, r, q)
	sh.unkeep(job, r, q)
	q.bytes += int64(r.size)
	sh.addAttempt(job, r, Attempt{At: now.Wall, Outcome: attemptRetried})
	if kicked {
		sh.addCount(r, atKicked)
	}
	sh.counters.Retried++
	r.due = floorSecond(now.Wall)
	r.flags |= immediate
	sh.enqueue(now, job, r, q, 0)
	sh.save(job, r, q)
	return nil
}

// RemoveFailed removes a failed job.
func (s *Scheduler) RemoveFailed(queue []byte, seq uint64) error {
	return s.removeKept(queue, seq, failed)
}

// RemoveDone removes a finished job that is kept. Its name is not remembered any more.
func (s *Scheduler) RemoveDone(queue []byte, seq uint64) error {
	return s.removeKept(queue, seq, finished)
}

// removeKept removes the kept job of a sequence number, which must be in the state in.
func (s *Scheduler) removeKept(queue []byte, seq uint64, in state) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	job, r, q, err := sh.keptJob(queue, seq, in)
	if err != nil {
		return err
	}
	sh.counters.Removed += uint64(count(in == failed))
	sh.removeKept(job, r, q)
	return nil
}

// keptJob finds a kept job in a state.
func (sh *shard) keptJob(queue []byte, seq uint64, in state) (uint32, *record, *queue, error) {
	job, ok := sh.lookupKept(seq)
	if !ok {
		return none, nil, nil, ErrNotFound
	}
	r := sh.slab.at(job)
	q := sh.queueOf(r)
	if q.name != string(queue) || q.dropped || r.state != in {
		return none, nil, nil, ErrNotFound
	}
	return job, r, q, nil
}
