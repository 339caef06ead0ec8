package sched

// FailedJob is a job that was given up. Its bytes are valid until the call that was given it returns.
type FailedJob struct {
	Job
	FailedAt int64  // Unix milliseconds
	History  []byte // for ParseHistory
}

// FailedCursor is a place among the failed jobs of a queue, which stand in the order of their failure; the zero value is
// the start.
type FailedCursor struct {
	At  int64
	Seq uint64
}

// WalkFailed calls fn, under the shard's lock, for the next failed jobs of a queue behind a cursor, at most n and of
// large ones fewer, and returns the cursor behind them; done says that there are no more.
func (s *Scheduler) WalkFailed(queue []byte, c FailedCursor, n int, fn func(*FailedJob)) (_ FailedCursor, done bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil || q.failed == nil {
		return c, true
	}
	done = true
	q.failed.jobs.eachFrom(&sh.buckets, &sh.slab, key{c.At, int64(c.Seq) + 1}, func(job uint32) bool {
		if n <= 0 {
			done = false
			return false
		}
		r := sh.slab.at(job)
		sh.countSteps(r.cost())
		n -= r.cost()
		f := FailedJob{FailedAt: r.due, History: sh.history(job, r)}
		sh.view(job, r, q, &f.Job)
		f.SchedAt, f.Due = 0, 0
		fn(&f)
		c = FailedCursor{r.due, r.seq}
		return true
	})
	return c, done
}

// RetryFailed makes a failed job ready, with all its retries before it. ErrDuplicate: its queue has a job of its name by
// now.
func (s *Scheduler) RetryFailed(now Time, queue []byte, seq uint64, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	job, r, q, err := sh.failedJob(queue, seq)
	if err != nil {
		return err
	}
	name := sh.nameView(job)
	tag := sh.s.tag(q.id, r.space, name)
	if _, taken := sh.lookup(tag, q, r.space, name); taken {
		return ErrDuplicate
	}
	if !sh.names.insert(tag, job) {
		return errFull
	}
	sh.unfileFailed(job, r, q)
	q.bytes += int64(r.size)
	sh.addAttempt(job, r, Attempt{At: now.Wall, Outcome: AttemptRetried})
	sh.counters.Retried++
	r.due = floorSecond(now.Wall)
	r.flags |= immediate
	sh.enqueue(now, job, r, q, 0)
	sh.save(job, r, q)
	sh.match(now, q, sink)
	return nil
}

// RemoveFailed removes a failed job.
func (s *Scheduler) RemoveFailed(queue []byte, seq uint64) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	job, r, q, err := sh.failedJob(queue, seq)
	if err != nil {
		return err
	}
	sh.counters.Removed++
	sh.removeFailed(job, r, q)
	sh.discardUnused(q)
	return nil
}

// failedJob finds a failed job that is not on its way to a dead-letter queue.
func (sh *shard) failedJob(queue []byte, seq uint64) (uint32, *record, *queue, error) {
	job, ok := sh.failedBySeq[seq]
	if !ok {
		return none, nil, nil, ErrNotFound
	}
	r := sh.slab.at(job)
	q := sh.queueOf(r)
	if q.name != string(queue) || q.dropped || r.flags&moving != 0 {
		return none, nil, nil, ErrNotFound
	}
	return job, r, q, nil
}

// eachFrom calls fn for the index's jobs from a key on, in order, until it returns false.
func (x *index) eachFrom(p *buckets, s *slab, from key, fn func(job uint32) bool) {
	if x.jobs == 0 {
		return
	}
	of := func(i uint32) bool {
		for job := p.all[i].head; job != none; job = s.at(job).next {
			if !fn(job) {
				return false
			}
		}
		return true
	}
	if x.tree == nil {
		if !p.all[x.first].key.less(from) {
			of(x.first)
		}
		return
	}
	x.tree.Ascend(entry{key: from}, func(e entry) bool { return of(e.bucket) })
}
