package sched

import "math"

// Policy.JobTTL bounds how long after its due time a job may start. pair ends a job that is too old instead of handing
// it out, and a sweep of the Ticks ends the others. A ready index has the jobs of a priority by their standing. That is
// the due second, or for a numbered job the second of its submission, although it may be due later. So a sweep reads
// the jobs of each priority up to the first job whose standing is too young to have expired. It needs no memory for
// each job.

// sweep ends the ready jobs of a queue that have expired.
type sweep struct {
	queue     *queue
	ttl       int64 // milliseconds
	next      int64 // Mono when the next sweep begins, or continues
	heapIndex int   // place among the shard's

	// Of the sweep under way:

	index  int     // of sweptIndex
	from   sortKey // where it continues in that index
	passed uint32  // the last job that the sweep passed over, which had the key from, and its seq
	seq    uint64
	first  int64 // Wall when the first of the remaining jobs expires
}

func (w *sweep) Ahead(o *sweep) bool { return w.next < o.next }
func (w *sweep) HeapIndex() int      { return w.heapIndex }
func (w *sweep) SetHeapIndex(i int)  { w.heapIndex = i }

// sweepEvery is the longest time in milliseconds between two sweeps. The wall clock may be set forward. A job may be
// submitted with a due time in the past.
const sweepEvery = 60_000

// minSweep is the shortest time in milliseconds until a sweep that expects no job to have expired.
const minSweep = 1000

// firstDue is the first due second that is a time. Tasks, jobs that have failed (aheadOfAll) and jobs without a known
// due time have smaller due seconds.
const firstDue = 1

// expires returns when a ready job of a due second expires. The time counts from the end of this second, since the job
// may have been due at any moment of it.
func (w *sweep) expires(due int64) int64 {
	if due < firstDue {
		return never
	}
	return min(due, never/1000-2-w.ttl/1000)*1000 + 1000 + w.ttl
}

// expired reports whether a ready job must not start any more.
func (sh *shard) expired(now Time, q *queue, r *record) bool {
	if q.sweep != nil && q.sweep.expires(r.due) <= now.Wall {
		return true
	}
	if r.flags&expires == 0 {
		return false
	}
	_, workload := unpack(sh.arena.view(r.bytes, int(r.size)))
	return sh.s.rules[r.space].Expiry(workload) <= now.Wall
}

// endExpired ends a ready job that has expired. It returns the cost, including the answers to the job's awaits.
func (sh *shard) endExpired(now Time, job uint32, r *record, q *queue, sink Sink) int {
	before := sh.mu.steps
	sh.countSteps(r.cost())
	sh.dequeue(job, r, q)
	sh.counters.Expired++
	q.tally.Ended[EndExpired]++
	if q.policy == nil {
		sh.end(job, r, q, Failed, nil, sink)
	} else {
		sh.endByPolicy(now, job, r, q, Attempt{Outcome: attemptExpired}, Failed, nil, sink)
	}
	return sh.mu.steps - before
}

// setSweep gives a queue the sweep of its policy.
func (sh *shard) setSweep(now Time, q *queue) {
	if q.sweep != nil {
		sh.sweeps.Remove(q.sweep)
		q.sweep = nil
	}
	if q.policy != nil && q.policy.JobTTL > 0 {
		q.sweep = &sweep{queue: q, ttl: q.policy.JobTTL, next: now.Mono, from: firstKey, first: never}
		sh.sweeps.Push(q.sweep)
		sh.s.alarmMono(now.Mono)
	}
}

// sweepQueues does the sweeps that are due.
func (sh *shard) sweepQueues(now Time, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit && len(sh.sweeps) > 0 && sh.sweeps[0].next <= now.Mono {
		switch w := sh.sweeps[0]; {
		case w.queue.dropped:
			sh.countSteps(1)
			sh.sweeps.Remove(w)
		case sh.sweepSome(now, w, stepLimit, sink):
			w.next = now.Mono + max(min(w.first-now.Wall, max(w.ttl, minSweep), sweepEvery), 1)
			w.index, w.first = 0, never
			sh.sweeps.Fix(w)
		}
	}
}

// sweepSome does a part of a sweep. done reports whether it was the last part.
func (sh *shard) sweepSome(now Time, w *sweep, stepLimit int, sink Sink) (done bool) {
	q := w.queue
	for w.index < q.sweptIndexes() {
		if sh.mu.steps >= stepLimit {
			return false
		}
		sh.countSteps(1)
		if w.index == byNumberIndex {
			sh.sweepNumbered(now, w, sink)
			continue
		}
		job := sh.sweepNext(w, q.sweptIndex(w.index))
		if job == none {
			w.index, w.from = w.index+1, firstKey
			continue
		}
		r := sh.slab.at(job)
		k := sh.standing(r)
		switch at := w.expires(r.due); {
		case k.minor < firstDue:
			w.from = sortKey{k.major, firstDue}
		case at <= now.Wall:
			sh.endExpired(now, job, r, q, sink)
		case w.expires(k.minor) <= now.Wall: // a numbered job, due later than its standing: jobs behind it may have expired
			w.first = min(w.first, at)
			w.from, w.passed, w.seq = k, job, r.seq
		case k.major < math.MaxInt64:
			w.first = min(w.first, at)
			w.from = sortKey{k.major + 1, math.MinInt64}
		default:
			w.first = min(w.first, at)
			w.index, w.from = w.index+1, firstKey
		}
	}
	return true
}

// sweepNext returns the next job of an index for a sweep, or none. That is the job behind the one that the sweep passed
// over last. If the latter has gone, it is the first job of the same key or a later one.
func (sh *shard) sweepNext(w *sweep, x *index) uint32 {
	from := w.from
	if r := sh.slab.find(w.passed); r != nil && r.seq == w.seq && r.state == ready && r.container == w.queue.id &&
		sh.readyFor(w.queue, r) == x && sh.buckets.at(r.bucket).key == from {
		if r.next != none {
			return r.next
		}
		if from = from.next(); from == firstKey { // it has passed the last key
			return none
		}
	}
	return x.headFrom(&sh.buckets, &sh.slab, from)
}

// sweepNumbered sweeps one bucket of the index by number, whose jobs stand in the order of their submission and not of
// their due times. No job is due before it is submitted. So when a job was submitted too late to have expired, the
// sweep passes over the later jobs of its priority.
func (sh *shard) sweepNumbered(now Time, w *sweep, sink Sink) {
	q := w.queue
	job := q.byNumber.headFrom(&sh.buckets, &sh.slab, w.from)
	if job == none {
		w.index, w.from = w.index+1, firstKey
		return
	}
	k := numberKey(sh.slab.at(job))
	w.from = k.next()
	for job != none {
		r := sh.slab.at(job)
		this, at := job, w.expires(r.due)
		job = r.next
		sh.countSteps(1)
		if at <= now.Wall {
			sh.endExpired(now, this, r, q, sink)
			continue
		}
		w.first = min(w.first, at)
		if w.expires(sh.standing(r).minor) > now.Wall {
			w.from = sortKey{k.major, math.MaxInt64}.next()
			break
		}
	}
	if w.from == firstKey { // the sweep has visited the last key
		w.index++
	}
}

// byNumberIndex is the number of the index by number for sweptIndex. The lanes follow.
const byNumberIndex = 3

// sweptIndexes is how many numbers sweptIndex takes. A lane that is made during a sweep may get the number of a lane
// that has gone. The next sweep reads it.
func (q *queue) sweptIndexes() int {
	if q.keyed == nil {
		return byNumberIndex + 1
	}
	return byNumberIndex + 1 + len(q.keyed.lanes)
}

// sweptIndex returns an index of ready jobs by its number.
func (q *queue) sweptIndex(i int) *index {
	switch i {
	case 0:
		return &q.ready
	case 1:
		return &q.withheld
	case 2:
		return &q.longNames
	case byNumberIndex:
		return &q.byNumber
	}
	if l := q.keyed.lanes[i-byNumberIndex-1]; l != nil {
		return &l.jobs
	}
	return &index{}
}
