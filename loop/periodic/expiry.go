package periodic

import (
	priority "container/heap"
	"slices"

	"treadle/loop/protocol"
	"treadle/sched"
)

// In the era of 2026 a RUN_JOB ends with `expired` when its job is not done within its time-out and the grace, which
// lets the report of a punctual worker come first. The job is removed with its last RUN_JOB, unless a SUBMIT_JOB
// submitted it too.

// runTimeout is the time-out in seconds of a RUN_JOB whose job has none.
const runTimeout = 60

var resultExpired = []byte("expired")

// pendingRun is a RUN_JOB without a reply.
type pendingRun struct {
	expires     int64 // Mono when it expires
	id          uint32
	queue, name []byte
	place       int // in the heap
}

// pendingRuns are the RUN_JOBs of a session that may expire.
type pendingRuns struct {
	byID map[uint32]*pendingRun
	next expiryHeap
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
	priority.Push(&c.pending.next, r)
}

// answered removes the RUN_JOB that a delivery answers.
func (r *pendingRuns) answered(e sched.Effect, id uint32) {
	switch e {
	case sched.Result, sched.Removed, sched.Failed, sched.Expired:
		r.remove(id)
	}
}

func (r *pendingRuns) remove(id uint32) {
	if run := r.byID[id]; run != nil {
		delete(r.byID, id)
		priority.Remove(&r.next, run.place)
	}
}

var _ protocol.Sweeper = (*conversation)(nil)

// expiryHeap holds the RUN_JOBs, the next to expire first. It implements container/heap.Interface.
type expiryHeap []*pendingRun

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *expiryHeap) Push(x any) {
	r := x.(*pendingRun)
	r.place = len(*h)
	*h = append(*h, r)
}

func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
