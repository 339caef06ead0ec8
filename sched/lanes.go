package sched

import (
	"math"

	"treadle/sched/heap"
)

// A queue whose policy has keys keeps its ready jobs in lanes, one lane for each key. Tasks, and jobs whose names only
// LongNames peers take, have no lane: they stay in the queue's own indexes, where a queue without keys has all of its
// jobs. In a lane, numbered jobs of a priority stand by the second of their submission, not by their numbers.

// lane has the ready jobs of one key, and counts the jobs that were taken from it.
type lane struct {
	key        uint64 // its hash. Keys of one hash share a lane: the hash has 64 bits and a secret seed
	jobs       index  // key {^priority, due second}, as the ready index
	id         uint32
	generation uint32 // generation of the JobKey by which its jobs were put here
	taken      int32  // number of its jobs that are reserved, broadcasting or withheld
	weight     int32
	turn       int32 // jobs handed out since it came to the front of its level
	cut        bool  // the lane left the level cutAt in the middle of its turn, when limit of its jobs ran
	idle       bool  // it has no jobs, and is kept for the next job of its key
	cutAt      int64
	level      *level // nil: no job of the lane can be handed out
	prev, next *lane  // neighbours in the level, or among the idle lanes
}

// laneList is lanes in an order.
type laneList struct{ first, last *lane }

// level is lanes that take turns. In fair order the lanes whose first jobs have the same priority share a level. In any
// other order each lane has a level of its own, at the rank of its first job.
type level struct {
	rank rank
	laneList
	heapIndex int32 // place in the heap
	shared    bool  // in fair order: lanes of one priority share it
}

func (v *level) Ahead(o *level) bool { return v.rank.less(o.rank) }
func (v *level) HeapIndex() int      { return int(v.heapIndex) }
func (v *level) SetHeapIndex(i int)  { v.heapIndex = int32(i) }

// keyedJobs is the lanes of a queue.
type keyedJobs struct {
	rule         JobKey // the zero JobKey: the policy has no key any more, and the Ticks empty the lanes
	generation   uint32 // counts changes of rule
	limit        int32  // jobs of a key that run at a time; 0: any number
	fair         bool
	weightByName map[string]int   // the weights of the policy
	weightByHash map[uint64]int32 // the same weights, by the hashes of the keys

	lanes  []*lane // lanes by id; nil: the id is free
	free   []uint32
	count  int               // lanes with jobs that are ready or run
	idle   laneList          // lanes without jobs, the longest idle first
	idles  int               // number of idle lanes, at most count: a key that comes again finds its lane
	byKey  map[uint64]*lane  // lanes of the present generation, by key
	jobs   int               // ready jobs, without the withheld ones
	open   heap.Heap[*level] // levels that can hand out a job, the first in rank first
	levels map[int64]*level  // the shared levels, by priority
	change laneChange
}

func newKeyedJobs() *keyedJobs {
	return &keyedJobs{byKey: make(map[uint64]*lane), levels: make(map[int64]*level)}
}

// hasKey reports whether a job has a key.
func (k *keyedJobs) hasKey(r *record) bool {
	return k.rule.text != "" && r.flags&(longName|private|task) == 0
}

// laneFor returns the lane of a job's key. It makes a missing lane. The caller puts the job there.
func (sh *shard) laneFor(k *keyedJobs, r *record) *lane {
	sh.countSteps(k.rule.cost(r.size))
	key := sh.hash(k.rule.find(unpack(sh.arena.view(r.bytes, int(r.size)))))
	l := k.byKey[key]
	if l == nil {
		l = &lane{key: key, jobs: newIndex(), generation: k.generation, weight: k.weightOf(key)}
		l.id = assignID(&k.lanes, &k.free, l)
		k.byKey[key] = l
		k.count++
	} else if l.idle {
		k.activate(l)
	}
	return l
}

// activate takes a lane from the idle lanes, because it gets a job.
func (k *keyedJobs) activate(l *lane) {
	k.idle.unlink(l)
	l.idle = false
	k.idles--
	k.count++
}

func (k *keyedJobs) weightOf(key uint64) int32 { return max(k.weightByHash[key], 1) }

// makeIdle makes a lane without jobs idle: it is kept for the next job of its key. When there are too many idle lanes,
// makeIdle frees those that have been idle for the longest.
func (sh *shard) makeIdle(q *queue, l *lane) {
	k := q.keyed
	if k.count--; l.generation != k.generation {
		sh.freeLane(k, l)
	} else {
		l.jobs.tree = nil
		l.idle = true
		k.idle.append(l)
		k.idles++
	}
	for k.idles > k.count {
		sh.freeIdle(k, k.idle.first)
	}
	if k.count > 0 {
		return
	}
	k.lanes, k.free, k.byKey = nil, nil, make(map[uint64]*lane) // slices and maps keep the memory of their largest size
	if k.rule.text == "" {
		q.keyed = nil
	}
}

func (sh *shard) freeIdle(k *keyedJobs, l *lane) {
	k.idle.unlink(l)
	k.idles--
	sh.freeLane(k, l)
}

// freeLane frees a lane without jobs.
func (sh *shard) freeLane(k *keyedJobs, l *lane) {
	l.jobs.free(&sh.buckets)
	k.lanes[l.id] = nil
	k.free = append(k.free, l.id)
	if l.generation == k.generation {
		delete(k.byKey, l.key)
	}
}

// removeTaken removes a job from the taken jobs of its lane. The lane may then have a job to hand out.
func (sh *shard) removeTaken(q *queue, id uint32) {
	l := q.keyed.lanes[id]
	closed := l.level == nil
	l.taken--
	sh.placeLane(q, l)
	if closed && l.level != nil && !q.lineEmpty() {
		sh.deferMatch(q)
	}
}

// countServed counts a job of a lane that is handed out, and ends the turn of the lane after its weight. With its last
// job a lane leaves its level anyway.
func (l *lane) countServed() {
	if l.turn++; l.jobs.jobs > 1 {
		l.endTurn()
	}
}

// endTurn puts a lane that has had its turn behind the other lanes of its level.
func (l *lane) endTurn() {
	if v := l.level; v != nil && v.shared && l.turn >= l.weight {
		v.unlink(l)
		v.append(l)
		l.turn = 0
	}
}

// placeLane puts a lane where it belongs after its jobs or the rules have changed. A lane that comes to a level goes
// behind the lanes of that level. A lane whose turn in the level was cut goes to the front and continues its turn. A
// lane without jobs is idle.
func (sh *shard) placeLane(q *queue, l *lane) {
	k := q.keyed
	if l.jobs.jobs == 0 || k.limit > 0 && l.taken >= k.limit {
		if v := l.level; v != nil && v.shared && l.turn > 0 {
			l.cut, l.cutAt = true, v.rank.key.major
		}
		l.cut = l.cut && l.jobs.jobs > 0
		k.leave(l)
		if l.jobs.jobs == 0 && l.taken == 0 {
			sh.makeIdle(q, l)
		}
		return
	}
	var at rank
	if k.fair { // the priority alone, which the bucket has: the record of the first job is seldom in a cache
		first, _ := l.jobs.min(&sh.buckets)
		at = rank{sortKey{first.major, math.MinInt64}, 0}
	} else {
		at = sh.rankOf(l.jobs.head(&sh.buckets))
	}
	switch v := l.level; {
	case v != nil && v.shared == k.fair && v.rank == at:
	case v != nil && !v.shared && !k.fair:
		v.rank = at
		k.open.Fix(v)
	default:
		k.leave(l)
		k.addToLevel(l, at)
	}
}

// addToLevel puts a lane in the level of a rank.
func (k *keyedJobs) addToLevel(l *lane, at rank) {
	var v *level
	if k.fair {
		v = k.levels[at.key.major]
	}
	if v == nil {
		v = &level{rank: at, shared: k.fair}
		k.open.Push(v)
		if v.shared {
			k.levels[at.key.major] = v
		}
	}
	if l.level = v; l.cut && v.shared && l.cutAt == at.key.major && l.turn < l.weight {
		v.prepend(l)
	} else {
		v.append(l)
		l.turn = 0
	}
	l.cut = false
}

// leave takes a lane from its level, if it is in one.
func (k *keyedJobs) leave(l *lane) {
	v := l.level
	if v == nil {
		return
	}
	l.level = nil
	if v.unlink(l); v.first != nil {
		return
	}
	k.open.Remove(v)
	if v.shared {
		delete(k.levels, v.rank.key.major)
	}
}

func (list *laneList) append(l *lane) {
	if l.prev = list.last; list.last != nil {
		list.last.next = l
	} else {
		list.first = l
	}
	list.last = l
}

func (list *laneList) prepend(l *lane) {
	if l.next = list.first; list.first != nil {
		list.first.prev = l
	} else {
		list.last = l
	}
	list.first = l
}

// unlink removes a lane from the list.
func (list *laneList) unlink(l *lane) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		list.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		list.last = l.prev
	}
	l.prev, l.next = nil, nil
}

// earliestReadyFor returns the first job of a queue's ready index, index by number and lanes whose name does not clash
// for a watch's peer. It looks at heap.MaxInOrder levels of lanes. If all jobs there clash, the peer gets another job
// when one of its names is free.
func (sh *shard) earliestReadyFor(w *watch, budget *int) uint32 {
	job := sh.earliestFor(w, &w.queue.ready, budget)
	if w.queue.byNumber.jobs > 0 {
		job = sh.earlierByRank(job, sh.earliestFor(w, &w.queue.byNumber, budget))
	}
	if w.queue.keyed == nil {
		return job
	}
	w.queue.keyed.open.InOrder(func(v *level) bool {
		for l := v.first; l != nil && *budget > 0; l = l.next {
			if found := sh.earliestFor(w, &l.jobs, budget); found != none {
				job = sh.earlierByRank(job, found)
				return false
			}
		}
		return *budget > 0
	})
	return job
}

// anyKeyed returns a ready job of a lane, in a queue without running jobs.
func (k *keyedJobs) anyKeyed(p *buckets) uint32 {
	if k == nil || len(k.open) == 0 {
		return none
	}
	return k.open[0].first.jobs.head(p)
}
