package sched

// TaskRevision names a task as its holder knows it. Each ReviseTask gives the task another revision, and a verb with an
// earlier revision is refused. A released task keeps its last revision.
type TaskRevision struct {
	Ref    JobRef
	Number int64 // chosen by the callers
}

// ReviseTask gives a task that the peer holds the next revision, and adds log entries.
func (s *Scheduler) ReviseTask(p *Peer, t TaskRevision, next int64, log ...Event) error {
	sh, r, err := s.lockRevision(p, t)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.slab.node(t.Ref.Record).revision = next
	sh.graph.log(t.Ref.Record, log...)
	sh.save(t.Ref.Record, r, sh.queueOf(r))
	return nil
}

// ReleaseTask makes a task that the peer holds ready again, first or last in line.
func (s *Scheduler) ReleaseTask(now Time, p *Peer, t TaskRevision, first bool, sink Sink) error {
	sh, r, err := s.lockRevision(p, t)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.counters.Released++
	q := sh.unhold(t.Ref.Record, r)
	sh.graph.release(now, t.Ref.Record, r, q, lineEnd(first))
	sh.matchOrDefer(now, q, sink)
	return nil
}

// FinishTask is Finish for a task and its revision.
func (s *Scheduler) FinishTask(now Time, p *Peer, t TaskRevision, sink Sink) error {
	sh, r, err := s.lockRevision(p, t)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.observeRun(now, r)
	q := sh.unhold(t.Ref.Record, r)
	sh.counters.Done++
	q.tally.Ended[EndDone]++
	sh.graph.end(now, t.Ref.Record, r, q, sink)
	return nil
}

// lockRevision returns a task that the peer holds at a revision, with its shard locked.
func (s *Scheduler) lockRevision(p *Peer, t TaskRevision) (*shard, *record, error) {
	sh, err := s.lockShard(t.Ref.Shard)
	if err != nil {
		return nil, nil, err
	}
	r, err := sh.graph.findHeldTask(p, t.Ref)
	switch {
	case err != nil:
	case sh.slab.node(t.Ref.Record).revision != t.Number:
		err = errStale
	}
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	return sh, r, nil
}

// findHeldTask returns a task that the peer holds.
func (g *graph) findHeldTask(p *Peer, ref JobRef) (*record, error) {
	sh := g.sh
	r := sh.slab.find(ref.Record)
	switch {
	case r == nil || r.state != reserved || r.seq != ref.Seq || r.flags&task == 0:
		return nil, ErrNotFound
	case sh.holdingWatch(r).peer != p:
		return nil, errNotHolder
	}
	return r, nil
}
