package sched

// taskDue is the due second that all tasks in line stand under: before any other
// job's but those that go ahead of their equals.
const taskDue = aheadOfAll + 1

// The ends of the line.
type end bool

const (
	front end = true
	back  end = false
)

// SetRemember sets how long a complete task can still be looked up, in milliseconds;
// 0: not at all.
func (s *Scheduler) SetRemember(ms int64) { s.remember.Store(ms) }

// NewHolder returns a peer that is not connected: it holds tasks under a name that
// outlives connections and, with a journal, the process.
func (s *Scheduler) NewHolder(name string) *Peer {
	return &Peer{name: name, window: s.window, quota: &s.registered}
}

// stealTries is how many batches of successors a Steal frees in vain; the Ticks go on.
const stealTries = 4

// Steal hands the peer up to n tasks from the front of a queue's line, and fn a view of
// each, under the shard's lock, until fn returns false. The Revision that fn sets and the
// entries that it appends to Log become the task's, in the same record of the journal.
// The peer serves the queue from the first one on.
func (s *Scheduler) Steal(now Time, p *Peer, queue []byte, n int, sink Sink, fn func(*TaskView) bool) {
	sh := s.shardOf(queue)
	empty := 0 // batches of successors of which none was ready
	for more := true; more && n > 0 && empty < stealTries; {
		var got int
		got, more = sh.steal(now, p, queue, min(n, s.batch), sink, fn)
		n -= got
		empty += count(got == 0)
	}
}

// steal does one batch, of tasks or of successors of complete ones; more says that there
// may be another.
func (sh *shard) steal(now Time, p *Peer, queue []byte, n int, sink Sink, fn func(*TaskView) bool) (got int, more bool) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil || sh.halted || sh.isExiting(p, q) {
		return 0, false
	}
	if q.lined == 0 {
		sh.freeSuccessors(now, sh.mu.ops+sh.s.batch, sink)
	}
	for got < n && q.lined > 0 {
		w, err := sh.enlist(p, q)
		if err != nil {
			return got, false
		}
		job := sh.firstTask(q)
		r := sh.slab.at(job)
		sh.dequeue(job, r, q)
		sh.hold(now, job, r, w, slot{})
		sh.counters.Assigned++
		sh.logEvents(job, Event{StageReserved, now.Micros})
		sh.viewTask(job, r, q, &sh.task)
		entries := len(sh.task.Log)
		goOn := fn(&sh.task)
		sh.slab.node(job).revision = sh.task.Revision
		sh.logEvents(job, sh.task.Log[entries:]...)
		sh.save(job, r, q)
		if got++; !goOn {
			return got, false
		}
	}
	return got, q.lined > 0 || len(sh.freeing) > 0
}

// firstTask returns the first task in line; there is one.
func (sh *shard) firstTask(q *queue) uint32 {
	first := none
	for _, x := range [...]*index{&q.ready, &q.withheld, &q.wide, &q.private} {
		job := x.headOf(&sh.buckets, key{^0, taskDue})
		if first == none || job != none && sh.slab.node(job).place < sh.slab.node(first).place {
			first = job
		}
	}
	return first
}

// headOf returns the first job of a key, none when there is none.
func (x *index) headOf(p *buckets, k key) uint32 {
	switch {
	case x.jobs == 0:
		return none
	case p.all[x.first].key == k:
		return p.all[x.first].head
	case x.tree == nil:
		return none
	}
	if e, ok := x.tree.Get(entry{key: k}); ok {
		return p.all[e.bucket].head
	}
	return none
}

// Complete ends tasks that the peer holds, or, when p is nil, that any holder of NewHolder holds;
// missing is told the indexes of the others. The lock is let go between batches of tasks. Of very
// many successors most become ready by the Ticks that follow.
func (s *Scheduler) Complete(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink, missing func(i int)) {
	sh := s.shardOf(queue)
	for i := 0; i < len(tasks); {
		batch := tasks[i:min(i+s.batch, len(tasks))]
		sh.complete(now, p, space, queue, batch, sink, func(k int) { missing(i + k) })
		i += len(batch)
	}
}

func (sh *shard) complete(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink, missing func(i int)) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	for i := range tasks {
		job, ok := uint32(0), false
		if q != nil {
			job, ok = sh.lookupTask(q, space, tasks[i].Name)
		}
		if !ok || !sh.mayComplete(p, job) {
			sh.counters.Stale++
			missing(i)
			continue
		}
		r := sh.slab.at(job)
		if sh.s.remember.Load() > 0 {
			sh.logEvents(job, tasks[i].Log...)
		}
		sh.unhold(job, r)
		sh.finishTask(now, job, r, q, sink)
	}
	sh.moveOn(now, sink)
}

// holds says whether the peer holds a task.
func (sh *shard) holds(p *Peer, job uint32) bool {
	r := sh.slab.at(job)
	return r.state == reserved && sh.watches[r.home].peer == p
}

// mayComplete says whether the peer, or, when p is nil, any holder of NewHolder that has not left,
// holds a task. A connected worker reports its tasks itself.
func (sh *shard) mayComplete(p *Peer, job uint32) bool {
	if p != nil {
		return sh.holds(p, job)
	}
	r := sh.slab.at(job)
	if r.state != reserved {
		return false
	}
	w := sh.watches[r.home]
	return w.peer.id == 0 && !w.ended
}

// GiveBack is Forget for a holder of NewHolder: its tasks go first in line, in the order of their
// names. While the Ticks do that, those that are in line have smaller names than the others.
func (s *Scheduler) GiveBack(now Time, p *Peer, sink Sink) { s.depart(now, p, true, sink) }

// ready puts a task that stands nowhere in line, and logs that.
func (sh *shard) ready(now Time, job uint32, r *record, q *queue, where end) {
	sh.lineUp(job, r, q, where)
	sh.logEvents(job, Event{StageReady, now.Micros})
}

// lineUp is ready without the log.
func (sh *shard) lineUp(job uint32, r *record, q *queue, where end) {
	r.state, r.home, r.due = ready, q.id, taskDue
	r.flags |= immediate
	q.immediate++
	q.lined++
	n := sh.slab.node(job)
	if where == front {
		n.place = -sh.s.places.Add(1)
		q.readyFor(r).pushFront(&sh.buckets, &sh.slab, readyKey(r), job)
	} else {
		n.place = sh.s.places.Add(1)
		q.readyFor(r).pushBack(&sh.buckets, &sh.slab, readyKey(r), job)
	}
}

// wait notes that a task that stands nowhere waits for others; past is how many
// milliseconds after its due second it is due, when it was postponed. It leaves its turn
// at a lock to others: it may even wait for one of them.
func (sh *shard) wait(job uint32, r *record, q *queue, past uint32) {
	if r.flags&locking != 0 {
		sh.dropLocks(job, r)
	}
	r.state, r.home, r.place = waiting, q.id, past
	q.waiting++
}

// comeBack gives a task that was just taken from its holder a place again.
func (sh *shard) comeBack(now Time, job uint32, r *record, q *queue, where end) {
	if sh.slab.node(job).ins > 0 {
		sh.wait(job, r, q, 0)
	} else {
		sh.ready(now, job, r, q, where)
	}
	sh.save(job, r, q)
}

// finishTask ends a task that was just taken from its holder. freeSuccessors does the
// rest.
func (sh *shard) finishTask(now Time, job uint32, r *record, q *queue, sink Sink) {
	sh.counters.Done++
	sh.endTask(now, job, r, q, sink)
}

// endTask is finishTask but for the count of what is done.
func (sh *shard) endTask(now Time, job uint32, r *record, q *queue, sink Sink) {
	sh.unsave(r)
	if r.flags&locking != 0 { // it was cancelled
		sh.dropLocks(job, r)
	}
	q.tasks--
	sh.gone++
	r.home = q.id
	n := sh.slab.node(job)
	if ms := sh.s.remember.Load(); ms > 0 {
		sh.logEvents(job, Event{StageDone, now.Micros})
		r.state = remembered
		at := roundUp(now.Mono + ms)
		sh.memory.pushBack(&sh.buckets, &sh.slab, key{at, 0}, job)
		sh.s.alarmMono(at)
	} else {
		r.state = ending
		sh.names.remove(sh.s.tag(q.id, r.space, sh.nameView(job)), job)
	}
	if len(sh.topics) > 0 {
		sh.endTopic(topic{r.space, q.name, sh.taskName(job)}, sink)
	}
	switch {
	case n.outs+n.ins > 0: // some may have been added while it was held
		n.via = complete
		sh.freeing = append(sh.freeing, job)
	case r.state == ending:
		sh.freeSlot(job, r)
	}
}

// dropEdge takes an edge away, and what the journal has of it.
func (sh *shard) dropEdge(i uint32) {
	if saved := sh.edges.at(i).saved; saved != 0 {
		sh.s.journal.Drop(int(sh.id), saved)
	}
	sh.unlink(i)
}

// freeSuccessors takes tasks off the complete ones that they waited for, until so many steps are
// done; those that wait for no other become ready, first in line.
func (sh *shard) freeSuccessors(now Time, until int, sink Sink) {
	if len(sh.freeing) == 0 {
		return
	}
	q := sh.queueOf(sh.slab.at(sh.freeing[0]))
	for sh.mu.ops < until && len(sh.freeing) > 0 {
		job := sh.freeing[0]
		n := sh.slab.node(job)
		for sh.mu.ops < until && n.ins > 0 {
			sh.op(1)
			sh.dropEdge(n.in)
		}
		for sh.mu.ops < until && n.outs > 0 {
			sh.op(1)
			i := n.out
			to := sh.edges.at(i).to
			sh.dropEdge(i)
			if r := sh.slab.at(to); r.state == waiting && sh.slab.node(to).ins == 0 {
				q.waiting--
				if sh.isDue(now, r, r.place) {
					sh.ready(now, to, r, q, front)
				} else {
					sh.enqueue(now, to, r, q, r.place)
				}
			}
		}
		if n.outs+n.ins > 0 {
			break
		}
		sh.op(1)
		sh.freeing = sh.freeing[1:]
		if r := sh.slab.at(job); r.state == ending {
			sh.freeSlot(job, r)
		}
		if len(sh.freeing) > 0 {
			if next := sh.queueOf(sh.slab.at(sh.freeing[0])); next != q {
				sh.matchUntil(now, q, until, sink)
				q = next
			}
		}
	}
	if len(sh.freeing) == 0 {
		sh.freeing = nil
	}
	sh.match(now, q, sink)
}

// freeSlot lets the record of a task go that is no longer in the name table.
func (sh *shard) freeSlot(job uint32, r *record) {
	sh.gone--
	sh.freeRecord(job, r)
}

func (sh *shard) freeRecord(job uint32, r *record) {
	if n := sh.slab.node(job); n.logSize > 0 {
		sh.giveBytes(n.log)
	}
	sh.giveBytes(r.bytes)
	sh.slab.give(job)
}

// lookupTask finds a task that is not complete.
func (sh *shard) lookupTask(q *queue, space Space, name []byte) (uint32, bool) {
	job, ok := sh.lookup(sh.s.tag(q.id, space, name), q, space, name)
	return job, ok && sh.slab.at(job).state != remembered
}

// forgetTask ends the memory of a complete task whose name is free or another's.
func (sh *shard) forgetTask(job uint32, r *record) {
	sh.memory.remove(&sh.buckets, &sh.slab, job)
	r.state = ending
	if n := sh.slab.node(job); n.outs+n.ins == 0 {
		sh.freeSlot(job, r)
	}
}

// forgetOld ends the memory of tasks whose time is over.
func (sh *shard) forgetOld(now Time, until int) {
	for sh.mu.ops < until {
		k, ok := sh.memory.min(&sh.buckets)
		if !ok || k.a > now.Mono {
			break
		}
		sh.op(1)
		job := sh.memory.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.names.remove(sh.s.tag(r.home, r.space, sh.nameView(job)), job)
		sh.forgetTask(job, r)
	}
}
