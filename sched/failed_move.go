package sched

import "bytes"

// Failed jobs move to their dead-letter queue in passes, along a cursor. A job stays while the dead-letter queue has a
// job of its name: the cursor leaves it behind, and the next pass tries it again.

// deadLetter is a failed job, by its sequence number, that is to move to another queue.
type deadLetter struct {
	seq uint64
	to  string
}

// Bounds of what one Tick moves of a shard.
const (
	maxMoves  = 64
	moveAgain = 1000 // milliseconds between two passes
)

// nextMove returns the Wall of a queue's next moves: 0 while there are jobs at the cursor or behind it.
func (l *keptLine) nextMove() int64 {
	if _, job := l.jobs.firstFrom(l.position); job != none {
		return 0
	}
	return l.nextPass
}

// chooseMoves adds the failed jobs of a queue from the cursor on to moves.
func (sh *shard) chooseMoves(now Time, l *keptLine, to string, stepLimit int, moves []deadLetter) []deadLetter {
	if l.nextPass != 0 && (l.nextPass <= now.Wall || l.nextPass > now.Wall+moveAgain) { // or the clock was set back
		l.position, l.nextPass = firstKey, 0
	}
	done := true
	l.jobs.eachFrom(l.position, func(k sortKey, job uint32) bool {
		r := sh.slab.at(job)
		sh.countSteps(r.cost())
		l.position = k.next()
		moves = append(moves, deadLetter{r.seq, to})
		done = len(moves) < maxMoves && sh.mu.steps < stepLimit
		return done
	})
	l.check = now.Wall + 1
	if done {
		if l.nextPass == 0 {
			l.nextPass = now.Wall + moveAgain
		}
		l.check = l.nextPass
	}
	sh.keeping.Fix(l)
	return moves
}

// moveDeadLetters makes failed jobs of a shard jobs of their dead-letter queues. Those that do not move stay for
// another pass.
func (s *Scheduler) moveDeadLetters(now Time, from *shard, moves []deadLetter, sink Sink) {
	for _, m := range moves {
		to := s.shardOf([]byte(m.to))
		lockTwo(from, to)
		from.moveDeadLetter(now, m, to, sink)
		s.unlockTwo(now, from, to, sink)
	}
}

// moveDeadLetter moves a failed job to its dead-letter queue in the shard to. The caller holds both locks. It does
// nothing if the job or its queue has gone, or if the dead-letter queue has another job of its name.
func (sh *shard) moveDeadLetter(now Time, m deadLetter, to *shard, sink Sink) {
	job, ok := sh.lookupKept(m.seq)
	if !ok {
		return // it was retried, removed or moved meanwhile
	}
	r := sh.slab.at(job)
	q := sh.queueOf(r)
	target, err := to.queueFor([]byte(m.to), r.flags&numbered != 0)
	if err != nil || q.dropped {
		return
	}
	name := sh.nameView(job)
	if other, ok := to.lookup(sh.s.nameHash(target.id, r.space, name), target, r.space, name); ok {
		if o := to.slab.at(other); bytes.Equal(to.history(other, o), sh.movedHistory(job, r, q, r.endedAt())) {
			sh.counters.Moved++
			sh.removeKept(job, r, q) // the journal of an older program may have a move that a crash cut short: both
		}
		return
	}
	if sh.moveTo(now, job, r, q, to, target, r.endedAt(), sink) == nil {
		to.matchOrDefer(now, target, sink)
	}
}
