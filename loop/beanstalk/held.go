package beanstalk

import (
	"math"

	"treadle/sched"
	"treadle/sched/heap"
)

// heldJob is a job that a connection was handed.
type heldJob struct {
	id        uint64
	run       sched.Run
	queue     string
	ttr       int64 // milliseconds; math.MaxInt64: it has no end
	deadline  int64 // Mono; math.MaxInt64: none
	broadcast bool  // the job has ended: its reports change nothing
	heapIndex int   // in the heap, -1: not there
}

// Ahead implements heap.Ranked.
func (j *heldJob) Ahead(o *heldJob) bool { return j.deadline < o.deadline }

// HeapIndex implements heap.Ranked.
func (j *heldJob) HeapIndex() int { return j.heapIndex }

// SetHeapIndex implements heap.Ranked.
func (j *heldJob) SetHeapIndex(i int) { j.heapIndex = i }

// heldJobs are the jobs of a connection by their ids. The jobs with a deadline are also in the order of their
// deadlines. The scheduler ends the runs whose time is over, and expire forgets them.
type heldJobs struct {
	byID  map[uint64]*heldJob
	next  heap.Heap[*heldJob] // the earliest deadline first
	spare *heldJob            // for the next one
}

// find returns the job of an id, nil when the connection does not hold it.
func (h *heldJobs) find(id uint64) *heldJob { return h.byID[id] }

// add adds a job under an id. An earlier job of that id is forgotten.
func (h *heldJobs) add(id uint64) *heldJob {
	if old := h.take(id); old != nil {
		h.spare = old
	}
	j := h.spare
	if h.spare = nil; j == nil {
		j = new(heldJob)
	}
	*j = heldJob{id: id, heapIndex: -1}
	if h.byID == nil {
		h.byID = make(map[uint64]*heldJob)
	}
	h.byID[id] = j
	return j
}

// take removes the job of an id and returns it, nil when the connection does not hold it. It is good until the next
// add.
func (h *heldJobs) take(id uint64) *heldJob {
	j := h.byID[id]
	if j == nil {
		return nil
	}
	if delete(h.byID, id); len(h.byID) == 0 && cap(h.next) > 1024 {
		h.byID, h.next = nil, nil // free a burst's memory
	} else if j.heapIndex >= 0 {
		h.next.Remove(j)
	}
	h.spare = j
	return j
}

// renew has a job's time to run begin now.
func (h *heldJobs) renew(j *heldJob, now int64) {
	if j.ttr == math.MaxInt64 {
		j.deadline = math.MaxInt64
		return
	}
	if j.deadline = now + j.ttr; j.heapIndex < 0 {
		h.next.Push(j)
	} else {
		h.next.Fix(j)
	}
}

// soonest returns the earliest deadline, math.MaxInt64 when there is none.
func (h *heldJobs) soonest() int64 {
	if len(h.next) == 0 {
		return math.MaxInt64
	}
	return h.next[0].deadline
}

// expire forgets the jobs whose deadlines have passed.
func (h *heldJobs) expire(now int64) {
	for len(h.next) > 0 && h.next[0].deadline <= now {
		h.take(h.next[0].id)
	}
}
