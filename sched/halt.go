package sched

// Halt stops the handing out of jobs for good: no Assign, Broadcast or Wake follows, and Steal
// takes nothing. All other verbs continue, so that workers can end the jobs that they hold.
func (s *Scheduler) Halt() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.halted = true
		sh.mu.Unlock()
	}
}

// CountInterruptible counts the reserved jobs that a restart makes ready again. Tasks keep their holders and durable
// jobs their leases, so they do not count.
func (s *Scheduler) CountInterruptible() (n int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += sh.countInterruptible()
		sh.mu.Unlock()
	}
	return n
}

// countInterruptible is CountInterruptible for one shard. It needs no walk: every reserved job stands under a deadline
// or is counted.
func (sh *shard) countInterruptible() int {
	return sh.defaultTimed.jobs + sh.ownTimed.jobs + sh.untimedJobs - sh.lastingLeases
}

// countUntimed adds n to the count of jobs that are reserved without a time-out, as all tasks are.
func (sh *shard) countUntimed(r *record, q *queue, n int) {
	if r.flags&task != 0 {
		q.reservedTasks += n
	} else {
		sh.untimedJobs += n
	}
}
