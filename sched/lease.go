package sched

// Lease is a hold on a task that its holder proves with a revision: each Touch gives it
// a new one, and whoever comes with an older one is refused with ErrStale. A task keeps
// its last revision when it is given back.
type Lease struct {
	Ref      JobRef
	Revision int64
}

// Touch gives a task that the peer holds the next revision, and log entries.
func (s *Scheduler) Touch(p *Peer, l Lease, next int64, log ...Event) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.slab.node(l.Ref.Slot).revision = next
	sh.logEvents(l.Ref.Slot, log...)
	sh.save(l.Ref.Slot, r, sh.queueOf(r))
	return nil
}

// Requeue makes a task that the peer holds ready again, first or last in line.
func (s *Scheduler) Requeue(now Time, p *Peer, l Lease, first bool, sink Sink) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.counters.Released++
	q := sh.unhold(l.Ref.Slot, r)
	sh.comeBack(now, l.Ref.Slot, r, q, end(first))
	sh.match(now, q, sink)
	return nil
}

// FinishLease is Finish for a task that is held under a revision.
func (s *Scheduler) FinishLease(now Time, p *Peer, l Lease, sink Sink) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	q := sh.unhold(l.Ref.Slot, r)
	sh.finishTask(now, l.Ref.Slot, r, q, sink)
	sh.moveOn(now, sink)
	return nil
}

// leased returns a task that the peer holds, with its shard locked.
func (s *Scheduler) leased(p *Peer, l Lease) (*shard, *record, error) {
	sh, err := s.lock(l.Ref.Shard)
	if err != nil {
		return nil, nil, err
	}
	r, err := sh.holdingTask(p, l.Ref)
	switch {
	case err != nil:
	case sh.slab.node(l.Ref.Slot).revision != l.Revision:
		err = ErrStale
	}
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	return sh, r, nil
}

// holdingTask returns a task that the peer holds.
func (sh *shard) holdingTask(p *Peer, ref JobRef) (*record, error) {
	r := sh.slab.find(ref.Slot)
	switch {
	case r == nil || r.state != reserved || r.seq != ref.Seq || r.flags&task == 0:
		return nil, ErrNotFound
	case sh.watches[r.home].peer != p:
		return nil, ErrNotOwner
	}
	return r, nil
}

// moveOn does what the end of a task allows; of many successors most become ready in the
// Ticks that follow.
func (sh *shard) moveOn(now Time, sink Sink) {
	if sh.freeSuccessors(now, sh.mu.ops+sh.s.batch, sink); len(sh.freeing) > 0 {
		sh.s.alarmMono(0)
	}
}

// Cancel removes a task by name, in whatever state and hands: those that wait for it wait
// no more, as if it was complete. false: there is none.
func (s *Scheduler) Cancel(now Time, space Space, queue, name []byte, sink Sink) bool {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil || !s.rules[space].Graph {
		return false
	}
	job, ok := sh.lookupTask(q, space, name)
	if !ok {
		return false
	}
	r := sh.slab.at(job)
	switch r.state {
	case waiting:
		q.waiting--
	case reserved:
		sh.taken(now, job, r)
		fallthrough
	default:
		sh.leave(job, r, q)
	}
	sh.counters.Removed++
	sh.endTask(now, job, r, q, sink)
	sh.moveOn(now, sink)
	return true
}

// Head returns where the first task in a queue's line stands: of several queues' first
// tasks, the one with the smallest place has been in line for longest, but for those that
// were put first. ok is false when the line is empty, or nothing is handed out any more.
func (s *Scheduler) Head(queue []byte) (place int64, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil || q.lined == 0 || sh.halted {
		return 0, false
	}
	return sh.slab.node(sh.firstTask(q)).place, true
}
