package sched

import "bytes"

// A failed job moves to its dead-letter queue in three steps, since that may be of another shard: it is copied and
// marked, the copy is made a job of the other queue, and the failed job is removed. A journal that ends between the
// last two has both; the move is then repeated, and finds the copy. While the other queue has another job of its name
// the failed job stays where it is. The moves of a queue go through its failed jobs in passes: a cursor leaves behind the
// jobs that have stayed, and the next pass tries them again.

// move is a copy of a failed job on its way to a dead-letter queue.
type move struct {
	from Saved
	to   string
}

// Bounds of what one Tick moves of a shard.
const (
	maxMoves  = 64
	moveAgain = 1000 // milliseconds between two passes
)

// nextMove returns the Wall of a queue's next moves: 0 while there are jobs at the cursor or behind it.
func (l *keptLine) nextMove(p *buckets) int64 {
	if _, ok := l.jobs.minFrom(p, l.from); ok {
		return 0
	}
	return l.again
}

// beginMoves copies and marks failed jobs of a queue, from the cursor on.
func (sh *shard) beginMoves(now Time, l *keptLine, to string, until int, moves []move) []move {
	if l.again != 0 && (l.again <= now.Wall || l.again > now.Wall+moveAgain) { // or the clock was set back
		l.from, l.again = firstKey, 0
	}
	done := true
	l.jobs.eachFrom(&sh.buckets, &sh.slab, l.from, func(job uint32) bool {
		r := sh.slab.at(job)
		sh.countSteps(r.cost())
		l.from = key{r.due, int64(r.seq) + 1}
		if r.flags&moving != 0 {
			return true
		}
		r.flags |= moving
		m := move{to: to}
		sh.view(job, r, l.queue, &m.from.Job)
		m.from.Name, m.from.Workload = bytes.Clone(m.from.Name), bytes.Clone(m.from.Workload)
		m.from.History, _ = withAttempt(sh.history(job, r), Attempt{At: r.due, Outcome: attemptMoved, Text: l.queue.name})
		moves = append(moves, m)
		done = len(moves) < maxMoves && sh.mu.steps < until
		return done
	})
	l.check = now.Wall + 1
	if done {
		if l.again == 0 {
			l.again = now.Wall + moveAgain
		}
		l.check = l.again
	}
	sh.keeping.fix(l)
	return moves
}

// endMoves makes the copies jobs of their dead-letter queues and removes the failed jobs.
func (s *Scheduler) endMoves(now Time, from *shard, moves []move, sink Sink) {
	for i := range moves {
		m := &moves[i]
		err := s.shardOf([]byte(m.to)).takeMoved(now, m, sink)
		from.endMove(m.from.Ref.Seq, err)
	}
}

// takeMoved adds a moved job to its dead-letter queue. ErrDuplicate: that has another job of its name.
func (sh *shard) takeMoved(now Time, m *move, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q, err := sh.queue([]byte(m.to))
	if err != nil {
		return err
	}
	j := &Submission{
		Space: m.from.Space, Queue: []byte(m.to), Name: m.from.Name, Workload: m.from.Workload, Priority: m.from.Priority, Count: m.from.Count,
		Timeout: m.from.Timeout, history: m.from.History,
	}
	tag := sh.s.tag(q.id, j.Space, j.Name)
	if job, ok := sh.lookup(tag, q, j.Space, j.Name); ok {
		r := sh.slab.at(job)
		if !bytes.Equal(sh.history(job, r), j.history) {
			return ErrDuplicate
		}
		return nil // a move before a crash has made it
	}
	return sh.add(now, tag, q, j, sink)
}

// endMove removes a failed job that has moved, or keeps it for another try.
func (sh *shard) endMove(seq uint64, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	job, ok := sh.lookupKept(seq)
	if !ok {
		return // its queue was dropped
	}
	r := sh.slab.at(job)
	r.flags &^= moving
	if err == nil {
		sh.counters.Moved++
		sh.removeKept(job, r, sh.queueOf(r))
	}
}
