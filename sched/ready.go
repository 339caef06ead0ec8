package sched

// The ready jobs of a queue are in several indexes, see the fields of queue. The jobs of an index are in the order of
// their sort keys, then of their arrival. Ranks compare the first jobs of several indexes, or of several queues.

// readyFor returns the ready index in which a job belongs.
func (sh *shard) readyFor(q *queue, r *record) *index {
	switch {
	case r.flags&(longName|private|withheld|laned|numbered) == 0: // fast path
		return &q.ready
	case r.flags&private != 0:
		return &q.private
	case r.flags&withheld != 0:
		return &q.withheld
	case r.flags&laned != 0:
		return &q.keyed.lanes[r.laneID()].jobs
	case r.flags&longName != 0:
		return &q.longNames
	}
	return &q.byNumber
}

// standsByNumber reports whether the index by number is the one in which a ready job belongs.
func (r *record) standsByNumber() bool {
	return r.flags&(longName|private|withheld|laned|numbered) == numbered
}

// pushReady puts a detached job in its ready index, ahead of the jobs of its sort key or behind them. The caller counts
// immediate jobs and ready tasks.
func (sh *shard) pushReady(job uint32, r *record, q *queue, where lineEnd) {
	var l *lane
	if q.keyed != nil && q.keyed.hasKey(r) {
		l = sh.laneFor(q.keyed, r)
		r.flags, r.stateData = r.flags|laned, l.id
		if r.flags&withheld != 0 {
			l.taken++
		} else {
			q.keyed.jobs++
		}
	}
	q.countDue(r, 1)
	sh.countReady(q, r, 1)
	switch x := sh.readyFor(q, r); {
	case x == &q.byNumber:
		x.insert(&sh.buckets, &sh.slab, numberKey(r), job)
	case where == front:
		x.pushFront(&sh.buckets, &sh.slab, sh.standing(r), job)
	default:
		x.pushBack(&sh.buckets, &sh.slab, sh.standing(r), job)
	}
	if l != nil {
		sh.placeLane(q, l)
	}
}

// removeReady takes a ready job from its index. The caller counts immediate jobs and ready tasks.
func (sh *shard) removeReady(job uint32, r *record, q *queue) {
	q.countDue(r, -1)
	sh.countReady(q, r, -1)
	sh.readyFor(q, r).remove(&sh.buckets, &sh.slab, job)
	switch r.flags & (laned | withheld) {
	case laned:
		q.keyed.jobs--
		sh.placeLane(q, q.keyed.lanes[r.laneID()])
	case laned | withheld:
		sh.removeTaken(q, r.laneID())
	}
	r.flags &^= laned | withheld
}

// take detaches a ready job that is handed out, broadcast or withheld. The job's lane counts it until removeTaken. The
// record of the job has the lane, by the flag laned, until hold notes it.
func (sh *shard) take(job uint32, r *record, q *queue) {
	k := q.keyed
	if k == nil {
		sh.dequeue(job, r, q)
		return
	}
	var l *lane
	if r.flags&laned != 0 {
		l = k.lanes[r.laneID()]
		if r.flags&withheld == 0 {
			l.countServed()
		}
	}
	from := l                                     // the lane that the job leaves
	if l == nil || l.generation != k.generation { // the Ticks have not moved the job yet
		if l = nil; k.hasKey(r) {
			l = sh.laneFor(k, r)
		}
	}
	if l != nil {
		l.taken++
	}
	sh.dequeue(job, r, q) // also places the lane that the job leaves
	if l == nil {
		return
	}
	if r.flags, r.stateData = r.flags|laned, l.id; l != from {
		sh.placeLane(q, l)
	}
}

// countDue counts a job in prioritized that enters a ready index (n is 1) or leaves it (n is -1).
func (q *queue) countDue(r *record, n int) {
	if (r.priority != 0 || r.flags&laned != 0) && r.flags&immediate == 0 && !r.standsByNumber() {
		q.prioritized.add(r.due, n)
	}
}

// head returns the first job of a queue's ready index, its index by number and its lanes, or none.
func (sh *shard) head(q *queue) uint32 {
	if q.keyed == nil && q.byNumber.jobs == 0 {
		return q.ready.head(&sh.buckets)
	}
	job := sh.earlierByRank(q.ready.head(&sh.buckets), q.byNumber.head(&sh.buckets))
	if q.keyed != nil && len(q.keyed.open) > 0 {
		job = sh.earlierByRank(job, q.keyed.open[0].first.jobs.head(&sh.buckets))
	}
	return job
}

// earlierByRank returns the earlier of two jobs, which must not be in the withheld index or that of long names: see
// earlier for these. Either may be none.
func (sh *shard) earlierByRank(x, y uint32) uint32 {
	if x == none || y == none {
		return min(x, y) // none is the largest
	}
	if sh.rankOf(y).less(sh.rankOf(x)) {
		return y
	}
	return x
}

// readyKey returns the key of a ready job that is not numbered: larger priority first, then the earlier due second. The
// ^ turns the order of priorities round without overflow.
func readyKey(r *record) sortKey { return sortKey{^r.priority, r.due} }

// standing returns the key by which a ready job is compared with jobs of other indexes and queues. The key of a
// numbered job has the second of its submission, so that numbered jobs keep their order in every index.
func (sh *shard) standing(r *record) sortKey {
	if r.flags&numbered == 0 {
		return readyKey(r)
	}
	return sh.numberedStanding(r)
}

// rank orders ready jobs of several queues: larger priority first, then the earlier due second,
// then the earlier submission.
type rank struct {
	key sortKey
	seq uint64
}

// lastRank is behind the rank of every job.
var lastRank = rank{sortKey{never, never}, ^uint64(0)}

func (x rank) less(y rank) bool { return x.key.less(y.key) || x.key == y.key && x.seq < y.seq }

func (sh *shard) rankOf(job uint32) rank {
	if job == none {
		return lastRank
	}
	r := sh.slab.at(job)
	return rank{sh.standing(r), r.seq}
}
