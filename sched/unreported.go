package sched

import "hash/maphash"

// A run can end without a word of its worker: its time is over, the job is removed, or it was
// broadcast and is nobody's. The worker goes on, and speaks of the job later. Where it names the
// Run, that word is about nothing. A Named peer says the queue and the name: it gets no job of
// that name from the queue again until it has reported the old run, has left, or another time-out
// has passed. Where there is no time-out, that never passes.

// unreported is what a watch remembers of such runs of one name.
type unreported struct {
	watch *watch
	name  uint64 // hash of the name; of quiet: nothing
	tag   uint64 // of the Reserve that the last one answered
	until int64  // Mono
	runs  int    // how many; more than one only of broadcasts
	at    int    // place in the shard's heap
}

func (u *unreported) ahead(o *unreported) bool { return u.until < o.until }
func (u *unreported) place() int               { return u.at }
func (u *unreported) setPlace(i int)           { u.at = i }

const (
	// maxUnreported bounds the names that a peer has not reported. One that has more, or for which
	// there is no room, gets no job at all from the queue of the next one until a time-out has passed.
	maxUnreported = 1024
	// unreportedCost is what one takes, about, with its places in a map and a heap.
	unreportedCost = 128
)

// hash is that of a name, by which names are compared: when two have the same, a job waits longer
// than it had to.
func (sh *shard) hash(name []byte) uint64 { return maphash.Bytes(sh.s.seed, name) }

// taken notes that a reserved job is taken from its holder, which does not know.
func (sh *shard) noteRevoked(now Time, job uint32, r *record) {
	w := sh.watches[r.home]
	if w.peer.class == named {
		sh.addUnreported(w, sh.nameView(job), w.held[r.place].tag, sh.graceEnd(now, r))
	}
}

// graceEnd is when another time-out of a job will have passed.
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

// remember has a Named peer get no job of a name for a while.
func (sh *shard) addUnreported(w *watch, name []byte, tag uint64, until int64) {
	u := w.unreported[sh.hash(name)]
	switch {
	case w.departed:
		return
	case u != nil:
	case w.peer.chargeUnreported():
		u = &unreported{watch: w, name: sh.hash(name), until: until}
		if w.unreported == nil {
			w.unreported = make(map[uint64]*unreported)
		}
		w.unreported[u.name] = u
		sh.unreported.push(u)
		w.queue.unreported += count(!w.ended)
	case w.suspended == nil:
		u = &unreported{watch: w, until: until}
		w.suspended = u
		sh.unreported.push(u)
		w.queue.unreported += count(!w.ended)
	default:
		u = w.suspended
	}
	u.runs++
	u.tag = tag
	if until > u.until {
		u.until = until
		sh.unreported.fix(u)
	}
	if until < never {
		sh.s.alarmMono(until)
	}
}

// rememberOne counts one more name for the peer; false: it has too many.
func (p *Peer) chargeUnreported() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreported >= maxUnreported || p.quota == nil || !p.charge(unreportedCost) {
		return false
	}
	p.unreported++
	return true
}

// anyUnreported returns one of those that the watch remembers.
func (w *watch) anyUnreported() *unreported {
	for _, u := range w.unreported {
		return u
	}
	return w.suspended
}

// forgetUnreported ends the memory of a name, or the quiet of a watch.
func (sh *shard) removeUnreported(u *unreported) {
	w := u.watch
	sh.unreported.remove(u)
	w.queue.unreported -= count(!w.ended)
	if w.suspended == u {
		w.suspended = nil
	} else {
		delete(w.unreported, u.name)
		w.peer.mu.Lock()
		w.peer.unreported--
		w.peer.refund(unreportedCost)
		w.peer.mu.Unlock()
	}
	if w.over() {
		sh.freeWatch(w)
	}
}

// settled forgets a name, and gives the peer what has waited because of it.
func (sh *shard) resolveUnreported(now Time, u *unreported, sink Sink) {
	sh.removeUnreported(u)
	if w := u.watch; w.at >= 0 {
		sh.serveLine(now, w, sink)
	}
}

// expireUnreported forgets the names whose time has passed.
func (sh *shard) expireUnreported(now Time, until int, sink Sink) {
	for sh.mu.steps < until && len(sh.unreported) > 0 && sh.unreported[0].until <= now.Mono {
		sh.countSteps(1)
		sh.resolveUnreported(now, sh.unreported[0], sink)
	}
}

// Report is Held for the report with which a peer ends a run. The report of a run that was taken
// from it is about nothing, and the peer may get a job of that name again.
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
	if len(w.unreported) > 0 {
		if u := w.unreported[sh.hash(name)]; u != nil {
			sh.reported(now, u, sink)
		}
	}
	return Run{}, false
}

// reported notes that a peer has spoken of one run of a name.
func (sh *shard) reported(now Time, u *unreported, sink Sink) {
	if u.runs--; u.runs == 0 {
		sh.resolveUnreported(now, u, sink)
	}
}
