package sched

import "math/bits"

// held is one job that a peer holds.
type held struct {
	job    uint32 // the number of its record
	lane   uint32 // lane that counts the job as taken, or none
	number uint64 // number of the Run: the seq of the slot that got the job
	tag    uint64 // tag of the Reserve that the job answered
	start  int64  // Mono of the hand-out
}

// hold gives a detached job to a watch's peer and starts its time-out.
func (sh *shard) hold(now Time, job uint32, r *record, w *watch, s slot) {
	lane := none
	if r.flags&laned != 0 {
		lane = r.laneID()
	}
	h := held{job, lane, s.seq, s.tag, now.Mono}
	if t := w.peer.terms; t != nil && sh.holdLeased(now, r, w.queue, h, t) {
		return
	}
	w.addHeld(r, h)
	w.queue.running++
	w.queue.busy += oneIf(len(w.held) == 1)
	r.flags &^= ownDeadline | untimed | laned
	if sh.s.rules[r.space].Untimed {
		r.flags |= untimed
		sh.countUntimed(r, w.queue, 1)
		return
	}
	sh.startTimeout(now, job, r, w.peer)
}

// addHeld makes a detached job reserved under the watch.
func (w *watch) addHeld(r *record, h held) {
	r.state, r.container, r.stateData = reserved, w.id, uint32(len(w.held))
	w.shard.countReserved(r, 1)
	w.held = append(w.held, h)
}

// startTimeout puts a reserved job under the deadline of its time-out, or of the default one.
func (sh *shard) startTimeout(now Time, job uint32, r *record, p *Peer) {
	grace := sh.s.grace
	if p.capabilities&NoGrace != 0 {
		grace = 0
	}
	if r.timeout > 0 {
		r.flags |= ownDeadline
		at := roundUp(now.Mono + int64(r.timeout)*1000 + grace)
		sh.ownTimed.pushBack(&sh.buckets, &sh.slab, sortKey{at, 0}, job)
		sh.s.alarmMono(at)
		return
	}
	start := roundUp(now.Mono + grace)
	sh.defaultTimed.pushBack(&sh.buckets, &sh.slab, sortKey{start, 0}, job)
	if d := sh.s.timeout.Load(); d > 0 {
		sh.s.alarmMono(start + d)
	}
}

// unhold detaches a reserved job from its holder and returns its queue.
func (sh *shard) unhold(job uint32, r *record) *queue {
	w := sh.holdingWatch(r)
	h := sh.removeHeld(job, r, w)
	if r.flags&locking != 0 {
		sh.dropLocks(job, r)
	}
	q := w.queue
	q.running--
	if h.lane != none {
		sh.removeTaken(q, h.lane)
	}
	if q.limiter != nil {
		sh.matchFreed(q)
	}
	sh.freeIfRemovable(w)
	return q
}

// removeHeld takes a reserved job from the held jobs of its watch and from its deadline.
func (sh *shard) removeHeld(job uint32, r *record, w *watch) held {
	i := r.heldIndex()
	h := w.held[i]
	last := len(w.held) - 1
	if moved := w.held[last]; moved.job != job {
		w.held[i] = moved
		sh.slab.at(moved.job).stateData = i
	}
	w.held = w.held[:last]
	if last == 0 && cap(w.held) > 1024 {
		w.held = nil // free a burst's memory
	}
	if last == 0 && !w.ended {
		w.queue.busy--
	}
	w.shard.countReserved(r, -1)
	switch {
	case r.flags&untimed != 0:
		sh.countUntimed(r, w.queue, -1)
	case r.flags&ownDeadline != 0:
		sh.ownTimed.remove(&sh.buckets, &sh.slab, job)
		if w.leased() {
			sh.endLease(r, w.queue, h.number)
		}
	default:
		sh.defaultTimed.remove(&sh.buckets, &sh.slab, job)
	}
	return h
}

// findHeld returns the job that the peer holds under a run.
func (sh *shard) findHeld(p *Peer, run Run) (*record, error) {
	r := sh.slab.find(run.Record)
	if r == nil || r.state != reserved || r.space != run.Space || run.Number == 0 {
		return nil, ErrNotFound
	}
	w := sh.holdingWatch(r)
	switch {
	case w.held[r.heldIndex()].number != run.Number:
		return nil, ErrNotFound
	case w.peer != p:
		return nil, errNotHolder
	}
	return r, nil
}

// Held returns the run under which the peer holds a job of this queue and name, in any space. It is for protocols whose
// workers know jobs by name.
func (s *Scheduler) Held(p *Peer, queueName, name []byte) (Run, bool) {
	w := p.watchOf(queueName)
	if w == nil {
		return Run{}, false
	}
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	return w.shard.runOf(w, name)
}

// runOf returns the run of the job of a name that is held under a watch.
func (sh *shard) runOf(w *watch, name []byte) (Run, bool) {
	if len(w.held) == 0 {
		return Run{}, false
	}
	job, ok := sh.heldBy(w, name)
	if !ok {
		return Run{}, false
	}
	r := sh.slab.at(job)
	return Run{Shard: sh.id, Space: r.space, Record: job, Number: w.held[r.heldIndex()].number}, true
}

// heldBy returns the job of a name that is held under a watch.
func (sh *shard) heldBy(w *watch, name []byte) (uint32, bool) {
	q := w.queue
	for spaces := q.spaces; spaces != 0; spaces &= spaces - 1 {
		space := Space(bits.TrailingZeros16(spaces))
		job, ok := sh.lookup(sh.s.nameHash(q.id, space, name), q, space, name)
		if !ok {
			continue
		}
		if r := sh.slab.at(job); r.state == reserved && sh.holdingWatch(r) == w {
			return job, true
		}
	}
	return 0, false
}
