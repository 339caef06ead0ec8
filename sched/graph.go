package sched

// graph has the tasks of a shard, which wait for each other, and the rules for them. The shard's lock
// guards it. The verbs for tasks, in the files graph_*.go, use it freely. The other files of the shard
// call these methods alone:
//
//	init            make an empty one
//	place           put a detached task among the waiting ones, or in line
//	release         put back a task that was taken from its holder
//	logReserved     log that a task is reserved
//	end             end a detached task
//	before          compare the places of two tasks in line
//	whyWaiting      say which tasks a waiting task waits for
//	completeCount   count the records of complete tasks
//	freeSuccessors  make the successors of complete tasks ready
//	forgetOld       forget remembered tasks whose time is over
//	nextForget      return when forgetOld has work again
//	save            journal a task
//	restoreTask     take a task back from the journal
//	restoreEdge     take an edge back from the journal
//	noteExit        take an exit back from the journal
//	resume          link the restored tasks and give them places
//	saveExit        journal that a holder releases its tasks
//	endExit         journal that a holder has released them
//	forgetViews     clear views of bytes that are freed
type graph struct {
	sh              *shard
	edges           edges
	freeing         fifo[uint32]    // complete tasks whose successors are not freed yet
	remembered      index           // remembered tasks, key {end of memory}
	minOrder        int64           // the smallest order that was given to put a task ahead of all others
	exits           map[exit]uint64 // the journal's numbers of the exits
	completeRecords int             // number of records of complete tasks: remembered or freeing
	restoring       restoring

	shown TaskView // the view that a callback reads
}

func (g *graph) init(sh *shard) { g.sh, g.edges, g.remembered = sh, newEdges(), newIndex() }

// node returns the node of a task.
func (g *graph) node(job uint32) *node { return g.sh.slab.node(job) }

// place puts a detached task among the waiting ones, or in line when it is due. millis is how many milliseconds after
// its due second it is due. It returns false for a task that is to be delayed like any other job.
func (g *graph) place(now Time, job uint32, r *record, q *queue, millis uint32, due bool) bool {
	switch {
	case g.node(job).ins > 0:
		g.wait(job, r, q, millis)
	case due:
		g.makeReady(now, job, r, q, back)
	default:
		return false
	}
	return true
}

// release puts a task that was just taken from its holder among the waiting ones, or in line.
func (g *graph) release(now Time, job uint32, r *record, q *queue, where lineEnd) {
	if g.node(job).ins > 0 {
		g.wait(job, r, q, 0)
	} else {
		g.makeReady(now, job, r, q, where)
	}
	g.sh.save(job, r, q)
}

// logReserved logs that a task is reserved.
func (g *graph) logReserved(now Time, job uint32) { g.log(job, Event{StageReserved, now.WallMicros}) }

// end ends a detached task. The Ticks free what exceeds a batch of its successors.
func (g *graph) end(now Time, job uint32, r *record, q *queue, sink Sink) {
	g.endTask(now, job, r, q, sink)
	g.startFreeing(now, sink)
}

// before reports whether ready task x stands in line before y.
func (g *graph) before(x, y uint32) bool { return g.node(x).place < g.node(y).place }

// completeCount returns the number of records of complete tasks.
func (g *graph) completeCount() int { return g.completeRecords }

// nextForget returns when the next remembered task is forgotten, or never.
func (g *graph) nextForget() int64 {
	if k, ok := g.remembered.min(&g.sh.buckets); ok {
		return k.major
	}
	return never
}

// forgetViews clears views of bytes that are freed.
func (g *graph) forgetViews() { g.shown.Name, g.shown.Workload = nil, nil }
