package sched

import "treadle/sched/heap"

// queue is one kind of work. Its shard's lock guards everything in it.
type queue struct {
	name string // unique among the queues that are not dropped
	id   uint32 // index in the shard's queues

	ready        index     // key {^priority, due second}, see standing
	longNames    index     // the same key, for jobs that only LongNames peers can have
	private      index     // the same key, for tasks that are only stolen
	withheld     index     // the same key, for withheld jobs
	byNumber     index     // key {^priority, number >> numberBits}, for numbered jobs, which are in the order of their numbers
	delayed      index     // key {due second, milliseconds after it at which the job is due}
	prioritized  dueCounts // ready jobs with a priority or a lane, neither immediate nor in the index by number
	firstDelayed sortKey   // the smallest key of the delayed index, while the queue is in delayedQueues
	heapIndex    int       // index in delayedQueues, -1: not in it

	lines            [classCount]heap.Heap[*watch] // the watches whose peers may have a slot, oldest slot first, by class
	workers          int                           // number of watches that have not ended, and one when jobs are leased
	busy             int                           // number of workers with a job of the queue, and one when jobs are leased
	broadcastWorkers int                           // number of workers that registered for broadcasts
	nameOnly         int                           // number of workers that are NameOnly peers
	unreportedCount  int                           // number of unreported names and suspensions of the workers
	spaces           uint16                        // name spaces that ever had a job here
	running          int                           // reserved jobs and the broadcasting one
	reservedTasks    int                           // number of reserved tasks
	savedLeases      int                           // number of reserved durable jobs under a lease
	leaseWatch       *watch                        // holds the leased jobs; nil: there are none
	parked           []uint32                      // parked jobs, in no order
	retrying         int                           // number of delayed jobs with a history
	waiting          int                           // number of waiting tasks
	tasks            int                           // number of tasks that are not complete
	readyTasks       int                           // number of tasks that are ready
	immediate        int                           // pending jobs submitted with sched_at 0
	urgent           int                           // ready numbered jobs with a priority above 0
	autoDelete       bool                          // see isAutoDelete: only AutoDelete peers have ever watched the queue
	dropped          bool
	saved            uint64 // the journal's number for it, 0: not journaled
	offers           withheldOffers
	matchDeferred    bool             // the queue is in the shard's deferredMatches
	broadcast        *activeBroadcast // nil: none is under way
	policy           *Policy          // nil: none
	limiter          *limiter         // nil: nothing limits what it hands out
	keyed            *keyedJobs       // nil: its ready jobs have no lanes
	sweep            *sweep           // nil: its jobs never expire
	kept             *keptLines       // nil: no ended jobs are kept
	tally            *Tally           // its own or the shard's
	bytes            int64            // bytes of its jobs' names and workloads, without tasks and kept jobs
}

func (q *queue) Ahead(o *queue) bool { return q.firstDelayed.less(o.firstDelayed) }
func (q *queue) HeapIndex() int      { return q.heapIndex }
func (q *queue) SetHeapIndex(i int)  { q.heapIndex = i }

// indexes returns the indexes of pending jobs; the lanes have further ones.
func (q *queue) indexes() [6]*index {
	return [...]*index{&q.ready, &q.withheld, &q.longNames, &q.private, &q.byNumber, &q.delayed}
}

func (q *queue) pending() (n int) {
	for _, x := range q.indexes() {
		n += x.jobs
	}
	if q.keyed != nil {
		n += q.keyed.jobs
	}
	return n
}

// unreserved is the number of jobs that no peer runs. They end with a queue that is dropped.
func (q *queue) unreserved() int { return q.pending() + len(q.parked) + q.keptJobs() }

// lineEmpty reports whether no watch is in line.
func (q *queue) lineEmpty() bool {
	for i := range q.lines {
		if len(q.lines[i]) > 0 {
			return false
		}
	}
	return true
}

// oldest returns the watch in line with the oldest slot, nil when no watch is in line.
func (q *queue) oldest() *watch {
	var first *watch
	for i := range q.lines {
		if line := q.lines[i]; len(line) > 0 && (first == nil || line[0].Ahead(first)) {
			first = line[0]
		}
	}
	return first
}

// oldestOf is oldest among the watches of a class.
func (q *queue) oldestOf(c class) *watch {
	if len(q.lines[c]) == 0 {
		return nil
	}
	return q.lines[c][0]
}

// takeSlotFor takes the oldest slot of a watch in line for a job of size bytes. It returns false when it has changed
// the line instead. A watch whose peer has no slot leaves the line: the peer's next Reserve puts it back.
func (q *queue) takeSlotFor(w *watch, size int) (slot, bool) {
	line := &q.lines[w.peer.class]
	s, next, a := w.peer.takeSlot(w.seq, size)
	switch {
	case a == slotMissing:
		line.Remove(w)
	case next != w.seq:
		w.seq = next
		line.Down(w)
	}
	return s, a == slotTaken
}

// anyUnreserved returns a job that no peer runs, of a queue that has one.
func (q *queue) anyUnreserved(p *buckets) uint32 {
	for _, x := range q.indexes() {
		if job := x.head(p); job != none {
			return job
		}
	}
	if job := q.keyed.anyKeyed(p); job != none {
		return job
	}
	if len(q.parked) > 0 {
		return q.parked[len(q.parked)-1]
	}
	for i := range q.kept {
		if _, job := q.kept[i].jobs.first(); job != none {
			return job
		}
	}
	return none
}
