package sched

// Reserve asks for a job of any queue that the peer watches. The answer is an Assign with tag, now or later. A second
// Reserve under a tag that waits changes nothing.
func (s *Scheduler) Reserve(now Time, p *Peer, tag uint64, sink Sink) error {
	if len(p.watches) == 1 { // fast path
		return p.watches[0].shard.reserve(now, p.watches[0], tag, sink)
	}
	if behindOlder, err := s.addSlot(p, tag, false); behindOlder || err != nil {
		return err
	}
	s.serve(now, p, sink)
	return nil
}

// reserve is Reserve for a peer that watches one queue: each lock is taken once. When a job is ready and the line is
// empty, the slot is served without standing in line first, see allowsShortCut.
func (sh *shard) reserve(now Time, w *watch, tag uint64, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	p, q := w.peer, w.queue
	job := sh.head(q)
	direct := job != none && !w.ended && q.lineEmpty() && sh.allowsShortCut(now, q, sh.slab.at(job))
	p.mu.Lock()
	if !direct || p.slots.len() > 0 || p.unsent >= p.window {
		if err := p.pushSlot(sh.s, tag, false); err != nil {
			p.mu.Unlock()
			return err
		}
		seq := p.slots.first().seq
		p.mu.Unlock()
		if !w.ended {
			w.enter(seq)
		}
		if job != none || q.mixed() {
			sh.serveOrDefer(now, w, sink)
		}
		return nil
	}
	r := sh.slab.at(job)
	p.unsent += int(r.size)
	p.mu.Unlock()
	sh.take(job, r, q)
	sh.assign(now, job, r, q, w, slot{tag: tag, seq: sh.s.lastSlotSeq.Add(1)}, sink)
	return nil
}

// TryReserve is Reserve without a wait. It returns false when no job was ready. No Reserve under the same tag may be
// waiting.
func (s *Scheduler) TryReserve(now Time, p *Peer, tag uint64, sink Sink) (bool, error) {
	if _, err := s.addSlot(p, tag, false); err != nil {
		return false, err
	}
	s.serve(now, p, sink)
	return !s.StopReserve(p, tag), nil
}

// TryReserveOf is TryReserve for the jobs of one queue that the peer watches. ok is false, too, when the peer does not
// watch the queue.
func (s *Scheduler) TryReserveOf(now Time, p *Peer, queue []byte, tag uint64, sink Sink) (ok bool, err error) {
	w := p.watchOf(queue)
	if w == nil {
		return false, nil
	}
	if _, err := s.addSlot(p, tag, false); err != nil {
		return false, err
	}
	w.shard.serveWatch(now, w, lastRank, sink)
	return !s.StopReserve(p, tag), nil
}

// StopReserve ends the newest waiting Reserve under tag. It returns false when no such Reserve waits: a job is on its
// way to the peer.
func (s *Scheduler) StopReserve(p *Peer, tag uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := p.slots.removeNewest(tag)
	if waits {
		p.refund(slotCost)
	}
	return waits
}

// Sleep asks for one Wake with tag, as soon as a queue that the peer watches has a ready job.
func (s *Scheduler) Sleep(now Time, p *Peer, tag uint64, sink Sink) error {
	if _, err := s.addSlot(p, tag, true); err != nil {
		return err
	}
	s.serve(now, p, sink)
	return nil
}

// addSlot adds a slot. behindOlder reports whether an older slot of the peer waits. The peer is then in every line, and
// no job is ready for the older slot or the peer is blocked. So the new slot cannot be served now, and the caller need
// not scan the queues: a worker that sends many requests at once costs one scan.
func (s *Scheduler) addSlot(p *Peer, tag uint64, wake bool) (behindOlder bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	behindOlder = p.slots.len() > 0 && !p.partialScan
	return behindOlder, p.pushSlot(s, tag, wake)
}

// pushSlot adds a slot, unless a slot with this tag waits already. The caller holds the peer's lock.
func (p *Peer) pushSlot(s *Scheduler, tag uint64, wake bool) error {
	p.cost += p.slots.len() / entriesPerStep
	switch {
	case p.slots.has(tag, wake):
		return nil
	case p.slots.len() >= MaxSlots:
		return ErrSlots
	case !p.charge(slotCost):
		return errQuota
	}
	p.slots.push(slot{tag: tag, seq: s.lastSlotSeq.Add(1), wake: wake})
	return nil
}

// maxServe bounds the steps of one serve, which hand jobs to the peer or scan its queues. They take a millisecond or
// two. The rest follows with the next Flushed.
const maxServe = 4 << 10

// watchesPerStep is how many queues scanWatches scans in the time of one step. For each queue it takes a shard's lock
// and reads the first job, while a step hands out a job.
const watchesPerStep = 10

// serve puts the peer in the line of each queue that it watches, and serves its slots with ready jobs. No wake-up is
// lost: the slot exists before the queues are scanned. When a shard's lock is free, either the queue has no ready job
// and the peer is in its line, or queue and peer are matched.
func (s *Scheduler) serve(now Time, p *Peer, sink Sink) {
	for budget := maxServe; ; {
		w, next := s.nextWatch(p)
		if w == nil {
			return
		}
		left := w.shard.serveWatch(now, w, next, sink)
		budget -= 1 + s.batch - left + len(p.watches)/watchesPerStep
		p.mu.Lock()
		enough := p.slots.len() == 0 || p.blocked && !p.slots.first().wake || len(p.watches) == 1 && left > 0
		p.behind = !enough && budget <= 0
		p.mu.Unlock()
		if enough || budget <= 0 {
			return
		}
	}
}

// nextWatch is scanWatches with a short cut for a peer of one queue.
func (s *Scheduler) nextWatch(p *Peer) (*watch, rank) {
	if len(p.watches) == 1 {
		return p.watches[0], lastRank
	}
	return s.scanWatches(p)
}

// serveWatch serves a watch with a batch. It returns the rest of the batch.
func (sh *shard) serveWatch(now Time, w *watch, next rank, sink Sink) int {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	return sh.serveWithin(now, w, next, sh.s.batch, sink)
}

// serveOrDefer is serveWithin for a batch. It defers the rest to the Ticks.
func (sh *shard) serveOrDefer(now Time, w *watch, sink Sink) {
	switch q := w.queue; {
	case sh.serveWithin(now, w, lastRank, sh.s.batch, sink) > 0:
	case w.peer.class == nameOnly && q.mixed():
		sh.startOffers(q)
	default:
		sh.deferMatch(q)
	}
}

// serveWithin matches a queue's jobs with its line, in which w's peer stands, as long as a job fits w and is ahead of
// next. next is the rank of the first job of the peer's other queues. In a mixed queue serveWithin hands jobs only to
// w, because each job was offered to the other watches in line when it came. It returns the rest of budget, or 0 when
// there may be more to do.
func (sh *shard) serveWithin(now Time, w *watch, next rank, budget int, sink Sink) int {
	if w.ended {
		return budget
	}
	sh.enterLine(w)
	for budget > 0 {
		cost := sh.serveOne(now, w, next, sink)
		if cost == 0 {
			return budget
		}
		budget -= cost
	}
	return 0
}

// serveOne does one match of serveWithin and returns its cost, or 0 when there is nothing to do.
func (sh *shard) serveOne(now Time, w *watch, next rank, sink Sink) int {
	q := w.queue
	if w.lineIndex < 0 {
		return 0
	}
	left := maxClashes
	job := sh.jobFor(w, &left)
	if job == none || !sh.rankOf(job).less(next) {
		return 0
	}
	if !q.mixed() { // another peer may have the oldest slot in line
		return sh.matchOne(now, q, sink)
	}
	return sh.pair(now, q, w, job, sink) + (maxClashes-left)/entriesPerStep
}

// scanWatches puts the peer in the line of each queue that it watches, in one pass. It returns the
// watch whose queue has the first ready job, and the rank of the next queue's first job.
func (s *Scheduler) scanWatches(p *Peer) (*watch, rank) {
	var best *watch
	first, next, prune, budget := lastRank, lastRank, false, maxPeerClashes
	p.cost += len(p.watches)
	for _, w := range p.watches {
		sh := w.shard
		sh.mu.Lock()
		prune = prune || w.removable()
		if !w.ended {
			sh.enterLine(w)
			if r := sh.rankOf(sh.jobFor(w, &budget)); r.less(first) {
				best, first, next = w, r, first
			} else if r.less(next) {
				next = r
			}
		}
		sh.mu.Unlock()
	}
	if prune {
		p.prune()
	}
	p.partialScan = budget == 0
	p.cost += maxPeerClashes - budget
	return best, next
}
