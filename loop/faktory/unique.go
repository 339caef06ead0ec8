package faktory

import (
	"crypto/sha256"
	"errors"
	"sync"

	codec "treadle/codec/faktory"
	"treadle/sched"
	"treadle/sched/heap"
)

// Unique jobs: a job of unique_for holds the lock of its queue, type and args until it is done, or until it starts,
// or until the time has passed. A PUSH of another one is refused meanwhile.
//
// The locks live in memory. A start takes them again for the jobs of the journal.

// uniqueLocks are the locks of unique jobs.
type uniqueLocks struct {
	mu    sync.Mutex
	byKey map[uniqueKey]*uniqueLock
	byJob map[jobID]jobLocks
	next  heap.Heap[*uniqueLock] // the next to expire first
}

// uniqueKey is the hash of an identity.
type uniqueKey [16]byte

// jobID names a job of the space.
type jobID struct{ queue, name string }

// jobLocks are the locks whose holders have one id. While a jid is pushed again with other args, its job and the pushed
// one have the same id. The lock of a job that has failed or was removed stays beside the lock of the next job of its
// jid.
type jobLocks struct {
	count int
	only  *uniqueLock // the lock, if there has never been another one beside it
}

// uniqueLock is one lock.
type uniqueLock struct {
	key        uniqueKey
	holder     jobID
	expiry     int64 // Unix milliseconds
	untilStart bool
	heapIndex  int // in the heap
}

// Ahead implements heap.Ranked.
func (l *uniqueLock) Ahead(o *uniqueLock) bool { return l.expiry < o.expiry }

// HeapIndex implements heap.Ranked.
func (l *uniqueLock) HeapIndex() int { return l.heapIndex }

// SetHeapIndex implements heap.Ranked.
func (l *uniqueLock) SetHeapIndex(i int) { l.heapIndex = i }

// maxUniqueLocks bounds the locks, which have some 250 bytes each: those of failed and removed jobs stay until their
// time has passed.
const maxUniqueLocks = 1 << 21

// uniqueSweep bounds the expired locks that one call removes.
const uniqueSweep = 16

// errNotUnique is the refusal that clients know by its code.
var (
	errNotUnique  = errors.New("Job not unique") //nolint:staticcheck // the words of the protocol
	errUniqueRoom = errors.New("there are too many unique jobs")
)

// codeNotUnique is the code of errNotUnique.
const codeNotUnique = "NOTUNIQUE"

// lockOf returns the lock that a job of a name wants; nil: it is not unique. base is when the job is due, in Unix
// milliseconds.
func lockOf(j *codec.Job, queue, name []byte, base int64) *uniqueLock {
	if j.Custom.UniqueFor == 0 {
		return nil
	}
	return &uniqueLock{key: keyOf(j), holder: jobID{string(queue), string(name)}, expiry: base + j.Custom.UniqueFor, untilStart: j.Custom.UntilStart}
}

// keyOf returns the key of a job's identity.
func keyOf(j *codec.Job) uniqueKey {
	sum := sha256.Sum256(j.AppendIdentity(nil))
	return uniqueKey(sum[:16])
}

// take takes a lock, or returns why it cannot.
func (u *uniqueLocks) take(l *uniqueLock, now int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range uniqueSweep {
		if len(u.next) == 0 || u.next[0].expiry > now {
			break
		}
		u.drop(u.next[0])
	}
	if old := u.byKey[l.key]; old != nil {
		if old.expiry > now {
			return errNotUnique
		}
		u.drop(old)
	}
	if len(u.next) >= maxUniqueLocks {
		return errUniqueRoom
	}
	if u.byKey == nil {
		u.byKey, u.byJob = make(map[uniqueKey]*uniqueLock), make(map[jobID]jobLocks)
	}
	u.byKey[l.key] = l
	u.attach(l)
	u.next.Push(l)
	return nil
}

// rename gives a lock to a job of another name.
func (u *uniqueLocks) rename(l *uniqueLock, name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey[l.key] != l { // it has ended
		l.holder.name = name
		return
	}
	u.detach(l)
	l.holder.name = name
	u.attach(l)
}

// release ends a lock.
func (u *uniqueLocks) release(l *uniqueLock) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey[l.key] == l {
		u.drop(l)
	}
}

// update ends the lock of a job that has started or ended, if it lasts no longer.
func (u *uniqueLocks) update(j *sched.Job, e sched.Effect) {
	if e != sched.Assign && e != sched.Result {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.heldBy(j); l != nil && (l.untilStart || e == sched.Result) {
		u.drop(l)
	}
}

// heldBy returns the lock of a job, or nil.
func (u *uniqueLocks) heldBy(j *sched.Job) *uniqueLock {
	id := jobID{j.Queue, string(j.Name)}
	locks := u.byJob[id]
	if locks.count == 0 || locks.only != nil {
		return locks.only
	}
	var job codec.Job
	if codec.ParseJob(j.Workload, nil, &job) != nil {
		return nil
	}
	if l := u.byKey[keyOf(&job)]; l != nil && l.holder == id {
		return l
	}
	return nil
}

// attach counts a lock under its holder's id.
func (u *uniqueLocks) attach(l *uniqueLock) {
	locks := u.byJob[l.holder]
	if locks.only = nil; locks.count == 0 {
		locks.only = l
	}
	locks.count++
	u.byJob[l.holder] = locks
}

// detach ends attach.
func (u *uniqueLocks) detach(l *uniqueLock) {
	locks := u.byJob[l.holder]
	if locks.count--; locks.count == 0 {
		delete(u.byJob, l.holder)
		return
	}
	u.byJob[l.holder] = locks
}

func (u *uniqueLocks) drop(l *uniqueLock) {
	u.next.Remove(l)
	delete(u.byKey, l.key)
	u.detach(l)
	if len(u.next) == 0 {
		u.byKey, u.byJob, u.next = nil, nil, nil // maps keep the memory of their largest size
	}
}
