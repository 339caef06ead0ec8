package sched

// A run is revoked when it ends without a report of its worker: by its time-out, because the job is removed, or because
// it was broadcast. The worker continues and reports later. A report that names the Run finds nothing. The report of a
// NameOnly peer has only the queue and the name. Such a peer is not handed a job of the same name from the queue again
// until it has reported the revoked run, has left, or another time-out has passed. Without a time-out it must report
// the run or leave.

// unreportedName is a watch's memory of the revoked runs of one name.
type unreportedName struct {
	watch     *watch
	name      uint64 // hash of the name, which names of the same hash share; unused in a suspension
	tag       uint64 // tag of the Reserve that the last revoked run answered
	graceEnd  int64  // Mono
	runs      int    // number of unreported runs; above 1 only after broadcasts
	heapIndex int    // index in the shard's heap
}

func (u *unreportedName) Ahead(o *unreportedName) bool { return u.graceEnd < o.graceEnd }
func (u *unreportedName) HeapIndex() int               { return u.heapIndex }
func (u *unreportedName) SetHeapIndex(i int)           { u.heapIndex = i }

const (
	// maxUnreported bounds the unreported names of a peer. A peer that exceeds it, or the quota, is
	// suspended in the queue of its next revoked run until a time-out has passed.
	maxUnreported = 1024
	// unreportedCost is about how many bytes an unreported name takes, with its entries in a map
	// and a heap.
	unreportedCost = 128
)

// noteRevoked notes that a run is revoked without the knowledge of its holder.
func (sh *shard) noteRevoked(now Time, job uint32, r *record) {
	w := sh.holdingWatch(r)
	if w.peer.class == nameOnly {
		sh.addUnreported(w, sh.nameView(job), w.held[r.heldIndex()].tag, sh.graceEnd(now, r))
	}
}

// graceEnd returns when another time-out of the job will have passed.
func (sh *shard) graceEnd(now Time, r *record) int64 {
	ms := sh.s.timeout.Load()
	if r.timeout > 0 {
		ms = int64(r.timeout) * 1000
	}
	if ms == 0 || sh.s.rules[r.space].Untimed {
		return never
	}
	return roundUp(now.Mono + ms)
}

// addUnreported keeps a NameOnly peer from jobs of a name until the given time.
func (sh *shard) addUnreported(w *watch, name []byte, tag uint64, until int64) {
	u := w.unreportedByHash[sh.hash(name)]
	switch {
	case w.departed:
		return
	case u != nil:
	case w.peer.chargeUnreported():
		u = &unreportedName{watch: w, name: sh.hash(name), graceEnd: until}
		if w.unreportedByHash == nil {
			w.unreportedByHash = make(map[uint64]*unreportedName)
		}
		w.unreportedByHash[u.name] = u
		sh.byGraceEnd.Push(u)
		w.queue.unreportedCount += oneIf(!w.ended)
	case w.suspended == nil:
		u = &unreportedName{watch: w, graceEnd: until}
		w.suspended = u
		sh.byGraceEnd.Push(u)
		w.queue.unreportedCount += oneIf(!w.ended)
	default:
		u = w.suspended
	}
	u.runs++
	u.tag = tag
	if until > u.graceEnd {
		u.graceEnd = until
		sh.byGraceEnd.Fix(u)
	}
	if until < never {
		sh.s.alarmMono(until)
	}
}

// chargeUnreported counts and charges one more unreported name. It returns false when the peer has
// too many or the quota is used up.
func (p *Peer) chargeUnreported() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreportedNames >= maxUnreported || p.quota == nil || !p.charge(unreportedCost) {
		return false
	}
	p.unreportedNames++
	return true
}

// anyUnreported returns an unreported name of the watch, or its suspension.
func (w *watch) anyUnreported() *unreportedName {
	for _, u := range w.unreportedByHash {
		return u
	}
	return w.suspended
}

// removeUnreported removes an unreported name, or ends the suspension of a watch.
func (sh *shard) removeUnreported(u *unreportedName) {
	w := u.watch
	sh.byGraceEnd.Remove(u)
	w.queue.unreportedCount -= oneIf(!w.ended)
	if w.suspended == u {
		w.suspended = nil
	} else {
		delete(w.unreportedByHash, u.name)
		w.peer.mu.Lock()
		w.peer.unreportedNames--
		w.peer.refund(unreportedCost)
		w.peer.mu.Unlock()
	}
	if w.removable() {
		sh.freeWatch(w)
	}
}

// resolveUnreported removes an unreported name, and serves the peer the jobs that this name has kept from it.
func (sh *shard) resolveUnreported(now Time, u *unreportedName, sink Sink) {
	sh.removeUnreported(u)
	if w := u.watch; w.lineIndex >= 0 {
		sh.serveOrDefer(now, w, sink)
	}
}

// expireUnreported resolves the unreported names whose graceEnd has passed.
func (sh *shard) expireUnreported(now Time, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit && len(sh.byGraceEnd) > 0 && sh.byGraceEnd[0].graceEnd <= now.Mono {
		sh.countSteps(1)
		sh.resolveUnreported(now, sh.byGraceEnd[0], sink)
	}
}

// Report is Held for the report with which a peer ends a run. The report of a revoked run finds no run. The peer may be
// handed a job of the same name again then.
func (s *Scheduler) Report(now Time, p *Peer, queueName, name []byte, sink Sink) (Run, bool) {
	w := p.watchOf(queueName)
	if w == nil {
		return Run{}, false
	}
	sh := w.shard
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	if run, ok := sh.runOf(w, name); ok {
		return run, true
	}
	if len(w.unreportedByHash) > 0 {
		if u := w.unreportedByHash[sh.hash(name)]; u != nil {
			sh.reported(now, u, sink)
		}
	}
	return Run{}, false
}

// reported counts a peer's report of one revoked run of a name.
func (sh *shard) reported(now Time, u *unreportedName, sink Sink) {
	if u.runs--; u.runs == 0 {
		sh.resolveUnreported(now, u, sink)
	}
}
