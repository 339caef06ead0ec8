package sched

// Finish ends a job that the peer holds. Its awaits receive data. It returns an error and changes
// nothing when no such job is reserved or another peer holds it.
func (s *Scheduler) Finish(now Time, p *Peer, run Run, data []byte, sink Sink) error {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return s.countStale(err)
	}
	defer sh.unlock(now, sink)
	r, err := sh.findHeld(p, run)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	sh.finish(now, run.Record, r, p.origin, data, sink)
	return nil
}

// finish is Finish for a reserved job and the name of its worker.
func (sh *shard) finish(now Time, job uint32, r *record, worker string, data []byte, sink Sink) {
	w := sh.holdingWatch(r)
	sh.observeRun(now, r)
	q := sh.unhold(job, r)
	sh.counters.Done++
	q.tally.Ended[EndDone]++
	switch {
	case r.flags&task != 0:
		sh.graph.end(now, job, r, q, sink)
	case q.policy != nil:
		sh.endByPolicy(now, job, r, q, Attempt{Outcome: attemptDone, Worker: worker}, Result, data, sink)
	default:
		sh.end(job, r, q, Result, data, sink)
	}
	sh.serveNamedAgain(now, w, sink)
}

// Fail gives back a job that the peer could not do: the job becomes ready, due now, or ends, see
// Rules.MaxFailures and Policy.Retries. text is the worker's error. A history keeps its end, or its beginning
// in a space with Rules.RetryRules.
func (s *Scheduler) Fail(now Time, p *Peer, run Run, text []byte, sink Sink) error {
	sh, r, err := s.lockReported(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failRun(now, run.Record, r, Attempt{Outcome: attemptFailed, Worker: p.origin, Text: sh.errorText(r, text)}, defaultDelay, sink)
	return nil
}

// defaultDelay has a failed job wait for the back-off of its queue's policy or of the Rules.RetryRules of its space, or
// not at all.
const defaultDelay = -1

// failRun is Fail for a reserved job. A delay of 0 or more, in milliseconds, replaces a policy's back-off.
func (sh *shard) failRun(now Time, job uint32, r *record, a Attempt, delay int64, sink Sink) {
	sh.counters.RunsFailed++
	sh.failAwaits(job, r, sink)
	w := sh.holdingWatch(r)
	q := sh.unhold(job, r)
	sh.fail(now, job, r, q, a, delay, sink)
	sh.matchOrDefer(now, q, sink)
	sh.serveNamedAgain(now, w, sink)
}

// longestDelay bounds the milliseconds of a delay: a longer one would overflow.
const longestDelay = int64(1) << 50

// Delay gives back a job, which is due again after some seconds, counted from now to the millisecond. It adds countStep
// to the job's Count.
func (s *Scheduler) Delay(now Time, p *Peer, run Run, seconds int64, countStep int32, sink Sink) error {
	seconds = max(min(seconds, longestDelay/1000), -longestDelay/1000)
	sh, r, err := s.lockReported(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failAwaits(run.Record, r, sink)
	w := sh.holdingWatch(r)
	q := sh.unhold(run.Record, r)
	if rules := &sh.s.rules[r.space]; rules.MaxFailures == 0 && rules.RetryRules == nil { // else count counts failures or retries
		r.count = clampAdd(r.count, countStep)
	}
	sh.release(now, run.Record, r, q, now.Wall+seconds*1000, sink)
	sh.matchOrDefer(now, q, sink)
	sh.serveNamedAgain(now, w, sink)
	return nil
}

// lockReported locks the shard of a job that the peer gives back, counts the end of the run, and returns the job.
func (s *Scheduler) lockReported(now Time, p *Peer, run Run) (*shard, *record, error) {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return nil, nil, s.countStale(err)
	}
	r, err := sh.findHeld(p, run)
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	sh.counters.Released++
	sh.observeRun(now, r)
	return sh, r, nil
}

func clampAdd(a, b int32) int32 {
	return int32(max(min(int64(a)+int64(b), 1<<31-1), -1<<31))
}

// countStale counts a report on a job that no shard has, and returns err.
func (s *Scheduler) countStale(err error) error {
	s.shards[0].mu.Lock()
	defer s.shards[0].mu.Unlock()
	s.shards[0].counters.Stale++
	return err
}

// lockShard locks a shard by its number. It returns an error if there is no such shard.
func (s *Scheduler) lockShard(number uint16) (*shard, error) {
	if int(number) >= len(s.shards) {
		return nil, ErrNotFound
	}
	sh := &s.shards[number]
	sh.mu.Lock()
	return sh, nil
}
