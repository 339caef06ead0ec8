package sched

import "slices"

// Release gives back a job that has not failed, due ms milliseconds from now. The job's awaits receive nothing. A job
// of Rules.Numbered takes the priority.
func (s *Scheduler) Release(now Time, p *Peer, run Run, priority, ms int64, sink Sink) error {
	sh, r, err := s.lockReported(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	ms = min(max(ms, 0), longestDelay)
	w := sh.holdingWatch(r)
	q := sh.unhold(run.Record, r)
	if r.flags&numbered != 0 {
		r.priority = priority
		sh.addCount(r, atReleased)
		c := sh.countsOf(r)
		c.Delay = uint32(ms / 1000)
		sh.setCounts(r, &c)
	}
	sh.release(now, run.Record, r, q, now.Wall+ms, sink)
	sh.matchOrDefer(now, q, sink)
	sh.serveNamedAgain(now, w, sink)
	return nil
}

// Bury gives back a job that is not to be tried again until it is retried by hand, or kicked. The job has failed,
// whatever the policy of its queue says of retries. A job of Rules.Numbered takes the priority. Jobs whose space has a
// rule for failures (Rules.MaxFailures, Owned, Graph) fail as by Fail.
func (s *Scheduler) Bury(now Time, p *Peer, run Run, priority int64, sink Sink) error {
	sh, r, err := s.lockReported(now, p, run)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	a := Attempt{At: now.Wall, Outcome: attemptBuried, Worker: p.origin}
	if !sh.s.rules[r.space].keepsEnded() {
		a.Outcome = attemptFailed
		sh.failRun(now, run.Record, r, a, defaultDelay, sink)
		return nil
	}
	use := keptFailed
	if r.flags&numbered != 0 {
		use, r.priority = keptBuried, priority
		sh.addCount(r, atBuried)
	}
	sh.counters.RunsFailed++
	sh.counters.GivenUp++
	w := sh.holdingWatch(r)
	q := sh.unhold(run.Record, r)
	q.tally.Ended[EndFailed]++
	sh.addAttempt(run.Record, r, a)
	sh.keepFailed(now, run.Record, r, q, use, sink)
	sh.serveNamedAgain(now, w, sink)
	return nil
}

// Touch starts the time-out of a job that the peer holds anew.
func (s *Scheduler) Touch(now Time, p *Peer, run Run) error {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return s.countStale(err)
	}
	defer sh.mu.Unlock()
	r, err := sh.findHeld(p, run)
	switch {
	case err != nil:
		sh.counters.Stale++
		return err
	case r.flags&untimed != 0:
		return nil
	case r.flags&ownDeadline != 0:
		sh.ownTimed.remove(&sh.buckets, &sh.slab, run.Record)
	default:
		sh.defaultTimed.remove(&sh.buckets, &sh.slab, run.Record)
	}
	sh.startTimeout(now, run.Record, r, p)
	return nil
}

// ReleaseNewest gives back the job that the peer was last handed under tag. The job is ready again, and its awaits
// receive nothing. When a run under tag was revoked and is unreported, the peer may mean either run. The job is then
// ready for other peers, and this peer is not handed a job of the same name before it has reported the revoked run.
func (s *Scheduler) ReleaseNewest(now Time, p *Peer, tag uint64, sink Sink) error {
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

// maxNewest bounds the held jobs of a queue that Release scans, newest first. It is no less than the number of jobs
// that the peer may have asked for.
const maxNewest = MaxSlots

// newest returns the number of the newest run that a watch's peer holds under tag, or 0. unreported reports whether the
// watch has an unreported run under tag.
func (sh *shard) newest(w *watch, tag uint64) (number uint64, unreported bool, looked int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	last := w.held[max(len(w.held)-maxNewest, 0):]
	for _, h := range last {
		if h.tag == tag {
			number = max(number, h.number)
		}
	}
	for _, u := range w.unreportedByHash {
		unreported = unreported || u.tag == tag
	}
	looked = len(last) + len(w.unreportedByHash)
	sh.countSteps(looked)
	return number, unreported, looked
}

// releaseLast is ReleaseNewest for a watch. lost reports whether the peer has an unreported run under the same tag too.
func (sh *shard) releaseLast(now Time, w *watch, number uint64, lost bool, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	last := max(len(w.held)-maxNewest, 0)
	i := slices.IndexFunc(w.held[last:], func(h held) bool { return h.number == number })
	if i < 0 { // its time-out has passed meanwhile
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
	sh.serveNamedAgain(now, w, sink)
	return nil
}

// releaseRevoked is ReleaseNewest for a revoked run.
func (sh *shard) releaseRevoked(now Time, w *watch, tag uint64, sink Sink) {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	var oldest *unreportedName
	for _, u := range w.unreportedByHash {
		if u.tag == tag && (oldest == nil || u.graceEnd < oldest.graceEnd || u.graceEnd == oldest.graceEnd && u.name < oldest.name) {
			oldest = u
		}
	}
	if oldest != nil {
		sh.reported(now, oldest, sink)
	}
}
