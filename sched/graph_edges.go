package sched

// node is the part of a record that only tasks have.
type node struct {
	out, outLast uint32 // edges to its successors, oldest first
	in           uint32 // edges from its predecessors, newest first
	outs, ins    uint32 // number of edges
	log          uint32 // arena reference, when logSize is not 0
	logSize      uint32
	via          uint32 // 0; in a search: 1 + the task from which reach came to this one; viaComplete
	place        int64  // place in line of a ready task, among the tasks of all queues
	revision     int64  // see TaskRevision; while the task is not held, the revision of its last holder
	// order is the place in a topological order: it is larger than the order of every predecessor. It starts as the
	// sequence number and changes only when the task gets a younger predecessor.
	order int64
	given uint32 // number of its predecessors, complete ones included; after a restart, of the journaled ones
}

// viaComplete is the via of a complete task that still has edges. No search goes through such a task.
const viaComplete = none

// edge records that task to waits for task from. It stands in two lists.
type edge struct {
	from, to         uint32
	nextOut, prevOut uint32
	nextIn, prevIn   uint32
	saved            uint64 // the journal's number for it; 0: it is in its task's record
}

// Edges come in chunks of 4096, 128 KiB each, that never move.
const (
	edgeBits  = 12
	edgeChunk = 1 << edgeBits
)

// edges is the pool of edges of a shard. An empty pool frees its memory.
type edges struct {
	chunks   []*[edgeChunk]edge
	freeList uint32 // first free edge of the list through nextOut
	fresh    uint32
	live     int
	pairs    map[[2]uint32]struct{} // the edges to tasks with more than fewEdges predecessors, as from and to, see linked
}

func newEdges() edges { return edges{freeList: none} }

func (p *edges) at(i uint32) *edge { return &p.chunks[i>>edgeBits][i&(edgeChunk-1)] }

// alloc returns a free edge and its number. It reuses freed edges before it grows the chunks.
func (p *edges) alloc() (uint32, *edge) {
	i := p.freeList
	if i == none {
		i = p.fresh
		p.fresh++
		if int(i>>edgeBits) == len(p.chunks) {
			p.chunks = append(p.chunks, new([edgeChunk]edge))
		}
	} else {
		p.freeList = p.at(i).nextOut
	}
	p.live++
	return i, p.at(i)
}

func (p *edges) free(i uint32) {
	p.live--
	if p.live == 0 {
		*p = newEdges()
		return
	}
	*p.at(i) = edge{nextOut: p.freeList}
	p.freeList = i
}

func (p *edges) addPair(e *edge) {
	if p.pairs == nil {
		p.pairs = make(map[[2]uint32]struct{})
	}
	p.pairs[[2]uint32{e.from, e.to}] = struct{}{}
}

func (p *edges) removePair(e *edge) {
	if delete(p.pairs, [2]uint32{e.from, e.to}); len(p.pairs) == 0 {
		p.pairs = nil // a map keeps the memory of its largest size
	}
}

// node returns the node of a task's slot.
func (s *slab) node(slot uint32) *node {
	p := &s.chunks[slot>>slabBits]
	if p.nodes == nil {
		p.nodes = new([slabChunk]node)
		s.memory.Add(nodeBytes)
	}
	return &p.nodes[slot&(slabChunk-1)]
}

// link adds an edge.
func (g *graph) link(from, to uint32) uint32 {
	i, e := g.edges.alloc()
	f, t := g.node(from), g.node(to)
	*e = edge{from: from, to: to, nextOut: none, prevOut: none, nextIn: none, prevIn: none}
	if f.outs > 0 {
		e.prevOut = f.outLast
		g.edges.at(f.outLast).nextOut = i
	} else {
		f.out = i
	}
	f.outLast = i
	f.outs++
	if t.ins > 0 {
		e.nextIn = t.in
		g.edges.at(t.in).prevIn = i
	}
	t.in = i
	t.ins++
	if t.ins == fewEdges+1 {
		g.eachIn(t, g.edges.addPair)
	} else if t.ins > fewEdges {
		g.edges.addPair(e)
	}
	return i
}

// unlink removes an edge.
func (g *graph) unlink(i uint32) {
	e := g.edges.at(i)
	f, t := g.node(e.from), g.node(e.to)
	if e.prevOut != none {
		g.edges.at(e.prevOut).nextOut = e.nextOut
	} else {
		f.out = e.nextOut
	}
	if e.nextOut != none {
		g.edges.at(e.nextOut).prevOut = e.prevOut
	} else {
		f.outLast = e.prevOut
	}
	f.outs--
	if t.ins == fewEdges+1 {
		g.eachIn(t, g.edges.removePair)
	} else if t.ins > fewEdges {
		g.edges.removePair(e)
	}
	if e.prevIn != none {
		g.edges.at(e.prevIn).nextIn = e.nextIn
	} else {
		t.in = e.nextIn
	}
	if e.nextIn != none {
		g.edges.at(e.nextIn).prevIn = e.prevIn
	}
	t.ins--
	g.edges.free(i)
}

// eachIn calls do with each edge to a task from its predecessors.
func (g *graph) eachIn(t *node, do func(*edge)) {
	for i, k := t.in, t.ins; k > 0; k-- {
		e := g.edges.at(i)
		do(e)
		i = e.nextIn
	}
}

// linked reports whether to waits for from already. It scans the edges of a task with few predecessors.
// The edges of other tasks are found in pairs: a request may name as many predecessors as it likes,
// and name them again.
func (g *graph) linked(from, to uint32) bool {
	t := g.node(to)
	if t.ins > fewEdges {
		_, known := g.edges.pairs[[2]uint32{from, to}]
		return known
	}
	known := false
	g.eachIn(t, func(e *edge) { known = known || e.from == from })
	return known
}
