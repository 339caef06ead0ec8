package sched

import "math"

// Counters count what happened since the start.
type Counters struct {
	Submitted uint64 // new jobs
	Replaced  uint64 // submissions that replaced a pending job
	Ignored   uint64 // submissions of a running job's name
	Assigned  uint64
	Broadcast uint64
	Done      uint64
	Released  uint64 // failed, delayed or released by their holder
	Abandoned uint64 // released because their holder left
	TimedOut  uint64
	Removed   uint64
	Stale     uint64 // results and failures from peers that did not hold the job
}

// Stats is a reading of counters and gauges.
type Stats struct {
	Counters
	Queues     int
	Jobs       int // in any state
	ArenaBytes int // held for the bytes of jobs
}

// Stats sums over the shards. Each shard's part is of one moment.
func (s *Scheduler) Stats() Stats {
	var t Stats
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		c := &sh.counters
		t.Submitted += c.Submitted
		t.Replaced += c.Replaced
		t.Ignored += c.Ignored
		t.Assigned += c.Assigned
		t.Broadcast += c.Broadcast
		t.Done += c.Done
		t.Released += c.Released
		t.Abandoned += c.Abandoned
		t.TimedOut += c.TimedOut
		t.Removed += c.Removed
		t.Stale += c.Stale
		t.Queues += len(sh.byName)
		t.Jobs += sh.slab.live - sh.graph.gone()
		t.ArenaBytes += sh.arena.bytes
		sh.mu.Unlock()
	}
	return t
}

// QueueStatus is one queue as STATUS shows it.
type QueueStatus struct {
	Name    string
	Workers int
	Jobs    int // pending, running, parked and waiting for others
	Running int
	// Unfinished are those of the running ones that a restart makes ready again: all but tasks.
	Unfinished int
	Parked     int   // waiting for a lock
	Delayed    int   // not due yet
	Waiting    int   // for others
	SchedAt    int64 // smallest sched_at among the pending jobs, 0 when that is now or there is none
}

// Status calls fn for every queue, under the shard's lock: shard by shard, a batch at a time, in
// no order that means anything. One that is there from beginning to end is seen once.
func (s *Scheduler) Status(fn func(QueueStatus)) {
	for i := range s.shards {
		for first, more := 0, true; more; first += s.batch {
			more = s.shards[i].statuses(first, s.batch, fn)
		}
	}
}

// statuses calls fn for those of n queues by their numbers, from first on, that are there; more says
// that there are others.
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

func (sh *shard) status(q *queue) QueueStatus {
	st := QueueStatus{Name: q.name, Workers: q.workers, Jobs: q.pending() + q.running + len(q.parked) + q.waiting, Running: q.running, Unfinished: q.running - q.reservedTasks, Parked: len(q.parked), Delayed: q.delayed.jobs, Waiting: q.waiting}
	if q.immediate > 0 || q.pending() == 0 {
		return st
	}
	st.SchedAt = never
	if k, ok := q.delayed.min(&sh.buckets); ok {
		st.SchedAt = k.a
	}
	for _, x := range [...]*index{&q.ready, &q.withheld, &q.wide, &q.private} {
		if k, ok := x.minFrom(&sh.buckets, key{^0, math.MinInt64}); ok && k.a == ^0 {
			st.SchedAt = min(st.SchedAt, k.b)
		}
	}
	if due, ok := q.prioritized.min(); ok {
		st.SchedAt = min(st.SchedAt, due)
	}
	return st
}

// NameOf returns the queue and the name of the job that a run was of, for people: another's may have
// taken its slot. Both are empty when no job is there.
func (s *Scheduler) NameOf(run Run) (queue, name string) {
	sh, err := s.lock(run.Shard)
	if err != nil {
		return "", ""
	}
	defer sh.mu.Unlock()
	r := sh.slab.find(run.Slot)
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

// WalkBatch is the usual n of Walk and WalkTasks: jobs looked at under one hold of a shard's lock.
const WalkBatch = 256

// Walk calls fn for the next jobs behind a cursor, at most n slots of one shard
// under its lock, of large jobs fewer, and returns the cursor behind them; done says that the walk is
// over. A job that lives from the first call to the last is seen exactly once.
func (s *Scheduler) Walk(c Cursor, n int, fn func(*Job)) (_ Cursor, done bool) {
	return s.walk(c, n, func(sh *shard, slot uint32, r *record, q *queue) {
		sh.view(slot, r, q, &sh.out.Job)
		fn(&sh.out.Job)
	})
}

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
