package sched

// exit is the release of a departed holder's tasks of one queue, by the Ticks.
type exit struct {
	queue *queue
	name  string
}

// noteExit notes an exit under its number in the journal.
func (g *graph) noteExit(e exit, seq uint64) {
	if g.exits == nil {
		g.exits = make(map[exit]uint64)
	}
	g.exits[e] = seq
}

// saveExit journals, once, that a departed holder releases its tasks under a watch. A peer of the
// same name gets no task of the queue until the exit has ended.
func (g *graph) saveExit(w *watch) {
	sh := g.sh
	e := exit{w.queue, w.peer.name}
	if _, known := g.exits[e]; known || e.name == "" {
		return
	}
	g.noteExit(e, sh.s.lastSeq.Add(1))
	if sh.s.journal != nil {
		sh.saveNote(Saved{Kind: KindExit, Job: Job{Name: []byte(e.name)}}, e.queue.name, g.exits[e])
	}
}

// endExit ends an exit, if saveExit began it.
func (g *graph) endExit(e exit) {
	sh := g.sh
	seq, known := g.exits[e]
	if !known {
		return
	}
	if sh.s.journal != nil {
		sh.s.journal.Drop(int(sh.id), seq)
	}
	if delete(g.exits, e); len(g.exits) == 0 {
		g.exits = nil
	}
}

// isExiting reports whether the tasks of a departed peer with this peer's name are being released. The journal would
// take new tasks of this peer for tasks of the departed one.
func (g *graph) isExiting(p *Peer, q *queue) bool {
	if g.exits == nil { // fast path
		return false
	}
	_, exits := g.exits[exit{q, p.name}]
	return exits
}
