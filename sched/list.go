package sched

import (
	"math"
	"slices"
)

// Listing is a walk over the jobs that match, of one queue or of all. One goroutine at a time uses it. Another Listing
// continues from its cursor.
//
// The jobs of one queue come in this order: running, ready, delayed by due time, locked, waiting, failed and done by
// the time of their end. The ready jobs of each index come in the order of hand-out. The jobs of all queues come in the
// order of their records. A job that keeps its place from the first call to the last is listed once. A job that changes
// its place in between may be listed twice or not at all. A ready job keeps its place only until it becomes ready
// again. When that happens to the last job that was shown and it has the same key again, the jobs between its two
// places are not listed.
type Listing struct {
	// Repeats is for a caller that takes the shown jobs out of the queue. When the last job that was shown has left its
	// place, the listing may show a job again, but leaves none out.
	Repeats bool

	match   Match
	globs   listPatterns
	queue   []byte
	inQueue bool // the listing is of one queue
	place   listPlace
	looked  int64
	text    textSearch
	view    JobView
}

// NewListing returns a Listing of the jobs of a queue, or of all queues when all is set. after is the cursor of an
// earlier Listing, or empty. NewListing returns errListCursor for any other text.
func NewListing(m *Match, queue []byte, all bool, after string) (*Listing, error) {
	l := &Listing{match: *m, globs: newListPatterns(m), queue: slices.Clone(queue), inQueue: !all}
	if after != "" {
		return l, l.parse(after)
	}
	if l.inQueue {
		l.place = listStart
	}
	return l, nil
}

// Looked returns how many jobs this Listing has looked at, with the earlier Listings whose cursors it continues.
func (l *Listing) Looked() int64 { return l.looked }

// Searching reports whether the last List ended in the middle of a large job's text. The cursor does not hold the
// position within the text: another Listing searches the job from its start.
func (l *Listing) Searching() bool { return l.text != (textSearch{}) }

// List calls fn for the next jobs that match, under the lock of one shard, until fn returns false. It takes about n
// steps at most, and may search only a part of a large job: the next List continues in that job. done reports whether
// all jobs have been listed.
func (s *Scheduler) List(now Time, l *Listing, n int, fn func(*JobView) (more bool)) (done bool) {
	switch {
	case l.match.Ref != nil:
		return s.listRef(now, l, fn)
	case !l.inQueue:
		return s.listAll(now, l, n, fn)
	}
	sh := s.shardOf(l.queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(l.queue)]
	if q == nil {
		return true
	}
	w := lister{Listing: l, sh: sh, q: q, now: now, stepLimit: sh.mu.steps + n, fn: fn}
	for ; int(l.place.phase) < len(listPhases); l.place.nextPhase() {
		if phase := &listPhases[l.place.phase]; phase.states.intersects(l.match.States) && !phase.walk(&w) {
			return false
		}
	}
	return true
}

// listRef is List for a Match with a Ref.
func (s *Scheduler) listRef(now Time, l *Listing, fn func(*JobView) (more bool)) (done bool) {
	sh, job, r := s.lockJob(*l.match.Ref)
	if sh == nil {
		return true
	}
	defer sh.mu.Unlock()
	w := lister{Listing: l, sh: sh, q: sh.queueOf(r), now: now, fn: fn}
	return w.visit(job, r)
}

// listAll is List for all queues: it visits the records of a shard.
func (s *Scheduler) listAll(now Time, l *Listing, n int, fn func(*JobView) (more bool)) (done bool) {
	p := &l.place
	if p.sub >= uint32(len(s.shards)) {
		return true
	}
	sh := &s.shards[p.sub]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	w := lister{Listing: l, sh: sh, now: now, stepLimit: sh.mu.steps + n, fn: fn}
	if !w.records(&p.slot, func(r *record) bool {
		w.q = sh.queueOf(r)
		return !w.q.dropped
	}) {
		return false
	}
	p.sub, p.slot = p.sub+1, 0
	return p.sub >= uint32(len(s.shards))
}

// SizeOf returns about how many jobs a Listing looks at from its start to its end.
func (s *Scheduler) SizeOf(l *Listing) (n int) {
	switch {
	case l.match.Ref != nil:
		return 1
	case !l.inQueue:
		t := s.Stats()
		return t.Jobs + t.Failed + t.KeptDone
	}
	st, _ := s.StatusOf(l.queue)
	states := [JobStates]int{
		JobReady: st.Ready(), JobDelayed: st.Delayed, JobRunning: st.Running,
		JobLocked: st.Parked, JobWaiting: st.Waiting, JobFailed: st.Failed, JobDone: st.Done,
	}
	for _, phase := range listPhases {
		if phase.states.intersects(l.match.States) {
			n += states[phase.counts]
			states[phase.counts] = 0
		}
	}
	return n
}

// listPhases are the parts of the listing of a queue, in order. walk visits the jobs of its phase after the place. It
// returns false when it stops before the last of them. Cursors contain the numbers of the phases.
var listPhases = [...]struct {
	states StateSet
	counts JobState
	walk   func(*lister) (over bool)
}{
	{StatesOf(JobRunning), JobRunning, (*lister).running},
	{StatesOf(JobReady), JobReady, (*lister).ready},
	{StatesOf(JobReady), JobReady, (*lister).private},
	{StatesOf(JobDelayed), JobDelayed, (*lister).delayed},
	{StatesOf(JobLocked), JobLocked, (*lister).parked},
	{StatesOf(JobWaiting), JobWaiting, (*lister).waiting},
	{StatesOf(JobFailed), JobFailed, func(w *lister) bool { return w.kept(keptFailed, keptBuried) }},
	{StatesOf(JobDone, JobExpired), JobDone, func(w *lister) bool { return w.kept(keptDone, keptResult) }},
}

// lister is one List.
type lister struct {
	*Listing
	sh        *shard
	q         *queue
	now       Time
	stepLimit int // steps of the shard
	stopped   bool
	fn        func(*JobView) (more bool)
}

// full reports whether the List is to end before it visits another job.
func (w *lister) full() bool { return w.stopped || w.sh.mu.steps >= w.stepLimit }

// visit shows a job that matches. It returns false when a part of the job's text is not searched yet: the place must
// not move past the job then.
func (w *lister) visit(job uint32, r *record) (over bool) {
	w.sh.countSteps(1)
	matches, over := w.matches(job, r)
	if !over {
		return false
	}
	w.looked++
	if matches {
		w.sh.countSteps(1)
		w.sh.viewJob(w.now, job, r, w.q, &w.view)
		w.stopped = !w.fn(&w.view)
	}
	return true
}

// running visits the broadcasting job, which is number 0, and the held jobs of the watches from number 1 on. It visits
// the held jobs of a watch from the last to the first. When such a job ends, the last job, which has been visited,
// takes its place. The steps of List bound the walk over the watches of the shard.
func (w *lister) running() (over bool) {
	p, sh, q := &w.place, w.sh, w.q
	if q.running == 0 {
		return true
	}
	for ; p.sub <= uint32(len(sh.watches)); p.sub, p.slot = p.sub+1, none {
		if w.full() {
			return false
		}
		if b := q.broadcast; p.sub == 0 {
			if b != nil && !w.visit(b.job, sh.slab.at(b.job)) {
				return false
			}
		} else if h := sh.watches[p.sub-1]; h != nil && h.queue == q && !w.down(len(h.held), func(i int) uint32 { return h.held[i].job }) {
			return false
		}
		if p.sub%entriesPerStep == 0 {
			sh.countSteps(1)
		}
	}
	return true
}

// parked visits the parked jobs from the last to the first, as running does.
func (w *lister) parked() (over bool) {
	return w.down(len(w.q.parked), func(i int) uint32 { return w.q.parked[i] })
}

// down visits n numbered jobs, the last first, from the place's slot down.
func (w *lister) down(n int, at func(i int) uint32) (over bool) {
	p := &w.place
	for p.slot = uint32(min(uint64(p.slot), uint64(n))); p.slot > 0; p.slot-- {
		if w.full() {
			return false
		}
		job := at(int(p.slot) - 1)
		if !w.visit(job, w.sh.slab.at(job)) {
			return false
		}
	}
	return true
}

// ready visits the ready jobs, an index after the other.
func (w *lister) ready() (over bool) {
	p := &w.place
	for ; p.sub < uint32(w.q.sweptIndexes()); p.nextSub() {
		if w.full() || !w.index(w.q.sweptIndex(int(p.sub)), ready) {
			return false
		}
		w.sh.countSteps(1)
	}
	return true
}

// private visits the ready tasks that are only stolen.
func (w *lister) private() (over bool) { return w.index(&w.q.private, ready) }

func (w *lister) delayed() (over bool) { return w.index(&w.q.delayed, delayed) }

// index visits the jobs of an index behind the place. It goes on behind the last visited job if that job still stands
// where it stood. Otherwise it goes on with that job's key and skips jobs that are not younger, which may have been
// visited.
func (w *lister) index(x *index, in state) (over bool) {
	p, sh := &w.place, w.sh
	keyOf := func(r *record) sortKey { return sh.buckets.at(r.bucket).key }
	var job uint32
	if r := sh.slab.find(p.slot); r != nil && r.seq == p.seq && r.state == in && r.container == w.q.id && w.indexOf(r) == x && keyOf(r) == p.key {
		job = w.behind(x, r, p.key)
	} else {
		if !w.Repeats {
			p.bound = max(p.bound, p.seq)
		}
		job = x.headFrom(&sh.buckets, &sh.slab, p.key)
	}
	for job != none {
		if w.full() {
			return false
		}
		r := sh.slab.at(job)
		k := keyOf(r)
		if k == p.key && r.seq <= p.bound {
			sh.countSteps(1)
		} else if !w.visit(job, r) {
			return false
		}
		if k != p.key {
			p.key, p.bound = k, 0
		}
		p.slot, p.seq = job, r.seq
		job = w.behind(x, r, k)
	}
	return true
}

// indexOf returns the index of a ready or delayed job of the queue.
func (w *lister) indexOf(r *record) *index {
	if r.state == delayed {
		return &w.q.delayed
	}
	return w.sh.readyFor(w.q, r)
}

// behind returns the job behind a job of an index, or none.
func (w *lister) behind(x *index, r *record, k sortKey) uint32 {
	if r.next != none {
		return r.next
	}
	if k = k.next(); k == firstKey {
		return none
	}
	return x.headFrom(&w.sh.buckets, &w.sh.slab, k)
}

// next returns the next larger key, firstKey after the largest.
func (k sortKey) next() sortKey {
	if k.minor++; k.minor == math.MinInt64 {
		k.major++
	}
	return k
}

// waiting visits the waiting tasks of the queue, which stand in no index, among all jobs of the shard.
func (w *lister) waiting() (over bool) {
	return w.q.waiting == 0 || w.records(&w.place.sub, func(r *record) bool { return r.state == waiting && r.container == w.q.id })
}

// records visits the shard's records of jobs that pass a test, from a slot on.
func (w *lister) records(slot *uint32, pass func(*record) bool) (over bool) {
	slab := &w.sh.slab
	for end := uint64(len(slab.chunks)) << slabBits; uint64(*slot) < end; *slot++ {
		if w.full() {
			return false
		}
		w.sh.countSteps(1)
		r := slab.find(*slot)
		if r == nil {
			*slot |= slabChunk - 1
		} else if r.listed() && pass(r) && !w.visit(*slot, r) {
			return false
		}
	}
	return true
}

// listed reports whether a Listing has the job of a record: a job that has not ended, or is kept for more than its
// name.
func (r *record) listed() bool {
	switch r.state {
	case free, remembered, freeing:
		return false
	case finished:
		return r.use() != keptName
	}
	return true
}

// kept visits the kept jobs of the given uses by the time of their end.
func (w *lister) kept(uses ...keptUse) (over bool) {
	p := &w.place
	for w.q.kept != nil {
		job, k := w.sh.nextKept(w.q, p.key.next(), uses)
		if job == none {
			break
		}
		if w.full() || !w.visit(job, w.sh.slab.at(job)) {
			return false
		}
		p.key = k
	}
	return true
}
