package sched

// maxTwins is how many ready jobs are looked at that a peer which knows jobs by name cannot be
// given, because it holds others of their names. One that holds so many gets no other before it
// has ended one of them.
const maxTwins = 64

// matchPicky is matchOne for a queue where not every ready job fits every watch: it
// pairs the oldest slot for which there is a job with the first job that fits it.
func (sh *shard) matchPicky(now Time, q *queue, sink Sink) bool {
	if len(q.line) == 0 || q.ready.jobs+q.wide.jobs == 0 {
		return false
	}
	if sh.pair(now, q, q.line[0], sink) { // nearly always
		return true
	}
	var oldest *watch
	for _, w := range q.line {
		if (oldest == nil || w.ahead(oldest)) && sh.jobFor(w) != none {
			oldest = w
		}
	}
	return oldest != nil && sh.pair(now, q, oldest, sink)
}

// pair gives a watch in line the first job that fits; true when the line or the ready
// jobs changed by it.
func (sh *shard) pair(now Time, q *queue, w *watch, sink Sink) bool {
	job := sh.jobFor(w)
	if job == none {
		return false
	}
	r := sh.slab.at(job)
	if q.broadcasts > 0 && sh.s.rules[r.space].shared() {
		sh.broadcast(job, r, q, sink)
		return true // sent or not, it has emptied the line
	}
	s, next, a := w.peer.claim(w.seq, int(r.size))
	if a == nothing {
		q.line.remove(w)
		return true
	}
	w.seq = next
	q.line.fix(w)
	switch {
	case a == moved:
	case s.wake:
		sh.out = Delivery{To: w.peer.id, Tag: s.tag, Effect: Wake}
		sink.Deliver(&sh.out)
	default:
		sh.assign(now, job, r, q, w, s, sink)
	}
	return true
}

// jobFor returns the first ready job that a watch's peer can be given, none when there
// is none, or nothing is handed out any more.
func (sh *shard) jobFor(w *watch) uint32 {
	if sh.halted {
		return none
	}
	q := w.queue
	first := q.ready.head(&sh.buckets)
	if !q.picky() {
		return first
	}
	if w.peer.skills&Named != 0 {
		first = none
		twins := 0
		q.ready.each(&sh.buckets, &sh.slab, func(job uint32) bool {
			name, _ := unpack(sh.arena.view(sh.slab.at(job).bytes, int(sh.slab.at(job).size)))
			if _, twin := sh.heldBy(w, name); !twin {
				first = job
			} else {
				twins++
			}
			return first == none && twins < maxTwins
		})
	}
	long := q.wide.head(&sh.buckets)
	if long == none || w.peer.skills&Wide == 0 {
		return first
	}
	if first == none {
		return long
	}
	a, b := sh.slab.at(first), sh.slab.at(long)
	switch ka, kb := readyKey(a), readyKey(b); {
	case ka == kb && ka.b == taskDue: // tasks, both
		if sh.slab.node(long).place < sh.slab.node(first).place {
			return long
		}
	case kb.less(ka) || kb == ka && b.seq < a.seq:
		return long
	}
	return first
}

// rematch is for a queue in which a job has left its holder's hands and is not ready
// again: there may be one of its name that now fits the holder.
func (sh *shard) rematch(now Time, q *queue, sink Sink) {
	if q.picky() {
		sh.match(now, q, sink)
	}
}

// anyUnheld returns a job that nobody runs of a queue that has one.
func (q *queue) anyUnheld(p *buckets) uint32 {
	for _, x := range [...]*index{&q.ready, &q.wide, &q.private, &q.delayed} {
		if job := x.head(p); job != none {
			return job
		}
	}
	return q.parked[len(q.parked)-1]
}

// each calls fn for the index's jobs in order, until it returns false.
func (x *index) each(p *buckets, s *slab, fn func(job uint32) bool) {
	bucketJobs := func(i uint32) bool {
		for job := p.all[i].head; job != none; job = s.at(job).next {
			if !fn(job) {
				return false
			}
		}
		return true
	}
	switch {
	case x.jobs == 0:
	case x.tree == nil:
		bucketJobs(x.first)
	default:
		x.tree.Scan(func(e entry) bool { return bucketJobs(e.bucket) })
	}
}
