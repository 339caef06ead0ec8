package sched

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
)

// JobView is a view of one job, in any state. Its bytes are valid until the call that was given it returns.
type JobView struct {
	Job     // Due is 0 when the job has no due time
	State   JobState
	Worker  string // holder of a running job; empty: none, as with a broadcast
	Since   int64  // Unix milliseconds: hand-out of a running job, end of a kept job, begin of a wait for a lock; else 0
	Until   int64  // Unix milliseconds of the time-out of a running job, or of the end of its lease; 0: none
	History []byte // for ParseHistory
	Result  []byte // nil: none is kept
	Counts  Counts // counts of a job of Rules.Numbered
}

// HeldLocks returns the names of the locks that a job holds, at most maxJobLocks.
func (s *Scheduler) HeldLocks(ref JobRef) []string {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	return slices.Clone(s.locks.held[ref])
}

// viewJob fills a JobView.
func (sh *shard) viewJob(now Time, job uint32, r *record, q *queue, v *JobView) {
	sh.view(job, r, q, &v.Job)
	v.State, v.Since, v.History, v.Result = sh.jobStateOf(job, r), sh.sinceOf(now, job, r), sh.history(job, r), nil
	v.Worker, v.Until, v.Counts = "", 0, Counts{}
	if r.flags&numbered != 0 {
		v.Counts = sh.countsOf(r)
	}
	if r.due < firstDue || r.state == failed || r.state == finished {
		v.Due, v.SchedAt = 0, 0
	}
	switch r.state {
	case reserved:
		v.Worker, v.Until = sh.workerOf(r), sh.untilOf(now, r)
	case finished:
		v.Result = sh.result(job)
	}
}

// workerOf returns the name of the worker that holds a reserved job.
func (sh *shard) workerOf(r *record) string {
	if l := sh.leaseOf(r); l != nil {
		return l.worker
	}
	p := sh.holdingWatch(r).peer
	return cmp.Or(p.origin, p.name, p.label)
}

// sinceOf returns the JobView.Since of a job.
func (sh *shard) sinceOf(now Time, job uint32, r *record) int64 {
	switch r.state {
	case reserved:
		return now.wallAt(sh.holdingWatch(r).held[r.heldIndex()].start)
	case parked:
		return now.wallAt(min(sh.buckets.at(r.bucket).key.major, now.Mono)) // it is rounded up
	case failed, finished:
		return r.endedAt()
	}
	return 0
}

// untilOf returns when the run of a reserved job ends by its time-out or its lease, in Unix milliseconds; 0: never.
func (sh *shard) untilOf(now Time, r *record) int64 {
	timeout := sh.s.timeout.Load()
	switch l := sh.leaseOf(r); {
	case l != nil:
		return l.until
	case r.flags&untimed != 0:
		return 0
	case r.flags&ownDeadline != 0:
		return now.wallAt(sh.buckets.at(r.bucket).key.major)
	case timeout > 0:
		return now.wallAt(sh.buckets.at(r.bucket).key.major + timeout)
	}
	return 0
}

// wallAt returns the wall time of a moment of the monotonic clock.
func (t Time) wallAt(mono int64) int64 { return t.Wall + mono - t.Mono }

// String returns the reference as text that ParseRef reads: SHARD.SLOT.SEQ.
func (r JobRef) String() string { return fmt.Sprintf("%d.%d.%d", r.Shard, r.Record, r.Seq) }

var errRef = errors.New("an id has three numbers with dots between them, as in 5.17.100")

// ParseRef reads what String returns. The reference has no space.
func ParseRef(text string) (r JobRef, err error) {
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &r.Shard, &r.Record, &r.Seq); n < 3 || err != nil || r.String() != text {
		return JobRef{}, errRef
	}
	return r, nil
}

// View calls fn with a job, under the shard's lock. It returns false when the job is gone. The space of the reference
// does not count. A kept job is found by its sequence number alone, since a restart gives it another shard and record.
// A moved job is found by its earlier reference, too, as long as the move is remembered.
func (s *Scheduler) View(now Time, ref JobRef, fn func(*JobView)) bool {
	sh, job, r := s.lockJob(ref)
	if sh == nil {
		return false
	}
	defer sh.mu.Unlock()
	var v JobView
	sh.viewJob(now, job, r, sh.queueOf(r), &v)
	fn(&v)
	return true
}

// Find returns the job of a name that has not ended, or else the kept job of the name that ended last. ok is false when
// there is no such job. After an operator has retried or removed a kept job, older jobs of its name are only found by
// their JobRefs.
func (s *Scheduler) Find(space Space, queue, name []byte) (ref JobRef, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil {
		return JobRef{}, false
	}
	hash := s.nameHash(q.id, space, name)
	job, ok := sh.lookup(hash, q, space, name)
	if !ok || !sh.slab.at(job).listed() { // a complete task may be remembered
		if job, ok = sh.lastEnded(hash, q, space, name); !ok {
			return JobRef{}, false
		}
	}
	return sh.ref(job, sh.slab.at(job)), true
}

// lockJob returns a job that a Listing has, with its shard locked. The shard is nil when there is no such job. lockJob
// follows a job that was moved.
func (s *Scheduler) lockJob(ref JobRef) (*shard, uint32, *record) {
	if sh, err := s.lockShard(ref.Shard); err == nil {
		if job, r, ok := sh.find(ref); ok {
			return sh, job, r
		}
		sh.mu.Unlock()
	}
	if to, moved := s.moves.last(ref.Seq); moved {
		ref = to
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		if job, r, ok := sh.find(ref); ok {
			return sh, job, r
		}
		sh.mu.Unlock()
	}
	return nil, none, nil
}

// find returns the job of a reference to this shard, or the kept job with the sequence number of the reference.
func (sh *shard) find(ref JobRef) (job uint32, r *record, ok bool) {
	if job, r = ref.Record, sh.slab.find(ref.Record); r == nil || r.seq != ref.Seq || !r.listed() || ref.Shard != sh.id {
		if job, ok = sh.lookupKept(ref.Seq); !ok {
			return none, nil, false
		}
		r = sh.slab.at(job)
	}
	return job, r, !sh.queueOf(r).dropped
}

// ErrChanged is the error of a Reader whose job ended, or was replaced, while it was read.
var ErrChanged = errors.New("the job has changed meanwhile")

// Reader reads the workload or the result of a job, a part under each hold of the shard's lock. It implements
// io.Reader.
type Reader struct {
	s       *Scheduler
	ref     JobRef
	result  bool
	at      int
	size    int
	version uint64
}

// maxRead is how many bytes a Reader copies under one hold of a shard's lock. It is no less than ownChunk, so that only
// bytes with a version are read in several parts.
const maxRead = 256 << 10

// NewReader returns a Reader of a job's workload from a byte on, or of its kept result. ok is false if there is no such
// job or result.
func (s *Scheduler) NewReader(ref JobRef, result bool, from int) (_ *Reader, ok bool) {
	r := &Reader{s: s, ref: ref, result: result}
	sh, job, record := s.lockJob(ref)
	if sh == nil {
		return nil, false
	}
	defer sh.mu.Unlock()
	data, version := sh.partOf(job, record, result)
	r.at, r.size, r.version = min(from, len(data)), len(data), version
	return r, data != nil
}

// Size returns how many bytes are left.
func (r *Reader) Size() int { return r.size - r.at }

// Read implements io.Reader. Its error is ErrChanged when the bytes have changed since the Reader was made.
func (r *Reader) Read(p []byte) (n int, err error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	sh, job, record := r.s.lockJob(r.ref)
	if sh == nil {
		return 0, ErrChanged
	}
	defer sh.mu.Unlock()
	data, version := sh.partOf(job, record, r.result)
	if len(data) != r.size || version != r.version {
		return 0, ErrChanged
	}
	n = copy(p, data[r.at:min(len(data), r.at+maxRead)])
	sh.countSteps(n >> costShift)
	r.at += n
	return n, nil
}

// partOf returns a view of a job's workload or kept result, and the version of its bytes; nil: no result is kept.
func (sh *shard) partOf(job uint32, r *record, result bool) (data []byte, version uint64) {
	if !result {
		_, data = unpack(sh.arena.view(r.bytes, int(r.size)))
		return data, sh.arena.version(r.bytes)
	}
	return sh.result(job), sh.arena.version(sh.results[job].bytes)
}
