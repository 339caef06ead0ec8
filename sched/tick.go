package sched

// Tick does what is due and a part of the deferred work: delayed jobs become ready, overdue reservations end, departed
// peers are reaped, jobs of dropped queues are removed, and so on; see the package's comment. It returns by either
// clock when the next Tick is due: now, when deferred work is left. Options.Alarm tells when the next Tick is due
// earlier than that. Due work comes before deferred work, and each shard has a turn. No lock is held for more than a
// batch.
func (s *Scheduler) Tick(now Time, sink Sink) (next Time) {
	next = Time{Wall: now.Wall + maxSleep, Mono: now.Mono + maxSleep}
	s.wakeWall.Store(next.Wall)
	s.wakeMono.Store(next.Mono)
	more := false
	for i := range s.shards {
		sh := &s.shards[i]
		again := sh.tickDue(now, sink)
		due, rest, moves := sh.tickRest(now, sink)
		more = more || again || rest
		s.moveDeadLetters(now, sh, moves, sink)
		next.Wall, next.Mono = min(next.Wall, due.Wall), min(next.Mono, due.Mono)
	}
	more = s.wakeMoreWaiters(now, sink) || more
	if s.reap(now, sink) || more {
		next.Mono = now.Mono
	}
	lower(&s.wakeWall, next.Wall)
	lower(&s.wakeMono, next.Mono)
	return next
}

// tickDue does a batch of the work that is due. more reports whether the batch was full.
func (sh *shard) tickDue(now Time, sink Sink) (more bool) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	stepLimit := sh.mu.steps + sh.s.batch
	sh.promoteDue(now, stepLimit, sink)
	sh.timeOut(now, &sh.ownTimed, 0, stepLimit, sink)
	if timeout := sh.s.timeout.Load(); timeout > 0 {
		sh.timeOut(now, &sh.defaultTimed, timeout, stepLimit, sink)
	}
	if timeout := sh.s.lockTimeout.Load(); timeout > 0 {
		sh.expireParked(now, timeout, stepLimit, sink)
	}
	sh.expireUnreported(now, stepLimit, sink)
	sh.refillLimiters(now, stepLimit, sink)
	sh.runDueCron(now, stepLimit, sink)
	sh.sweepQueues(now, stepLimit, sink)
	return sh.mu.steps >= stepLimit
}

// tickRest does a batch of deferred work. It returns when something is due next. more reports whether
// deferred work is left. The caller moves the jobs of moves without the shard's lock.
func (sh *shard) tickRest(now Time, sink Sink) (next Time, more bool, moves []deadLetter) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	stepLimit := sh.mu.steps + sh.s.batch
	sh.continueNotifications(stepLimit, sink)
	sh.continueMatches(now, stepLimit-sh.mu.steps, sink)
	sh.continueBroadcasts(now, stepLimit-sh.mu.steps, sink)
	sh.continueOffers(now, stepLimit-sh.mu.steps, sink)
	policing := sh.applyPolicies(now, stepLimit, sink)
	waiting := sh.graph.freeSuccessors(now, stepLimit, sink)
	sh.dropQueues(stepLimit, sink)
	sh.graph.forgetOld(now, stepLimit)
	left := len(sh.notifications) + len(sh.deferredMatches) + len(sh.broadcasting) + len(sh.offering) + len(sh.dropped)
	moves = sh.trimKept(now, stepLimit)
	policing = sh.continueLaneChanges(stepLimit) || policing
	return sh.nextDue(), sh.mu.steps >= stepLimit || policing || waiting || left > 0, moves
}

// fifo is a first-in first-out line of deferred work.
type fifo[T any] []T

// pop removes the first element. An emptied line frees the memory of a burst.
func (f *fifo[T]) pop() {
	clear((*f)[:1])
	if *f = (*f)[1:]; len(*f) == 0 {
		*f = nil
	}
}

// nextDue returns when something is due next, by either clock.
func (sh *shard) nextDue() Time {
	next := Time{Wall: never, Mono: never}
	if len(sh.delayedQueues) > 0 {
		next.Wall = wallOf(sh.delayedQueues[0].firstDelayed)
	}
	if k, ok := sh.ownTimed.min(&sh.buckets); ok {
		next.Mono = k.major
	}
	if k, ok := sh.defaultTimed.min(&sh.buckets); ok && sh.s.timeout.Load() > 0 {
		next.Mono = min(next.Mono, k.major+sh.s.timeout.Load())
	}
	if k, ok := sh.parked.min(&sh.buckets); ok && sh.s.lockTimeout.Load() > 0 {
		next.Mono = min(next.Mono, k.major+sh.s.lockTimeout.Load())
	}
	if len(sh.limiters) > 0 {
		next.Mono = min(next.Mono, sh.limiters[0].refillAt)
	}
	if len(sh.keeping) > 0 {
		next.Wall = min(next.Wall, sh.keeping[0].check)
	}
	if len(sh.sweeps) > 0 {
		next.Mono = min(next.Mono, sh.sweeps[0].next)
	}
	if len(sh.cron.due) > 0 {
		next.Wall = min(next.Wall, sh.cron.due[0].next)
	}
	if len(sh.byGraceEnd) > 0 {
		next.Mono = min(next.Mono, sh.byGraceEnd[0].graceEnd)
	}
	next.Mono = min(next.Mono, sh.graph.nextForget())
	return next
}

// promoteDue makes delayed jobs ready whose due time has come.
func (sh *shard) promoteDue(now Time, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit && len(sh.delayedQueues) > 0 && wallOf(sh.delayedQueues[0].firstDelayed) <= now.Wall {
		q := sh.delayedQueues[0]
		for sh.mu.steps < stepLimit && q.heapIndex == 0 && wallOf(q.firstDelayed) <= now.Wall {
			job := q.delayed.head(&sh.buckets)
			r := sh.slab.at(job)
			sh.dequeue(job, r, q)
			sh.enqueue(now, job, r, q, r.dueMillis())
			sh.countSteps(1)
		}
		sh.matchUntil(now, q, stepLimit, sink)
	}
}

// timeOut ends the reservations of an index whose key and timeout have passed.
func (sh *shard) timeOut(now Time, x *index, timeout int64, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit {
		k, ok := x.min(&sh.buckets)
		if !ok || k.major+timeout > now.Mono {
			break
		}
		job := x.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.counters.TimedOut++
		w, unconnected := sh.holdingWatch(r), ""
		worker := w.peer.origin
		if l := sh.leaseOf(r); l != nil {
			l.end, worker, unconnected = leaseExpired, l.worker, l.worker
		} else if w.peer.request {
			unconnected = worker
		}
		if sh.s.timedOut != nil {
			sh.view(job, r, w.queue, &sh.out.Job)
			sh.s.timedOut(&sh.out.Job, w.peer.id, unconnected)
		}
		sh.noteRevoked(now, job, r)
		sh.addCount(r, atTimedOut)
		q := sh.unhold(job, r)
		sh.fail(now, job, r, q, Attempt{Outcome: attemptTimedOut, Worker: worker}, defaultDelay, sink)
		sh.countSteps(1)
		sh.matchUntil(now, q, stepLimit, sink)
	}
}

// dropQueues removes jobs of dropped queues, and each dropped queue after its last job.
func (sh *shard) dropQueues(stepLimit int, sink Sink) {
	for len(sh.dropped) > 0 && sh.mu.steps < stepLimit {
		q := sh.dropped[len(sh.dropped)-1]
		for sh.mu.steps < stepLimit && q.unreserved() > 0 {
			sh.countSteps(1)
			job := q.anyUnreserved(&sh.buckets)
			r := sh.slab.at(job)
			sh.detach(job, r, q)
			switch {
			case r.state == finished:
				sh.freeKept(job, r, q)
			case r.state == failed:
				sh.counters.Removed++
				sh.freeKept(job, r, q)
			case sh.s.rules[r.space].Owned:
				sh.endRemoved(job, r, q, Failed, sink)
			default:
				sh.endRemoved(job, r, q, Removed, sink)
			}
		}
		if q.unreserved() == 0 {
			sh.countSteps(1)
			if q.saved != 0 {
				sh.s.journal.Drop(int(sh.id), q.saved)
			}
			for _, x := range q.indexes() {
				x.free(&sh.buckets)
			}
			sh.queues[q.id] = nil
			sh.freeQueueIDs = append(sh.freeQueueIDs, q.id)
			sh.dropped = sh.dropped[:len(sh.dropped)-1]
		}
	}
}
