package sched

import (
	"slices"
	"sync"
)

// locks are counting semaphores by name, held by running jobs. The table has a
// lock of its own, never taken together with a shard's: what one decides about the
// other is decided again under that one's lock.
type locks struct {
	mu     sync.Mutex
	byName map[string]*lock
	held   map[JobRef][]string // the locks that a job holds
	waits  map[JobRef]string   // the lock that a parked job waits for
}

// lock is one semaphore. It is gone when nobody holds it or waits for it.
type lock struct {
	holders map[JobRef]bool
	waiting []waiter // oldest first
}

// waiter is a parked job; it may have the lock when fewer than count hold it.
type waiter struct {
	job   JobRef
	count int
}

func (l *locks) init() {
	l.byName = make(map[string]*lock)
	l.held = make(map[JobRef][]string)
	l.waits = make(map[JobRef]string)
}

// acquire gives the lock to a job if fewer than count hold it.
func (l *locks) acquire(name string, job JobRef, count int) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	switch {
	case k == nil && count <= 0:
		return false, nil
	case k == nil && len(l.byName) >= MaxLocks:
		return false, ErrLocks
	case k == nil:
		k = &lock{holders: make(map[JobRef]bool)}
		l.byName[name] = k
	case k.holders[job]:
		return true, nil
	case len(k.holders) >= count:
		return false, nil
	}
	k.holders[job] = true
	l.held[job] = append(l.held[job], name)
	return true, nil
}

// wait puts a job that was refused in line; false when the lock has room meanwhile.
func (l *locks) wait(name string, job JobRef, count int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	if k == nil && count > 0 || k != nil && len(k.holders) < count {
		return false
	}
	if k == nil { // count lets nobody in: the job waits for its time-out
		return true
	}
	k.waiting = append(k.waiting, waiter{job, count})
	l.waits[job] = name
	return true
}

// release takes a lock from a job.
func (l *locks) release(name string, job JobRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	if k == nil || !k.holders[job] {
		return
	}
	delete(k.holders, job)
	names := l.held[job]
	for i, n := range names {
		if n == name {
			names = append(names[:i], names[i+1:]...)
			break
		}
	}
	if len(names) == 0 {
		delete(l.held, job)
	} else {
		l.held[job] = names
	}
	l.tidy(name, k)
}

// drop takes every lock from a job and takes it out of line; it returns the names
// of the locks that it held.
func (l *locks) drop(job JobRef) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.held[job]
	delete(l.held, job)
	for _, name := range names {
		k := l.byName[name]
		delete(k.holders, job)
		l.tidy(name, k)
	}
	if name, ok := l.waits[job]; ok {
		delete(l.waits, job)
		k := l.byName[name]
		for i, w := range k.waiting {
			if w.job == job {
				k.waiting = append(k.waiting[:i], k.waiting[i+1:]...)
				break
			}
		}
		l.tidy(name, k)
	}
	return names
}

// next takes the first waiter out of line that the lock has room for. One that wants
// to be among fewer does not keep the others.
func (l *locks) next(name string) (JobRef, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.byName[name]
	if k == nil {
		return JobRef{}, false
	}
	i := slices.IndexFunc(k.waiting, func(w waiter) bool { return len(k.holders) < w.count })
	if i < 0 {
		return JobRef{}, false
	}
	job := k.waiting[i].job
	if i == 0 {
		k.waiting = k.waiting[1:]
	} else {
		k.waiting = slices.Delete(k.waiting, i, i+1)
	}
	delete(l.waits, job)
	l.tidy(name, k)
	return job, true
}

func (l *locks) tidy(name string, k *lock) {
	if len(k.holders) == 0 && len(k.waiting) == 0 {
		delete(l.byName, name)
	}
}

// Acquire asks for a named lock for a job that the peer holds; at most count jobs
// hold it at once. A job that is refused is parked: it is the peer's no more, and
// ready again when the lock is free or the lock time-out has passed.
func (s *Scheduler) Acquire(now Time, p *Peer, ref JobRef, name string, count int, sink Sink) (bool, error) {
	if err := s.markLocking(p, ref); err != nil {
		return false, err
	}
	got, err := s.locks.acquire(name, ref, count)
	if err != nil {
		return false, err
	}
	if got {
		// Had the job ended before the lock knew of it, nobody would release it.
		if err := s.markLocking(p, ref); err != nil {
			s.dropLocks(now, ref, sink)
			return false, err
		}
		return true, nil
	}
	if err := s.park(now, p, ref, sink); err != nil {
		return false, err
	}
	if !s.locks.wait(name, ref, count) {
		s.wakeParked(now, ref, sink)
	}
	return false, nil
}

// Release gives a lock back that a job of the peer holds.
func (s *Scheduler) Release(now Time, p *Peer, ref JobRef, name string, sink Sink) error {
	if err := s.markLocking(p, ref); err != nil {
		return err
	}
	s.locks.release(name, ref)
	s.wakeNext(now, name, sink)
	return nil
}

// markLocking sees that the peer holds the job and that its end will be told to the
// locks.
func (s *Scheduler) markLocking(p *Peer, ref JobRef) error {
	sh, err := s.lock(ref)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	r, err := sh.holding(p, ref)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	r.flags |= locking
	return nil
}

// unlock unlocks the shard and then tells the tables that span shards, the locks and
// the global names, which jobs ended meanwhile.
func (sh *shard) unlock(now Time, sink Sink) {
	ended, freed := sh.ended, sh.freed
	sh.ended, sh.freed = nil, nil
	sh.mu.Unlock()
	for _, name := range freed {
		sh.s.freeID(name)
	}
	for _, ref := range ended {
		sh.s.dropLocks(now, ref, sink)
	}
}

func (s *Scheduler) dropLocks(now Time, ref JobRef, sink Sink) {
	for _, name := range s.locks.drop(ref) {
		s.wakeNext(now, name, sink)
	}
}

// wakeNext makes the first parked job ready that still waits for the lock.
func (s *Scheduler) wakeNext(now Time, name string, sink Sink) {
	for {
		ref, ok := s.locks.next(name)
		if !ok || s.wakeParked(now, ref, sink) {
			return
		}
	}
}

// park takes a job from its holder and puts it aside.
func (s *Scheduler) park(now Time, p *Peer, ref JobRef, sink Sink) error {
	sh, err := s.lock(ref)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	r, err := sh.holding(p, ref)
	if err != nil {
		return err
	}
	q := sh.unhold(ref.Slot, r)
	r.state, r.home = parked, q.id
	q.parked++
	start := roundUp(now.Mono)
	sh.parked.pushBack(&sh.buckets, &sh.slab, key{start, 0}, ref.Slot)
	if d := s.lockTimeout.Load(); d > 0 {
		s.alarmMono(start + d)
	}
	sh.rematch(now, q, sink)
	return nil
}

// unpark takes a parked job from where it stands.
func (sh *shard) unpark(job uint32, _ *record, q *queue) {
	sh.parked.remove(&sh.buckets, &sh.slab, job)
	q.parked--
}

// wakeParked makes a parked job ready; false when it is parked no more.
func (s *Scheduler) wakeParked(now Time, ref JobRef, sink Sink) bool {
	sh, err := s.lock(ref)
	if err != nil {
		return false
	}
	defer sh.unlock(now, sink)
	r := sh.slab.find(ref.Slot)
	if r == nil || r.state != parked || r.seq != ref.Seq {
		return false
	}
	sh.resume(now, ref.Slot, r, sink)
	return true
}

// resume gives a parked job back to its queue, under the due time it had; one whose
// owner has gone it ends.
func (sh *shard) resume(now Time, job uint32, r *record, sink Sink) {
	q := sh.queues[r.home]
	sh.unpark(job, r, q)
	if r.flags&orphan != 0 {
		sh.end(job, r, q, Failed, nil, sink)
		return
	}
	sh.enqueue(now, job, r, q, 0)
	sh.match(now, q, sink)
}

// expireParked makes jobs ready that have waited for a lock too long.
func (sh *shard) expireParked(now Time, timeout int64, room int, sink Sink) int {
	for ; room > 0; room-- {
		k, ok := sh.parked.min(&sh.buckets)
		if !ok || k.a+timeout > now.Mono {
			break
		}
		job := sh.parked.head(&sh.buckets)
		r := sh.slab.at(job)
		sh.ended = append(sh.ended, sh.ref(job, r))
		sh.resume(now, job, r, sink)
	}
	return room
}
