package sched

// matchOrDefer hands ready jobs to waiting slots until it runs out of either, or has done a batch. It
// defers the rest to the Ticks.
func (sh *shard) matchOrDefer(now Time, q *queue, sink Sink) {
	if q.lineEmpty() {
		return
	}
	if sh.matchWithin(now, q, sh.s.batch, sink) <= 0 {
		sh.deferMatch(q)
	}
}

// matchUntil is matchOrDefer for a queue among many. It ends when the shard's steps reach stepLimit.
func (sh *shard) matchUntil(now Time, q *queue, stepLimit int, sink Sink) {
	if !q.matchDeferred && sh.matchWithin(now, q, stepLimit-sh.mu.steps, sink) <= 0 {
		sh.deferMatch(q)
	}
}

// deferMatch leaves the matches of a queue to the Ticks. Until then the queue may have both ready
// jobs and waiting slots.
func (sh *shard) deferMatch(q *queue) {
	if !q.matchDeferred {
		q.matchDeferred = true
		sh.deferredMatches = append(sh.deferredMatches, q)
		sh.s.alarmMono(0)
	}
}

// continueMatches does deferred matches of up to budget steps.
func (sh *shard) continueMatches(now Time, budget int, sink Sink) {
	for budget > 0 && len(sh.deferredMatches) > 0 {
		q := sh.deferredMatches[0]
		if budget = sh.matchWithin(now, q, budget, sink); budget > 0 || q.dropped {
			q.matchDeferred = false
			sh.deferredMatches.pop()
		}
	}
}

// matchWithin hands ready jobs to waiting slots until budget is used up. It returns the rest of budget, 0 when there
// may be more to match.
func (sh *shard) matchWithin(now Time, q *queue, budget int, sink Sink) int {
	for budget > 0 {
		cost := sh.matchOne(now, q, sink)
		if cost == 0 {
			return budget
		}
		budget -= cost
	}
	return 0
}

// matchOne does one match: it hands the first ready job to the oldest waiting slot, or sends this slot its Wake, or
// removes a watch without slots from the line. It returns the cost, 0 when there is nothing to do or the scheduler is
// halted.
func (sh *shard) matchOne(now Time, q *queue, sink Sink) int {
	if sh.halted || q.throttled() {
		return 0
	}
	if q.mixed() {
		return sh.matchMixed(now, q, sink)
	}
	job := sh.head(q)
	if job == none {
		return 0
	}
	w := q.oldest()
	if w == nil {
		return 0
	}
	return sh.pair(now, q, w, job, sink)
}

// pair hands a job to the watch in line that the job fits, unless the line has changed or the job has expired. It
// returns the cost.
func (sh *shard) pair(now Time, q *queue, w *watch, job uint32, sink Sink) int {
	r := sh.slab.at(job)
	if sh.expired(now, q, r) {
		return sh.endExpired(now, job, r, q, sink)
	}
	if q.broadcastWorkers > 0 && sh.s.rules[r.space].broadcastable() {
		return sh.startBroadcast(now, job, r, q, sink)
	}
	s, ok := q.takeSlotFor(w, int(r.size))
	if !ok {
		sh.countSteps(1)
		return 1
	}
	if s.wake {
		sh.deliverWake(w, s, sink)
		return 1
	}
	cost := r.cost()
	sh.take(job, r, q)
	sh.assign(now, job, r, q, w, s, sink)
	return cost
}

// deliverWake answers a Sleep.
func (sh *shard) deliverWake(w *watch, s slot, sink Sink) {
	sh.countSteps(1)
	sh.out = Delivery{To: w.peer.id, Tag: s.tag, Effect: Wake}
	sink.Deliver(&sh.out)
}

// allowsShortCut reports whether a job may be handed out without a place: by assignDirectly, which skips the ready
// index, or by reserve, which skips the line. Such a short cut is right when matchOne would only assign the job. So
// each condition rules out one other act of matchOne or pair. The callers see to the order: assignDirectly needs that
// no other job is ready, and reserve that no other slot is in line.
func (sh *shard) allowsShortCut(now Time, q *queue, r *record) bool {
	return !sh.halted && !q.throttled() && !q.mixed() && q.broadcastWorkers == 0 && !sh.expired(now, q, r)
}

// assignDirectly hands a detached job that is due to the oldest slot in line, without a place in the ready index. It
// returns false when the job needs a place: it belongs in another index or behind other jobs, or the line has changed.
func (sh *shard) assignDirectly(now Time, job uint32, r *record, q *queue, sink Sink) bool {
	const elsewhere = task | longName | private
	if q.lineEmpty() || q.ready.jobs+q.byNumber.jobs > 0 || q.keyed != nil || r.flags&elsewhere != 0 || !sh.allowsShortCut(now, q, r) {
		return false
	}
	w := q.oldest()
	s, ok := q.takeSlotFor(w, int(r.size))
	if ok && s.wake {
		sh.deliverWake(w, s, sink)
		return false
	}
	if ok {
		r.state, r.container = ready, q.id
		if w.peer.terms == nil { // otherwise the lease has saved the job
			sh.save(job, r, q)
		}
		sh.assign(now, job, r, q, w, s, sink)
	}
	return ok
}

// assign hands a detached job to a slot.
func (sh *shard) assign(now Time, job uint32, r *record, q *queue, w *watch, s slot, sink Sink) {
	sh.countSteps(r.cost())
	sh.observeWait(now, r)
	sh.hold(now, job, r, w, s)
	sh.addCount(r, atRuns)
	sh.counters.Assigned++
	if q.limiter != nil {
		sh.spendCredit(now, q.limiter)
	}
	if r.flags&task != 0 {
		sh.graph.logReserved(now, job)
	}
	sh.out.To, sh.out.Tag, sh.out.Effect, sh.out.Data = w.peer.id, s.tag, Assign, nil
	sh.view(job, r, q, &sh.out.Job)
	sh.out.Job.RunNumber = s.seq
	sh.out.History = sh.history(job, r)
	if r.flags&hooked != 0 {
		sh.s.jobHook(&sh.out.Job, Assign)
	}
	sink.Deliver(&sh.out)
}
