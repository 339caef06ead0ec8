package sched

// Tick does what time brings: delayed jobs become ready, overdue reservations end,
// dropped queues are taken apart. It returns the times, by either clock, at which
// the next Tick is due; Options.Alarm tells when that moves closer. No lock is held
// for more than a batch of jobs.
func (s *Scheduler) Tick(now Time, sink Sink) (next Time) {
	next = Time{Wall: now.Wall + maxSleep, Mono: now.Mono + maxSleep}
	s.wakeWall.Store(next.Wall)
	s.wakeMono.Store(next.Mono)
	for i := range s.shards {
		due, more := s.shards[i].tick(now, sink)
		for more {
			due, more = s.shards[i].tick(now, sink)
		}
		next.Wall, next.Mono = min(next.Wall, due.Wall), min(next.Mono, due.Mono)
	}
	if s.bury(now, sink) {
		next.Mono = now.Mono
	}
	lower(&s.wakeWall, next.Wall)
	lower(&s.wakeMono, next.Mono)
	return next
}

// tick does one batch; more says that it was a full one.
func (sh *shard) tick(now Time, sink Sink) (next Time, more bool) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	room := tickBatch
	room = sh.wake(now, room, sink)
	room = sh.expire(now, &sh.deadline, 0, room, sink)
	timeout := sh.s.timeout.Load()
	if timeout > 0 {
		room = sh.expire(now, &sh.running, timeout, room, sink)
	}
	lockTimeout := sh.s.lockTimeout.Load()
	if lockTimeout > 0 {
		room = sh.expireParked(now, lockTimeout, room, sink)
	}
	room = sh.expireUnreported(now, room, sink)
	room = sh.searchMore(now, room, sink)
	room = sh.takeApart(room, sink)
	room = sh.freeSuccessors(now, room, sink)
	room = sh.forgetOld(now, room)
	next = Time{Wall: Never, Mono: Never}
	if len(sh.timers) > 0 {
		next.Wall = wallOf(sh.timers[0].timer)
	}
	if k, ok := sh.deadline.min(&sh.buckets); ok {
		next.Mono = k.a
	}
	if k, ok := sh.running.min(&sh.buckets); ok && timeout > 0 {
		next.Mono = min(next.Mono, k.a+timeout)
	}
	if k, ok := sh.parked.min(&sh.buckets); ok && lockTimeout > 0 {
		next.Mono = min(next.Mono, k.a+lockTimeout)
	}
	if len(sh.unreported) > 0 {
		next.Mono = min(next.Mono, sh.unreported[0].until)
	}
	if k, ok := sh.memory.min(&sh.buckets); ok {
		next.Mono = min(next.Mono, k.a)
	}
	return next, room <= 0
}

// wake makes due jobs ready.
func (sh *shard) wake(now Time, room int, sink Sink) int {
	for room > 0 && len(sh.timers) > 0 && wallOf(sh.timers[0].timer) <= now.Wall {
		q := sh.timers[0]
		for room > 0 && q.at == 0 && wallOf(q.timer) <= now.Wall {
			job := q.delayed.head(&sh.buckets)
			r := sh.slab.at(job)
			sh.dequeue(job, r, q)
			sh.enqueue(now, job, r, q, r.place)
			room--
		}
		sh.match(now, q, sink)
	}
	return room
}

// expire releases the reservations of an index whose key and timeout have passed.
func (sh *shard) expire(now Time, x *index, timeout int64, room int, sink Sink) int {
	for ; room > 0; room-- {
		k, ok := x.min(&sh.buckets)
		if !ok || k.a+timeout > now.Mono {
			break
		}
		job := x.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.counters.TimedOut++
		if w := sh.watches[r.home]; sh.s.timedOut != nil {
			sh.view(job, r, w.queue, &sh.out.Job)
			sh.s.timedOut(&sh.out.Job, w.peer.id)
		}
		sh.taken(now, job, r)
		q := sh.unhold(job, r)
		sh.fail(now, job, r, q, sink)
	}
	return room
}

// takeApart removes jobs of dropped queues.
func (sh *shard) takeApart(room int, sink Sink) int {
	for len(sh.dropped) > 0 && room > 0 {
		q := sh.dropped[len(sh.dropped)-1]
		for ; room > 0 && q.unheld() > 0; room-- {
			job := q.anyUnheld(&sh.buckets)
			r := sh.slab.at(job)
			sh.leave(job, r, q)
			sh.counters.Removed++
			if sh.s.rules[r.space].Owned {
				sh.end(job, r, q, Failed, nil, sink)
			} else {
				sh.end(job, r, q, Removed, nil, sink)
			}
		}
		if q.unheld() == 0 {
			if q.saved != 0 {
				sh.s.journal.Drop(int(sh.id), q.saved)
			}
			q.ready.release(&sh.buckets)
			q.withheld.release(&sh.buckets)
			q.wide.release(&sh.buckets)
			q.private.release(&sh.buckets)
			q.delayed.release(&sh.buckets)
			sh.queues[q.id] = nil
			sh.idle = append(sh.idle, q.id)
			sh.dropped = sh.dropped[:len(sh.dropped)-1]
		}
	}
	return room
}
