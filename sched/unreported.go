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
func (sh *shard) taken(now Time, job uint32, r *record) {
	w := sh.watches[r.home]
	if w.peer.class == byName {
		sh.remember(w, sh.nameView(job), w.held[r.place].tag, sh.graceEnd(now, r))
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
func (sh *shard) remember(w *watch, name []byte, tag uint64, until int64) {
	u := w.unreported[sh.hash(name)]
	switch {
	case w.gone:
		return
	case u != nil:
	case w.peer.rememberOne():
		u = &unreported{watch: w, name: sh.hash(name), until: until}
		if w.unreported == nil {
			w.unreported = make(map[uint64]*unreported)
		}
		w.unreported[u.name] = u
		sh.unreported.push(u)
		w.queue.unreported += count(!w.ended)
	case w.quiet == nil:
		u = &unreported{watch: w, until: until}
		w.quiet = u
		sh.unreported.push(u)
		w.queue.unreported += count(!w.ended)
	default:
		u = w.quiet
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
func (p *Peer) rememberOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreported >= maxUnreported || p.quota == nil || !p.register(unreportedCost) {
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
	return w.quiet
}

// forgetUnreported ends the memory of a name, or the quiet of a watch.
func (sh *shard) forgetUnreported(u *unreported) {
	w := u.watch
	sh.unreported.remove(u)
	w.queue.unreported -= count(!w.ended)
	if w.quiet == u {
		w.quiet = nil
	} else {
		delete(w.unreported, u.name)
		w.peer.mu.Lock()
		w.peer.unreported--
		w.peer.unregister(unreportedCost)
		w.peer.mu.Unlock()
	}
	if w.over() {
		sh.dropWatch(w)
	}
}

// settled forgets a name, and gives the peer what has waited because of it.
func (sh *shard) settled(now Time, u *unreported, sink Sink) {
	sh.forgetUnreported(u)
	if w := u.watch; w.at >= 0 {
		sh.serveLine(now, w, sink)
	}
}

// expireUnreported forgets the names whose time has passed.
func (sh *shard) expireUnreported(now Time, until int, sink Sink) {
	for sh.mu.ops < until && len(sh.unreported) > 0 && sh.unreported[0].until <= now.Mono {
		sh.op(1)
		sh.settled(now, sh.unreported[0], sink)
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
		sh.settled(now, u, sink)
	}
}
