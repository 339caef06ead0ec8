package sched

import "encoding/binary"

func putMicros(b []byte, t int64) { binary.LittleEndian.PutUint64(b, uint64(t)) }
func micros(b []byte) int64       { return int64(binary.LittleEndian.Uint64(b)) }

// manyAfter is how many predecessors of a saved task are room that is not kept.
const maxKeptAfter = 8 << 10

// save journals a task.
func (g *graph) save(job uint32, r *record, q *queue) {
	sh, j := g.sh, &g.sh.saved
	sh.view(job, r, q, &j.Job)
	if j.SchedAt = 0; j.Due < 0 { // it stands in line, below all times
		j.Due = wasDue
	}
	if r.state == reserved {
		j.Holder = sh.watches[r.home].peer.name
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

// predecessors calls fn with those that belong into the task's own record.
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

// saveEdge journals a predecessor that a task got after it was made.
func (g *graph) saveEdge(i uint32, q *queue) {
	sh := g.sh
	e := g.edges.at(i)
	from, to := sh.slab.at(e.from), sh.slab.at(e.to)
	if sh.s.journal == nil || !sh.s.rules[to.space].Durable {
		return
	}
	e.saved = sh.s.jobs.Add(1)
	sh.saveNote(Saved{Kind: KindEdge, Task: to.seq, After: append(sh.saved.After, from.seq)}, q, e.saved)
}

// restoring is what Restore collects of graphs until Resume puts it together.
type restoring struct {
	tasks map[uint64]uint32 // slots by sequence number
	order []uint64          // their sequence numbers, ascending
	edges []restoredEdge
	holds map[uint32]string // holders by slot
}

type restoredEdge struct{ from, to, saved uint64 }

// restoreTask makes a task again, to wait until Resume.
func (g *graph) restoreTask(j *Saved, q *queue) error {
	sh := g.sh
	job, r, err := sh.newJob(sh.s.tag(q.id, j.Space, j.Name), q, j.Space, j.Name, j.Workload)
	if err != nil {
		return err
	}
	r.seq, r.flags, r.due, r.count = j.Ref.Seq, r.flags|task, floorSecond(j.Due), j.Count
	q.tasks++
	g.wait(job, r, q, uint32(j.Due-r.due*1000))
	*g.node(job) = node{order: int64(r.seq), revision: j.Revision}
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

// arrange gives all restored tasks orders that their edges agree with, at once: to find them again
// edge by edge may take as long as all the requests together that made these. Of a cycle, which no
// journal has, no older task waits for a younger one any more.
func (g *graph) arrange(m *restoring) {
	sh := g.sh
	all := make([]uint32, 0, len(m.order)) // each behind those that it waits for
	for _, seq := range m.order {
		n := g.node(m.tasks[seq])
		if n.via = n.ins; n.ins == 0 { // via: how many of those are not among them yet
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
			n.via, n.order = 0, int64(sh.s.jobs.Add(1))
		}
	}
}

// resume gives restored tasks their predecessors, holders and places in line: that of
// their making. holder returns the peer for a name; nil: the task is ready again.
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
		backward = backward || e.from > e.to
	}
	if backward {
		g.arrange(&m)
	}
	for _, seq := range m.order {
		job := m.tasks[seq]
		r := sh.slab.at(job)
		q := sh.queues[r.home]
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
		if g.lastStage(job) == StageReady && g.node(job).ins == 0 && sh.isDue(now, r, r.place) {
			g.pushReady(job, r, q, back) // that it is ready is no news
		} else {
			sh.enqueue(now, job, r, q, r.place)
		}
		if r.state == ready { // ahead of all that come later, in whichever shard
			g.node(job).place = int64(seq)
		}
		if held { // no more
			sh.save(job, r, q)
		}
	}
	for e := range g.exits {
		g.endExit(e)
	}
}
