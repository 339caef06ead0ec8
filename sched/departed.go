package sched

import (
	"cmp"
	"strings"
	"sync"
)

// A peer that leaves may have very many awaits, topics, watches and jobs. Its reserves end at once. The Ticks reap the
// rest, a part at a time, in this order: awaits and topics, watches, jobs. Until a job is reaped it stays reserved. If
// the server stops before that, the job is ready after the restart; for the tasks of a holder the journal has a record
// of the exit. A departure that takes no more than one part is reaped at once, without a Tick.

// departed is a peer that has left, and what is still to be reaped of it.
type departed struct {
	peer             *Peer
	awaits           map[JobRef]int
	refs             sorter[JobRef] // the awaits in order
	topics           map[topic]bool
	endedWatches     int                // number of its watches that have ended
	abandonedWatches int                // number of its watches whose jobs are abandoned
	notYetSorted     int                // number of jobs of the next watch that are not in toAbandon yet
	toAbandon        *sorter[abandoned] // the jobs of the next watch in their order; nil: not begun
}

// abandoned is a job that a departed peer holds, with its place in the order of release.
type abandoned struct {
	held
	last bool // released after the tasks and the jobs with MaxFailures
	name string
}

// departures are the peers that are not reaped yet. They take turns: a peer with more than one part goes to the back
// after each.
type departures struct {
	mu   sync.Mutex
	line []*departed

	reaping sync.Mutex // held by the one Tick that reaps; it is locked before a shard, see the order in doc.go
}

// Disconnect ends a peer. Its reserves and awaits are dropped and the jobs that it holds become ready; the Ticks do
// what exceeds a batch. No verb takes the peer any more. The tasks of a holder of NewHolderPeer go first in line, in
// the order of their names. Until the Ticks have released all of them, the tasks in line have smaller names than the
// tasks that are still held.
func (s *Scheduler) Disconnect(now Time, p *Peer, sink Sink) { s.depart(now, p, sink) }

// depart ends a peer's reserves and begins to reap the peer.
func (s *Scheduler) depart(now Time, p *Peer, sink Sink) {
	d := &departed{peer: p, refs: sorter[JobRef]{compare: compareRefs}}
	p.mu.Lock()
	p.slots = slotLine{}
	d.awaits, p.awaits = p.awaits, nil
	d.topics, p.topics = p.topics, nil
	stalled := p.stalled
	p.stalled = nil
	p.refundAll()
	p.mu.Unlock()
	proceed(stalled, sink)
	if s.reapPart(now, d, s.batch, sink) > 0 {
		return
	}
	s.departures.mu.Lock()
	s.departures.line = append(s.departures.line, d)
	s.departures.mu.Unlock()
	s.alarmMono(0)
}

func compareRefs(a, b JobRef) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Seq, b.Seq))
}

// isDeparted reports whether a peer is departed.
func (p *Peer) isDeparted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quota == nil
}

// reapParts is how many parts one Tick reaps, so that due jobs do not wait for them.
const reapParts = 16

// reap does parts of the departed peers in turn. more reports whether some are left.
func (s *Scheduler) reap(now Time, sink Sink) (more bool) {
	s.departures.reaping.Lock()
	defer s.departures.reaping.Unlock()
	for range reapParts {
		s.departures.mu.Lock()
		all := s.departures.line
		if len(all) == 0 {
			s.departures.mu.Unlock()
			return false
		}
		d := all[0]
		all[0] = nil
		s.departures.line = all[1:]
		s.departures.mu.Unlock()
		done := s.reapPart(now, d, s.batch, sink) > 0
		s.departures.mu.Lock()
		if !done {
			s.departures.line = append(s.departures.line, d)
		} else if len(s.departures.line) == 0 {
			s.departures.line = nil
		}
		s.departures.mu.Unlock()
	}
	return true
}

// reapPart does budget steps for a departed peer. It returns the rest of budget, which is more than 0
// when the peer is reaped.
func (s *Scheduler) reapPart(now Time, d *departed, budget int, sink Sink) int {
	p := d.peer
	for ref := range d.awaits {
		if budget--; budget < 0 {
			return 0
		}
		d.refs.add(ref)
		delete(d.awaits, ref)
	}
	d.awaits = nil
	for ref, ok := d.refs.take(); ok; ref, ok = d.refs.take() {
		if budget -= s.shards[ref.Shard].forgetAwait(now, p, ref, sink); budget <= 0 {
			return 0
		}
	}
	for t := range d.topics {
		delete(d.topics, t)
		if budget -= s.shardOf([]byte(t.queue)).forgetTopic(p, t); budget <= 0 {
			return 0
		}
	}
	for ; budget > 0 && d.endedWatches < len(p.watches); d.endedWatches++ {
		w := p.watches[d.endedWatches]
		if budget = w.shard.departWatch(w, budget); budget < 0 {
			return 0
		}
	}
	for ; budget > 0 && d.abandonedWatches < len(p.watches); d.abandonedWatches++ {
		w := p.watches[d.abandonedWatches]
		if budget = w.shard.abandonJobs(now, d, w, budget, sink); budget < 0 {
			return 0
		}
	}
	if d.abandonedWatches < len(p.watches) {
		return 0
	}
	p.watches, p.byQueue = nil, nil
	return max(budget, 1)
}

// departWatch ends a watch of a departed peer and removes up to budget unreported names of it. It returns
// the rest of budget, less than 0 when there is more to do.
func (sh *shard) departWatch(w *watch, budget int) (left int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	w.departed = true
	sh.countSteps(1)
	if !w.ended {
		sh.endWatch(w)
	}
	for ; w.unreportedCount() > 0; budget-- {
		if budget == 0 {
			return -1
		}
		sh.countSteps(1)
		sh.removeUnreported(w.anyUnreported())
	}
	return budget - 1
}

// abandonJobs ends the runs of a queue's jobs that a departed peer holds, after it has sorted them. It
// returns the rest of budget, less than 0 when there is more to do.
func (sh *shard) abandonJobs(now Time, d *departed, w *watch, budget int, sink Sink) int {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	if d.toAbandon == nil {
		d.toAbandon, d.notYetSorted = &sorter[abandoned]{compare: abandoned.compare}, len(w.held)
	}
	// The loop goes backward: the last job replaces a job that leaves, so none is missed. A job that is
	// added twice is released once.
	for d.notYetSorted = min(d.notYetSorted, len(w.held)); d.notYetSorted > 0; {
		if budget == 0 {
			sh.graph.saveExit(w)
			return -1
		}
		budget--
		d.notYetSorted--
		d.toAbandon.add(sh.heldAt(w, d.notYetSorted))
		sh.countSteps(1)
	}
	for budget > 0 {
		h, ok := d.toAbandon.take()
		if !ok {
			d.toAbandon = nil
			break
		}
		budget -= sh.abandonOne(now, w, h.job, h.number, sink)
	}
	sh.matchOrDefer(now, w.queue, sink)
	if d.toAbandon != nil {
		sh.graph.saveExit(w)
		return -1
	}
	sh.graph.endExit(exit{w.queue, w.peer.name})
	return budget
}

// heldAt returns the job at an index of a watch's held jobs.
func (sh *shard) heldAt(w *watch, i int) abandoned {
	h := abandoned{held: w.held[i]}
	r := sh.slab.at(h.job)
	h.last = r.flags&task == 0 && (sh.s.rules[r.space].MaxFailures == 0 || w.peer.request)
	if w.peer.unconnected { // its tasks go first in line in the order of their names
		h.name = string(sh.nameView(h.job))
	}
	return h
}

// compare orders jobs so that they keep their order when they are released. Tasks and jobs with
// MaxFailures go ahead of their equals, so the last of them is released first. The other jobs go behind
// their equals, in the order in which they were handed out.
func (h abandoned) compare(o abandoned) int {
	switch {
	case h.name != o.name:
		return strings.Compare(h.name, o.name)
	case h.last != o.last:
		return oneIf(h.last) - oneIf(o.last)
	case h.last:
		return cmp.Compare(h.number, o.number)
	}
	return cmp.Compare(o.number, h.number)
}

// abandonOne ends the run of a job if it is still held by it. It returns the steps that it took.
func (sh *shard) abandonOne(now Time, w *watch, job uint32, number uint64, sink Sink) int {
	r := sh.slab.find(job)
	if r == nil || r.state != reserved || sh.holdingWatch(r) != w || w.held[r.heldIndex()].number != number {
		return 1
	}
	sh.counters.Abandoned++
	done, began := 1-len(sh.freedLocks), sh.mu.steps
	q := sh.unhold(job, r)
	if w.peer.request {
		sh.release(now, job, r, q, now.Wall, sink)
	} else {
		sh.fail(now, job, r, q, Attempt{Outcome: attemptLeft, Worker: w.peer.origin}, defaultDelay, sink)
	}
	return max(done+len(sh.freedLocks), sh.mu.steps-began) // the end of a job may answer many awaits
}

// forgetAwait ends a departed peer's awaits of a job. It returns the steps that it took.
func (sh *shard) forgetAwait(now Time, p *Peer, ref JobRef, sink Sink) int {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	r := sh.slab.find(ref.Record)
	if r == nil || r.state == free || r.seq != ref.Seq {
		return 1
	}
	done := 1 + len(sh.awaits[ref.Record])
	sh.countSteps(done)
	sh.keepAwaits(ref.Record, r, func(a await) bool { return a.peer != p })
	switch {
	case !sh.s.rules[r.space].Owned:
	case r.state == reserved:
		r.flags |= orphan
	default:
		q := sh.queueOf(r)
		sh.detach(ref.Record, r, q)
		sh.endRemoved(ref.Record, r, q, Removed, sink)
	}
	return done
}

// reapNow ends a departed peer's awaits of the job of this queue and name, ahead of the peer's turn: a peer that comes
// back and submits its jobs again must find their names free. It returns false when no departed peer awaits such a job.
func (s *Scheduler) reapNow(now Time, j *Submission, sink Sink) bool {
	ref, owner := s.shardOf(j.Queue).awaiter(j)
	if owner == nil || !owner.isDeparted() {
		return false
	}
	s.shards[ref.Shard].forgetAwait(now, owner, ref, sink)
	return true
}

// awaiter returns the job that has the name of a submission, and the first peer that awaits this job or nil.
func (sh *shard) awaiter(j *Submission) (JobRef, *Peer) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(j.Queue)]
	if q == nil {
		return JobRef{}, nil
	}
	job, ok := sh.lookup(sh.s.nameHash(q.id, j.Space, j.Name), q, j.Space, j.Name)
	if !ok || len(sh.awaits[job]) == 0 {
		return JobRef{}, nil
	}
	return sh.ref(job, sh.slab.at(job)), sh.awaits[job][0].peer
}
