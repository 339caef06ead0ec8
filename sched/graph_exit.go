package sched

// exit is a holder of NewHolder that releases what it has of a queue, by the Ticks.
type exit struct {
	queue *queue
	name  string
}

// noteExit notes an exit, which the journal knows by a number.
func (g *graph) noteExit(e exit, seq uint64) {
	if g.exits == nil {
		g.exits = make(map[exit]uint64)
	}
	g.exits[e] = seq
}

// saveExit journals that a holder releases what it holds under a watch, once: a peer of its name
// gets nothing of the queue before that is over.
func (g *graph) saveExit(w *watch) {
	sh := g.sh
	e := exit{w.queue, w.peer.name}
	if _, known := g.exits[e]; known || e.name == "" {
		return
	}
	g.noteExit(e, sh.s.jobs.Add(1))
	if sh.s.journal != nil {
		sh.saveNote(Saved{Kind: KindExit, Job: Job{Name: []byte(e.name)}}, e.queue, g.exits[e])
	}
}

// endExit ends what saveExit began, if it did.
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

// isExiting says whether the tasks that another peer of this one's name holds are being released:
// if this one had some meanwhile, the journal would take them for those.
func (g *graph) isExiting(p *Peer, q *queue) bool {
	if g.exits == nil { // nearly always
		return false
	}
	_, exits := g.exits[exit{q, p.name}]
	return exits
}
