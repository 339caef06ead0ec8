package sched

import (
	"container/list"
	"slices"
	"sync"

	"treadle/sched/heap"
)

// namedLocks are counting semaphores by name, held by running jobs. Their mutex is taken under a shard's. The entries
// of a job change only under the lock of the job's shard, with one exception: any goroutine may wake a waiting job.
type namedLocks struct {
	mu      sync.Mutex
	byName  map[string]*namedLock
	held    map[JobRef][]string      // the locks that a job holds
	waits   map[JobRef]*list.Element // a parked job's place in line, a waiter
	woken   map[JobRef]string        // the lock for which a job was made ready, until it has locked it
	turns   uint64                   // number of waiters so far
	pending []string                 // locks whose next waiter the Ticks wake, see wakeWaiters
}

// namedLock is one semaphore. It exists as long as a job holds it or waits for it.
//
// A job that asks for the lock with count n gets it if fewer than n jobs hold it. While a job with count n waits, at
// least n jobs hold the lock or are woken for it. When a verb makes these jobs fewer, it wakes the next job, or has the
// Ticks wake it.
//
// The lock is not reserved for a woken job: another job may take it first, and the woken job, if refused, goes to the
// back of its line. If the lock were reserved, a woken job of a queue without workers would keep a free lock from all
// other jobs.
type namedLock struct {
	holders map[JobRef]bool
	lines   map[int]*lockLine    // lines by their counts; no line is empty
	open    heap.Heap[*lockLine] // lines whose first job may have the lock: their counts exceed the number of holders
}

// lockLine has the jobs that wait for a lock with one count, oldest first.
type lockLine struct {
	count     int
	waiters   list.List // of waiters
	heapIndex int       // index among the open lines, -1: not open
}

func (l *lockLine) turn() uint64           { return l.waiters.Front().Value.(waiter).turn }
func (l *lockLine) Ahead(o *lockLine) bool { return l.turn() < o.turn() }
func (l *lockLine) HeapIndex() int         { return l.heapIndex }
func (l *lockLine) SetHeapIndex(i int)     { l.heapIndex = i }

// addHolder gives the lock to a job. The line whose count is the number of holders now is no longer
// open.
func (k *namedLock) addHolder(job JobRef) {
	k.holders[job] = true
	if line := k.lines[len(k.holders)]; line != nil {
		k.open.Remove(line)
	}
}

// removeHolder takes the lock from a job that holds it.
func (k *namedLock) removeHolder(job JobRef) {
	if line := k.lines[len(k.holders)]; line != nil {
		k.open.Push(line)
	}
	delete(k.holders, job)
}

// waiter is a parked job in line. It may have the lock when fewer than count jobs hold it. Waiters of one count are one
// line. A waiter leaves the line from any place in one step, since a million waiters may be dropped.
type waiter struct {
	job   JobRef
	lock  string
	count int
	turn  uint64 // smaller: has waited longer
}

func (l *namedLocks) init() {
	l.byName = make(map[string]*namedLock)
	l.held = make(map[JobRef][]string)
	l.waits = make(map[JobRef]*list.Element)
	l.woken = make(map[JobRef]string)
}

// cost is the number of locks that a job holds. AcquireLock and ReleaseLock scan them.
func (l *namedLocks) cost(job JobRef) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held[job])
}

// acquire gives the lock to a job if fewer than count jobs hold it. A refused job stands in line and loses the locks
// that it holds. acquire returns the names of these locks as freed.
func (l *namedLocks) acquire(name string, job JobRef, count int) (got bool, freed []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	switch {
	case k == nil && count <= 0: // no job ever gets the lock: the job waits for its lock time-out
		return false, l.releaseAll(job), nil
	case k == nil && len(l.byName) >= maxLocks:
		return false, nil, ErrLocks
	case k == nil:
		k = &namedLock{holders: make(map[JobRef]bool), lines: make(map[int]*lockLine)}
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
	k.addHolder(job)
	l.held[job] = append(l.held[job], name)
	if l.woken[job] == name {
		delete(l.woken, job)
	}
	return true, nil, nil
}

// wait puts a job in line, takes all its locks from it and returns their names.
func (l *namedLocks) wait(name string, k *namedLock, job JobRef, count int) (freed []string) {
	line := k.lines[count]
	if line == nil {
		line = &lockLine{count: count, heapIndex: -1}
		k.lines[count] = line
	}
	l.turns++
	l.waits[job] = line.waiters.PushBack(waiter{job, name, count, l.turns})
	return l.releaseAll(job)
}

// release takes a lock from a job that holds it or was woken for it. It returns false for any other job.
func (l *namedLocks) release(name string, job JobRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.held[job], name)
	if i < 0 {
		woken := l.woken[job] == name
		if woken {
			delete(l.woken, job)
		}
		return woken
	}
	if names := slices.Delete(l.held[job], i, i+1); len(names) > 0 {
		l.held[job] = names
	} else {
		delete(l.held, job)
	}
	k := l.byName[name]
	k.removeHolder(job)
	l.discardUnused(name, k)
	return true
}

// forget removes all entries of a job. It returns the names of the locks that the job held or was woken for.
func (l *namedLocks) forget(job JobRef) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.waits[job]; ok {
		l.leaveLine(e)
	}
	return l.releaseAll(job)
}

// releaseAll takes from a job the locks that it holds and the lock that it was woken for.
func (l *namedLocks) releaseAll(job JobRef) []string {
	names := l.held[job]
	delete(l.held, job)
	for _, name := range names {
		k := l.byName[name]
		k.removeHolder(job)
		l.discardUnused(name, k)
	}
	if name, ok := l.woken[job]; ok {
		delete(l.woken, job)
		names = append(names, name)
	}
	return names
}

// wakeNext takes the first job for which the lock has room out of its line, and marks the job woken. A job that waits
// with a smaller count does not block other jobs.
func (l *namedLocks) wakeNext(name string) (JobRef, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	if k == nil {
		return JobRef{}, false
	}
	if len(k.open) == 0 {
		return JobRef{}, false
	}
	job := l.leaveLine(k.open[0].waiters.Front())
	l.woken[job] = name
	return job, true
}

// isWoken reports whether a job was woken and has not asked for its lock yet.
func (l *namedLocks) isWoken(job JobRef) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.woken[job]
	return ok
}

// why says what a parked job waits for since a moment.
func (l *namedLocks) why(job JobRef, since int64) Why {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name, ok := l.woken[job]; ok {
		return Why{Reason: WhyLockFree, Name: name}
	}
	e, ok := l.waits[job]
	if !ok {
		return Why{Reason: WhyLock, At: since}
	}
	wait := e.Value.(waiter)
	w := Why{Reason: WhyLock, At: since, Name: wait.lock}
	holders := l.byName[wait.lock].holders
	if len(holders) < wait.count {
		return Why{Reason: WhyLockFree, Name: wait.lock}
	}
	for holder := range holders {
		if w.More = len(w.Jobs) == maxWhyJobs; w.More {
			break
		}
		w.Jobs = append(w.Jobs, WhyJob{Ref: holder})
	}
	return w
}

// leaveLine takes a job out of line.
func (l *namedLocks) leaveLine(e *list.Element) JobRef {
	w := e.Value.(waiter)
	k := l.byName[w.lock]
	line := k.lines[w.count]
	first := line.waiters.Front() == e
	if line.waiters.Len() == 1 {
		if line.heapIndex >= 0 {
			k.open.Remove(line)
		}
		delete(k.lines, w.count)
	}
	line.waiters.Remove(e)
	if first && line.heapIndex >= 0 {
		k.open.Fix(line)
	}
	delete(l.waits, w.job)
	l.discardUnused(w.lock, k)
	return w.job
}

func (l *namedLocks) discardUnused(name string, k *namedLock) {
	if len(k.holders) == 0 && len(k.lines) == 0 {
		delete(l.byName, name)
	}
}

// AcquireLock asks for a named lock for a job that the peer holds. At most count jobs hold the lock at
// once. A refused job is parked: the peer loses it, and it is ready again when the lock is free or
// the lock time-out has passed.
func (s *Scheduler) AcquireLock(now Time, p *Peer, run Run, name string, count int, sink Sink) (bool, error) {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return false, err
	}
	defer sh.unlock(now, sink)
	r, err := sh.findHeld(p, run)
	if err != nil {
		sh.counters.Stale++
		return false, err
	}
	ref := sh.ref(run.Record, r)
	p.cost += s.locks.cost(ref)
	got, freed, err := s.locks.acquire(name, ref, count)
	if err != nil {
		return false, err
	}
	if got {
		r.flags |= locking
		return true, nil
	}
	sh.freedLocks = append(sh.freedLocks, freed...)
	sh.park(now, run.Record, r, sink)
	return false, nil
}

// ReleaseLock takes a named lock from a job that the peer holds.
func (s *Scheduler) ReleaseLock(now Time, p *Peer, run Run, name string, sink Sink) error {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	r, err := sh.findHeld(p, run)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	ref := sh.ref(run.Record, r)
	p.cost += s.locks.cost(ref)
	if s.locks.release(name, ref) {
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

// wakeWaiters wakes the next waiter of each lock. A woken job whose owner has left ends and frees its own locks:
// wakeWaiters goes on with these. The Ticks wake what exceeds a batch. Until then a lock may be free while jobs wait
// for it.
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

// wakeMoreWaiters wakes the next waiters of a batch of pending locks. more reports whether some are left.
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

// wakeNextWaiter makes the first parked job ready that waits for the lock. It returns the locks that this frees. If the
// job is no longer parked, because its lock time-out has passed meanwhile, wakeNextWaiter returns the lock itself, so
// that the next job in line is woken.
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

// park takes a job that was refused a lock from its holder.
func (sh *shard) park(now Time, job uint32, r *record, sink Sink) {
	r.flags &^= locking // its locks are taken from it already
	w := sh.holdingWatch(r)
	q := sh.unhold(job, r)
	r.flags |= locking
	r.state, r.container, r.stateData = parked, q.id, uint32(len(q.parked))
	q.parked = append(q.parked, job)
	start := roundUp(now.Mono)
	sh.parked.pushBack(&sh.buckets, &sh.slab, sortKey{start, 0}, job)
	if d := sh.s.lockTimeout.Load(); d > 0 {
		sh.s.alarmMono(start + d)
	}
	sh.serveNamedAgain(now, w, sink)
}

// unpark detaches a parked job.
func (sh *shard) unpark(job uint32, q *queue) {
	sh.parked.remove(&sh.buckets, &sh.slab, job)
	last := len(q.parked) - 1
	moved, i := q.parked[last], sh.slab.at(job).parkedIndex()
	q.parked[i] = moved
	sh.slab.at(moved).stateData = i
	if q.parked = q.parked[:last]; last == 0 {
		q.parked = nil // free a burst's memory
	}
}

// unparkWoken makes a woken job ready. It returns false when the job is no longer parked.
func (sh *shard) unparkWoken(now Time, ref JobRef, sink Sink) bool {
	r := sh.slab.find(ref.Record)
	if r == nil || r.state != parked || r.seq != ref.Seq || !sh.s.locks.isWoken(ref) {
		return false
	}
	if q := sh.endParking(now, ref.Record, r, sink); q != nil {
		sh.matchOrDefer(now, q, sink)
	}
	return true
}

// endParking makes a parked job pending again with its former due time, and returns the job's queue for the caller to
// match. It ends an orphan and returns nil.
func (sh *shard) endParking(now Time, job uint32, r *record, sink Sink) *queue {
	q := sh.queues[r.container]
	sh.unpark(job, q)
	if r.flags&orphan != 0 {
		sh.endRemoved(job, r, q, Failed, sink)
		return nil
	}
	sh.enqueue(r.notBefore(now), job, r, q, 0)
	return q
}

// expireParked makes jobs ready whose lock time-out has passed.
func (sh *shard) expireParked(now Time, timeout int64, stepLimit int, sink Sink) {
	for sh.mu.steps < stepLimit {
		k, ok := sh.parked.min(&sh.buckets)
		if !ok || k.major+timeout > now.Mono {
			break
		}
		sh.countSteps(1)
		job := sh.parked.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.dropLocks(job, r)
		if q := sh.endParking(now, job, r, sink); q != nil {
			sh.matchUntil(now, q, stepLimit, sink)
		}
	}
}
