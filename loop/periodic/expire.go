package periodic

import (
	priority "container/heap"
	"slices"

	"treadle/sched"
)

// In the era of 2026 a RUN_JOB ends with `expired` when its job is not done within its time-out, 60 s for one without,
// and the grace: a worker that ends the job on time is heard first. The job goes with its last RUN_JOB, unless it was
// submitted as well.

// runTimeout is the time-out of a RUN_JOB whose job has none.
const runTimeout = 60

var resultExpired = []byte("expired")

// run is a RUN_JOB that has no answer yet.
type run struct {
	at          int64 // Mono
	id          uint32
	queue, name []byte
	place       int // in the heap
}

// runs are those of a session.
type runs struct {
	byID map[uint32]*run
	next runHeap
}

// expires notes when a RUN_JOB expires, before it is submitted.
func (c *conversation) expires(id uint32, j *sched.Submission) {
	if c.runs == nil {
		c.runs = &runs{byID: make(map[uint32]*run)}
	}
	c.runs.end(id) // an id that is used twice has the later time
	seconds := int64(j.Timeout)
	if seconds <= 0 {
		seconds = runTimeout
	}
	r := &run{id: id, queue: slices.Clone(j.Queue), name: slices.Clone(j.Name)}
	r.at = c.s.Loop.Now.Mono + seconds*1000 + c.p.o.Grace.Milliseconds()
	c.runs.byID[id] = r
	priority.Push(&c.runs.next, r)
}

// ended forgets the RUN_JOB that a delivery answers.
func (r *runs) ended(e sched.Effect, id uint32) {
	switch e {
	case sched.Result, sched.Removed, sched.Failed, sched.Expired:
		r.end(id)
	}
}

func (r *runs) end(id uint32) {
	if run := r.byID[id]; run != nil {
		delete(r.byID, id)
		priority.Remove(&r.next, run.place)
	}
}

// Sweep implements protocol.Sweeper: it ends the RUN_JOBs whose time is over.
func (c *conversation) Sweep(room int) int {
	now := c.s.Loop.Now.Mono
	if c.runs == nil {
		return room
	}
	for ; room > 0 && len(c.runs.next) > 0 && c.runs.next[0].at <= now; room-- {
		r := c.runs.next[0]
		c.runs.end(r.id)
		c.p.sched.Expire(c.s.Loop.Now, c.s.Peer(), uint64(r.id), Space, r.queue, r.name, c.s.Loop.Sink)
	}
	return room
}

// runHeap is the RUN_JOBs by time. It implements container/heap.Interface.
type runHeap []*run

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h runHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *runHeap) Push(x any) {
	r := x.(*run)
	r.place = len(*h)
	*h = append(*h, r)
}

func (h *runHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
