package sched

// NewHolderPeer returns a peer that is not connected. It holds tasks under a name that outlives
// connections and, with a journal, the process.
func (s *Scheduler) NewHolderPeer(name string) *Peer {
	return &Peer{unconnected: true, name: name, window: s.window, quota: &s.sharedQuota}
}

// stealTries bounds the batches of edges that a Steal removes without finding a ready task. The Ticks remove the rest.
const stealTries = 4

// Steal reserves up to n tasks from the front of a queue's line for the peer. It calls fn with a
// view of each, under the shard's lock, until fn returns false. The Revision that fn sets and the
// entries that it appends to Log become the task's, in one record of the journal. From the first
// task on the peer serves the queue.
func (s *Scheduler) Steal(now Time, p *Peer, queue []byte, n int, sink Sink, fn func(*TaskView) bool) {
	sh := s.shardOf(queue)
	empty := 0 // batches that found no ready task
	for more := true; more && n > 0 && empty < stealTries; {
		var got int
		got, more = sh.graph.steal(now, p, queue, min(n, s.batch), sink, fn)
		n -= got
		empty += oneIf(got == 0)
	}
}

// steal does one batch, of tasks or of edges of complete tasks. more reports whether there may be another batch.
func (g *graph) steal(now Time, p *Peer, queue []byte, n int, sink Sink, fn func(*TaskView) bool) (got int, more bool) {
	sh := g.sh
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil || sh.halted || q.throttled() || g.isExiting(p, q) {
		return 0, false
	}
	if q.readyTasks == 0 {
		g.freeSuccessors(now, sh.mu.steps+sh.s.batch, sink)
	}
	for got < n && q.readyTasks > 0 && !q.throttled() {
		w, err := sh.watchFor(p, q)
		if err != nil {
			return got, false
		}
		job := g.first(q)
		r := sh.slab.at(job)
		sh.dequeue(job, r, q)
		sh.hold(now, job, r, w, slot{})
		if q.limiter != nil {
			sh.spendCredit(now, q.limiter)
		}
		sh.counters.Assigned++
		g.logReserved(now, job)
		g.view(job, r, q, &g.shown)
		entries := len(g.shown.Log)
		goOn := fn(&g.shown)
		g.node(job).revision = g.shown.Revision
		g.log(job, g.shown.Log[entries:]...)
		sh.save(job, r, q)
		if got++; !goOn {
			return got, false
		}
	}
	return got, q.readyTasks > 0 || len(g.freeing) > 0
}

// Complete ends tasks that the peer holds or, when p is nil, that any holder of NewHolderPeer holds.
// missing receives the indexes of the other tasks. The lock is released between batches. The Ticks
// free what exceeds a batch of the successors.
func (s *Scheduler) Complete(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink, missing func(i int)) {
	sh := s.shardOf(queue)
	for i := 0; i < len(tasks); {
		batch := tasks[i:min(i+s.batch, len(tasks))]
		sh.graph.complete(now, p, space, queue, batch, sink, func(k int) { missing(i + k) })
		i += len(batch)
	}
}

// complete ends tasks of one queue as done by a holder. It calls missing, under the lock, with the index of each task
// that the holder may not complete.
func (g *graph) complete(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink, missing func(i int)) {
	sh := g.sh
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	for i := range tasks {
		job, ok := uint32(0), false
		if q != nil {
			job, ok = g.lookup(q, space, tasks[i].Name)
		}
		if !ok || !g.mayComplete(p, job) {
			sh.counters.Stale++
			missing(i)
			continue
		}
		r := sh.slab.at(job)
		if sh.s.remember.Load() > 0 {
			g.log(job, tasks[i].Log...)
		}
		sh.observeRun(now, r)
		sh.unhold(job, r)
		sh.counters.Done++
		q.tally.Ended[EndDone]++
		g.endTask(now, job, r, q, sink)
	}
	g.startFreeing(now, sink)
}

// holds reports whether the peer holds a task.
func (g *graph) holds(p *Peer, job uint32) bool {
	sh := g.sh
	r := sh.slab.at(job)
	return r.state == reserved && sh.holdingWatch(r).peer == p
}

// mayComplete reports whether the peer holds a task. When p is nil, it reports whether any peer of NewHolderPeer that
// has not left holds it: a connected worker reports its tasks itself.
func (g *graph) mayComplete(p *Peer, job uint32) bool {
	sh := g.sh
	if p != nil {
		return g.holds(p, job)
	}
	r := sh.slab.at(job)
	if r.state != reserved {
		return false
	}
	w := sh.holdingWatch(r)
	return w.peer.unconnected && !w.ended
}

// lookup finds a task that is not complete.
func (g *graph) lookup(q *queue, space Space, name []byte) (uint32, bool) {
	sh := g.sh
	job, ok := sh.lookup(sh.s.nameHash(q.id, space, name), q, space, name)
	return job, ok && sh.slab.at(job).state != remembered
}
