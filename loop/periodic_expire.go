package loop

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

// mostExpired bounds the RUN_JOBs of a loop that expire in one sweep, and so in one turn: a millisecond, or ten when
// each is of a job that as many wait for as may. The next sweep goes on.
const mostExpired = 1024

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
func (p *periodicTalk) expires(id uint32, j *sched.Submission) {
	if p.runs == nil {
		p.runs = &runs{byID: make(map[uint32]*run)}
	}
	p.runs.end(id) // an id that is used twice has the later time
	seconds := int64(j.Timeout)
	if seconds <= 0 {
		seconds = runTimeout
	}
	r := &run{id: id, queue: slices.Clone(j.Queue), name: slices.Clone(j.Name)}
	r.at = p.s.r.Now.Mono + seconds*1000 + p.s.r.server.o.PeriodicGrace.Milliseconds()
	p.runs.byID[id] = r
	priority.Push(&p.runs.next, r)
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

// expire ends the RUN_JOBs whose time is over, as many as room; it returns what it left of that.
func (p *periodicTalk) expire(now int64, room int) int {
	if p.runs == nil {
		return room
	}
	for ; room > 0 && len(p.runs.next) > 0 && p.runs.next[0].at <= now; room-- {
		r := p.runs.next[0]
		p.runs.end(r.id)
		p.s.r.server.sched.Expire(p.s.r.Now, p.s.Peer(), uint64(r.id), periodicSpace, r.queue, r.name, p.s.r)
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
