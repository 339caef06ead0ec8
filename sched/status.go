package sched

import "math"

// Counters count events since the start.
type Counters struct {
	Submitted  uint64 // new jobs
	Replaced   uint64 // submissions that replaced a pending job
	Ignored    uint64 // submissions for a reserved, parked or broadcasting job, or one done within Policy.UniqueFor
	Assigned   uint64
	Broadcast  uint64
	Done       uint64
	Released   uint64 // failed, delayed or released by their holder
	RunsFailed uint64 // number of released jobs that failed
	Abandoned  uint64 // released because their holder left
	TimedOut   uint64
	Removed    uint64 // jobs that a client or an operator removed, or that went with their queue or their owner
	GivenUp    uint64 // number of jobs that a policy's retries gave up
	Evicted    uint64 // failed jobs that were too many or too old
	Moved      uint64 // jobs that went to another queue: failed jobs to a dead-letter queue, and jobs that operators moved
	Retried    uint64 // failed jobs that were made ready again
	Expired    uint64 // not handed out within Policy.JobTTL
	Forgotten  uint64 // names of done jobs, too many to be remembered for Policy.UniqueFor
	Stale      uint64 // reports of peers that did not hold the job
}

// add adds the counts of o to c.
func (c *Counters) add(o *Counters) {
	c.Submitted += o.Submitted
	c.Replaced += o.Replaced
	c.Ignored += o.Ignored
	c.Assigned += o.Assigned
	c.Broadcast += o.Broadcast
	c.Done += o.Done
	c.Released += o.Released
	c.RunsFailed += o.RunsFailed
	c.Abandoned += o.Abandoned
	c.TimedOut += o.TimedOut
	c.Removed += o.Removed
	c.GivenUp += o.GivenUp
	c.Evicted += o.Evicted
	c.Moved += o.Moved
	c.Retried += o.Retried
	c.Stale += o.Stale
	c.Expired += o.Expired
	c.Forgotten += o.Forgotten
}

// Stats is one reading of the counters and gauges.
type Stats struct {
	Counters
	Queues     int
	Jobs       int // in any state, without kept jobs
	Failed     int
	Numbered   NumberedStats
	KeptDone   int // done or expired
	KeptNames  int // of done jobs, remembered for Policy.UniqueFor alone
	ArenaBytes int // held for the bytes of jobs
	// Waits are the times from due to the hand-out of jobs, in whole seconds, without tasks. Runs are the times from
	// the hand-out of a job to the report of its worker: done, failed or put off.
	Waits, Runs Durations
}

// Stats sums over the shards. The part of each shard is of one moment.
func (s *Scheduler) Stats() Stats {
	var t Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		t.add(&sh.counters)
		t.Failed += sh.keptJobs[keptFailed] + sh.keptJobs[keptBuried]
		t.Numbered.add(sh)
		t.KeptDone += sh.keptJobs[keptDone] + sh.keptJobs[keptResult]
		t.KeptNames += sh.keptJobs[keptName]
		t.Queues += len(sh.byName)
		t.Jobs += sh.slab.live - sh.graph.completeCount() - sh.keptBySeq.count - sh.keptJobs[keptName]
		t.ArenaBytes += sh.arena.bytes
		t.Waits.add(&sh.waits)
		t.Runs.add(&sh.runs)
		sh.mu.Unlock()
	}
	return t
}

// Memory returns how many bytes the records of all jobs and their bytes take, in whole chunks. It takes no lock and is
// exact at any moment. It does not include names, indexes and awaits.
func (s *Scheduler) Memory() int64 { return s.memory.Load() }

// QueueStatus is what Status shows of a queue.
type QueueStatus struct {
	Name          string
	Workers       int
	Jobs          int // pending, running, parked and waiting
	Running       int
	Interruptible int    // running jobs that a restart makes ready again; tasks, and durable jobs under leases, are not
	Parked        int    // waiting for a lock
	Delayed       int    // not due yet
	Retrying      int    // delayed jobs that have failed before or were moved
	Waiting       int    // waiting tasks
	Failed        int    // given up or buried, and kept; not among Jobs
	Buried        int    // failed jobs of Rules.Numbered
	Urgent        int    // ready jobs of Rules.Numbered with a priority above 0
	Done          int    // done or expired, and kept; not among Jobs
	Spaces        uint16 // the name spaces that ever had a job in it, as bits
	// SchedAt is the smallest sched_at of the pending jobs. It is 0 when a pending job is immediate, or numbered and
	// ready, or when no job is pending.
	SchedAt int64
}

// Ready returns the number of ready jobs. A policy, or a clash of names, may hold some of them back.
func (st *QueueStatus) Ready() int { return st.Jobs - st.Running - st.Parked - st.Waiting - st.Delayed }

// Status calls fn for every queue under the shard's lock, a batch of queues at a time, in no stated
// order. A queue that exists from beginning to end is seen once.
func (s *Scheduler) Status(fn func(QueueStatus)) {
	for i := range s.shards {
		for first, more := 0, true; more; first += s.batch {
			more = s.shards[i].statuses(first, s.batch, fn)
		}
	}
}

// StatusSome is Status for the next batch of queues behind a cursor. It returns the cursor behind this batch. done
// reports whether no queues are left.
func (s *Scheduler) StatusSome(c Cursor, fn func(QueueStatus)) (_ Cursor, done bool) {
	if c.shard >= len(s.shards) {
		return c, true
	}
	if s.shards[c.shard].statuses(int(c.slot), s.batch, fn) {
		c.slot += uint32(s.batch)
	} else {
		c = Cursor{shard: c.shard + 1}
	}
	return c, c.shard >= len(s.shards)
}

// StatusOf returns the status of a queue. ok is false when there is no queue of this name.
func (s *Scheduler) StatusOf(queue []byte) (_ QueueStatus, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return QueueStatus{}, false
	}
	return sh.status(q), true
}

// statuses calls fn for the queues with the n ids from first on. more reports whether there are higher ids.
func (sh *shard) statuses(first, n int, fn func(QueueStatus)) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	end := min(first+n, len(sh.queues))
	for ; first < end; first++ {
		sh.countSteps(1)
		if q := sh.queues[first]; q != nil && !q.dropped {
			fn(sh.status(q))
		}
	}
	return end < len(sh.queues)
}

// status returns the counts of a queue. SchedAt is the earliest due second of its pending jobs. It is 0 if a pending
// job was submitted without a due second, or is numbered and ready, and if no job is pending.
func (sh *shard) status(q *queue) QueueStatus {
	st := QueueStatus{Name: q.name, Workers: q.workers, Jobs: q.pending() + q.running + len(q.parked) + q.waiting, Running: q.running,
		Interruptible: q.running - q.reservedTasks - q.savedLeases, Parked: len(q.parked), Delayed: q.delayed.jobs,
		Retrying: q.retrying, Spaces: q.spaces, Waiting: q.waiting,
		Failed: q.failedJobs(), Buried: q.keptFor(keptBuried), Urgent: q.urgent, Done: q.keptFor(keptDone, keptResult)}
	if q.immediate+q.byNumber.jobs > 0 || q.pending() == 0 {
		return st
	}
	st.SchedAt = never
	if k, ok := q.delayed.min(&sh.buckets); ok {
		st.SchedAt = k.major
	}
	for _, x := range [...]*index{&q.ready, &q.withheld, &q.longNames, &q.private} {
		// The jobs of priority 0, see readyKey.
		if k, ok := x.minFrom(&sh.buckets, sortKey{^0, math.MinInt64}); ok && k.major == ^0 {
			st.SchedAt = min(st.SchedAt, k.minor)
		}
	}
	if due, ok := q.prioritized.min(); ok {
		st.SchedAt = min(st.SchedAt, due)
	}
	return st
}

// NameOf returns the queue and the name of the job in a run's slot, for logs: another job may have
// taken the slot. Both are empty when there is no job.
func (s *Scheduler) NameOf(run Run) (queue, name string) {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return "", ""
	}
	defer sh.mu.Unlock()
	r := sh.slab.find(run.Record)
	if r == nil || r.state == free || !r.live() || r.space != run.Space {
		return "", ""
	}
	b, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	return sh.queueOf(r).name, string(b)
}

// Cursor is a place in a walk over all jobs; the zero value is the start.
type Cursor struct {
	shard int
	slot  uint32
}

// WalkBatch is the usual n of Walk and WalkTasks: jobs viewed under one hold of a shard's lock.
const WalkBatch = 256

// Walk calls fn for the next jobs behind a cursor, under the lock of one shard, and returns the cursor behind these
// jobs. It visits at most n slots; a large job counts as several. done reports whether the walk is over. A job that
// lives from the first call to the last is seen exactly once.
func (s *Scheduler) Walk(c Cursor, n int, fn func(*Job)) (_ Cursor, done bool) {
	return s.walk(c, n, func(sh *shard, slot uint32, r *record, q *queue) {
		sh.view(slot, r, q, &sh.out.Job)
		fn(&sh.out.Job)
	})
}

// walk calls fn, under the lock of one shard, for up to n records from a cursor on, without records of ended jobs and
// of dropped queues. A large job counts as several records. walk returns the cursor to continue from, and whether the
// walk is over.
func (s *Scheduler) walk(c Cursor, n int, fn func(*shard, uint32, *record, *queue)) (_ Cursor, done bool) {
	if c.shard >= len(s.shards) {
		return c, true
	}
	sh := &s.shards[c.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for end := uint64(len(sh.slab.chunks)) << slabBits; n > 0 && uint64(c.slot) < end; n-- {
		sh.countSteps(1)
		r := sh.slab.find(c.slot)
		if r == nil {
			c.slot = (c.slot>>slabBits + 1) << slabBits
			continue
		}
		if r.state != free && r.live() {
			if q := sh.queueOf(r); !q.dropped {
				fn(sh, c.slot, r, q)
				n -= r.cost() - 1
			}
		}
		c.slot++
	}
	if uint64(c.slot) >= uint64(len(sh.slab.chunks))<<slabBits {
		c = Cursor{shard: c.shard + 1}
	}
	return c, c.shard >= len(s.shards)
}
