package sched

// SetPolicies gives the scheduler a new table of rules. Queues that are made from now on follow it. ApplyPolicies or
// the Ticks give it to the other queues, a batch at a time. Until then these queues follow the earlier table.
func (s *Scheduler) SetPolicies(t *Policies) {
	s.policies.Store(t)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.policyCursor = 0
		sh.mu.Unlock()
	}
	s.alarmMono(0)
}

// ApplyPolicies gives all queues the present policies before it returns: a queue that is paused hands out nothing from
// then on. Where a policy changes the keys of jobs, ApplyKeys or the Ticks move the jobs.
func (s *Scheduler) ApplyPolicies(now Time, sink Sink) {
	s.apply(now, sink, func(sh *shard, stepLimit int) bool { return sh.applyPolicies(now, stepLimit, sink) })
}

// ApplyKeys moves all jobs to the lanes of their keys under the present policies. It is called before any peer is
// served.
func (s *Scheduler) ApplyKeys(now Time, sink Sink) {
	s.apply(now, sink, (*shard).continueLaneChanges)
}

// apply calls some in every shard until nothing is left to do, for a batch under each hold of the shard's lock.
func (s *Scheduler) apply(now Time, sink Sink, some func(sh *shard, stepLimit int) (more bool)) {
	for i := range s.shards {
		sh := &s.shards[i]
		for more := true; more; {
			sh.mu.Lock()
			more = some(sh, sh.mu.steps+s.batch)
			sh.unlock(now, sink)
		}
	}
}

// applyPolicies gives a batch of queues the present policies. more reports whether there are other queues to do.
func (sh *shard) applyPolicies(now Time, stepLimit int, sink Sink) (more bool) {
	if sh.s.policies.Load() == nil {
		return false
	}
	for ; sh.mu.steps < stepLimit && sh.policyCursor < len(sh.queues); sh.policyCursor++ {
		sh.countSteps(1)
		if q := sh.queues[sh.policyCursor]; q != nil && !q.dropped {
			sh.setPolicy(now, q)
			sh.matchUntil(now, q, stepLimit, sink)
			sh.offerWithheld(q)
		}
	}
	return sh.policyCursor < len(sh.queues)
}

// setPolicy gives a queue its present policy.
func (sh *shard) setPolicy(now Time, q *queue) {
	t := sh.s.policies.Load()
	if t == nil {
		return
	}
	sh.countSteps(len(t.rules) / entriesPerStep)
	q.policy = t.forQueue(q.name)
	sh.setLimiter(now, q)
	sh.setSweep(now, q)
	sh.setKeyed(q)
	sh.resetKept(q)
}

// jitterBits returns bits for the jitter of a retry. Within a process they are the same for a job and a try. In the
// invariants build they are the same in every process, so that a simulation can be replayed.
func (s *Scheduler) jitterBits(seq uint64, tries int32) uint64 {
	x := (seq+1)*0x9e3779b97f4a7c15 ^ uint64(tries)*0xd6e8feb86659fd93 ^ s.salt
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return x * 0xd6e8feb86659fd93
}
