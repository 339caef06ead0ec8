package sched

import "slices"

// watch is one peer serving one queue.
type watch struct {
	peer            *Peer
	queue           *queue
	shard           *shard
	id              uint32 // index in the shard's watches
	seq             uint64 // the seq of the peer's oldest slot, as the line last knew it
	lineIndex       int    // index in the queue's line of its class, -1: not in line
	takesBroadcasts bool   // registered for broadcasts
	departed        bool   // its peer has left
	ended           bool   // unwatched, but kept while jobs are held or unreported
	held            []held // the jobs of this queue that the peer holds

	unreportedByHash map[uint64]*unreportedName // unreported names, by their hashes
	suspended        *unreportedName            // says until when the watch gets no jobs, see chargeUnreported
}

func (w *watch) Ahead(o *watch) bool { return w.seq < o.seq }
func (w *watch) HeapIndex() int      { return w.lineIndex }
func (w *watch) SetHeapIndex(i int)  { w.lineIndex = i }

// watchOf returns the peer's watch of a queue, nil when it has none.
func (p *Peer) watchOf(name []byte) *watch {
	if len(p.watches) == 1 && p.watches[0].queue.name == string(name) { // fast path
		return p.watches[0]
	}
	return p.byQueue[string(name)]
}

// Watch makes the peer a worker of a queue: its reserves match the queue's jobs. As long as any
// peer is registered with broadcast, the queue's jobs go to every waiting slot. A second Watch of
// the queue changes only broadcast.
func (s *Scheduler) Watch(now Time, p *Peer, name []byte, broadcast bool, sink Sink) error {
	w := p.byQueue[string(name)]
	if w == nil && len(p.watches) >= maxWatches {
		if p.prune(); len(p.watches) >= maxWatches {
			return ErrWatches
		}
	}
	sh := s.shardOf(name)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	switch {
	case w == nil:
		q, err := sh.queueFor(name, p.capabilities&AutoDelete != 0)
		if err != nil {
			return err
		}
		if w, err = sh.newWatch(p, q); err != nil {
			return err
		}
	case w.ended:
		if err := sh.revive(w); err != nil {
			return err
		}
	}
	if p.capabilities&LongNames == 0 { // LongNames peers serve queues that are not durable
		sh.saveQueue(w.queue)
	}
	w.queue.autoDelete = w.queue.autoDelete && p.capabilities&AutoDelete != 0
	if w.takesBroadcasts != broadcast {
		w.takesBroadcasts = broadcast
		w.queue.broadcastWorkers += oneIf(broadcast) - oneIf(!broadcast)
		if w.queue.withheld.jobs > 0 {
			w.queue.offers.restore = w.queue.withheld.jobs
			sh.startOffers(w.queue)
		}
	}
	sh.serveOrDefer(now, w, sink)
	return nil
}

// newWatch makes the peer a worker of a queue that it does not serve yet.
func (sh *shard) newWatch(p *Peer, q *queue) (*watch, error) {
	p.mu.Lock()
	ok := p.charge(watchCost)
	p.mu.Unlock()
	if !ok {
		sh.discardUnused(q)
		return nil, errQuota
	}
	w := &watch{peer: p, queue: q, shard: sh, lineIndex: -1}
	w.id = assignID(&sh.watches, &sh.freeWatchIDs, w)
	if p.byQueue == nil {
		p.byQueue = make(map[string]*watch)
	}
	p.byQueue[q.name] = w
	p.watches = append(p.watches, w)
	q.workers++
	q.nameOnly += oneIf(p.capabilities&NameOnly != 0)
	return w, nil
}

// watchFor returns the watch of a peer that takes tasks without a Watch of the queue. It makes a missing watch.
func (sh *shard) watchFor(p *Peer, q *queue) (*watch, error) {
	w := p.byQueue[q.name]
	switch {
	case w == nil:
		return sh.newWatch(p, q)
	case w.ended:
		return w, sh.revive(w)
	}
	return w, nil
}

// revive makes an ended watch a full one again.
func (sh *shard) revive(w *watch) error {
	if len(w.held) == 0 { // the queue may have been dropped, since the watch holds no job of it
		q, err := sh.queueFor([]byte(w.queue.name), w.peer.capabilities&AutoDelete != 0)
		if err != nil {
			return err
		}
		w.queue = q
	}
	if w.removable() { // the number of the watch was freed
		w.id = assignID(&sh.watches, &sh.freeWatchIDs, w)
	}
	w.ended = false
	w.peer.endedWatches--
	w.queue.workers++
	w.queue.busy += oneIf(len(w.held) > 0)
	w.queue.unreportedCount += w.unreportedCount()
	w.queue.nameOnly += oneIf(w.peer.capabilities&NameOnly != 0)
	return nil
}

// enterLine puts a watch in its queue's line if its peer has a slot and the watch is not in line yet.
func (sh *shard) enterLine(w *watch) {
	if w.lineIndex >= 0 {
		return
	}
	w.peer.mu.Lock()
	has, seq := w.peer.slots.len() > 0, uint64(0)
	if has {
		seq = w.peer.slots.first().seq
	}
	w.peer.mu.Unlock()
	if has {
		w.enter(seq)
	}
}

// enter puts a watch in its queue's line at the age of its peer's oldest slot.
func (w *watch) enter(seq uint64) {
	line := &w.queue.lines[w.peer.class]
	switch {
	case w.lineIndex < 0:
		w.seq = seq
		line.Push(w)
	case w.seq != seq: // in line, at another age
		w.seq = seq
		line.Down(w)
	}
}

// Unwatch ends Watch. The peer keeps the jobs that it holds.
func (s *Scheduler) Unwatch(p *Peer, name []byte) {
	w := p.byQueue[string(name)]
	if w == nil {
		return
	}
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	if !w.ended {
		w.shard.endWatch(w)
	}
	if !w.removable() {
		return
	}
	delete(p.byQueue, w.queue.name)
	p.cost += len(p.watches) / entriesPerStep
	i := slices.Index(p.watches, w)
	p.watches = slices.Delete(p.watches, i, i+1)
	p.endedWatches--
	p.mu.Lock()
	p.refund(watchCost)
	p.mu.Unlock()
}

// endWatch removes a watch from its queue. The watch's number is freed when it is removable.
func (sh *shard) endWatch(w *watch) {
	q := w.queue
	if w.lineIndex >= 0 {
		q.lines[w.peer.class].Remove(w)
	}
	q.workers--
	q.busy -= oneIf(len(w.held) > 0)
	q.unreportedCount -= w.unreportedCount()
	q.nameOnly -= oneIf(w.peer.capabilities&NameOnly != 0)
	if w.takesBroadcasts {
		w.takesBroadcasts = false
		q.broadcastWorkers--
	}
	w.ended = true
	w.peer.endedWatches++
	if w.removable() {
		sh.freeWatch(w)
	}
	sh.discardUnused(q)
}

// removable reports whether a watch has ended, holds no job and has no unreported name.
func (w *watch) removable() bool { return w.ended && len(w.held)+w.unreportedCount() == 0 }

// unreportedCount is the number of unreported names, and one more for a suspension.
func (w *watch) unreportedCount() int { return len(w.unreportedByHash) + oneIf(w.suspended != nil) }

// freeIfRemovable frees a watch that has ended and holds no job any more.
func (sh *shard) freeIfRemovable(w *watch) {
	if w.removable() {
		sh.freeWatch(w)
	}
}

// freeWatch frees the number of a removable watch.
func (sh *shard) freeWatch(w *watch) {
	if w.leased() {
		w.queue.freeLeaseWatch()
	}
	sh.watches[w.id] = nil
	sh.freeWatchIDs = append(sh.freeWatchIDs, w.id)
}

// prune removes the removable watches, which ended while they held jobs and hold none any more.
func (p *Peer) prune() {
	n := len(p.watches)
	p.cost += n
	p.watches = slices.DeleteFunc(p.watches, func(w *watch) bool {
		w.shard.mu.Lock()
		defer w.shard.mu.Unlock()
		removed := w.removable()
		if removed {
			delete(p.byQueue, w.queue.name)
		}
		return removed
	})
	p.endedWatches -= n - len(p.watches)
	p.mu.Lock()
	p.refund((n - len(p.watches)) * watchCost)
	p.mu.Unlock()
}

// oneIf returns 1 if a condition holds, else 0.
func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}
