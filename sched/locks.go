package sched

import (
	"container/list"
	"slices"
	"sync"
)

// locks are counting semaphores by name, held by running jobs. The table's lock comes
// below a shard's: what it says of a job changes only under the lock of that job's
// shard, except that anyone may call one that waits.
type locks struct {
	mu      sync.Mutex
	byName  map[string]*lock
	held    map[JobRef][]string      // the locks that a job holds
	waits   map[JobRef]*list.Element // where a parked job stands in line, as a waiter
	woken   map[JobRef]string        // the lock that a job was made ready for and has not got yet
	turns   uint64                   // counts who has come to stand in a line
	pending []string                 // locks whose next the Ticks call, see call
}

// lock is one semaphore. It is gone when nobody holds it or waits for it.
//
// For each job that waits, those that hold the lock and those that were called for it
// are at least as many as the job's count: whatever makes them fewer calls the next, or has the
// Ticks call it.
type lock struct {
	holders map[JobRef]bool
	lines   map[int]*lockLine // by their counts; none is empty
	open    heap[*lockLine]   // those whose first may have the lock: their counts are more than the holders
}

// lockLine are the jobs that wait for a lock with one count, oldest first.
type lockLine struct {
	count int
	all   list.List // of waiters
	at    int       // place among the open ones, -1: not one of them
}

func (l *lockLine) turn() uint64           { return l.all.Front().Value.(waiter).turn }
func (l *lockLine) ahead(o *lockLine) bool { return l.turn() < o.turn() }
func (l *lockLine) place() int             { return l.at }
func (l *lockLine) setPlace(i int)         { l.at = i }

// hold gives the lock to a job: the line whose count is that of the holders now is open no more.
func (k *lock) hold(job JobRef) {
	k.holders[job] = true
	if line := k.lines[len(k.holders)]; line != nil {
		k.open.remove(line)
	}
}

// free takes the lock from a job that holds it.
func (k *lock) free(job JobRef) {
	if line := k.lines[len(k.holders)]; line != nil {
		k.open.push(line)
	}
	delete(k.holders, job)
}

// waiter is a parked job; it may have the lock when fewer than count hold it. Those of one
// count are a line, and whoever leaves it leaves from anywhere: a million may be dropped.
type waiter struct {
	job   JobRef
	lock  string
	count int
	turn  uint64 // smaller: has waited for longer
}

func (l *locks) init() {
	l.byName = make(map[string]*lock)
	l.held = make(map[JobRef][]string)
	l.waits = make(map[JobRef]*list.Element)
	l.woken = make(map[JobRef]string)
}

// cost is what is looked through when a job locks or unlocks: the locks that it holds.
func (l *locks) cost(job JobRef) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held[job])
}

// lock gives the lock to a job if fewer than count hold it. A job that is refused
// loses the locks that it holds, the names of which are returned, and stands in line.
func (l *locks) lock(name string, job JobRef, count int) (got bool, freed []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	switch {
	case k == nil && count <= 0: // lets nobody in: the job waits for its time-out
		return false, l.unlockAll(job), nil
	case k == nil && len(l.byName) >= maxLocks:
		return false, nil, ErrLocks
	case k == nil:
		k = &lock{holders: make(map[JobRef]bool), lines: make(map[int]*lockLine)}
		l.byName[name] = k
	case k.holders[job]:
		return true, nil, nil
	case len(k.holders) >= count:
		return false, l.wait(name, k, job, count), nil
	}
	if len(l.held[job]) >= maxJobLocks {
		l.discardUnused(name, k)
		return false, nil, ErrJobLocks
	}
	k.hold(job)
	l.held[job] = append(l.held[job], name)
	if l.woken[job] == name {
		delete(l.woken, job)
	}
	return true, nil, nil
}

// wait has a job stand in line. It loses the locks that it holds, the names of which are returned: it may have
// been one of this lock's holders no more than of any other's.
func (l *locks) wait(name string, k *lock, job JobRef, count int) (freed []string) {
	line := k.lines[count]
	if line == nil {
		line = &lockLine{count: count, at: -1}
		k.lines[count] = line
	}
	l.turns++
	l.waits[job] = line.all.PushBack(waiter{job, name, count, l.turns})
	return l.unlockAll(job)
}

// unlock takes a lock from a job that holds it or was called for it; false when it
// is neither.
func (l *locks) unlock(name string, job JobRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.held[job], name)
	if i < 0 {
		called := l.woken[job] == name
		if called {
			delete(l.woken, job)
		}
		return called
	}
	if names := slices.Delete(l.held[job], i, i+1); len(names) > 0 {
		l.held[job] = names
	} else {
		delete(l.held, job)
	}
	k := l.byName[name]
	k.free(job)
	l.discardUnused(name, k)
	return true
}

// forget forgets a job; it returns the names of the locks that others may have now.
func (l *locks) forget(job JobRef) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.waits[job]; ok {
		l.leaveLine(e)
	}
	return l.unlockAll(job)
}

// unlockAll takes from a job the locks that it holds and the one that it was called for.
func (l *locks) unlockAll(job JobRef) []string {
	names := l.held[job]
	delete(l.held, job)
	for _, name := range names {
		k := l.byName[name]
		k.free(job)
		l.discardUnused(name, k)
	}
	if name, ok := l.woken[job]; ok {
		delete(l.woken, job)
		names = append(names, name)
	}
	return names
}

// next calls the first in line that the lock has room for. One that wants to be among
// fewer does not keep the others.
func (l *locks) wakeNext(name string) (JobRef, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	if k == nil {
		return JobRef{}, false
	}
	if len(k.open) == 0 {
		return JobRef{}, false
	}
	job := l.leaveLine(k.open[0].all.Front())
	l.woken[job] = name
	return job, true
}

// isCalled says whether a job was called and has not come yet.
func (l *locks) isWoken(job JobRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.woken[job]
	return ok
}

// take takes a job out of line.
func (l *locks) leaveLine(e *list.Element) JobRef {
	w := e.Value.(waiter)
	k := l.byName[w.lock]
	line := k.lines[w.count]
	first := line.all.Front() == e
	if line.all.Len() == 1 {
		if line.at >= 0 {
			k.open.remove(line)
		}
		delete(k.lines, w.count)
	}
	line.all.Remove(e)
	if first && line.at >= 0 {
		k.open.fix(line)
	}
	delete(l.waits, w.job)
	l.discardUnused(w.lock, k)
	return w.job
}

func (l *locks) discardUnused(name string, k *lock) {
	if len(k.holders) == 0 && len(k.lines) == 0 {
		delete(l.byName, name)
	}
}

// Lock asks for a named lock for a job that the peer holds; at most count jobs
// hold it at once. A job that is refused is parked: it is the peer's no more, and
// ready again when the lock is free or the lock time-out has passed.
func (s *Scheduler) Lock(now Time, p *Peer, run Run, name string, count int, sink Sink) (bool, error) {
	sh, err := s.lock(run.Shard)
	if err != nil {
		return false, err
	}
	defer sh.unlock(now, sink)
	r, err := sh.holding(p, run)
	if err != nil {
		sh.counters.Stale++
		return false, err
	}
	ref := sh.ref(run.Slot, r)
	p.cost += s.locks.cost(ref)
	got, freed, err := s.locks.lock(name, ref, count)
	if err != nil {
		return false, err
	}
	if got {
		r.flags |= locking
		return true, nil
	}
	sh.freedLocks = append(sh.freedLocks, freed...)
	sh.park(now, run.Slot, r, sink)
	return false, nil
}

// Unlock takes a named lock from a job that the peer holds.
func (s *Scheduler) Unlock(now Time, p *Peer, run Run, name string, sink Sink) error {
	sh, err := s.lock(run.Shard)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	r, err := sh.holding(p, run)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	ref := sh.ref(run.Slot, r)
	p.cost += s.locks.cost(ref)
	if s.locks.unlock(name, ref) {
		sh.freedLocks = append(sh.freedLocks, name)
	}
	return nil
}

// dropLocks has the locks forget a job that they know.
func (sh *shard) dropLocks(job uint32, r *record) {
	r.flags &^= locking
	freed := sh.s.locks.forget(sh.ref(job, r))
	sh.countSteps(len(freed))
	sh.freedLocks = append(sh.freedLocks, freed...)
}

// unlock unlocks the shard and then does what reaches beyond it: it calls those who wait
// for locks that have become free.
func (sh *shard) unlock(now Time, sink Sink) {
	if sh.freedLocks == nil { // nearly always
		sh.mu.Unlock()
		return
	}
	sh.unlockAndWake(now, sink)
}

func (sh *shard) unlockAndWake(now Time, sink Sink) {
	sh.s.wakeWaiters(now, sh.unlockTakingFreed(), sink)
}

// unlockWith unlocks the shard and returns the locks whose next are to be called.
func (sh *shard) unlockTakingFreed() (calls []string) {
	calls, sh.freedLocks = sh.freedLocks, nil
	sh.mu.Unlock()
	return calls
}

// call calls the next of each lock, and of those that become free by it: a job that was called may
// end, when its owner has gone. More than a batch of them the Ticks call: until then a lock may be
// free, and somebody may wait for it.
func (s *Scheduler) wakeWaiters(now Time, names []string, sink Sink) {
	for n := 0; n < s.batch && len(names) > 0; n++ {
		names = append(names[1:], s.wakeNextWaiter(now, names[0], sink)...)
	}
	if len(names) == 0 {
		return
	}
	s.locks.mu.Lock()
	s.locks.pending = append(s.locks.pending, names...)
	s.locks.mu.Unlock()
	s.alarmMono(0)
}

// callMore calls for a batch of the locks that are left; more says that there may be others.
func (s *Scheduler) wakeMoreWaiters(now Time, sink Sink) (more bool) {
	l := &s.locks
	l.mu.Lock()
	n := min(len(l.pending), s.batch)
	names := l.pending[:n:n]
	if l.pending = l.pending[n:]; len(l.pending) == 0 {
		l.pending = nil
	}
	more = len(l.pending) > 0
	l.mu.Unlock()
	s.wakeWaiters(now, names, sink)
	return more
}

// callNext makes the first parked job ready that waits for the lock. It returns the locks that have
// become free by that, or this one, when the job is parked no more, because its time was over
// meanwhile: it does not keep the others.
func (s *Scheduler) wakeNextWaiter(now Time, name string, sink Sink) (freed []string) {
	ref, ok := s.locks.wakeNext(name)
	if !ok {
		return nil
	}
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	if !sh.unparkWoken(now, ref, sink) {
		sh.freedLocks = append(sh.freedLocks, name)
	}
	return sh.unlockTakingFreed()
}

// park takes a job that was refused a lock from its holder and puts it aside.
func (sh *shard) park(now Time, job uint32, r *record, sink Sink) {
	r.flags &^= locking // what it held is taken from it already
	w := sh.watches[r.home]
	q := sh.unhold(job, r)
	r.flags |= locking
	r.state, r.home = parked, q.id
	r.place = uint32(len(q.parked))
	q.parked = append(q.parked, job)
	start := roundUp(now.Mono)
	sh.parked.pushBack(&sh.buckets, &sh.slab, key{start, 0}, job)
	if d := sh.s.lockTimeout.Load(); d > 0 {
		sh.s.alarmMono(start + d)
	}
	sh.reconsider(now, w, sink)
}

// unpark takes a parked job from where it stands.
func (sh *shard) unpark(job uint32, q *queue) {
	sh.parked.remove(&sh.buckets, &sh.slab, job)
	last := len(q.parked) - 1
	moved, place := q.parked[last], sh.slab.at(job).place
	q.parked[place] = moved
	sh.slab.at(moved).place = place
	if q.parked = q.parked[:last]; last == 0 {
		q.parked = nil // a burst's memory is not kept
	}
}

// unparkCalled makes a job ready that was called; false when it is parked no more.
func (sh *shard) unparkWoken(now Time, ref JobRef, sink Sink) bool {
	r := sh.slab.find(ref.Slot)
	if r == nil || r.state != parked || r.seq != ref.Seq || !sh.s.locks.isWoken(ref) {
		return false
	}
	if q := sh.endParking(now, ref.Slot, r, sink); q != nil {
		sh.match(now, q, sink)
	}
	return true
}

// endParking makes a parked job pending again, under the due time it had, and returns its queue, which
// is to be matched; a job whose owner has gone it ends.
func (sh *shard) endParking(now Time, job uint32, r *record, sink Sink) *queue {
	q := sh.queues[r.home]
	sh.unpark(job, q)
	if r.flags&orphan != 0 {
		sh.end(job, r, q, Failed, nil, sink)
		return nil
	}
	sh.enqueue(r.notBefore(now), job, r, q, 0)
	return q
}

// expireParked makes jobs ready that have waited for a lock too long.
func (sh *shard) expireParked(now Time, timeout int64, until int, sink Sink) {
	for sh.mu.steps < until {
		k, ok := sh.parked.min(&sh.buckets)
		if !ok || k.a+timeout > now.Mono {
			break
		}
		sh.countSteps(1)
		job := sh.parked.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.dropLocks(job, r)
		if q := sh.endParking(now, job, r, sink); q != nil {
			sh.matchUntil(now, q, until, sink)
		}
	}
}
