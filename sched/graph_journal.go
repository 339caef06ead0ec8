package sched

import "encoding/binary"

func putMicros(b []byte, t int64) { binary.LittleEndian.PutUint64(b, uint64(t)) }
func micros(b []byte) int64       { return int64(binary.LittleEndian.Uint64(b)) }

// maxKeptAfter is the largest capacity of predecessors that is kept from one saved task to the
// next.
const maxKeptAfter = 8 << 10

// save journals a task.
func (g *graph) save(job uint32, r *record, q *queue) {
	sh, j := g.sh, &g.sh.saved
	sh.view(job, r, q, &j.Job)
	if j.SchedAt = 0; j.Due < 0 { // ready: the due second is taskDue
		j.Due = wasDue
	}
	if r.state == reserved {
		j.Holder = sh.holdingWatch(r).peer.name
	}
	n := g.node(job)
	j.Revision, j.Log = n.revision, g.events(j.Log, n)
	sh.countSteps(int(n.ins))
	g.predecessors(n, func(seq uint64) { j.After = append(j.After, seq) })
	sh.s.journal.Save(int(sh.id), j)
	j.Holder, j.Revision, j.Log, j.After = "", 0, j.Log[:0], j.After[:0]
	if cap(j.After) > maxKeptAfter {
		j.After = nil
	}
}

// predecessors calls fn with the predecessors that belong in the task's own record.
func (g *graph) predecessors(n *node, fn func(seq uint64)) {
	for i, k := n.in, n.ins; k > 0; k-- {
		e := g.edges.at(i)
		if i = e.nextIn; e.saved == 0 {
			if r := g.sh.slab.at(e.from); r.live() {
				fn(r.seq)
			}
		}
	}
}

// saveEdge journals a predecessor that an existing task has got.
func (g *graph) saveEdge(i uint32, q *queue) {
	sh := g.sh
	e := g.edges.at(i)
	from, to := sh.slab.at(e.from), sh.slab.at(e.to)
	if sh.s.journal == nil || !sh.s.rules[to.space].Durable {
		return
	}
	e.saved = sh.s.lastSeq.Add(1)
	sh.saveNote(Saved{Kind: KindEdge, Task: to.seq, After: append(sh.saved.After, from.seq)}, q.name, e.saved)
}

// restoring collects the tasks and edges of Restore until Resume links them.
type restoring struct {
	tasks map[uint64]uint32 // slots by sequence number
	order []uint64          // the sequence numbers, ascending
	edges []restoredEdge
	holds map[uint32]string // names of holders by slot
}

type restoredEdge struct{ from, to, saved uint64 }

// restoreTask makes a saved task, waiting until Resume.
func (g *graph) restoreTask(j *Saved, q *queue) error {
	sh := g.sh
	job, r, err := sh.newJob(sh.s.nameHash(q.id, j.Space, j.Name), q, j.Space, j.Name, j.Workload)
	if err != nil {
		return err
	}
	r.seq, r.flags, r.due, r.count = j.Ref.Seq, r.flags|task, floorSecond(j.Due), j.Count
	q.tasks++
	g.wait(job, r, q, uint32(j.Due-r.due*1000))
	*g.node(job) = node{order: int64(r.seq), revision: j.Revision, given: uint32(len(j.After))}
	g.log(job, j.Log...)
	m := &g.restoring
	if m.tasks == nil {
		m.tasks, m.holds = make(map[uint64]uint32), make(map[uint32]string)
	}
	for _, seq := range j.After {
		m.edges = append(m.edges, restoredEdge{from: seq, to: r.seq})
	}
	m.tasks[r.seq] = job
	m.order = append(m.order, r.seq)
	if j.Holder != "" {
		m.holds[job] = j.Holder
	}
	return nil
}

func (g *graph) restoreEdge(j *Saved) {
	for _, seq := range j.After {
		g.restoring.edges = append(g.restoring.edges, restoredEdge{from: seq, to: j.Task, saved: j.Ref.Seq})
	}
}

// arrange gives all restored tasks orders that agree with their edges, in one pass. Calls of makeOrder for one edge
// after the other may take as long as all the requests that made the edges. No journal has a cycle; in a cycle arrange
// drops the edges by which an older task waits for a younger one.
func (g *graph) arrange(m *restoring) {
	sh := g.sh
	all := make([]uint32, 0, len(m.order)) // each behind its predecessors
	for _, seq := range m.order {
		n := g.node(m.tasks[seq])
		if n.via = n.ins; n.ins == 0 { // via: number of predecessors that are not in all yet
			all = append(all, m.tasks[seq])
		}
	}
	for i := 0; i < len(all); i++ {
		n := g.node(all[i])
		n.order = int64(i + 1)
		for x, k := n.out, n.outs; k > 0; k-- {
			e := g.edges.at(x)
			x = e.nextOut
			to := g.node(e.to)
			if to.via--; to.via == 0 {
				all = append(all, e.to)
			}
		}
	}
	if len(all) == len(m.order) {
		return
	}
	for _, seq := range m.order {
		n := g.node(m.tasks[seq])
		for x, k := n.in, n.ins; n.via > 0 && k > 0; k-- {
			i, e := x, g.edges.at(x)
			if x = e.nextIn; g.node(e.from).via > 0 && sh.slab.at(e.from).seq > seq {
				g.dropEdge(i)
			}
		}
	}
	for _, seq := range m.order {
		if n := g.node(m.tasks[seq]); n.via > 0 {
			n.via, n.order = 0, int64(sh.s.lastSeq.Add(1))
		}
	}
}

// resume gives restored tasks their predecessors, their holders and their places in line, in the order in which the
// tasks were made. holder returns the peer for a name, or nil to make the task ready again.
func (g *graph) resume(now Time, holder func(space Space, name string) *Peer, sink Sink) {
	sh := g.sh
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	m := g.restoring
	g.restoring = restoring{}
	backward := false
	for _, e := range m.edges {
		from, known := m.tasks[e.from]
		to, waits := m.tasks[e.to]
		if !known || !waits || from == to || g.linked(from, to) {
			if e.saved != 0 {
				sh.s.journal.Drop(int(sh.id), e.saved)
			}
			continue
		}
		g.edges.at(g.link(from, to)).saved = e.saved
		g.node(to).given += uint32(oneIf(e.saved != 0)) // an edge without a number is in the record of the task
		backward = backward || e.from > e.to
	}
	if backward {
		g.arrange(&m)
	}
	for _, seq := range m.order {
		job := m.tasks[seq]
		r := sh.slab.at(job)
		q := sh.queues[r.container]
		q.waiting--
		name, held := m.holds[job]
		_, exits := g.exits[exit{q, name}]
		if held && !exits && holder != nil {
			if p := holder(r.space, name); p != nil {
				if w, err := sh.watchFor(p, q); err == nil {
					sh.hold(now, job, r, w, slot{})
					continue
				}
			}
		}
		if g.lastStage(job) == StageReady && g.node(job).ins == 0 && sh.isDue(now, r, r.dueMillis()) {
			g.pushReady(job, r, q, back) // its log says already that it is ready
		} else {
			sh.enqueue(now, job, r, q, r.dueMillis())
		}
		if r.state == ready { // ahead of all later tasks, also of other shards
			g.node(job).place = int64(seq)
		}
		if held { // its holder did not come back
			sh.save(job, r, q)
		}
	}
	for e := range g.exits {
		g.endExit(e)
	}
}
