package sched

import "iter"

// LookupTask calls fn with a task, under the shard's lock. It returns false when the task is
// unknown.
func (s *Scheduler) LookupTask(space Space, queue, name []byte, fn func(*TaskView)) bool {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return false
	}
	job, ok := sh.lookup(s.nameHash(q.id, space, name), q, space, name)
	if ok {
		sh.graph.view(job, sh.slab.at(job), q, &sh.graph.shown)
		fn(&sh.graph.shown)
	}
	return ok
}

// Backlog counts the tasks of a queue that are not complete, and how many of these are ready.
func (s *Scheduler) Backlog(queue []byte) (active, ready int) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if q := sh.byName[string(queue)]; q != nil {
		active, ready = q.tasks, q.readyTasks
	}
	return active, ready
}

// WalkTasks is Walk for the tasks of a space that are not complete.
func (s *Scheduler) WalkTasks(c Cursor, n int, space Space, fn func(*TaskView)) (_ Cursor, done bool) {
	return s.walk(c, n, func(sh *shard, job uint32, r *record, q *queue) {
		if r.space == space && r.flags&task != 0 {
			sh.graph.view(job, r, q, &sh.graph.shown)
			fn(&sh.graph.shown)
		}
	})
}

// After yields the names of the task's predecessors.
func (v *TaskView) After() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := v.shard.slab.node(v.Ref.Record)
		for i, k := n.in, n.ins; k > 0; k-- {
			v.shard.countSteps(1)
			e := v.shard.graph.edges.at(i)
			if i = e.nextIn; v.shard.slab.at(e.from).live() && !yield(v.shard.nameView(e.from)) {
				return
			}
		}
	}
}

// Before yields the names of the task's successors.
func (v *TaskView) Before() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := v.shard.slab.node(v.Ref.Record)
		for i, k := n.out, n.outs; k > 0; k-- {
			v.shard.countSteps(1)
			e := v.shard.graph.edges.at(i)
			if i = e.nextOut; !yield(v.shard.nameView(e.to)) {
				return
			}
		}
	}
}

// whyWaiting says which predecessors a waiting task waits for. Of very many predecessors it counts a part, and it names
// some.
func (g *graph) whyWaiting(job uint32) Why {
	t := g.node(job)
	w := Why{Reason: WhyPredecessors, Total: int(t.given)}
	for i, k := t.in, t.ins; k > 0; k-- {
		if w.More = w.Count == maxWhySteps; w.More {
			break
		}
		g.sh.countSteps(1)
		e := g.edges.at(i)
		if i = e.nextIn; !g.sh.slab.at(e.from).live() {
			continue
		}
		if w.Count++; len(w.Jobs) < maxWhyJobs {
			w.Jobs = append(w.Jobs, WhyJob{Ref: g.sh.ref(e.from, g.sh.slab.at(e.from))})
		}
	}
	return w
}

// live reports whether a record in use is of a job that has not ended.
func (r *record) live() bool {
	return r.state != freeing && r.state != remembered && r.state != failed && r.state != finished
}

// TaskView is a view of one task. Its bytes are valid until the call that was given it returns.
type TaskView struct {
	Job
	Stage  uint8     // 0: it waits for predecessors
	Holder string    // name or label of the holder of a reserved task, or the worker of its lease
	By     SessionID // session of its holder, 0 for a peer of NewHolderPeer or a lease
	Log    []Event

	// Revision is the number of its TaskRevision. While the task is not held, it is that of the last holder; 0: it had
	// none.
	Revision int64

	shard *shard
}

// view fills a TaskView. The shard reuses its log.
func (g *graph) view(job uint32, r *record, q *queue, v *TaskView) {
	sh := g.sh
	sh.view(job, r, q, &v.Job)
	v.shard = sh
	v.Stage, v.Holder, v.By, v.Log = 0, "", 0, v.Log[:0]
	switch r.state {
	case ready, delayed, parked:
		v.Stage = StageReady
	case reserved:
		p := sh.holdingWatch(r).peer
		v.Stage, v.Holder, v.By = StageReserved, p.name+p.label, p.id
		if l := sh.leaseOf(r); l != nil {
			v.Holder = l.worker
		}
	case remembered:
		v.Stage = StageDone
	}
	n := g.node(job)
	v.Revision, v.Log = n.revision, g.events(v.Log, n)
}
