package sched

// graph is what a shard knows of the jobs that are tasks, which wait for each other, and the rules
// for them. It is guarded by the shard's lock. The verbs for tasks call it, in the files graph_*.go;
// the rest of the shard knows it through these methods alone:
//
//	init            make an empty one
//	place           put a task that stands nowhere where it waits for others, or in line
//	release         put a task that was taken from its holder back
//	reserved        log that a task is reserved
//	end             end a task that stands nowhere
//	before          compare the places of two tasks in line
//	gone            count the records of complete tasks
//	freeSuccessors  make tasks ready that waited for complete ones
//	forgetOld       forget complete tasks whose time is over
//	nextForget      when forgetOld has work again
//	save            journal a task
//	restoreTask     take a task back from the journal
//	restoreEdge     the same for an edge
//	noteExit        the same for an exit
//	resume          put together what was taken back
//	saveExit        journal that a holder releases its tasks
//	endExit         journal that it has released them
//	forgetViews     let go of bytes that are freed
type graph struct {
	sh              *shard
	edges           edges
	freeing         []uint32        // complete tasks whose successors are still to be freed
	remembered      index           // remembered tasks, key {end of it}
	minOrder        int64           // the smallest order that a task was given to be first of all
	exits           map[exit]uint64 // the journal's numbers for them
	completeRecords int             // records of complete tasks: remembered or ending
	restoring       restoring

	shown TaskView // the task being shown
}

func (g *graph) init(sh *shard) { g.sh, g.edges, g.remembered = sh, newEdges(), newIndex() }

// node returns the node of a task.
func (g *graph) node(job uint32) *node { return g.sh.slab.node(job) }

// place puts a task that stands nowhere where it waits for others, or in line when it is due; past is
// how many milliseconds after its due second that is. false: it is to be delayed, as any job is.
func (g *graph) place(now Time, job uint32, r *record, q *queue, past uint32, due bool) bool {
	switch {
	case g.node(job).ins > 0:
		g.wait(job, r, q, past)
	case due:
		g.ready(now, job, r, q, back)
	default:
		return false
	}
	return true
}

// release puts a task that was just taken from its holder where it waits for others, or in line.
func (g *graph) release(now Time, job uint32, r *record, q *queue, where end) {
	if g.node(job).ins > 0 {
		g.wait(job, r, q, 0)
	} else {
		g.ready(now, job, r, q, where)
	}
	g.sh.save(job, r, q)
}

// reserved logs that a task is reserved.
func (g *graph) reserved(now Time, job uint32) { g.log(job, Event{StageReserved, now.Micros}) }

// end ends a task that stands nowhere. Of very many successors most become ready in the Ticks that
// follow.
func (g *graph) end(now Time, job uint32, r *record, q *queue, sink Sink) {
	g.endTask(now, job, r, q, sink)
	g.startFreeing(now, sink)
}

// before says whether of two ready tasks x stands in line before y.
func (g *graph) before(x, y uint32) bool { return g.node(x).place < g.node(y).place }

// gone returns how many records are of complete tasks, which count as gone.
func (g *graph) gone() int { return g.completeRecords }

// nextForget is when a complete task is to be forgotten next, or never.
func (g *graph) nextForget() int64 {
	if k, ok := g.remembered.min(&g.sh.buckets); ok {
		return k.a
	}
	return never
}

// forgetViews lets go of bytes that are freed.
func (g *graph) forgetViews() { g.shown.Name, g.shown.Workload = nil, nil }
