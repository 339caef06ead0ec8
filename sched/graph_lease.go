package sched

// Lease is a hold on a task that its holder proves with a revision. Each Touch gives the task a new
// revision, and a verb with an older one is refused. A released task keeps its last revision.
type Lease struct {
	Ref      JobRef
	Revision int64
}

// Touch gives a task that the peer holds the next revision, and adds log entries.
func (s *Scheduler) Touch(p *Peer, l Lease, next int64, log ...Event) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.slab.node(l.Ref.Slot).revision = next
	sh.graph.log(l.Ref.Slot, log...)
	sh.save(l.Ref.Slot, r, sh.queueOf(r))
	return nil
}

// ReleaseLease makes a task that the peer holds under a lease ready again, first or last in line.
func (s *Scheduler) ReleaseLease(now Time, p *Peer, l Lease, first bool, sink Sink) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.counters.Released++
	q := sh.unhold(l.Ref.Slot, r)
	sh.graph.release(now, l.Ref.Slot, r, q, lineEnd(first))
	sh.match(now, q, sink)
	return nil
}

// FinishLease is Finish for a task that the peer holds under a lease.
func (s *Scheduler) FinishLease(now Time, p *Peer, l Lease, sink Sink) error {
	sh, r, err := s.leased(p, l)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.observeRun(now, r)
	q := sh.unhold(l.Ref.Slot, r)
	sh.counters.Done++
	q.tally.Ended[EndingDone]++
	sh.graph.end(now, l.Ref.Slot, r, q, sink)
	return nil
}

// leased returns a task that the peer holds under a lease, with its shard locked.
func (s *Scheduler) leased(p *Peer, l Lease) (*shard, *record, error) {
	sh, err := s.lockShard(l.Ref.Shard)
	if err != nil {
		return nil, nil, err
	}
	r, err := sh.graph.holding(p, l.Ref)
	switch {
	case err != nil:
	case sh.slab.node(l.Ref.Slot).revision != l.Revision:
		err = errStale
	}
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	return sh, r, nil
}

// holding returns a task that the peer holds.
func (g *graph) holding(p *Peer, ref JobRef) (*record, error) {
	sh := g.sh
	r := sh.slab.find(ref.Slot)
	switch {
	case r == nil || r.state != reserved || r.seq != ref.Seq || r.flags&task == 0:
		return nil, ErrNotFound
	case sh.holder(r).peer != p:
		return nil, errNotOwner
	}
	return r, nil
}
