package sched

// Remove removes a job by name in any state. It returns false if there is no such job. A later Finish of the job's
// holder finds nothing.
func (s *Scheduler) Remove(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return !s.rules[space].Graph && s.remove(now, space, queueName, name, true, sink)
}

// RemoveTask is Remove for a task. The task's successors no longer wait for it, as if it were complete.
func (s *Scheduler) RemoveTask(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return s.rules[space].Graph && s.remove(now, space, queueName, name, true, sink)
}

// Withdraw is Remove for a job that no peer holds. It returns false and changes nothing when a peer
// holds the job.
func (s *Scheduler) Withdraw(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return !s.rules[space].Graph && s.remove(now, space, queueName, name, false, sink)
}

// remove removes the job of a name in a queue and reports whether there was such a job. held allows the removal of a
// reserved job.
func (s *Scheduler) remove(now Time, space Space, queueName, name []byte, held bool, sink Sink) bool {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queueName)]
	if q == nil {
		return false
	}
	job, ok := sh.lookup(s.nameHash(q.id, space, name), q, space, name)
	if !ok {
		return false
	}
	r := sh.slab.at(job)
	if !r.live() || r.state == reserved && !held {
		return false
	}
	sh.removeLive(now, job, r, q, Removed, sink)
	return true
}

// removeLive removes a job that has not ended, in any state. The awaits of the job end with e.
func (sh *shard) removeLive(now Time, job uint32, r *record, q *queue, e Effect, sink Sink) {
	if r.state == reserved {
		sh.noteRevoked(now, job, r)
	}
	sh.detach(job, r, q)
	if r.flags&task != 0 {
		sh.countRemoved(q)
		sh.graph.end(now, job, r, q, sink)
	} else {
		sh.endRemoved(job, r, q, e, sink)
	}
}

// Drop removes a queue with all its jobs. It returns false and changes nothing when a peer serves the queue or holds
// one of its jobs, or when the queue has had tasks or jobs of a Kept space. The queue is gone when Drop returns. The
// next Ticks remove its jobs.
func (s *Scheduler) Drop(name []byte) bool {
	sh := s.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(name)]
	if q == nil || q.workers > 0 || q.running > 0 || s.undroppable&q.spaces != 0 {
		return false
	}
	sh.saveDrop(q)
	sh.discard(q)
	return true
}

// discard removes a queue from the names. The Ticks remove its jobs.
func (sh *shard) discard(q *queue) {
	if g := q.limiter; g != nil && g.heapIndex >= 0 {
		sh.limiters.Remove(g) // a pause may be for years
	}
	delete(sh.byName, q.name)
	sh.s.queueCount.Add(-1)
	if q.heapIndex >= 0 {
		sh.delayedQueues.Remove(q)
	}
	q.dropped = true
	sh.takeTally(q)
	sh.dropped = append(sh.dropped, q)
	sh.s.alarmMono(0)
}

// discardUnused discards an unused queue that no client would drop. Its name, which may have megabytes, is too long for
// the peers that call Drop, or it is a queue of AutoDelete peers and numbered jobs.
func (sh *shard) discardUnused(q *queue) {
	if (len(q.name) > maxShortQueue || sh.isAutoDelete(q)) && !q.dropped && q.workers == 0 && q.running == 0 && q.tasks == 0 && q.unreserved() == 0 {
		sh.discard(q)
	}
}

// isAutoDelete reports whether a queue is deleted with the last of its peers and jobs. A queue with a PauseFor may be
// deleted, but not a queue that waits for the credit of a rate.
func (sh *shard) isAutoDelete(q *queue) bool {
	return q.autoDelete && q.saved == 0 && q.spaces&^sh.s.numberedSpaces == 0 && (q.limiter == nil || q.limiter.unlimited() || q.limiter.heapIndex < 0)
}
