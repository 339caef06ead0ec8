package sched

import (
	"math/bits"
	"slices"
)

// Finish ends a job that the peer holds. Its awaits receive data. It returns an error and changes
// nothing when no such job is reserved or another peer holds it.
func (s *Scheduler) Finish(now Time, p *Peer, run Run, data []byte, sink Sink) error {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return s.countStale(err)
	}
	defer sh.unlock(now, sink)
	r, err := sh.holding(p, run)
	if err != nil {
		sh.counters.Stale++
		return err
	}
	sh.finish(now, run.Record, r, p.where, data, sink)
	return nil
}

// finish is Finish for a reserved job and the name of its worker.
func (sh *shard) finish(now Time, job uint32, r *record, worker string, data []byte, sink Sink) {
	w := sh.holder(r)
	sh.observeRun(now, r)
	q := sh.unhold(job, r)
	sh.counters.Done++
	q.tally.Ended[EndingDone]++
	switch {
	case r.flags&task != 0:
		sh.graph.end(now, job, r, q, sink)
	case q.policy != nil:
		sh.endByPolicy(now, job, r, q, Attempt{Outcome: attemptDone, Worker: worker}, Result, data, sink)
	default:
		sh.end(job, r, q, Result, data, sink)
	}
	sh.reconsider(now, w, sink)
}

// Fail gives back a job that the peer could not do: the job becomes ready, due now, or ends, see
// Rules.Deaths and Policy.Retries. text is the worker's error: its end is kept where a policy keeps
// histories.
func (s *Scheduler) Fail(now Time, p *Peer, run Run, text []byte, sink Sink) error {
	sh, r, err := s.releasing(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failRun(now, run.Record, r, Attempt{Outcome: attemptFailed, Worker: p.where, Text: sh.errorText(r, text)}, byRules, sink)
	return nil
}

// byRules is the delay of a failed job that the policy of its queue rules.
const byRules = -1

// failRun is Fail for a reserved job. A delay of 0 or more, in milliseconds, replaces a policy's back-off.
func (sh *shard) failRun(now Time, job uint32, r *record, a Attempt, delay int64, sink Sink) {
	sh.counters.Fails++
	sh.failAwaits(job, r, sink)
	w := sh.holder(r)
	q := sh.unhold(job, r)
	sh.fail(now, job, r, q, a, delay, sink)
	sh.matchOrDefer(now, q, sink)
	sh.reconsider(now, w, sink)
}

// longestDelay bounds the milliseconds of a delay: a longer one would overflow.
const longestDelay = int64(1) << 50

// Delay gives back a job, due delay seconds from now to the millisecond, and adds step to its
// count.
func (s *Scheduler) Delay(now Time, p *Peer, run Run, delay int64, step int32, sink Sink) error {
	delay = max(min(delay, longestDelay/1000), -longestDelay/1000)
	sh, r, err := s.releasing(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	sh.failAwaits(run.Record, r, sink)
	w := sh.holder(r)
	q := sh.unhold(run.Record, r)
	if rules := &sh.s.rules[r.space]; rules.Deaths == 0 && rules.Failures == nil { // else count counts failures or retries
		r.count = clampAdd(r.count, step)
	}
	sh.release(now, run.Record, r, q, now.Wall+delay*1000, sink)
	sh.matchOrDefer(now, q, sink)
	sh.reconsider(now, w, sink)
	return nil
}

// releasing returns a job that the peer gives back, with its shard locked.
func (s *Scheduler) releasing(now Time, p *Peer, run Run) (*shard, *record, error) {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return nil, nil, s.countStale(err)
	}
	r, err := sh.holding(p, run)
	if err != nil {
		sh.counters.Stale++
		sh.mu.Unlock()
		return nil, nil, err
	}
	sh.counters.Released++
	sh.observeRun(now, r)
	return sh, r, nil
}

func clampAdd(a, b int32) int32 {
	return int32(max(min(int64(a)+int64(b), 1<<31-1), -1<<31))
}

// countStale counts a report on a job that no shard has, and returns err.
func (s *Scheduler) countStale(err error) error {
	s.shards[0].mu.Lock()
	defer s.shards[0].mu.Unlock()
	s.shards[0].counters.Stale++
	return err
}

// lockShard locks a shard by its number, which may be any.
func (s *Scheduler) lockShard(number uint16) (*shard, error) {
	if int(number) >= len(s.shards) {
		return nil, ErrNotFound
	}
	sh := &s.shards[number]
	sh.mu.Lock()
	return sh, nil
}

// Remove removes a job by name in any state. It returns false if there is no such job. A later Finish of its holder
// finds nothing.
func (s *Scheduler) Remove(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return !s.rules[space].Graph && s.remove(now, space, queueName, name, true, sink)
}

// RemoveTask is Remove for a task. Its successors no longer wait for it, as if it was complete.
func (s *Scheduler) RemoveTask(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return s.rules[space].Graph && s.remove(now, space, queueName, name, true, sink)
}

// Withdraw is Remove for a job that no peer holds. It returns false and changes nothing when a peer
// holds the job.
func (s *Scheduler) Withdraw(now Time, space Space, queueName, name []byte, sink Sink) bool {
	return !s.rules[space].Graph && s.remove(now, space, queueName, name, false, sink)
}

// remove removes the job of a name in a queue and reports whether there was one. held allows the removal of a reserved
// job.
func (s *Scheduler) remove(now Time, space Space, queueName, name []byte, held bool, sink Sink) bool {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queueName)]
	if q == nil {
		return false
	}
	job, ok := sh.lookup(s.nameHash(q.id, space, name), q, space, name)
	if !ok {
		return false
	}
	r := sh.slab.at(job)
	if !r.live() || r.state == reserved && !held {
		return false
	}
	sh.removePending(now, job, r, q, Removed, sink)
	return true
}

// removePending removes a job in any state but those of kept jobs. Its awaits end with e.
func (sh *shard) removePending(now Time, job uint32, r *record, q *queue, e Effect, sink Sink) {
	if r.state == reserved {
		sh.noteRevoked(now, job, r)
	}
	sh.detach(job, r, q)
	if r.flags&task != 0 {
		sh.countRemoved(q)
		sh.graph.end(now, job, r, q, sink)
	} else {
		sh.endRemoved(job, r, q, e, sink)
	}
}

// Drop removes a queue with all its jobs. It refuses, and returns false, when a peer serves the
// queue or holds one of its jobs, or when the queue has had tasks or jobs of a Kept space. The
// queue is gone when Drop returns. The Ticks that follow remove its jobs.
func (s *Scheduler) Drop(name []byte) bool {
	sh := s.shardOf(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(name)]
	if q == nil || q.workers > 0 || q.running > 0 || s.keptSpaces&q.spaces != 0 {
		return false
	}
	sh.saveDrop(q)
	sh.discard(q)
	return true
}

// discard removes a queue from the names. The Ticks remove its jobs.
func (sh *shard) discard(q *queue) {
	if g := q.limiter; g != nil && g.heapIndex >= 0 {
		sh.limiters.remove(g) // a pause may be for years
	}
	delete(sh.byName, q.name)
	sh.s.queueCount.Add(-1)
	if q.heapIndex >= 0 {
		sh.timers.remove(q)
	}
	q.dropped = true
	sh.takeTally(q)
	sh.dropped = append(sh.dropped, q)
	sh.s.alarmMono(0)
}

// discardUnused discards an unused queue that no client drops: one whose name is too long for the peers that call Drop,
// which may have megabytes, and one of AutoDelete peers and numbered jobs.
func (sh *shard) discardUnused(q *queue) {
	if (len(q.name) > maxShortQueue || sh.isAutoDelete(q)) && !q.dropped && q.workers == 0 && q.running == 0 && q.tasks == 0 && q.unreserved() == 0 {
		sh.discard(q)
	}
}

// isAutoDelete reports whether a queue is deleted with the last of its peers and jobs. A PauseFor goes with it, the
// credit of a rate does not.
func (sh *shard) isAutoDelete(q *queue) bool {
	return q.autoDelete && q.saved == 0 && q.spaces&^sh.s.numberedSpaces == 0 && (q.limiter == nil || q.limiter.empty() || q.limiter.heapIndex < 0)
}

// Held returns the run of a job of a name that the peer holds, in any space. It is for protocols
// whose workers know jobs by name.
func (s *Scheduler) Held(p *Peer, queueName, name []byte) (Run, bool) {
	w := p.watchOf(queueName)
	if w == nil {
		return Run{}, false
	}
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	return w.shard.runOf(w, name)
}

// runOf returns the run of a job of a name that is held under a watch.
func (sh *shard) runOf(w *watch, name []byte) (Run, bool) {
	if len(w.held) == 0 {
		return Run{}, false
	}
	job, ok := sh.heldBy(w, name)
	if !ok {
		return Run{}, false
	}
	r := sh.slab.at(job)
	return Run{Shard: sh.id, Space: r.space, Record: job, Number: w.held[r.heldIndex()].number}, true
}

// heldBy returns the job of a name that is held under a watch.
func (sh *shard) heldBy(w *watch, name []byte) (uint32, bool) {
	q := w.queue
	for spaces := q.spaces; spaces != 0; spaces &= spaces - 1 {
		space := Space(bits.TrailingZeros16(spaces))
		job, ok := sh.lookup(sh.s.nameHash(q.id, space, name), q, space, name)
		if !ok {
			continue
		}
		if r := sh.slab.at(job); r.state == reserved && sh.holder(r) == w {
			return job, true
		}
	}
	return 0, false
}

// Release gives back the job that the peer was last handed under tag. The job is ready again, and
// its awaits receive nothing. When a run under tag was revoked and is unreported, it is not known
// which of the two the peer gives back. The job is then ready for other peers, and this peer is not
// handed a job of its name before it has reported the run.
func (s *Scheduler) Release(now Time, p *Peer, tag uint64, sink Sink) error {
	var from, lost *watch
	newest := uint64(0)
	for _, w := range p.watches {
		number, unreported, held := w.shard.newest(w, tag)
		p.cost += 1 + held
		if number > newest {
			from, newest = w, number
		}
		if unreported {
			lost = w
		}
	}
	switch {
	case from != nil:
		return from.shard.releaseLast(now, from, newest, lost != nil, sink)
	case lost != nil:
		lost.shard.releaseRevoked(now, lost, tag, sink)
	}
	return ErrNotFound
}

// maxNewest is how many of the jobs that a peer holds of a queue Release scans, newest first: more
// than the peer may have asked for.
const maxNewest = MaxSlots

// newest returns the number of the newest run that a watch's peer holds under tag, 0 for none. unreported reports
// whether the watch has an unreported run under tag.
func (sh *shard) newest(w *watch, tag uint64) (number uint64, unreported bool, looked int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	last := w.held[max(len(w.held)-maxNewest, 0):]
	for _, h := range last {
		if h.tag == tag {
			number = max(number, h.number)
		}
	}
	for _, u := range w.unreported {
		unreported = unreported || u.tag == tag
	}
	looked = len(last) + len(w.unreported)
	sh.countSteps(looked)
	return number, unreported, looked
}

// releaseLast is Release for a watch. lost reports whether the peer has an unreported run under the tag too.
func (sh *shard) releaseLast(now Time, w *watch, number uint64, lost bool, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	last := max(len(w.held)-maxNewest, 0)
	i := slices.IndexFunc(w.held[last:], func(h held) bool { return h.number == number })
	if i < 0 { // its time was over meanwhile
		return ErrNotFound
	}
	job := w.held[last+i].job
	r := sh.slab.at(job)
	if lost {
		sh.noteRevoked(now, job, r)
	}
	sh.counters.Released++
	q := sh.unhold(job, r)
	sh.release(now, job, r, q, now.Wall, sink)
	sh.matchOrDefer(now, q, sink)
	sh.reconsider(now, w, sink)
	return nil
}

// releaseRevoked is Release for a revoked run.
func (sh *shard) releaseRevoked(now Time, w *watch, tag uint64, sink Sink) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	var oldest *unreported
	for _, u := range w.unreported {
		if u.tag == tag && (oldest == nil || u.graceEnd < oldest.graceEnd || u.graceEnd == oldest.graceEnd && u.name < oldest.name) {
			oldest = u
		}
	}
	if oldest != nil {
		sh.reported(now, oldest, sink)
	}
}
