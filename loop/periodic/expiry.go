package periodic

import (
	"slices"

	"treadle/sched"
	"treadle/sched/heap"
)

// In the version of 2026 a RUN_JOB ends with `expired` when its job is not done within its time-out and the grace,
// which lets the report of a punctual worker come first. The job is removed with its last RUN_JOB, unless a SUBMIT_JOB
// submitted it too.

// runTimeout is the time-out in seconds of a RUN_JOB whose job has none.
const runTimeout = 60

var resultExpired = []byte("expired")

// pendingRun is a RUN_JOB without a reply.
type pendingRun struct {
	expires     int64 // Mono when it expires
	id          uint32
	queue, name []byte
	heapIndex   int // in the heap
}

// Ahead implements heap.Ranked.
func (r *pendingRun) Ahead(o *pendingRun) bool { return r.expires < o.expires }

// HeapIndex implements heap.Ranked.
func (r *pendingRun) HeapIndex() int { return r.heapIndex }

// SetHeapIndex implements heap.Ranked.
func (r *pendingRun) SetHeapIndex(i int) { r.heapIndex = i }

// pendingRuns are the RUN_JOBs of a session that may expire.
type pendingRuns struct {
	byID map[uint32]*pendingRun
	next heap.Heap[*pendingRun] // the next to expire first
}

// startExpiry sets when a RUN_JOB expires. It is called before the job is submitted.
func (c *conversation) startExpiry(id uint32, j *sched.Submission) {
	if c.pending == nil {
		c.pending = &pendingRuns{byID: make(map[uint32]*pendingRun)}
	}
	c.pending.remove(id) // a repeated id has the later time
	seconds := int64(j.Timeout)
	if seconds <= 0 {
		seconds = runTimeout
	}
	r := &pendingRun{id: id, queue: slices.Clone(j.Queue), name: slices.Clone(j.Name)}
	r.expires = c.s.Loop.Now.Mono + seconds*1000 + c.p.o.Grace.Milliseconds()
	c.pending.byID[id] = r
	c.pending.next.Push(r)
}

// answered removes the RUN_JOB that a delivery answers.
func (r *pendingRuns) answered(e sched.Effect, id uint32) {
	switch e {
	case sched.Result, sched.Removed, sched.Failed, sched.AwaitTimedOut:
		r.remove(id)
	}
}

func (r *pendingRuns) remove(id uint32) {
	if run := r.byID[id]; run != nil {
		delete(r.byID, id)
		r.next.Remove(run)
	}
}
