package sched

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
)

// A worker without a connection reserves jobs in a request, a peer that lives no longer than the request. Grant moves
// the jobs from the request to leases. A leased job stays reserved until a verb with its token ends the run, the job is
// removed, or the lease expires. The expiry replaces the job's time-out and counts as a time-out for policies,
// histories and counters, and the history has the worker's name. The monotonic clock decides when it expires. Over a
// restart the wall clock does, and a clock that was set back makes no lease longer than it was. Connected workers and
// requests wait in the same lines, and all policies hold for both. A broadcast reaches a waiting request as well.
//
// A token names one run, by its number, and proves it with a secret that the caller has drawn. A run that has ended has
// no lease, so a late or doubled call changes nothing. The error of such a call says how the lease ended, as long as
// this is remembered; later it is ErrNoLease. The error of a wrong secret is always ErrNoLease. A table of all shards
// has the leases by the numbers of their runs: the shard and the slot of a job differ after a restart.
//
// A peer of LeaseTo is connected. Its jobs are leased from their hand-out on, so they stay reserved when the peer
// leaves. FindLease finds the leases of the spaces of Rules.LeaseNames by the names of their jobs, so that any peer
// that knows the name may report.
//
// The record of a leased job has its lease: the token, the worker, the end and the length. After a restart the job is
// reserved under the same token, and the first Tick ends a lease that has expired. Leased tasks and leased jobs that
// are not durable fare at a restart like the jobs of connected workers: they become ready, or end as their space says.
// A leased job keeps no named locks: workers without a connection have no verb for them.
//
// A request that waits counts as a worker of each queue that it watches. The leased jobs of a queue count as one worker
// together, so that a queue is served whose workers have jobs and are between two requests. Durable leased jobs do not
// count as countInterruptible: a stop does not wait for them.
//
// A job under a lease has no connected holder. It stands in the held jobs of its queue's lease watch, whose peer is the
// shard's leasePeer, and in ownTimed. The shard's leases have the rest, by the number of its run.

// The errors of the verbs that take a Token. Nothing has changed then.
var (
	// ErrNoLease: the token is forged, or its lease ended long ago or before a restart.
	ErrNoLease = errors.New("no such lease")
	// ErrLeaseExpired: the lease was not extended in time. The job may be another worker's.
	ErrLeaseExpired = errors.New("the lease has expired")
	// ErrLeaseDone: a verb with this token has ended the run before.
	ErrLeaseDone = errors.New("the job was reported or released under this lease already")
	// ErrLeaseRemoved: the job was removed meanwhile.
	ErrLeaseRemoved = errors.New("the job of the lease was removed")
)

const (
	// MaxLease bounds the milliseconds of a lease from its Grant or its last extension: a day.
	MaxLease = 24 * 60 * 60 * 1000
	// MaxRequestJobs bounds the jobs that one TryReserveUpTo asks for.
	MaxRequestJobs = 1000
	// MaxWorkerName bounds the bytes of a worker's name that are kept with each of its leases.
	MaxWorkerName = 255
	// leaseParts is the number of parts of the table of leases. Each part has a lock.
	leaseParts = 16
	// maxEndedLeases bounds the ended leases of a part that are remembered, so that a doubled call
	// learns how its lease has ended: 1.5 MB in all parts together.
	maxEndedLeases = 4 << 10
)

// Token is the proof of a lease, for one run of one job. It stays valid over a restart when the job is durable.
type Token struct {
	Number uint64 // number of the run
	Secret uint64 // secret of the LeaseTerms
}

// String returns the token as 32 hexadecimal digits.
func (t Token) String() string {
	b := binary.BigEndian.AppendUint64(nil, t.Number)
	return hex.EncodeToString(binary.BigEndian.AppendUint64(b, t.Secret))
}

// ParseToken reads what String returns. The error of any other text is ErrNoLease.
func ParseToken(text string) (Token, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 16 {
		return Token{}, ErrNoLease
	}
	return Token{Number: binary.BigEndian.Uint64(b), Secret: binary.BigEndian.Uint64(b[8:])}, nil
}

// LeaseTerms are what Grant gives leases.
type LeaseTerms struct {
	Worker string // the worker, as histories, logs and views name it; at most MaxWorkerName bytes are kept
	Secret uint64 // drawn at random for each call of Grant
	For    int64  // milliseconds, clamped to 1 to MaxLease
}

// lease has what the record of a leased job does not have.
type lease struct {
	number uint64 // number of the run
	name   leaseName
	older  *lease // the neighbours of the same name; under the lock of its leaseNames
	newer  *lease
	worker string
	secret uint64
	shard  uint16
	record uint32
	until  int64    // Wall; under the shard's lock
	length int64    // milliseconds; under the shard's lock
	end    leaseEnd // how it ends; under the shard's lock
}

// leaseEnd is how a lease has ended.
type leaseEnd uint8

const (
	leaseRemoved leaseEnd = iota
	leaseExpired
	leaseDone
)

var leaseErrors = [...]error{leaseRemoved: ErrLeaseRemoved, leaseExpired: ErrLeaseExpired, leaseDone: ErrLeaseDone}

// leases are the leases of all shards, by the numbers of their runs. A shard and a slot name a job only until a
// restart.
type leases [leaseParts]leaseTable

// leaseTable is one part of the leases. Its lock may be taken under a shard's. No lock is taken under it.
type leaseTable struct {
	mu    sync.Mutex
	live  map[uint64]*lease
	ended []endedLease // ended leases by endedAt; nil until a lease has ended
}

// endedLease is a lease that has ended, until a later one takes its place.
type endedLease struct {
	token Token // a Number of 0: none
	end   leaseEnd
}

// endedIndex returns the place of an ended lease in its part. Numbers are drawn in order, so a place is taken again
// only after all other places.
func endedIndex(number uint64) int { return int(number / leaseParts % maxEndedLeases) }

func (l *leases) part(number uint64) *leaseTable { return &l[number%leaseParts] }

// add adds a lease. It returns false when the number is taken, as in a journal that was edited.
func (l *leases) add(number uint64, x *lease) bool {
	t := l.part(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[number] != nil {
		return false
	}
	if t.live == nil {
		t.live = make(map[uint64]*lease)
	}
	t.live[number] = x
	return true
}

// get returns a live lease.
func (l *leases) get(number uint64) *lease {
	t := l.part(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[number]
}

// find returns the live lease of a token, or how it has ended.
func (l *leases) find(t Token) (*lease, error) {
	part := l.part(t.Number)
	part.mu.Lock()
	defer part.mu.Unlock()
	if x := part.live[t.Number]; x != nil && x.secret == t.Secret {
		return x, nil
	}
	if part.ended != nil && t.Number != 0 {
		if e := part.ended[endedIndex(t.Number)]; e.token == t {
			return nil, leaseErrors[e.end]
		}
	}
	return nil, ErrNoLease
}

// end ends a live lease, remembers how it has ended, and returns it.
func (l *leases) end(number uint64) *lease {
	t := l.part(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.live[number]
	if delete(t.live, number); len(t.live) == 0 {
		t.live = nil // a map keeps the memory of its largest size
	}
	if t.ended == nil {
		t.ended = make([]endedLease, maxEndedLeases)
	}
	t.ended[endedIndex(number)] = endedLease{Token{number, x.secret}, x.end}
	return x
}

// leased reports whether a watch holds the leased jobs of its queue.
func (w *watch) leased() bool { return w.peer == w.shard.leasePeer }

// leaseWatch returns the watch that holds a queue's leased jobs. It makes a missing watch, which has ended from the
// start, so that it is freed with its last job. Until then the watch counts as a worker of the queue.
func (sh *shard) leaseWatch(q *queue) *watch {
	if q.leaseWatch == nil {
		q.leaseWatch = &watch{peer: sh.leasePeer, queue: q, shard: sh, lineIndex: -1, ended: true}
		q.leaseWatch.id = assignID(&sh.watches, &sh.freeWatchIDs, q.leaseWatch)
		q.workers++
		q.busy++
	}
	return q.leaseWatch
}

// startLease makes a detached job reserved under a lease until ms from now. l has a number that no other lease has.
func (sh *shard) startLease(now Time, job uint32, r *record, q *queue, h held, l *lease, ms int64) {
	sh.leaseWatch(q).addHeld(r, h)
	sh.countLease(r, q, 1)
	sh.s.leaseNames.add(sh, job, r, l)
	sh.setExpiry(now, job, r, l, ms)
}

// setExpiry puts a leased job, which is in no index of reserved jobs, under the deadline of its lease.
func (sh *shard) setExpiry(now Time, job uint32, r *record, l *lease, ms int64) {
	l.until = now.Wall + ms
	r.flags = r.flags&^untimed | ownDeadline
	at := roundUp(now.Mono + ms)
	sh.ownTimed.pushBack(&sh.buckets, &sh.slab, sortKey{at, 0}, job)
	sh.s.alarmMono(at)
}

// countLease adds n to the counts of leased jobs for which a stop need not wait: tasks, and durable jobs, whose leases
// survive a restart.
func (sh *shard) countLease(r *record, q *queue, n int) {
	switch {
	case r.flags&task != 0:
		q.reservedTasks += n
	case sh.s.journal != nil && sh.s.rules[r.space].Durable:
		q.savedLeases += n
	default:
		return
	}
	sh.lastingLeases += n
}

// endLease ends the lease of a job that is no longer held.
func (sh *shard) endLease(r *record, q *queue, number uint64) {
	sh.countLease(r, q, -1)
	sh.s.leaseNames.remove(sh.s.leases.end(number))
}

// freeLeaseWatch takes the watch of leaseWatch out of the queue's counts of workers.
func (q *queue) freeLeaseWatch() {
	q.leaseWatch = nil
	q.workers--
	q.busy--
}

// leaseOf returns the lease of a reserved job, nil when a peer holds the job.
func (sh *shard) leaseOf(r *record) *lease {
	w := sh.holdingWatch(r)
	if !w.leased() {
		return nil
	}
	return sh.s.leases.get(w.held[r.heldIndex()].number)
}

// savedLease returns what the journal keeps of a reserved job's lease.
func (sh *shard) savedLease(r *record) SavedLease {
	l := sh.leaseOf(r)
	if l == nil {
		return SavedLease{}
	}
	return SavedLease{
		Token:  Token{sh.holdingWatch(r).held[r.heldIndex()].number, l.secret},
		Worker: l.worker, Until: l.until, Length: l.length,
	}
}

// restoreLease gives a restored job its lease back. A clock that was set back does not make the lease longer than it
// was. restoreLease returns false when the number of the run is taken.
func (sh *shard) restoreLease(now Time, job uint32, r *record, q *queue, saved *SavedLease) bool {
	l := &lease{number: saved.Token.Number, worker: saved.Worker, secret: saved.Token.Secret, shard: sh.id, record: job, length: clampLease(saved.Length)}
	if !sh.s.leases.add(saved.Token.Number, l) {
		return false
	}
	q.running++
	sh.startLease(now, job, r, q, held{job, none, saved.Token.Number, 0, now.Mono}, l, min(max(saved.Until-now.Wall, 0), l.length))
	l.until = min(saved.Until, now.Wall+l.length)
	return true
}

// endRestoredLeases ends the leases of a queue that a restored record drops. A repaired journal may have both the
// leases and the end of their queue.
func (sh *shard) endRestoredLeases(now Time, q *queue) {
	for q.leaseWatch != nil {
		job := q.leaseWatch.held[0].job
		r := sh.slab.at(job)
		sh.unhold(job, r)
		sh.enqueue(r.notBefore(now), job, r, q, 0)
	}
}
