package sched

import "strings"

// Task is a job of a graph, as Extend, Complete and Transfer take it: it waits until
// the tasks that it comes after are complete. The bytes are copied.
type Task struct {
	Name     []byte
	Workload []byte
	After    [][]byte // names; one that is not there, or is complete, counts as done
	Log      []Event  // appended to what the task has
}

// Event is an entry of a task's log.
type Event struct {
	Stage  uint8
	Micros int64 // since the Unix epoch
}

// The stages that the scheduler logs itself. Numbers from StageOther on are the
// caller's.
const (
	StageReady uint8 = iota + 1
	StageReserved
	StageDone
	StageOther
)

// TaskView is what a task looks like from outside. Its bytes are valid until the call
// that was given it returns.
type TaskView struct {
	Job
	Stage  uint8     // 0: it waits for others
	Holder string    // of a reserved one: the name, or the label, of the peer that holds it
	By     SessionID // and its session, 0 for a holder of NewHolder
	Log    []Event

	// Revision is that of the last Lease, also when it is held no more; 0: there was none.
	Revision int64

	shard *shard
}

// CycleError says that tasks would have waited for each other for ever.
type CycleError struct{ Names []string } // each comes after the next, the last is the first

func (e *CycleError) Error() string { return "a cycle: " + strings.Join(e.Names, " after ") }

// node is the part of a record that tasks have in addition.
type node struct {
	out, outLast uint32 // edges to the tasks that come after it, oldest first
	in           uint32 // edges from the tasks that it waits for, newest first
	outs, ins    uint32 // how many
	log          uint32 // arena reference, when logSize is not 0
	logSize      uint32
	via          uint32 // during a search: one more than the task that it was reached from; or complete
	place        int64  // ready: where it stands in the line, among all queues' tasks
	revision     int64  // of the last Lease, also when it is held no more
	// order is larger than that of every task it waits for. It starts as the sequence
	// number and moves only when a task is to wait for a younger one.
	order int64
}

// complete is a node's via from when its task is complete, while it has edges still: no search
// goes through it.
const complete = none

// edge says that to waits for from. It stands in two lists.
type edge struct {
	from, to         uint32
	nextOut, prevOut uint32
	nextIn, prevIn   uint32
	saved            uint64 // the journal's number for it; 0: it is part of its task's record
}

// Edges come in chunks of 4096, 128 KiB each, that never move.
const (
	edgeBits  = 12
	edgeChunk = 1 << edgeBits
)

// edges is the pool of a shard. It lets its memory go when it empties.
type edges struct {
	chunks []*[edgeChunk]edge
	free   uint32 // first of the list through nextOut
	fresh  uint32
	live   int
	joins  map[[2]uint32]struct{} // from and to, where to waits for more than few tasks: see linked
}

func newEdges() edges { return edges{free: none} }

func (p *edges) at(i uint32) *edge { return &p.chunks[i>>edgeBits][i&(edgeChunk-1)] }

func (p *edges) take() (uint32, *edge) {
	i := p.free
	if i == none {
		i = p.fresh
		p.fresh++
		if int(i>>edgeBits) == len(p.chunks) {
			p.chunks = append(p.chunks, new([edgeChunk]edge))
		}
	} else {
		p.free = p.at(i).nextOut
	}
	p.live++
	return i, p.at(i)
}

func (p *edges) give(i uint32) {
	p.live--
	if p.live == 0 {
		*p = newEdges()
		return
	}
	*p.at(i) = edge{nextOut: p.free}
	p.free = i
}

func (p *edges) join(e *edge) {
	if p.joins == nil {
		p.joins = make(map[[2]uint32]struct{})
	}
	p.joins[[2]uint32{e.from, e.to}] = struct{}{}
}

func (p *edges) part(e *edge) {
	if delete(p.joins, [2]uint32{e.from, e.to}); len(p.joins) == 0 {
		p.joins = nil // a map keeps the room that it once had
	}
}

// node returns the node of a task's slot.
func (s *slab) node(slot uint32) *node {
	p := &s.chunks[slot>>slabBits]
	if p.nodes == nil {
		p.nodes = new([slabChunk]node)
	}
	return &p.nodes[slot&(slabChunk-1)]
}

// link adds an edge.
func (sh *shard) link(from, to uint32) uint32 {
	i, e := sh.edges.take()
	f, t := sh.slab.node(from), sh.slab.node(to)
	*e = edge{from: from, to: to, nextOut: none, prevOut: none, nextIn: none, prevIn: none}
	if f.outs > 0 {
		e.prevOut = f.outLast
		sh.edges.at(f.outLast).nextOut = i
	} else {
		f.out = i
	}
	f.outLast = i
	f.outs++
	if t.ins > 0 {
		e.nextIn = t.in
		sh.edges.at(t.in).prevIn = i
	}
	t.in = i
	t.ins++
	if t.ins == few+1 {
		sh.eachIn(t, sh.edges.join)
	} else if t.ins > few {
		sh.edges.join(e)
	}
	return i
}

// unlink takes an edge away.
func (sh *shard) unlink(i uint32) {
	e := sh.edges.at(i)
	f, t := sh.slab.node(e.from), sh.slab.node(e.to)
	if e.prevOut != none {
		sh.edges.at(e.prevOut).nextOut = e.nextOut
	} else {
		f.out = e.nextOut
	}
	if e.nextOut != none {
		sh.edges.at(e.nextOut).prevOut = e.prevOut
	} else {
		f.outLast = e.prevOut
	}
	f.outs--
	if t.ins == few+1 {
		sh.eachIn(t, sh.edges.part)
	} else if t.ins > few {
		sh.edges.part(e)
	}
	if e.prevIn != none {
		sh.edges.at(e.prevIn).nextIn = e.nextIn
	} else {
		t.in = e.nextIn
	}
	if e.nextIn != none {
		sh.edges.at(e.nextIn).prevIn = e.prevIn
	}
	t.ins--
	sh.edges.give(i)
}

// eachIn calls do with the edges from the tasks that one waits for.
func (sh *shard) eachIn(t *node, do func(*edge)) {
	for i, k := t.in, t.ins; k > 0; k-- {
		e := sh.edges.at(i)
		do(e)
		i = e.nextIn
	}
}

// linked says whether to waits for from already. Of a task that waits for few it looks at
// all; the edges to the others are known by their ends: a request names as many as it likes,
// and the same again.
func (sh *shard) linked(from, to uint32) bool {
	t := sh.slab.node(to)
	if t.ins > few {
		_, known := sh.edges.joins[[2]uint32{from, to}]
		return known
	}
	known := false
	sh.eachIn(t, func(e *edge) { known = known || e.from == from })
	return known
}

// eventSize is what a log entry takes in the arena: a byte of stage, eight of time.
const eventSize = 9

// maxEvents bounds a task's log, of which the newest entries are kept: each change of a
// task journals it, and one that no worker can do comes back for ever.
const maxEvents = 1024

// logEvents appends to a task's log; what finds no room is lost, it is for people.
func (sh *shard) logEvents(job uint32, events ...Event) {
	if len(events) == 0 {
		return
	}
	n := sh.slab.node(job)
	events = events[max(len(events)-maxEvents, 0):]
	old := min(int(n.logSize), (maxEvents-len(events))*eventSize)
	size := old + len(events)*eventSize
	ref, room, ok := sh.arena.take(size)
	if !ok {
		return
	}
	at := 0
	if n.logSize > 0 {
		at = copy(room, sh.arena.view(n.log, int(n.logSize))[int(n.logSize)-old:])
		sh.giveBytes(n.log)
	}
	for _, e := range events {
		room[at] = e.Stage
		putMicros(room[at+1:], e.Micros)
		at += eventSize
	}
	n.log, n.logSize = ref, uint32(size)
}

// lastStage is the stage of a task's newest log entry, 0 if it has none.
func (sh *shard) lastStage(job uint32) uint8 {
	n := sh.slab.node(job)
	if n.logSize == 0 {
		return 0
	}
	return sh.arena.view(n.log, int(n.logSize))[n.logSize-eventSize]
}

// viewTask fills a TaskView. Its log is the shard's to reuse.
func (sh *shard) viewTask(job uint32, r *record, q *queue, v *TaskView) {
	sh.view(job, r, q, &v.Job)
	v.shard = sh
	v.Stage, v.Holder, v.By, v.Log = 0, "", 0, v.Log[:0]
	switch r.state {
	case ready, delayed, parked:
		v.Stage = StageReady
	case reserved:
		p := sh.watches[r.home].peer
		v.Stage, v.Holder, v.By = StageReserved, p.name+p.label, p.id
	case remembered:
		v.Stage = StageDone
	}
	n := sh.slab.node(job)
	v.Revision = n.revision
	if n.logSize > 0 {
		for b := sh.arena.view(n.log, int(n.logSize)); len(b) > 0; b = b[eventSize:] {
			v.Log = append(v.Log, Event{b[0], micros(b[1:])})
		}
	}
}
