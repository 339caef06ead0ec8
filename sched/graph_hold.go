package sched

// Hold is a hold on a task, which its holder proves with a revision. Each TouchHold gives the task a new
// revision, and a verb with an older one is refused. A released task keeps its last revision.
type Hold struct {
	Ref      JobRef
	Revision int64
}

// TouchHold gives a task that the peer holds the next revision, and adds log entries.
func (s *Scheduler) TouchHold(p *Peer, h Hold, next int64, log ...Event) error {
	sh, r, err := s.held(p, h)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.slab.node(h.Ref.Record).revision = next
	sh.graph.log(h.Ref.Record, log...)
	sh.save(h.Ref.Record, r, sh.queueOf(r))
	return nil
}

// ReleaseHold makes a task that the peer holds with a Hold ready again, first or last in line.
func (s *Scheduler) ReleaseHold(now Time, p *Peer, h Hold, first bool, sink Sink) error {
	sh, r, err := s.held(p, h)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.counters.Released++
	q := sh.unhold(h.Ref.Record, r)
	sh.graph.release(now, h.Ref.Record, r, q, lineEnd(first))
	sh.matchOrDefer(now, q, sink)
	return nil
}

// FinishHold is Finish for a task that the peer holds with a Hold.
func (s *Scheduler) FinishHold(now Time, p *Peer, h Hold, sink Sink) error {
	sh, r, err := s.held(p, h)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.observeRun(now, r)
	q := sh.unhold(h.Ref.Record, r)
	sh.counters.Done++
	q.tally.Ended[EndingDone]++
	sh.graph.end(now, h.Ref.Record, r, q, sink)
	return nil
}

// held returns a task that the peer holds with a Hold, with its shard locked.
func (s *Scheduler) held(p *Peer, h Hold) (*shard, *record, error) {
	sh, err := s.lockShard(h.Ref.Shard)
	if err != nil {
		return nil, nil, err
	}
	r, err := sh.graph.holding(p, h.Ref)
	switch {
	case err != nil:
	case sh.slab.node(h.Ref.Record).revision != h.Revision:
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
	r := sh.slab.find(ref.Record)
	switch {
	case r == nil || r.state != reserved || r.seq != ref.Seq || r.flags&task == 0:
		return nil, ErrNotFound
	case sh.holder(r).peer != p:
		return nil, errNotOwner
	}
	return r, nil
}
