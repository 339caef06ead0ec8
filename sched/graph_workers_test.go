package sched

import "slices"

// submit adds a job of another space to the tasks' queue, unless a job of that name is held or
// parked.
func (m *graphModel) submit(space Space, name string, priority int64) outcome {
	j := m.find(space, name)
	did := replaced
	switch {
	case j == nil:
		j = &graphJob{space: space, name: name}
		m.all = append(m.all, j)
		did = added
	case j.state == reserved || j.state == parked:
		return ignored
	}
	m.leave(j)
	j.priority, j.count, j.due = priority, 0, floorSecond(m.now.Wall)
	m.ready(j, back)
	m.match()
	return did
}

// suits reports whether a worker can be given a job.
func (w *graphWorker) suits(j *graphJob) bool {
	clash := slices.ContainsFunc(w.held, func(o *graphJob) bool { return o.name == j.name })
	return (w.capabilities&LongNames != 0 || len(j.name) <= maxShort) && (w.capabilities&NameOnly == 0 || !clash)
}

// match hands out jobs, the oldest slot first, until no worker waits beside a job that suits it.
func (m *graphModel) match() {
	for {
		line := slices.Clone(m.workers)
		line = slices.DeleteFunc(line, func(w *graphWorker) bool { return !w.serves || len(w.slots) == 0 })
		slices.SortFunc(line, func(a, b *graphWorker) int { return a.slots[0].age - b.slots[0].age })
		served := slices.ContainsFunc(line, func(w *graphWorker) bool {
			at := slices.IndexFunc(m.line, w.suits)
			if at >= 0 {
				m.assign(w, m.line[at])
			}
			return at >= 0
		})
		if !served {
			return
		}
	}
}

func (m *graphModel) assign(w *graphWorker, j *graphJob) {
	m.leave(j)
	j.state, j.holder, j.age, j.tag = reserved, w.name, w.slots[0].age, w.slots[0].tag
	w.slots = w.slots[1:]
	w.held = append(w.held, j)
	if j.space == graphTasks {
		m.logs(j, StageReserved)
	}
	m.want = append(m.want, delivered{to: w.id, tag: j.tag, effect: Assign, job: deliveredJob{space: j.space, name: j.name, workload: j.workload, count: j.count}})
}

func (m *graphModel) reserve(w *graphWorker, tag uint64) {
	if slices.ContainsFunc(w.slots, func(s modelSlot) bool { return s.tag == tag }) {
		return
	}
	m.clock++
	w.slots = append(w.slots, modelSlot{tag: tag, age: m.clock})
	m.match()
}

// drop takes a job from a worker. The last job of its list takes the place. The caller unlocks the
// job.
func (w *graphWorker) drop(j *graphJob) {
	i, last := slices.Index(w.held, j), len(w.held)-1
	w.held[i] = w.held[last]
	w.held = w.held[:last]
}

// unlock takes the lock, and its place in the lock's line, from a job that left its holder.
func (m *graphModel) unlock(j *graphJob) {
	same := func(o *graphJob) bool { return o == j }
	m.queueing = slices.DeleteFunc(m.queueing, same)
	if m.locked == j || slices.ContainsFunc(m.woken, same) {
		m.woken = slices.DeleteFunc(m.woken, same)
		if m.locked == j {
			m.locked = nil
		}
		m.wakeNext()
	}
}

// wakeNext makes the first job ready that waits for the lock, if no job has it.
func (m *graphModel) wakeNext() {
	if m.locked == nil && len(m.queueing) > 0 {
		next := m.queueing[0]
		m.queueing, m.woken = m.queueing[1:], append(m.woken, next)
		m.resume(next)
		m.yieldWoken()
	}
}

// yieldWoken wakes other jobs in the place of woken tasks that wait for predecessors.
func (m *graphModel) yieldWoken() {
	for _, j := range slices.Clone(m.woken) {
		if j.state == waiting {
			m.unlock(j)
		}
	}
}

func (m *graphModel) finish(w *graphWorker, j *graphJob) {
	w.drop(j)
	m.done(j)
	if j.space != graphTasks {
		m.past = slices.DeleteFunc(m.past, func(o *graphJob) bool { return o == j })
	}
	m.free(j)
	m.match()
	m.unlock(j)
}

// fail gives a job back: tasks and jobs with deaths go first, others are due now.
func (m *graphModel) fail(j *graphJob) {
	switch j.space {
	case graphTasks:
		m.release(j, front)
	case graphPlain:
		m.again(j)
	case graphDeaths:
		if j.count++; j.count >= graphRules[graphDeaths].MaxFailures {
			m.all = slices.DeleteFunc(m.all, func(o *graphJob) bool { return o == j })
			break
		}
		j.priority++
		j.due = aheadOfAll
		m.ready(j, front)
	}
}

// again makes a job ready that is due now.
func (m *graphModel) again(j *graphJob) {
	if j.space == graphTasks {
		m.release(j, front)
	} else {
		j.due = floorSecond(m.now.Wall)
		m.ready(j, back)
	}
}

func (m *graphModel) delay(w *graphWorker, j *graphJob, seconds int64, step int32) {
	w.drop(j)
	if j.space != graphDeaths {
		j.count += step
	}
	switch {
	case seconds <= 0:
		m.again(j)
	default:
		j.due, j.holder, j.saved = m.now.Wall+seconds*1000, "", j.log
		if j.state = waiting; len(m.after(j)) == 0 || j.space != graphTasks {
			j.state = delayed
			m.delayed = append(m.delayed, j)
		}
	}
	m.match()
	m.unlock(j)
}

// lock asks for the lock, which at most one job may have, or with most 0 none.
func (m *graphModel) lock(w *graphWorker, j *graphJob, most int) bool {
	switch {
	case m.locked == j:
		return true
	case m.locked == nil && most > 0:
		m.locked = j
		m.woken = slices.DeleteFunc(m.woken, func(o *graphJob) bool { return o == j })
		return true
	}
	w.drop(j)
	j.state, j.holder, j.until = parked, "", roundUp(m.now.Mono)
	m.parked = append(m.parked, j)
	m.match()
	if most > 0 { // with count 0 a job waits for its time-out
		m.queueing = append(m.queueing, j)
	}
	if at := slices.Index(m.woken, j); at >= 0 {
		m.woken = slices.Delete(m.woken, at, at+1)
		m.wakeNext()
	}
	return false
}

// resume makes a parked job ready.
func (m *graphModel) resume(j *graphJob) {
	m.parked = slices.DeleteFunc(m.parked, func(o *graphJob) bool { return o == j })
	if j.state = waiting; j.space != graphTasks || len(m.after(j)) == 0 {
		m.ready(j, back)
	}
	m.match()
}

// releaseLast releases the job that a worker was last handed under a tag.
func (m *graphModel) releaseLast(w *graphWorker, tag uint64) error {
	var last *graphJob
	for _, j := range w.held {
		if j.tag == tag && (last == nil || j.age > last.age) {
			last = j
		}
	}
	if last == nil {
		return ErrNotFound
	}
	w.drop(last)
	m.again(last)
	m.match()
	m.unlock(last)
	return nil
}

func (m *graphModel) forget(w *graphWorker) {
	w.slots, w.serves = nil, false
	var gone []*graphJob
	held := slices.SortedFunc(slices.Values(w.held), func(a, b *graphJob) int { return b.age - a.age })
	behind := slices.DeleteFunc(slices.Clone(held), func(j *graphJob) bool { return j.space != graphPlain })
	slices.Reverse(behind)
	ahead := slices.DeleteFunc(held, func(j *graphJob) bool { return j.space == graphPlain })
	for _, j := range append(ahead, behind...) {
		w.drop(j)
		m.fail(j)
		gone = append(gone, j)
	}
	m.match()
	for _, j := range gone {
		m.unlock(j)
	}
}

// tick makes delayed jobs ready by due time, then jobs that were parked too long, and then forgets
// old tasks.
func (m *graphModel) tick() {
	due := slices.DeleteFunc(slices.Clone(m.delayed), func(j *graphJob) bool { return j.due > m.now.Wall })
	slices.SortStableFunc(due, func(a, b *graphJob) int { return int(a.due - b.due) })
	for _, j := range due {
		m.leave(j)
		j.due = floorSecond(j.due)
		m.ready(j, back)
	}
	m.match()
	var over []*graphJob
	for _, j := range m.parked {
		if j.until+graphLockTimeout <= m.now.Mono {
			over = append(over, j)
		}
	}
	for _, j := range over {
		m.resume(j)
	}
	for _, j := range over {
		m.unlock(j)
	}
	m.past = slices.DeleteFunc(m.past, func(j *graphJob) bool { return j.until <= m.now.Mono })
}

// restart leaves the tasks alone, with what the journal has of them. The holders that come back
// keep their tasks.
func (m *graphModel) restart(comes func(name string) bool) {
	m.all = slices.DeleteFunc(m.all, func(j *graphJob) bool { return j.space != graphTasks })
	slices.SortStableFunc(m.edges, func(a, b graphEdge) int { return a.since() - b.since() })
	m.line, m.past, m.delayed, m.parked, m.queueing, m.woken, m.locked, m.workers = nil, nil, nil, nil, nil, nil, nil, nil
	for _, j := range m.all {
		j.log = j.saved
		held := j.state == reserved && j.holder[0] == 'h'
		if held && comes(j.holder) {
			continue
		}
		put := j.state == delayed || j.state == waiting
		switch j.holder = ""; {
		case len(m.after(j)) > 0:
			j.state = waiting
		case put && j.due > m.now.Wall:
			j.state = delayed
			m.delayed = append(m.delayed, j)
		default:
			m.ready(j, back)
			if n := len(j.saved); n > 0 && j.saved[n-1].Stage == StageReady {
				j.log = j.saved // it was ready before
			}
		}
		if held {
			j.saved = j.log
		}
	}
}
