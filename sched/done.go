package sched

const (
	// maxKeptResult is the size of the largest result that is kept: 1 MiB. The job of a larger one is kept without it.
	maxKeptResult = 1 << 20
	// maxRememberedNames bounds the names that a queue remembers for Policy.UniqueFor, of jobs that are not kept otherwise:
	// 150 MB beside the names themselves. The oldest are forgotten first.
	maxRememberedNames = 1 << 20
)

// plain says that the policies for ended jobs hold for a space: its jobs have no rule for failures, and no owner who
// keeps track of them.
func (r *Rules) plain() bool { return r.Deaths == 0 && !r.Owned && !r.Graph }

// useOf returns what a finished job is kept for, whose result has so many bytes.
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

// endUnder is end for a job whose queue has a policy, which may keep it.
func (sh *shard) endUnder(now Time, job uint32, r *record, q *queue, a Attempt, e Effect, data []byte, sink Sink) {
	use := q.policy.useOf(a.Outcome, len(data))
	if use == keptNothing || !sh.s.rules[r.space].plain() {
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
	if a.Outcome == attemptDone {
		sh.remember(job, r, q)
	}
	sh.strip(job, r, use)
	sh.keep(job, r, q, use)
	sh.save(job, r, q)
}

// lesserUse returns what a finished job is still kept for when it is not for its present use.
func (sh *shard) lesserUse(now Time, job uint32, r *record, q *queue) keptUse {
	if q.policy == nil {
		return keptNothing
	}
	for use := r.use() - 1; use > keptNothing; use-- {
		keep := q.policy.keepFor(use)
		if keep != (Keep{}) && (keep.Age == 0 || r.due+keep.Age > now.Wall) && (use != keptName || sh.remembers(job, r, q)) {
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
	if bytes, room, ok := sh.arena.alloc(packedLen(name, nil)); ok {
		pack(room, name, nil)
		sh.freeBytes(r.bytes)
		r.bytes, r.size = bytes, uint32(len(room))
	}
}

// setResult keeps a copy of a job's result. It returns false without memory for it.
func (sh *shard) setResult(job uint32, data []byte) bool {
	bytes, room, ok := sh.arena.alloc(len(data))
	if !ok {
		return false
	}
	sh.countSteps(len(data) >> costShift)
	copy(room, data)
	sh.results[job] = arenaRef{bytes, uint32(len(data))}
	return true
}

// result returns a view of a kept result, nil when there is none.
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
		sh.results = make(map[uint32]arenaRef) // a map keeps the room of all that it ever had
	}
}

// remember makes a done job, which stands nowhere yet, the last one of its name.
func (sh *shard) remember(job uint32, r *record, q *queue) {
	name := sh.nameView(job)
	tag := sh.s.tag(q.id, r.space, name)
	if old, ok := sh.lookupDone(tag, q, r.space, name); ok {
		if o := sh.slab.at(old); o.use() == keptName {
			sh.unkeep(old, o, q)
			sh.forgetKept(old, o, q)
		} else {
			sh.doneNames.remove(tag, old)
		}
	}
	if sh.doneNames.dir == nil {
		sh.doneNames = newNames()
	}
	sh.doneNames.insert(tag, job) // without room the name is forgotten
}

// unremember forgets that a job is the last one of its name.
func (sh *shard) unremember(job uint32, r *record, q *queue) {
	if !sh.remembers(job, r, q) {
		return
	}
	sh.doneNames.remove(sh.s.tag(q.id, r.space, sh.nameView(job)), job)
	if sh.doneNames.count == 0 {
		sh.doneNames = names{}
	}
}

// remembers says that a kept job is the last done one of its name.
func (sh *shard) remembers(job uint32, r *record, q *queue) bool {
	name := sh.nameView(job)
	last, ok := sh.lookupDone(sh.s.tag(q.id, r.space, name), q, r.space, name)
	return ok && last == job
}

// lookupDone finds the last done job of a name.
func (sh *shard) lookupDone(tag uint32, q *queue, space Space, name []byte) (uint32, bool) {
	if sh.doneNames.count == 0 {
		return none, false
	}
	job, ok := sh.doneNames.find(tag, func(job uint32) bool {
		r := sh.slab.at(job)
		return r.space == space && r.container == q.id && string(sh.nameView(job)) == string(name)
	})
	if !ok {
		return none, false
	}
	return job, true
}

// ignoreDone answers a submission of a name that was done within UniqueFor: it is not queued, and its await has the kept
// result, or an empty one. It returns false when the name was not done so lately. A job that was done later than now
// is older than a clock that was set back.
func (sh *shard) ignoreDone(now Time, tag uint32, q *queue, j *Submission, sink Sink) bool {
	if !sh.s.rules[j.Space].plain() {
		return false
	}
	job, ok := sh.lookupDone(tag, q, j.Space, j.Name)
	if !ok {
		return false
	}
	if age := now.Wall - sh.slab.at(job).due; max(age, -age) >= q.policy.UniqueFor {
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

// restoreDone gives a finished job of the journal its result and its name, and returns what it was kept for. Records come
// in the order of submission: another job of the name may have been done later.
func (sh *shard) restoreDone(job uint32, r *record, q *queue, j *Saved) keptUse {
	last, _ := sh.lookupDone(sh.s.tag(q.id, r.space, j.Name), q, r.space, j.Name)
	if !endsExpired(j.History) && (last == none || sh.slab.at(last).due <= r.due) {
		sh.remember(job, r, q)
	}
	switch {
	case j.Result != nil && sh.setResult(job, j.Result):
		return keptResult
	case len(j.History) > 0:
		return keptDone
	}
	return keptName
}

// endsExpired says that a history is one of a job that has expired.
func endsExpired(history []byte) bool {
	_, all := ParseHistory(history)
	return len(all) > 0 && all[len(all)-1].Outcome == attemptExpired
}
