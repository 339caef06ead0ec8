package sched

// Return gives back a job that has not failed, to be due so many milliseconds from now. Its awaits receive nothing. A
// job of Rules.Numbered takes the priority.
func (s *Scheduler) Return(now Time, p *Peer, run Run, priority, ms int64, sink Sink) error {
	sh, r, err := s.releasing(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	ms = min(max(ms, 0), longestDelay)
	w := sh.holder(r)
	q := sh.unhold(run.Record, r)
	if r.flags&numbered != 0 {
		r.priority = priority
		sh.addCount(r, atReturned)
		c := sh.countsOf(r)
		c.Delay = uint32(ms / 1000)
		sh.setCounts(r, &c)
	}
	sh.release(now, run.Record, r, q, now.Wall+ms, sink)
	sh.matchOrDefer(now, q, sink)
	sh.reconsider(now, w, sink)
	return nil
}

// Bury gives back a job that is not to be tried again before it is retried by hand, or kicked: it has failed, whatever
// the policy of its queue says of retries. A job of Rules.Numbered takes the priority. Jobs whose space has a rule for
// failures (Rules.Deaths, Owned, Graph) fail as by Fail.
func (s *Scheduler) Bury(now Time, p *Peer, run Run, priority int64, sink Sink) error {
	sh, r, err := s.releasing(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	a := Attempt{At: now.Wall, Outcome: attemptBuried, Worker: p.where}
	if !sh.s.rules[r.space].plain() {
		a.Outcome = attemptFailed
		sh.failRun(now, run.Record, r, a, byRules, sink)
		return nil
	}
	use := keptFailed
	if r.flags&numbered != 0 {
		use, r.priority = keptBuried, priority
		sh.addCount(r, atBuried)
	}
	sh.counters.Fails++
	sh.counters.GivenUp++
	w := sh.holder(r)
	q := sh.unhold(run.Record, r)
	q.tally.Ended[EndingFailed]++
	sh.addAttempt(run.Record, r, a)
	sh.bury(now, run.Record, r, q, use, sink)
	sh.reconsider(now, w, sink)
	return nil
}

// Renew starts the time-out of a job that the peer holds anew.
func (s *Scheduler) Renew(now Time, p *Peer, run Run) error {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return s.countStale(err)
	}
	defer sh.mu.Unlock()
	r, err := sh.holding(p, run)
	switch {
	case err != nil:
		sh.counters.Stale++
		return err
	case r.flags&untimed != 0:
		return nil
	case r.flags&ownDeadline != 0:
		sh.deadline.remove(&sh.buckets, &sh.slab, run.Record)
	default:
		sh.running.remove(&sh.buckets, &sh.slab, run.Record)
	}
	sh.startTimeout(now, run.Record, r, p)
	return nil
}

// Blocked reports whether a job was kept back from the peer because of its unsent bytes.
func (p *Peer) Blocked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked
}
