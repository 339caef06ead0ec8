package sched

// activeBroadcast is a broadcast that is under way. Its job stands in no index and counts as
// running. It goes to the slots that existed when the broadcast began, oldest first. No other job
// of the queue is matched meanwhile.
type activeBroadcast struct {
	job  uint32
	last uint64   // sequence of the youngest slot that receives it
	sent bool     // a peer has received it
	busy []*watch // watches of NameOnly peers that hold a job of its name; out of line meanwhile
}

// startBroadcast sends a ready job to every slot in line, also to sleeping peers. If a slot
// received the job, the job then ends. The Ticks do what exceeds a batch. startBroadcast returns
// the cost, 0 when nothing has changed.
func (sh *shard) startBroadcast(now Time, job uint32, r *record, q *queue, sink Sink) int {
	b := &activeBroadcast{job: job, last: sh.s.lastSlotSeq.Load()}
	sh.take(job, r, q)
	r.state, r.container = broadcasting, q.id
	q.broadcast = b
	q.running++
	left, done := sh.sendBroadcast(now, q, sh.s.batch, sink)
	switch {
	case done && sh.endBroadcast(q, sink):
		return sh.s.batch - left
	case done:
		return 0
	}
	sh.broadcasting = append(sh.broadcasting, q)
	sh.s.alarmMono(0)
	return sh.s.batch
}

// sendBroadcast sends the broadcasting job to as many slots as budget allows. done reports whether no slot
// is left or the scheduler is halted.
func (sh *shard) sendBroadcast(now Time, q *queue, budget int, sink Sink) (left int, done bool) {
	b := q.broadcast
	if sh.halted {
		return budget - 1, true
	}
	r := sh.slab.at(b.job)
	sh.out = Delivery{Effect: Broadcast}
	sh.view(b.job, r, q, &sh.out.Job)
	sh.out.Job.Running = false
	for w := q.oldest(); w != nil && w.seq <= b.last; w = q.oldest() {
		if budget <= 0 {
			return 0, false
		}
		budget--
		sh.countSteps(1)
		if w.peer.class == nameOnly && q.clashing() {
			if _, held := sh.heldBy(w, sh.out.Job.Name); held {
				q.lines[nameOnly].Remove(w)
				b.busy = append(b.busy, w)
				continue
			}
		}
		s, ok := q.takeSlotFor(w, int(r.size))
		if !ok {
			continue
		}
		budget -= r.cost()
		sh.countSteps(r.cost())
		sh.out.To, sh.out.Tag, sh.out.Effect = w.peer.id, s.tag, Broadcast
		if s.wake {
			sh.out.Effect = WakeWith
		}
		sink.Deliver(&sh.out)
		if !b.sent {
			b.sent = true
			sh.counters.Broadcast++
			if q.limiter != nil { // a broadcast that reaches no peer is no start
				sh.spendCredit(now, q.limiter)
			}
		}
		if w.peer.class == nameOnly { // it may report the name after the broadcast
			sh.addUnreported(w, sh.out.Job.Name, s.tag, sh.graceEnd(now, r))
		}
	}
	return budget, true
}

// endBroadcast ends a broadcast. A job that no peer has received becomes ready again, or withheld
// when all peers in line hold a job of its name. It reports whether the queue has changed.
func (sh *shard) endBroadcast(q *queue, sink Sink) (changed bool) {
	b := q.broadcast
	r := sh.slab.at(b.job)
	sh.stopBroadcast(q)
	switch {
	case b.sent:
		q.tally.Ended[EndDone]++
		sh.end(b.job, r, q, Result, nil, sink)
		return true
	case len(b.busy) > 0:
		r.flags |= withheld
	}
	r.state = ready
	q.immediate += oneIf(r.flags&immediate != 0)
	sh.pushReady(b.job, r, q, front)
	return len(b.busy) > 0
}

// stopBroadcast detaches the broadcasting job.
func (sh *shard) stopBroadcast(q *queue) {
	for _, w := range q.broadcast.busy {
		if !w.ended {
			sh.enterLine(w)
		}
	}
	r := sh.slab.at(q.broadcast.job)
	q.broadcast = nil
	q.running--
	if r.flags&laned != 0 {
		r.flags &^= laned
		sh.removeTaken(q, r.laneID())
	}
}

// continueBroadcasts does up to budget steps of the broadcasts. When the scheduler is halted, it ends
// them: a job that a peer has received is done, any other is ready again.
func (sh *shard) continueBroadcasts(now Time, budget int, sink Sink) {
	for budget > 0 && len(sh.broadcasting) > 0 {
		q := sh.broadcasting[0]
		done := q.broadcast == nil // its job was removed
		if !done {
			if budget, done = sh.sendBroadcast(now, q, budget, sink); done {
				sh.endBroadcast(q, sink)
				sh.deferMatch(q)
			}
		}
		if done {
			sh.broadcasting.pop()
		}
	}
}
