package sched

import (
	"encoding/binary"
	"errors"
)

// spaceEdge marks what is saved of a predecessor that a task got after it was made. It
// appears in Job.Space of Save and Restore alone.
const spaceEdge Space = MaxSpaces - 3

// errTask says that a saved task can't be read: no journal hands such a thing out.
var errTask = errors.New("the saved form of a task is broken")

func putMicros(b []byte, t int64) { binary.LittleEndian.PutUint64(b, uint64(t)) }
func micros(b []byte) int64       { return int64(binary.LittleEndian.Uint64(b)) }

// save journals a task. In the place of the workload stand, each with its length as
// a uvarint ahead: the holder's name, the log, the sequence numbers of its
// predecessors; then the revision as a varint, and the workload.
func (g *graph) save(job uint32, r *record, q *queue) {
	sh := g.sh
	sh.view(job, r, q, &sh.saved)
	n := g.node(job)
	holder := ""
	if r.state == reserved {
		holder = sh.watches[r.home].peer.name
	}
	b := appendText(g.packed[:0], holder)
	b = binary.AppendUvarint(b, uint64(n.logSize))
	if n.logSize > 0 {
		b = append(b, sh.arena.view(n.log, int(n.logSize))...)
	}
	sh.op(int(n.ins))
	ins := 0
	g.predecessors(n, func(uint64) { ins++ })
	b = binary.AppendUvarint(b, uint64(ins))
	g.predecessors(n, func(seq uint64) { b = binary.LittleEndian.AppendUint64(b, seq) })
	b = binary.AppendVarint(b, n.revision)
	g.packed = append(b, sh.saved.Workload...)
	sh.saved.Workload = g.packed
	sh.saved.SchedAt = 0
	sh.s.journal.Save(int(sh.id), &sh.saved)
	if cap(g.packed) > 64<<10 {
		g.packed, sh.saved.Workload = nil, nil
	}
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
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
	b := binary.LittleEndian.AppendUint64(g.packed[:0], from.seq)
	g.packed = binary.LittleEndian.AppendUint64(b, to.seq)
	sh.saved = Job{Ref: JobRef{Shard: sh.id, Seq: e.saved}, Queue: q.name, Space: spaceEdge, Workload: g.packed}
	sh.s.journal.Save(int(sh.id), &sh.saved)
}

// restoring is what Restore collects of graphs until Resume puts it together.
type restoring struct {
	tasks map[uint64]uint32 // slots by sequence number
	order []uint64          // their sequence numbers, ascending
	edges []restoredEdge
	holds map[uint32]string // holders by slot
}

type restoredEdge struct{ from, to, saved uint64 }

// restoreTask takes the saved form of a task apart and makes it.
func (g *graph) restoreTask(j *Job, q *queue) error {
	sh := g.sh
	holder, rest, ok := cutText(j.Workload)
	if !ok {
		return errTask
	}
	log, rest, ok := cutText(rest)
	if !ok || len(log)%eventSize != 0 {
		return errTask
	}
	ins, n := binary.Uvarint(rest)
	if n <= 0 || ins > uint64(len(rest)-n)/8 {
		return errTask
	}
	rest = rest[n:]
	m := &g.restoring
	if m.tasks == nil {
		m.tasks, m.holds = make(map[uint64]uint32), make(map[uint32]string)
	}
	for ; ins > 0; ins-- {
		m.edges = append(m.edges, restoredEdge{from: binary.LittleEndian.Uint64(rest), to: j.Ref.Seq})
		rest = rest[8:]
	}
	revision, n := binary.Varint(rest)
	if n <= 0 {
		return errTask
	}
	rest = rest[n:]
	job, r, err := sh.make(sh.s.tag(q.id, j.Space, j.Name), q, j.Space, j.Name, rest)
	if err != nil {
		return err
	}
	r.seq, r.flags, r.due, r.count = j.Ref.Seq, r.flags|task, floorSecond(j.Due), j.Count
	q.tasks++
	g.wait(job, r, q, uint32(j.Due-r.due*1000))
	*g.node(job) = node{order: int64(r.seq), revision: revision}
	for b := log; len(b) > 0; b = b[eventSize:] {
		g.log(job, Event{b[0], micros(b[1:])})
	}
	m.tasks[r.seq] = job
	m.order = append(m.order, r.seq)
	if len(holder) > 0 {
		m.holds[job] = string(holder)
	}
	return nil
}

func cutText(b []byte) (text, rest []byte, ok bool) {
	l, n := binary.Uvarint(b)
	if n <= 0 || l > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(l)], b[n+int(l):], true
}

func (g *graph) restoreEdge(j *Job) error {
	if len(j.Workload) != 16 {
		return errTask
	}
	g.restoring.edges = append(g.restoring.edges, restoredEdge{
		binary.LittleEndian.Uint64(j.Workload), binary.LittleEndian.Uint64(j.Workload[8:]), j.Ref.Seq,
	})
	return nil
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
				if w, err := sh.enlist(p, q); err == nil {
					sh.hold(now, job, r, w, slot{})
					continue
				}
			}
		}
		if g.lastStage(job) == StageReady && g.node(job).ins == 0 && sh.isDue(now, r, r.place) {
			g.lineUp(job, r, q, back) // that it is ready is no news
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
