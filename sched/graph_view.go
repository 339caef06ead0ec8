package sched

import "iter"

// LookupTask calls fn with a task, under the shard's lock; false when it is not known.
func (s *Scheduler) LookupTask(space Space, queue, name []byte, fn func(*TaskView)) bool {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return false
	}
	job, ok := sh.lookup(s.tag(q.id, space, name), q, space, name)
	if ok {
		sh.viewTask(job, sh.slab.at(job), q, &sh.task)
		fn(&sh.task)
	}
	return ok
}

// Backlog counts the tasks of a queue that are not complete, and those of them that are
// ready.
func (s *Scheduler) Backlog(queue []byte) (active, ready int) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if q := sh.byName[string(queue)]; q != nil {
		active, ready = q.tasks, q.lined
	}
	return active, ready
}

// WalkTasks is Walk for the tasks of a space that are not complete.
func (s *Scheduler) WalkTasks(c Cursor, n int, space Space, fn func(*TaskView)) (_ Cursor, done bool) {
	return s.walk(c, n, func(sh *shard, job uint32, r *record, q *queue) {
		if r.space == space && r.flags&task != 0 {
			sh.viewTask(job, r, q, &sh.task)
			fn(&sh.task)
		}
	})
}

// After yields the names of the tasks that this one waits for.
func (v *TaskView) After() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := v.shard.slab.node(v.Ref.Slot)
		for i, k := n.in, n.ins; k > 0; k-- {
			v.shard.op(1)
			e := v.shard.edges.at(i)
			if i = e.nextIn; v.shard.slab.at(e.from).live() && !yield(v.shard.nameView(e.from)) {
				return
			}
		}
	}
}

// Before yields the names of the tasks that wait for this one.
func (v *TaskView) Before() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := v.shard.slab.node(v.Ref.Slot)
		for i, k := n.out, n.outs; k > 0; k-- {
			v.shard.op(1)
			e := v.shard.edges.at(i)
			if i = e.nextOut; !yield(v.shard.nameView(e.to)) {
				return
			}
		}
	}
}

// live says that a record in use is a job's that has not ended.
func (r *record) live() bool { return r.state != ending && r.state != remembered }
