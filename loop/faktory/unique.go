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
	byJob map[jobID]*uniqueLock
	next  heap.Heap[*uniqueLock] // the next to expire first
}

// uniqueKey is the hash of an identity.
type uniqueKey [16]byte

// jobID names a job of the space.
type jobID struct{ queue, name string }

// uniqueLock is one lock.
type uniqueLock struct {
	key        uniqueKey
	holder     jobID
	expiry     int64 // Unix milliseconds
	untilStart bool
	place      int // in the heap
}

// Ahead implements heap.Ranked.
func (l *uniqueLock) Ahead(o *uniqueLock) bool { return l.expiry < o.expiry }

// Place implements heap.Ranked.
func (l *uniqueLock) Place() int { return l.place }

// SetPlace implements heap.Ranked.
func (l *uniqueLock) SetPlace(i int) { l.place = i }

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
	sum := sha256.Sum256(j.AppendIdentity(nil))
	return &uniqueLock{key: uniqueKey(sum[:16]), holder: jobID{string(queue), string(name)}, expiry: base + j.Custom.UniqueFor, untilStart: j.Custom.UntilStart}
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
		u.byKey, u.byJob = make(map[uniqueKey]*uniqueLock), make(map[jobID]*uniqueLock)
	}
	u.byKey[l.key], u.byJob[l.holder] = l, l
	u.next.Push(l)
	return nil
}

// rename gives a lock to a job of another name.
func (u *uniqueLocks) rename(l *uniqueLock, name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byJob[l.holder] == l {
		delete(u.byJob, l.holder)
	}
	l.holder.name = name
	if u.byKey[l.key] == l {
		u.byJob[l.holder] = l
	}
}

// release ends a lock.
func (u *uniqueLocks) release(l *uniqueLock) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byKey[l.key] == l {
		u.drop(l)
	}
}

// follow ends the lock of a job that has started or ended, if it lasts no longer.
func (u *uniqueLocks) follow(j *sched.Job, e sched.Effect) {
	if e != sched.Assign && e != sched.Result {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.byJob[jobID{j.Queue, string(j.Name)}]; l != nil && (l.untilStart || e == sched.Result) {
		u.drop(l)
	}
}

func (u *uniqueLocks) drop(l *uniqueLock) {
	u.next.Remove(l)
	delete(u.byKey, l.key)
	if u.byJob[l.holder] == l {
		delete(u.byJob, l.holder)
	}
	if len(u.next) == 0 {
		u.byKey, u.byJob, u.next = nil, nil, nil // maps keep the memory of their largest size
	}
}
