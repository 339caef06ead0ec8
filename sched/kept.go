package sched

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// keptUse is what an ended job is kept for.
type keptUse uint8

// The uses, from the least to the most. When the time of a finished job's use ends, the job may be kept for a lesser
// use, with fewer of its bytes.
const (
	keptNothing keptUse = iota
	keptName            // its name alone, for Policy.UniqueFor
	keptDone            // without a result
	keptResult          // with its result
	keptFailed          // it was given up
	keptBuried          // it is numbered, and was buried or given up
	keptUses
)

// keptLine is the jobs of a queue that are kept for one use, by the time of their end and their sequence number. Kept
// jobs are in no table of pending jobs.
type keptLine struct {
	queue     *queue
	use       keptUse
	jobs      keptIndex
	check     int64 // Wall when the first job is too old, or is to move; 0: the line has too many jobs
	heapIndex int   // place among the shard's

	// Of the pass of moves to a dead-letter queue:

	position sortKey // key of the next job of this pass
	nextPass int64   // Wall when the next pass begins; 0: during a pass
}

// keptLines are the lines of a queue, by use.
type keptLines [keptUses]keptLine

// keptKey returns the key of a kept job in its line.
func keptKey(r *record) sortKey { return sortKey{r.endedAt(), int64(r.seq)} }

func (l *keptLine) Ahead(o *keptLine) bool { return l.check < o.check }
func (l *keptLine) HeapIndex() int         { return l.heapIndex }
func (l *keptLine) SetHeapIndex(i int)     { l.heapIndex = i }

// keptFor counts the jobs of a queue that are kept for the given uses.
func (q *queue) keptFor(uses ...keptUse) (n int) {
	if q.kept != nil {
		for _, use := range uses {
			n += q.kept[use].jobs.count()
		}
	}
	return n
}

// keptJobs counts all kept jobs of a queue.
func (q *queue) keptJobs() int {
	return q.keptFor(keptName, keptDone, keptResult) + q.failedJobs()
}

// failedJobs counts the failed jobs of a queue.
func (q *queue) failedJobs() int { return q.keptFor(keptFailed, keptBuried) }

// keep keeps a detached job.
func (sh *shard) keep(job uint32, r *record, q *queue, use keptUse) {
	r.state, r.container, r.stateData = finished, q.id, uint32(use)
	if use == keptFailed || use == keptBuried {
		r.state = failed
	}
	if q.kept == nil {
		q.kept = new(keptLines)
		for i := range q.kept {
			q.kept[i] = keptLine{queue: q, use: keptUse(i), heapIndex: -1, position: firstKey}
		}
	}
	l, k := &q.kept[use], keptKey(r)
	l.jobs.add(k, job)
	if k.less(l.position) { // the clock was set back
		l.position = k
	}
	if sh.keptJobs[use]++; use != keptName { // a name is found by itself
		if sh.keptBySeq.dir == nil {
			sh.keptBySeq = newHashIndex()
		}
		sh.keptBySeq.insert(sh.seqHash(r.seq), job)
	}
	sh.resetKept(q)
}

// seqHash is the hash of a kept job in keptBySeq.
func (sh *shard) seqHash(seq uint64) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seq)
	return uint32(sh.s.seed.hash(b[:]))
}

// lookupKept finds a kept job by its sequence number.
func (sh *shard) lookupKept(seq uint64) (uint32, bool) {
	if sh.keptBySeq.count == 0 {
		return none, false
	}
	return sh.keptBySeq.find(sh.seqHash(seq), func(job uint32) bool { return sh.slab.at(job).seq == seq })
}

// unkeep detaches a kept job.
func (sh *shard) unkeep(job uint32, r *record, q *queue) {
	q.kept[r.use()].jobs.remove(keptKey(r))
	sh.keptJobs[r.use()]--
	if r.use() != keptName {
		if sh.keptBySeq.remove(sh.seqHash(r.seq), job); sh.keptBySeq.count == 0 {
			sh.keptBySeq = hashIndex{}
		}
	}
	sh.resetKept(q)
}

// resetKept sets the places of a queue's lines in the heap again after the lines or the policy have changed.
func (sh *shard) resetKept(q *queue) {
	if q.kept == nil {
		return
	}
	for i := range q.kept {
		sh.resetLine(&q.kept[i])
	}
	if q.keptJobs() == 0 {
		q.kept = nil
	}
}

// resetLine sets when trimKept looks at a line next, after the line's jobs or its policy have changed: at once when the
// line has too many jobs, otherwise when its first job is too old or is to move. A line without jobs leaves the heap.
func (sh *shard) resetLine(l *keptLine) {
	first, job := l.jobs.first()
	if job == none {
		if l.heapIndex >= 0 {
			sh.keeping.Remove(l)
		}
		return
	}
	q, jobs := l.queue, l.jobs.count()
	if l.use == keptDone {
		jobs = q.keptFor(keptDone, keptResult)
	}
	keep := q.keepFor(l.use, sh.s)
	switch {
	case l.use == keptFailed && q.policy != nil && q.policy.DeadLetter != "":
		l.check = l.nextMove()
	case keep == (Keep{}), keep.Jobs > 0 && int64(jobs) > keep.Jobs:
		l.check = 0
	case keep.Age > 0:
		l.check = first.major + keep.Age
	default:
		l.check = never
	}
	if l.heapIndex < 0 {
		sh.keeping.Push(l)
	} else {
		sh.keeping.Fix(l)
	}
	sh.s.alarmWall(max(l.check, 0))
}

// keepAll keeps any number of jobs for ever.
var keepAll = Keep{Jobs: math.MaxInt64}

// keepFor returns how many jobs of a queue are kept for a use, and for how long. Without a
// KeepFailed in its policy, the Keep of Rules.RetryRules counts for failed jobs.
func (q *queue) keepFor(use keptUse, s *Scheduler) Keep {
	p, spaces := q.policy, q.spaces&s.failSpaces
	if use == keptFailed && spaces != 0 && (p == nil || !p.keepsFailed) {
		return s.rules[bits.TrailingZeros16(spaces)].RetryRules.Keep
	}
	return p.keeps(use)
}

// keeps returns how many jobs a policy keeps for a use, and for how long.
func (p *Policy) keeps(use keptUse) Keep {
	switch {
	case p == nil && use == keptBuried:
		return keepAll
	case p == nil: // jobs that an earlier policy has left
		return defaultKept
	case use == keptFailed, use == keptBuried && p.keepsFailed:
		return p.KeepFailed
	case use == keptBuried:
		return keepAll
	case use == keptResult:
		return p.KeepResults
	case use == keptDone:
		return p.KeepDone
	case p.UniqueFor > 0:
		return Keep{maxKeptNames, p.UniqueFor}
	}
	return Keep{}
}

// trimKept removes kept jobs that are too many or too old, or keeps less of each.
func (sh *shard) trimKept(now Time, stepLimit int) (moves []deadLetter) {
	for sh.mu.steps < stepLimit && len(sh.keeping) > 0 && sh.keeping[0].check <= now.Wall {
		l := sh.keeping[0]
		q := l.queue
		if p := q.policy; l.use == keptFailed && p != nil && p.DeadLetter != "" {
			sh.countSteps(1)
			moves = sh.chooseMoves(now, l, p.DeadLetter, stepLimit, moves)
			continue
		}
		_, job := l.jobs.first()
		r := sh.slab.at(job)
		sh.countSteps(r.cost())
		switch l.use {
		case keptFailed, keptBuried:
			sh.counters.Evicted++
		case keptName:
			sh.counters.Forgotten += uint64(oneIf(q.policy != nil && r.endedAt()+q.policy.UniqueFor > now.Wall))
		default:
			if use := sh.nextUse(now, job, r, q); use != keptNothing {
				sh.unkeep(job, r, q)
				sh.strip(job, r, use)
				sh.keep(job, r, q, use)
				sh.save(job, r, q)
				continue
			}
		}
		sh.removeKept(job, r, q)
	}
	return moves
}

// removeKept removes a kept job.
func (sh *shard) removeKept(job uint32, r *record, q *queue) {
	sh.unkeep(job, r, q)
	sh.freeKept(job, r, q)
	sh.discardUnused(q)
}

// freeKept frees a detached job that was kept.
func (sh *shard) freeKept(job uint32, r *record, q *queue) {
	sh.unindexEndedName(job, r, q)
	sh.dropResult(job)
	sh.dropSaved(r)
	sh.dropHistory(job, r)
	sh.freeBytes(r.bytes)
	sh.slab.free(job)
}

// restoreKept keeps a detached job as the journal has it. Records come in the order of submission, so a restored job of
// the same name may have ended later.
func (sh *shard) restoreKept(job uint32, r *record, q *queue, j *Saved) {
	use := keptFailed
	if r.flags&numbered != 0 {
		use = keptBuried
	}
	if r.due = j.FailedAt; j.DoneAt != 0 {
		r.due = j.DoneAt
		use = sh.restoreUse(job, j)
	}
	done := j.DoneAt != 0 && !endsExpired(sh.history(job, r))
	last, _ := sh.lookupEnded(sh.s.nameHash(q.id, r.space, j.Name), q, r.space, j.Name, done)
	if last == none || sh.slab.at(last).endedAt() <= r.endedAt() {
		sh.indexEndedName(job, r, q, done)
	}
	sh.keep(job, r, q, use)
}

// nextKept returns a queue's first job, and its key, among the jobs that are kept for the given uses and have the key
// from or a later one.
func (sh *shard) nextKept(q *queue, from sortKey, uses []keptUse) (first uint32, at sortKey) {
	first = none
	for _, use := range uses {
		if k, job := q.kept[use].jobs.firstFrom(from); job != none && (first == none || k.less(at)) {
			first, at = job, k
		}
	}
	return first, at
}

// retry makes a failed job ready and gives it all its retries again. kicked reports whether the job counts the retry as
// a kick. The caller matches the queue. retry returns ErrDuplicate when the queue has another job of the name by now.
func (sh *shard) retry(now Time, job uint32, r *record, q *queue, kicked bool) error {
	name := sh.nameView(job)
	hash := sh.s.nameHash(q.id, r.space, name)
	if _, taken := sh.lookup(hash, q, r.space, name); taken {
		return ErrDuplicate
	}
	if !sh.names.insert(hash, job) {
		return errFull
	}
	sh.unindexEndedName(job, r, q)
	sh.unkeep(job, r, q)
	q.bytes += int64(r.size)
	sh.addAttempt(job, r, Attempt{At: now.Wall, Outcome: attemptRetried})
	if kicked {
		sh.addCount(r, atKicked)
	}
	sh.counters.Retried++
	r.due = floorSecond(now.Wall)
	r.flags |= immediate
	sh.enqueue(now, job, r, q, 0)
	sh.save(job, r, q)
	return nil
}
