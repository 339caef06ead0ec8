package sched

import (
	"cmp"
	"math"
)

// unnamed is the name of a holder that has no session and has given no name. Views show the name of such a holder,
// since it has no session id.
const unnamed = "unnamed"

// NewRequestPeer returns a peer for one request of a worker without a connection, which leases jobs. origin names it in
// views. Requests may share an id: the tags of their Reserves tell them apart. A request takes names of any length and
// knows no back-pressure. The caller calls Watch for each queue. It ends the request with Disconnect, which releases
// the jobs that were not granted, also a job that is on its way to the request. Such a release counts no failure. If
// the request watches several queues and its Reserve waits, the caller calls Flushed with 0 until Flushed returns
// false.
func (s *Scheduler) NewRequestPeer(id SessionID, origin string) *Peer {
	p := s.NewPeer(id, LongNames)
	p.request, p.origin, p.window = true, cmp.Or(origin, unnamed), math.MaxInt
	return p
}

// TryReserveUpTo asks for the first n jobs, at most MaxRequestJobs, that are ready now in the queues that the peer
// watches. got is the number of jobs that it gets. Each of them is an Assign, or a Broadcast, with tag, and may be
// delivered a moment after the return. more reports whether the call has taken all the steps that one call may take, so
// further jobs may be ready. The peer must have no other slots.
func (s *Scheduler) TryReserveUpTo(now Time, p *Peer, tag uint64, n int, sink Sink) (got int, more bool, err error) {
	n = min(n, MaxRequestJobs)
	p.mu.Lock()
	for range n {
		if !p.charge(slotCost) {
			err = errQuota
			break
		}
		p.slots.push(slot{tag: tag, seq: s.lastSlotSeq.Add(1)})
	}
	n = p.slots.len()
	p.mu.Unlock()
	if n > 0 {
		s.serve(now, p, sink)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.slots.len()
	p.refund(left * slotCost)
	p.slots = slotLine{}
	more, p.behind = p.behind, false
	if n > left {
		err = nil
	}
	return n - left, more, err
}

// Grant leases jobs that the peer holds: from now on a token proves the hold on a job, and the peer does not hold it.
// The lease replaces the job's time-out. The lease of a durable job is journaled: the caller passes no token on before
// the record is committed. The tokens are in the order of the runs, and all have the Secret of t. The token of a run
// that has ended is zero.
func (s *Scheduler) Grant(now Time, p *Peer, runs []Run, t LeaseTerms) []Token {
	t.Worker = cmp.Or(t.Worker, p.origin, unnamed)
	t.Worker = t.Worker[:min(len(t.Worker), MaxWorkerName)]
	t.For = clampLease(t.For)
	tokens := make([]Token, len(runs))
	for i := 0; i < len(runs); {
		sh, err := s.lockShard(runs[i].Shard)
		if err != nil {
			i++
			continue
		}
		for stepLimit := sh.mu.steps + s.batch; i < len(runs) && runs[i].Shard == sh.id && sh.mu.steps < stepLimit; i++ {
			tokens[i] = sh.grant(now, p, runs[i], &t)
		}
		sh.mu.Unlock()
	}
	return tokens
}

// LeaseTo has each job of the peer leased from its hand-out on, as by Grant. All leases have the Secret of t. A lease
// is as long as the job's own time-out, since that is a rule of the job. Without one it is as long as the scheduler's
// default, and without that t.For. The caller calls LeaseTo before any other verb.
func (p *Peer) LeaseTo(t LeaseTerms) {
	t.Worker = cmp.Or(t.Worker, unnamed)
	t.Worker = t.Worker[:min(len(t.Worker), MaxWorkerName)]
	t.For = clampLease(t.For)
	p.terms = &t
}

// holdLeased is hold for a peer of LeaseTo. It returns false when the number of the run is taken.
func (sh *shard) holdLeased(now Time, r *record, q *queue, h held, t *LeaseTerms) bool {
	length := t.For
	switch d := sh.s.timeout.Load(); {
	case sh.s.rules[r.space].Untimed:
	case r.timeout > 0:
		length = int64(r.timeout) * 1000
	case d > 0:
		length = d
	}
	l := &lease{number: h.number, worker: t.Worker, secret: t.Secret, shard: sh.id, record: h.job, length: clampLease(length)}
	if !sh.s.leases.add(h.number, l) {
		return false
	}
	q.running++
	r.flags &^= ownDeadline | untimed | laned
	sh.startLease(now, h.job, r, q, h, l, l.length)
	if r.flags&task == 0 { // the journal has no leases of tasks
		sh.save(h.job, r, q)
	}
	return true
}

func clampLease(ms int64) int64 { return min(max(ms, 1), MaxLease) }

// grant is Grant for one run.
func (sh *shard) grant(now Time, p *Peer, run Run, t *LeaseTerms) Token {
	sh.countSteps(1)
	r, err := sh.findHeld(p, run)
	if err != nil || sh.holdingWatch(r).leased() {
		return Token{}
	}
	l := &lease{number: run.Number, worker: t.Worker, secret: t.Secret, shard: sh.id, record: run.Record, length: t.For}
	if !sh.s.leases.add(run.Number, l) {
		return Token{}
	}
	from := sh.holdingWatch(r)
	h := sh.removeHeld(run.Record, r, from)
	sh.startLease(now, run.Record, r, from.queue, h, l, t.For)
	sh.freeIfRemovable(from)
	sh.countSteps(r.cost())
	if r.flags&task == 0 { // the journal has no leases of tasks
		sh.save(run.Record, r, sh.queueOf(r))
	}
	return Token{run.Number, t.Secret}
}

// lockLeased locks the shard of the leased job of a token.
func (s *Scheduler) lockLeased(t Token) (*shard, *record, *lease, error) {
	l, err := s.leases.find(t)
	if err != nil {
		return nil, nil, nil, s.countStale(err)
	}
	sh := &s.shards[l.shard]
	sh.mu.Lock()
	r := sh.slab.find(l.record)
	if r != nil && r.state == reserved && sh.holdingWatch(r).leased() && sh.holdingWatch(r).held[r.heldIndex()].number == t.Number {
		return sh, r, l, nil
	}
	sh.counters.Stale++
	sh.mu.Unlock()
	if _, err = s.leases.find(t); err == nil {
		panic("BUG: a lease without its job")
	}
	return nil, nil, nil, err
}

// FinishLeased is Finish for a leased job.
func (s *Scheduler) FinishLeased(now Time, t Token, data []byte, sink Sink) error {
	sh, r, l, err := s.lockLeased(t)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	l.end = leaseDone
	sh.finish(now, l.record, r, l.worker, data, sink)
	return nil
}

// FailLeased is Fail for a leased job. A delay of 0 or more, in milliseconds, replaces the back-off of the queue's
// policy. A delay of less than 0 leaves it to the policy. A task, or a job of Rules.MaxFailures, goes ahead of others
// unless the delay is more than 0.
func (s *Scheduler) FailLeased(now Time, t Token, text []byte, delay int64, sink Sink) error {
	sh, r, l, err := s.lockLeased(t)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	l.end = leaseDone
	sh.observeRun(now, r)
	sh.counters.Released++
	a := Attempt{Outcome: attemptFailed, Worker: l.worker, Text: sh.errorText(r, text)}
	sh.failRun(now, l.record, r, a, min(delay, longestDelay), sink)
	return nil
}

// ReleaseLeased gives back a leased job unstarted: it is ready again, and no failure is counted.
func (s *Scheduler) ReleaseLeased(now Time, t Token, sink Sink) error {
	sh, r, l, err := s.lockLeased(t)
	if err != nil {
		return err
	}
	defer sh.unlock(now, sink)
	l.end = leaseDone
	sh.counters.Released++
	q := sh.unhold(l.record, r)
	sh.release(now, l.record, r, q, now.Wall, sink)
	sh.matchOrDefer(now, q, sink)
	return nil
}

// ExtendLease makes a lease end ms milliseconds from now, clamped as LeaseTerms.For is. It may become shorter. It
// returns the end, by the wall clock.
func (s *Scheduler) ExtendLease(now Time, t Token, ms int64) (until int64, err error) {
	sh, r, l, err := s.lockLeased(t)
	if err != nil {
		return 0, err
	}
	defer sh.mu.Unlock()
	l.length = clampLease(ms)
	sh.ownTimed.remove(&sh.buckets, &sh.slab, l.record)
	sh.setExpiry(now, l.record, r, l, l.length)
	if r.flags&task == 0 {
		sh.save(l.record, r, sh.queueOf(r))
	}
	return l.until, nil
}

// PublishLeased is Publish for a leased job. The publisher receives no Proceed: wait asks it to publish less often.
func (s *Scheduler) PublishLeased(t Token, data []byte, sink Sink) (wait bool, err error) {
	sh, r, _, err := s.lockLeased(t)
	if err != nil {
		return false, err
	}
	defer sh.mu.Unlock()
	wait, _ = sh.publish(r, data, nil, sink)
	return wait, nil
}

// ViewLeased calls fn with a leased job, under the shard's lock, its worker and the end of its lease by the wall
// clock.
func (s *Scheduler) ViewLeased(t Token, fn func(j *Job, worker string, until int64)) error {
	sh, r, l, err := s.lockLeased(t)
	if err != nil {
		return err
	}
	defer sh.mu.Unlock()
	sh.view(l.record, r, sh.queueOf(r), &sh.out.Job)
	fn(&sh.out.Job, l.worker, l.until)
	return nil
}
