package sched

// SetRemember sets in milliseconds how long LookupTask finds a complete task; 0: not at all.
func (s *Scheduler) SetRemember(ms int64) { s.remember.Store(ms) }

// endTask ends a detached task. startFreeing does the rest.
func (g *graph) endTask(now Time, job uint32, r *record, q *queue, sink Sink) {
	sh := g.sh
	sh.dropSaved(r)
	if r.flags&locking != 0 { // it was removed
		sh.dropLocks(job, r)
	}
	q.tasks--
	g.completeRecords++
	r.container = q.id
	n := g.node(job)
	if ms := sh.s.remember.Load(); ms > 0 {
		g.log(job, Event{StageDone, now.WallMicros})
		r.state = remembered
		at := roundUp(now.Mono + ms)
		g.remembered.pushBack(&sh.buckets, &sh.slab, sortKey{at, 0}, job)
		sh.s.alarmMono(at)
	} else {
		r.state = freeing
		sh.names.remove(sh.s.nameHash(q.id, r.space, sh.nameView(job)), job)
	}
	if len(sh.topics) > 0 {
		sh.endTopic(topic{r.space, q.name, string(sh.nameView(job))}, sink)
	}
	switch {
	case n.outs+n.ins > 0: // a held task may get predecessors
		n.via = viaComplete
		g.freeing = append(g.freeing, job)
	case r.state == freeing:
		g.freeSlot(job, r)
	}
}

// startFreeing makes the successors of complete tasks ready. The Ticks do what exceeds a batch.
func (g *graph) startFreeing(now Time, sink Sink) {
	sh := g.sh
	if g.freeSuccessors(now, sh.mu.steps+sh.s.batch, sink) {
		sh.s.alarmMono(0)
	}
}

// dropEdge removes an edge, also from the journal.
func (g *graph) dropEdge(i uint32) {
	sh := g.sh
	if saved := g.edges.at(i).saved; saved != 0 {
		sh.s.journal.Drop(int(sh.id), saved)
	}
	g.unlink(i)
}

// freeSuccessors removes the edges of complete tasks until the shard's steps reach stepLimit. A
// successor without other predecessors becomes ready, first in line. more reports whether edges are left.
func (g *graph) freeSuccessors(now Time, stepLimit int, sink Sink) (more bool) {
	sh := g.sh
	if len(g.freeing) == 0 {
		return false
	}
	q := sh.queueOf(sh.slab.at(g.freeing[0]))
	for sh.mu.steps < stepLimit && len(g.freeing) > 0 {
		job := g.freeing[0]
		n := g.node(job)
		for sh.mu.steps < stepLimit && n.ins > 0 {
			sh.countSteps(1)
			g.dropEdge(n.in)
		}
		for sh.mu.steps < stepLimit && n.outs > 0 {
			sh.countSteps(1)
			i := n.out
			to := g.edges.at(i).to
			g.dropEdge(i)
			if r := sh.slab.at(to); r.state == waiting && g.node(to).ins == 0 {
				q.waiting--
				if sh.isDue(now, r, r.dueMillis()) {
					g.makeReady(now, to, r, q, front)
				} else {
					sh.enqueue(now, to, r, q, r.dueMillis())
				}
			}
		}
		if n.outs+n.ins > 0 {
			break
		}
		sh.countSteps(1)
		g.freeing.pop()
		if r := sh.slab.at(job); r.state == freeing {
			g.freeSlot(job, r)
		}
		if len(g.freeing) > 0 {
			if next := sh.queueOf(sh.slab.at(g.freeing[0])); next != q {
				sh.matchUntil(now, q, stepLimit, sink)
				q = next
			}
		}
	}
	sh.matchOrDefer(now, q, sink)
	return len(g.freeing) > 0
}

// freeSlot frees the record of a complete task that has no name any more.
func (g *graph) freeSlot(job uint32, r *record) {
	g.completeRecords--
	g.freeRecord(job, r)
}

func (g *graph) freeRecord(job uint32, r *record) {
	sh := g.sh
	if n := g.node(job); n.logSize > 0 {
		sh.freeBytes(n.log)
	}
	sh.freeBytes(r.bytes)
	sh.slab.free(job)
}

// forget ends the memory of a complete task. Its name is free, or another task has it.
func (g *graph) forget(job uint32, r *record) {
	sh := g.sh
	g.remembered.remove(&sh.buckets, &sh.slab, job)
	r.state = freeing
	if n := g.node(job); n.outs+n.ins == 0 {
		g.freeSlot(job, r)
	}
}

// forgetOld forgets remembered tasks whose time is over.
func (g *graph) forgetOld(now Time, stepLimit int) {
	sh := g.sh
	for sh.mu.steps < stepLimit {
		k, ok := g.remembered.min(&sh.buckets)
		if !ok || k.major > now.Mono {
			break
		}
		sh.countSteps(1)
		job := g.remembered.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.names.remove(sh.s.nameHash(r.container, r.space, sh.nameView(job)), job)
		g.forget(job, r)
	}
}
