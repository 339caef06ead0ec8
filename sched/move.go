package sched

import (
	"strconv"
	"sync"
)

// maxRememberedMoves bounds the moves that are remembered: about 5 MB.
const maxRememberedMoves = 64 << 10

// moves say where moved jobs are now, by the sequence numbers that they had before the move. The lock may be taken
// under a shard's. No lock is taken under it.
type moves struct {
	mu     sync.Mutex
	to     map[uint64]JobRef
	order  []uint64 // the keys of to; a ring when it is full
	oldest int      // of the ring
}

// add remembers a move. Beyond maxRememberedMoves it replaces the oldest move.
func (m *moves) add(seq uint64, to JobRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to == nil {
		m.to = make(map[uint64]JobRef)
	}
	m.to[seq] = to
	if len(m.order) < maxRememberedMoves {
		m.order = append(m.order, seq)
		return
	}
	delete(m.to, m.order[m.oldest])
	m.order[m.oldest] = seq
	m.oldest = (m.oldest + 1) % maxRememberedMoves
}

// last returns the present JobRef of a job that was moved once or several times.
func (m *moves) last(seq uint64) (to JobRef, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for one, moved := m.to[seq]; moved; one, moved = m.to[to.Seq] { // each number is larger than the one before
		to, ok = one, true
	}
	return to, ok
}

// A job moves to another queue under the locks of both shards. The journal has the whole move or nothing of it.

// lockTwo locks two shards, which may be one. The smaller number comes first, so that no two moves wait for each other.
func lockTwo(a, b *shard) {
	if a.id > b.id {
		a, b = b, a
	}
	if a.mu.Lock(); a != b {
		b.mu.Lock()
	}
}

// unlockTwo ends lockTwo, and wakes the jobs that wait for freed locks.
func (s *Scheduler) unlockTwo(now Time, a, b *shard, sink Sink) {
	freed := a.unlockTakingFreed()
	if a != b {
		freed = append(freed, b.unlockTakingFreed()...)
	}
	s.wakeWaiters(now, freed, sink)
}

// beginBothAtomic is beginAtomic for two shards. The caller holds both locks. end ends the changes.
func beginBothAtomic(a, b *shard) (end func()) {
	if a.id > b.id {
		a, b = b, a
	}
	if a.beginAtomic(); a == b {
		return a.endAtomic
	}
	b.beginAtomic()
	return func() {
		b.endAtomic()
		a.endAtomic()
	}
}

// moveTo moves a pending or failed job to the queue target of the shard to, which may be its own shard. The caller
// holds both locks, and matches the queue afterwards. A failed job becomes ready in target. The history has an entry of
// the move. The job has all its retries again, and another JobRef. Its earlier JobRef finds it as long as the move is
// remembered. moveTo returns ErrDuplicate if target has a job of the same name.
func (sh *shard) moveTo(now Time, job uint32, r *record, q *queue, to *shard, target *queue, at int64, sink Sink) error {
	name, workload := unpack(sh.arena.view(r.bytes, int(r.size)))
	seq := sh.s.lastSeq.Add(1)
	if r.flags&numbered != 0 {
		name = strconv.AppendUint(nil, seq, 10)
	}
	hash := sh.s.nameHash(target.id, r.space, name)
	if _, taken := to.lookup(hash, target, r.space, name); taken {
		return ErrDuplicate
	}
	moved, m, err := to.newJob(hash, target, r.space, name, workload)
	if err != nil {
		return err
	}
	m.seq, m.priority, m.count, m.timeout = seq, r.priority, r.count, r.timeout
	if r.flags&numbered != 0 {
		counts := sh.countsOf(r)
		to.setCounts(m, &counts)
	}
	to.setHistory(moved, m, sh.movedHistory(job, r, q, at))
	target.bytes += int64(m.size)
	to.counters.Submitted++
	target.tally.Submitted[m.space]++
	sh.counters.Moved++
	defer beginBothAtomic(sh, to)()
	switch r.state {
	case failed:
		m.due, m.flags = floorSecond(now.Wall), m.flags|immediate
		to.enqueue(now, moved, m, target, 0)
	case delayed:
		m.due, m.flags = r.due, m.flags|r.flags&immediate
		to.enqueue(now, moved, m, target, r.dueMillis())
	default:
		m.due, m.flags = r.due, m.flags|r.flags&immediate
		to.enqueue(r.notBefore(now), moved, m, target, 0)
	}
	to.save(moved, m, target)
	sh.s.moves.add(r.seq, to.ref(moved, m))
	if r.state == failed {
		sh.removeKept(job, r, q)
		return nil
	}
	sh.dequeue(job, r, q)
	sh.end(job, r, q, Removed, nil, sink)
	return nil
}

// movedHistory returns the history of a job that leaves a queue.
func (sh *shard) movedHistory(job uint32, r *record, q *queue, at int64) []byte {
	history, _ := withAttempt(sh.history(job, r), Attempt{At: at, Outcome: attemptMoved, Text: q.name}, sh.s.rules[r.space].RetryRules)
	return history
}
