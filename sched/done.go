package sched

const (
	// maxKeptResult is the size of the largest result that is kept: 1 MiB. The job of a larger one is kept without it.
	maxKeptResult = 1 << 20
	// maxKeptNames bounds the names that a queue keeps for Policy.UniqueFor, of jobs that are not kept
	// otherwise: 150 MB beside the names themselves. The oldest are forgotten first.
	maxKeptNames = 1 << 20
)

// keepsEnded reports whether the policies for ended jobs hold for a space: it has no MaxFailures, and its jobs are not
// Owned and not tasks. A space with RetryRules can be plain.
func (r *Rules) keepsEnded() bool { return r.MaxFailures == 0 && !r.Owned && !r.Graph }

// useOf returns what a finished job with a result of size bytes is kept for.
func (p *Policy) useOf(o Outcome, size int) keptUse {
	switch {
	case o == attemptDone && size <= maxKeptResult && p.KeepResults != (Keep{}):
		return keptResult
	case p.KeepDone != (Keep{}):
		return keptDone
	case o == attemptDone && p.UniqueFor > 0:
		return keptName
	}
	return keptNothing
}

// hasOwnName reports whether a job's name may be submitted again. The name of a numbered job is its number, which is
// never submitted.
func (r *record) hasOwnName() bool { return r.flags&numbered == 0 }

// endByPolicy is end for a job whose queue has a policy, which may keep it.
func (sh *shard) endByPolicy(now Time, job uint32, r *record, q *queue, a Attempt, e Effect, data []byte, sink Sink) {
	use := q.policy.useOf(a.Outcome, len(data))
	if use == keptNothing || use == keptName && !r.hasOwnName() || !sh.s.rules[r.space].keepsEnded() {
		sh.end(job, r, q, e, data, sink)
		return
	}
	a.At = now.Wall
	sh.addAttempt(job, r, a)
	sh.retire(job, r, q, e, data, sink)
	r.due = now.Wall
	if use == keptResult && !sh.setResult(job, data) {
		use = keptDone
	}
	sh.indexEndedName(job, r, q, a.Outcome == attemptDone || sh.history(job, r) == nil)
	sh.strip(job, r, use)
	sh.keep(job, r, q, use)
	sh.save(job, r, q)
}

// nextUse returns what a finished job is kept for when the time of its present use has ended.
func (sh *shard) nextUse(now Time, job uint32, r *record, q *queue) keptUse {
	if q.policy == nil {
		return keptNothing
	}
	for use := r.use() - 1; use > keptNothing; use-- {
		keep := q.policy.keeps(use)
		if keep != (Keep{}) && (keep.Age == 0 || r.endedAt()+keep.Age > now.Wall) &&
			(use != keptName || r.hasOwnName() && sh.wasDone(job, r) && sh.isLastOfName(job, r, q)) {
			return use
		}
	}
	return keptNothing
}

// strip frees what a use does not need of a job.
func (sh *shard) strip(job uint32, r *record, use keptUse) {
	if use != keptResult {
		sh.dropResult(job)
	}
	if use != keptName {
		return
	}
	sh.dropHistory(job, r)
	name, workload := unpack(sh.arena.view(r.bytes, int(r.size)))
	if len(workload) == 0 {
		return
	}
	if bytes, dst, ok := sh.arena.alloc(packedLen(name, nil)); ok {
		pack(dst, name, nil)
		sh.freeBytes(r.bytes)
		r.bytes, r.size = bytes, uint32(len(dst))
	}
}

// setResult keeps a copy of a job's result. It returns false without memory for it.
func (sh *shard) setResult(job uint32, data []byte) bool {
	bytes, dst, ok := sh.arena.alloc(len(data))
	if !ok {
		return false
	}
	sh.countSteps(len(data) >> costShift)
	copy(dst, data)
	sh.results[job] = arenaRef{bytes, uint32(len(data))}
	return true
}

// result returns a view of a kept result, nil if the job has none.
func (sh *shard) result(job uint32) []byte {
	ref, ok := sh.results[job]
	if !ok {
		return nil
	}
	return sh.arena.view(ref.bytes, int(ref.size))
}

func (sh *shard) dropResult(job uint32) {
	ref, ok := sh.results[job]
	if !ok {
		return
	}
	sh.freeBytes(ref.bytes)
	if delete(sh.results, job); len(sh.results) == 0 {
		sh.results = make(map[uint32]arenaRef) // a map never shrinks: free the memory of its former entries
	}
}

// indexEndedName makes a detached job that has ended the last job of its name: of the done jobs, or of the failed and
// expired jobs.
func (sh *shard) indexEndedName(job uint32, r *record, q *queue, done bool) {
	name := sh.nameView(job)
	hash := sh.s.nameHash(q.id, r.space, name)
	if old, ok := sh.lookupEnded(hash, q, r.space, name, done); ok {
		if o := sh.slab.at(old); o.use() == keptName {
			sh.unkeep(old, o, q)
			sh.freeKept(old, o, q)
		} else {
			sh.endedNames.remove(hash, old)
		}
	}
	if sh.endedNames.dir == nil {
		sh.endedNames = newHashIndex()
	}
	sh.endedNames.insert(hash, job) // without room the name is forgotten
}

// unindexEndedName forgets that a kept job is the last job of its name. Older jobs of the name are not found by it
// then.
func (sh *shard) unindexEndedName(job uint32, r *record, q *queue) {
	if !sh.isLastOfName(job, r, q) {
		return
	}
	sh.endedNames.remove(sh.s.nameHash(q.id, r.space, sh.nameView(job)), job)
	if sh.endedNames.count == 0 {
		sh.endedNames = hashIndex{}
	}
}

// isLastOfName reports whether a kept job is the last job of its name.
func (sh *shard) isLastOfName(job uint32, r *record, q *queue) bool {
	name := sh.nameView(job)
	last, ok := sh.lookupEnded(sh.s.nameHash(q.id, r.space, name), q, r.space, name, sh.wasDone(job, r))
	return ok && last == job
}

// wasDone reports whether a kept job is done: it has neither failed nor expired.
func (sh *shard) wasDone(job uint32, r *record) bool {
	return r.state == finished && (r.use() != keptDone || !endsExpired(sh.history(job, r)))
}

// lookupEnded finds the last kept job of a name: of the done jobs, or of the failed and expired jobs.
func (sh *shard) lookupEnded(hash uint32, q *queue, space Space, name []byte, done bool) (uint32, bool) {
	if sh.endedNames.count == 0 {
		return none, false
	}
	job, ok := sh.endedNames.find(hash, func(job uint32) bool {
		r := sh.slab.at(job)
		return r.space == space && r.container == q.id && string(sh.nameView(job)) == string(name) && sh.wasDone(job, r) == done
	})
	if !ok {
		return none, false
	}
	return job, true
}

// lastEnded finds the last kept job of a name, among the done and the failed jobs that a Listing has.
func (sh *shard) lastEnded(hash uint32, q *queue, space Space, name []byte) (last uint32, ok bool) {
	var ended sortKey
	for _, done := range [...]bool{true, false} {
		job, found := sh.lookupEnded(hash, q, space, name, done)
		if !found || !sh.slab.at(job).listed() {
			continue
		}
		if k := keptKey(sh.slab.at(job)); !ok || ended.less(k) {
			last, ended, ok = job, k, true
		}
	}
	return last, ok
}

// ignoreDone answers a submission of a name that was done within UniqueFor: the job is not queued. An await of the
// submission gets the kept result, or an empty one. ignoreDone returns false if the name was not done within UniqueFor.
// After the clock was set back, a job may have been done later than now: it counts as too old.
func (sh *shard) ignoreDone(now Time, hash uint32, q *queue, j *Submission, sink Sink) bool {
	if !sh.s.rules[j.Space].keepsEnded() {
		return false
	}
	job, ok := sh.lookupEnded(hash, q, j.Space, j.Name, true)
	if !ok {
		return false
	}
	if age := now.Wall - sh.slab.at(job).endedAt(); max(age, -age) >= q.policy.UniqueFor {
		return false
	}
	sh.counters.Ignored++
	if j.Await != nil {
		data := sh.result(job)
		sh.countSteps(1 + len(data)>>costShift)
		sh.out = Delivery{To: j.Await.id, Tag: j.Tag, Effect: Result, Data: data}
		sink.Deliver(&sh.out)
		sh.out.Data = nil
	}
	return true
}

// restoreUse gives a finished job of the journal its result, and returns what it was kept for.
func (sh *shard) restoreUse(job uint32, j *Saved) keptUse {
	switch {
	case j.Result != nil && sh.setResult(job, j.Result):
		return keptResult
	case len(j.History) > 0:
		return keptDone
	}
	return keptName
}

// endsExpired reports whether a history is one of a job that has expired.
func endsExpired(history []byte) bool {
	_, all := ParseHistory(history)
	return len(all) > 0 && all[len(all)-1].Outcome == attemptExpired
}
