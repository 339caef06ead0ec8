package sched

// Submission is a job to be added. Submit copies its bytes.
type Submission struct {
	Space    Space
	Queue    []byte
	Name     []byte // unique per space and queue; Submit does not read the name of a job of Rules.Numbered
	Number   uint64 // number of a job of Rules.Numbered, set by Submit
	Workload []byte
	SchedAt  int64 // Unix seconds; 0: at once
	After    int64 // milliseconds from now until the job is due, when SchedAt is 0
	Priority int64 // larger first
	Count    int32 // of Rules.RetryRules: retries, see RetryRules; of Rules.MaxFailures: failures so far; else Delay adds to it
	Timeout  int32 // seconds; 0: the scheduler's default

	// Await, when set, is the peer that receives the job's end under Tag, whether the job is new,
	// pending or running.
	Await  *Peer
	Tag    uint64
	OnFail bool // the await ends with Failed at the first failure
	Stays  bool // TimeOutAwait ends only the await, the job stays
	// History is the history of a new job, for ParseHistory; nil: it has none.
	History []byte
	// OnlyNew refuses the job with ErrDuplicate when there is a job of the same name, in any state, that is not kept.
	OnlyNew bool
	// NeedWorker refuses the job with ErrNoWorker when no peer serves the queue, unless a job of the same name was done
	// within Policy.UniqueFor.
	NeedWorker bool
}

// Submit adds a job, or replaces the pending job of the same name. A reserved, parked or broadcasting job of the name
// stays as it is. A name that was done within Policy.UniqueFor is ignored. Submit copies the job's bytes once. A
// waiting peer is handed the job before Submit returns.
func (s *Scheduler) Submit(now Time, j *Submission, sink Sink) error {
	global := s.rules[j.Space].Global
	if global && !s.takeGlobalName(j.Space, j.Name) && (!s.reapNow(now, j, sink) || !s.takeGlobalName(j.Space, j.Name)) {
		return ErrDuplicate
	}
	err := s.shardOf(j.Queue).submit(now, j, sink)
	if global && err != nil {
		s.freeGlobalName(globalName{j.Space, string(j.Name)})
	}
	return err
}

func (sh *shard) submit(now Time, j *Submission, sink Sink) error {
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	return sh.submitLocked(now, j, sink)
}

// submitLocked is submit for a caller that holds the lock of the shard.
func (sh *shard) submitLocked(now Time, j *Submission, sink Sink) error {
	q := sh.byName[string(j.Queue)]
	noWorker := j.NeedWorker && (q == nil || q.workers == 0)
	if q == nil {
		if noWorker {
			return ErrNoWorker
		}
		var err error
		if q, err = sh.queueFor(j.Queue, sh.s.rules[j.Space].Numbered); err != nil {
			return err
		}
	}
	if sh.s.rules[j.Space].Numbered {
		return sh.submitNumbered(now, q, j, sink)
	}
	hash := sh.s.nameHash(q.id, j.Space, j.Name)
	job, known := sh.lookup(hash, q, j.Space, j.Name)
	switch {
	case !known && q.policy != nil && q.policy.UniqueFor > 0 && sh.ignoreDone(now, hash, q, j, sink):
		return nil
	case noWorker:
		return ErrNoWorker
	case known && j.OnlyNew:
		return ErrDuplicate
	case known:
		return sh.resubmit(now, job, q, j, sink)
	}
	return sh.add(now, sh.s.lastSeq.Add(1), hash, q, j, sink)
}

// lookup finds a job by name in any state that has a name.
func (sh *shard) lookup(hash uint32, q *queue, space Space, name []byte) (uint32, bool) {
	return sh.names.find(hash, func(job uint32) bool {
		r := sh.slab.at(job)
		if r.space != space || sh.queueOf(r) != q {
			return false
		}
		n, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
		return string(n) == string(name)
	})
}

// add adds a job under a sequence number. The caller has taken the number under the same hold of the shard's lock.
func (sh *shard) add(now Time, seq uint64, hash uint32, q *queue, j *Submission, sink Sink) error {
	if q.policy != nil {
		if err := q.admit(j.Name, j.Workload, -1); err != nil {
			sh.discardUnused(q)
			return err
		}
	}
	job, r, err := sh.newJob(hash, q, j.Space, j.Name, j.Workload)
	if err != nil {
		return err
	}
	q.bytes += int64(r.size)
	r.seq = seq
	if r.flags&numbered != 0 {
		sh.setCounts(r, &Counts{Submitted: now.Wall, Delay: uint32(j.After / 1000)})
	}
	sh.counters.Submitted++
	q.tally.Submitted[j.Space]++
	sh.await(job, r, j)
	if j.Await != nil && !j.Stays {
		r.flags |= awaitedBySubmitter
	}
	sh.placeSubmission(now, job, r, q, j, sink)
	return nil
}

// newJob makes a detached job: it stores the bytes and enters the name.
func (sh *shard) newJob(hash uint32, q *queue, space Space, name, workload []byte) (uint32, *record, error) {
	rules, more := &sh.s.rules[space], 0
	if rules.Numbered {
		more = countsSize
	}
	size := packedLen(name, workload)
	bytes, dst, ok := sh.arena.alloc(size + more)
	if !ok {
		return none, nil, errFull
	}
	job, r := sh.slab.alloc()
	if !sh.names.insert(hash, job) {
		sh.slab.free(job)
		sh.freeBytes(bytes)
		return none, nil, errFull
	}
	pack(dst, name, workload)
	r.bytes, r.size, r.space = bytes, uint32(size), space
	if rules.Numbered {
		r.flags |= numbered
	}
	if len(name) > maxShort || len(q.name) > maxShortQueue {
		r.flags |= longName
	}
	if rules.Private {
		r.flags |= private
	}
	sh.setTraits(r, workload)
	q.spaces |= 1 << space
	return job, r, nil
}

// setTraits sets the flags of a job by the Rules.Traits of its workload.
func (sh *shard) setTraits(r *record, workload []byte) {
	traits := sh.s.rules[r.space].Traits
	if traits == nil {
		return
	}
	r.flags &^= expires | hooked
	t := traits(workload)
	if t.Expires {
		r.flags |= expires
	}
	if t.Hooked {
		r.flags |= hooked
	}
}

// placeSubmission gives a detached job the submission's values and a place. When it returns, a broadcast may have ended
// the job.
func (sh *shard) placeSubmission(now Time, job uint32, r *record, q *queue, j *Submission, sink Sink) {
	r.priority, r.count, r.timeout = j.Priority, j.Count, j.Timeout
	r.due = j.SchedAt
	r.flags &^= immediate
	if r.flags&hasHistory != 0 {
		sh.dropHistory(job, r)
	}
	if len(j.History) > 0 {
		sh.setHistory(job, r, j.History)
	}
	if j.Await == nil || j.Stays {
		r.flags &^= awaitedBySubmitter
	}
	past := uint32(0)
	switch {
	case j.SchedAt == 0 && j.After > 0:
		at := now.Wall + min(j.After, longestDelay)
		r.due = floorSecond(at)
		past = uint32(at - r.due*1000)
	case j.SchedAt == 0:
		r.flags |= immediate
		r.due = floorSecond(now.Wall)
		if sh.assignDirectly(now, job, r, q, sink) {
			return
		}
	}
	sh.enqueue(now, job, r, q, past)
	sh.save(job, r, q)
	sh.matchOrDefer(now, q, sink)
}

// resubmit is Submit for a name that is known.
func (sh *shard) resubmit(now Time, job uint32, q *queue, j *Submission, sink Sink) error {
	r := sh.slab.at(job)
	if j.Await != nil && len(sh.awaits[job]) >= MaxAwaits {
		return ErrAwaits
	}
	if r.state == reserved || r.state == parked || r.state == broadcasting {
		if sh.await(job, r, j); j.Await == nil || j.Stays {
			r.flags &^= awaitedBySubmitter
		}
		sh.counters.Ignored++
		return nil
	}
	if q.policy != nil {
		if err := q.admit(j.Name, j.Workload, int64(r.size)); err != nil {
			return err
		}
	}
	size := packedLen(j.Name, j.Workload)
	bytes, dst, ok := sh.arena.alloc(size)
	if !ok {
		return errFull
	}
	q.bytes += int64(size) - int64(r.size)
	sh.await(job, r, j)
	pack(dst, j.Name, j.Workload)
	sh.dequeue(job, r, q)
	sh.freeBytes(r.bytes)
	r.bytes, r.size = bytes, uint32(size)
	sh.setTraits(r, j.Workload)
	sh.counters.Replaced++
	sh.placeSubmission(now, job, r, q, j, sink)
	return nil
}

// await adds a submission's await, if it has one.
func (sh *shard) await(job uint32, r *record, j *Submission) {
	p := j.Await
	if p == nil {
		return
	}
	ref := sh.ref(job, r)
	p.mu.Lock()
	if p.awaits == nil {
		p.awaits = make(map[JobRef]int)
	}
	p.awaits[ref]++
	p.mu.Unlock()
	sh.awaits[job] = append(sh.awaits[job], await{peer: p, tag: j.Tag, onFail: j.OnFail})
	r.flags |= awaited
}

// nameView is a view of a job's name.
func (sh *shard) nameView(job uint32) []byte {
	r := sh.slab.at(job)
	name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	return name
}
