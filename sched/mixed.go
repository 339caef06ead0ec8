package sched

// A queue is mixed when not every ready job fits every watch. Some jobs have names too long for some
// peers, and a NameOnly peer must not hold two jobs of one name. Each class of peers has a line of its
// own. A job that fits no NameOnly peer in line moves to the withheld index, so that each match does not
// scan it again.

// class says in which of a queue's lines the watches of a peer stand.
type class uint8

// The classes.
const (
	shortNames class = iota // takes names up to maxShort
	nameOnly                // takes the same, and knows jobs by queue and name
	longNames               // takes names of any length
	classCount
)

func classFor(s Capabilities) class {
	switch {
	case s&NameOnly != 0:
		return nameOnly
	case s&LongNames != 0:
		return longNames
	}
	return shortNames
}

const (
	// maxClashes bounds the scanned ready jobs of a queue that a NameOnly peer cannot have because of their names. It
	// is more than the names that the peer may have unreported. If more jobs clash for a peer, it gets no other job
	// until it has ended one of the jobs that it holds.
	maxClashes = 2 * maxUnreported
	// maxPeerClashes is maxClashes for all queues of a peer together, in one request.
	maxPeerClashes = 32 * maxClashes
)

// mixed reports whether a ready job does not fit every watch.
func (q *queue) mixed() bool {
	return q.longNames.jobs+q.withheld.jobs > 0 || q.broadcast != nil || q.nameOnly > 0 && q.clashing()
}

// clashing reports whether two jobs of the queue may clash for a NameOnly peer.
func (q *queue) clashing() bool { return q.unreportedCount > 0 || q.spaces&(q.spaces-1) != 0 }

// clashes reports whether a NameOnly peer knows another job by the name: a job that it holds, or the job of a revoked
// run that it has not reported.
func (sh *shard) clashes(w *watch, name []byte) bool {
	if len(w.unreportedByHash) > 0 && w.unreportedByHash[sh.hash(name)] != nil {
		return true
	}
	if w.queue.spaces&(w.queue.spaces-1) == 0 {
		return false
	}
	_, held := sh.heldBy(w, name)
	return held
}

// matchMixed is matchOne for a mixed queue.
func (sh *shard) matchMixed(now Time, q *queue, sink Sink) int {
	if q.broadcast != nil {
		return 0
	}
	job := sh.head(q)
	// A withheld job fits a peer that is not NameOnly, and a long name fits a LongNames one.
	var oldest *watch
	var itsJob uint32
	for _, c := range [...]class{shortNames, longNames} {
		if w := q.oldestOf(c); w != nil && (oldest == nil || w.Ahead(oldest)) {
			if other := sh.jobFor(w, new(int)); other != job {
				oldest, itsJob = w, other
			}
		}
	}
	if oldest != nil {
		return sh.pair(now, q, oldest, itsJob, sink)
	}
	if job == none || q.oldest() == nil {
		return 0
	}
	w, whole := sh.oldestFitting(q, job)
	if w != nil {
		return sh.pair(now, q, w, job, sink)
	}
	sh.withhold(job, q)
	if !whole {
		sh.startOffers(q)
	}
	return 1
}

// oldestFitting returns the watch with the oldest slot among the watches in line that a job of the ready index fits, or
// nil. whole is false when it checked only the first heap.MaxInOrder NameOnly peers. The job may then fit another peer
// although the watch is nil.
func (sh *shard) oldestFitting(q *queue, job uint32) (best *watch, whole bool) {
	for _, c := range [...]class{shortNames, longNames} {
		if w := q.oldestOf(c); w != nil && (best == nil || w.Ahead(best)) {
			best = w
		}
	}
	line := q.lines[nameOnly]
	clashing := q.clashing() && (q.broadcastWorkers == 0 || !sh.s.rules[sh.slab.at(job).space].broadcastable())
	name := sh.nameView(job)
	whole = line.InOrder(func(w *watch) bool {
		if best != nil && best.Ahead(w) {
			return false
		}
		if !clashing || w.suspended == nil && !sh.clashes(w, name) {
			best = w
			return false
		}
		sh.countSteps(1)
		return true
	})
	return best, whole
}

// withhold moves the first ready job, which fits no NameOnly peer in line, to the withheld index.
func (sh *shard) withhold(job uint32, q *queue) {
	r := sh.slab.at(job)
	q.immediate += oneIf(r.flags&immediate != 0) // take counts it out
	q.readyTasks += oneIf(r.flags&task != 0)
	sh.take(job, r, q)
	r.flags |= withheld
	q.countDue(r, 1)
	sh.countReady(q, r, 1)
	q.withheld.pushBack(&sh.buckets, &sh.slab, sh.standing(r), job)
}

// jobFor returns the first ready job that a watch's peer can be given; none if no job fits or the queue is not matched
// now. It scans at most budget clashing jobs and takes them from budget.
func (sh *shard) jobFor(w *watch, budget *int) uint32 {
	q := w.queue
	if sh.halted || q.throttled() {
		return none
	}
	if !q.mixed() {
		return sh.head(q)
	}
	if q.broadcast != nil {
		return none
	}
	switch w.peer.class {
	case shortNames:
		return sh.earlier(q.withheld.head(&sh.buckets), sh.head(q))
	case longNames:
		job := sh.earlier(q.withheld.head(&sh.buckets), sh.head(q))
		return sh.earlier(q.longNames.head(&sh.buckets), job)
	}
	if w.suspended != nil {
		return none
	}
	checks := min(*budget, maxClashes)
	*budget -= checks
	job := sh.earlier(sh.earliestFor(w, &q.withheld, &checks), sh.earliestReadyFor(w, &checks))
	*budget += checks
	return job
}

// earliestFor returns the first job of an index whose name does not clash for a watch's peer.
func (sh *shard) earliestFor(w *watch, x *index, budget *int) uint32 {
	first := none
	x.eachFrom(&sh.buckets, &sh.slab, firstKey, func(job uint32) bool {
		sh.countSteps(1)
		switch {
		case !sh.clashes(w, sh.nameView(job)):
			first = job
		case *budget > 0:
			*budget--
			return true
		}
		return false
	})
	return first
}

// earlier returns the earlier of two jobs of a queue. x is of the withheld index or of the index of long names. y may
// be of the ready index. Either may be none. For example, jobs A, B and C of one priority and due second became ready
// in this order:
//
//	A is withheld, B ready    A: it was the first of the ready index when it was withheld
//	A and B are withheld      A: the older one
//	C is of long name, B not  the older one: neither was withheld, and both keep their sequence numbers
//
// At aheadOfAll a job that becomes ready goes to the front, so a ready job is ahead of a withheld one.
func (sh *shard) earlier(x, y uint32) uint32 {
	if x == none || y == none {
		return min(x, y) // none is the largest
	}
	a, b := sh.slab.at(x), sh.slab.at(y)
	ka, kb := sh.standing(a), sh.standing(b)
	xFirst := a.seq < b.seq
	switch {
	case ka != kb:
		xFirst = ka.less(kb)
	case ka.minor == taskDue:
		xFirst = sh.graph.before(x, y)
	case a.flags&withheld != 0 && b.flags&(withheld|longName) == 0 && a.flags&b.flags&numbered == 0:
		// Both have one key. x was the first job of the ready index when it was withheld. y stood behind
		// it, or entered later: at the back, unless its due second is aheadOfAll.
		xFirst = ka.minor != aheadOfAll
	}
	if xFirst {
		return x
	}
	return y
}

// serveNamedAgain serves a watch whose peer has ended a job: a job of the same name in another space fits the peer now.
func (sh *shard) serveNamedAgain(now Time, w *watch, sink Sink) {
	if w.lineIndex >= 0 && w.peer.class == nameOnly && w.queue.mixed() {
		sh.serveOrDefer(now, w, sink)
	}
}

// withheldOffers is the deferred part of a match in which a job fitted none of the first NameOnly peers in line. The
// Ticks check the other peers by the numbers of their watches. Until then a peer may wait although the queue has a job
// for it.
type withheldOffers struct {
	active  bool
	again   bool   // another job joined the offers
	next    uint32 // number of the watch that is checked next
	restore int    // withheld jobs that first go back to the ready jobs, because they are broadcast now, or have other lanes or limits
}

// startOffers has the Ticks check all NameOnly peers in line.
func (sh *shard) startOffers(q *queue) {
	q.offers.again = true
	if !q.offers.active {
		q.offers.active = true
		sh.offering = append(sh.offering, q)
		sh.s.alarmMono(0)
	}
}

// continueOffers does up to budget steps of the offers.
func (sh *shard) continueOffers(now Time, budget int, sink Sink) {
	for budget > 0 && len(sh.offering) > 0 {
		q := sh.offering[0]
		if budget = sh.continueQueueOffers(now, q, budget, sink); !q.offers.active {
			sh.offering.pop()
		}
	}
}

// continueQueueOffers does a part of one queue's offers. It returns the rest of budget.
func (sh *shard) continueQueueOffers(now Time, q *queue, budget int, sink Sink) int {
	f := &q.offers
	if q.dropped {
		f.active = false
		return budget
	}
	for ; budget > 0 && f.restore > 0; budget-- {
		f.restore--
		sh.countSteps(1)
		if job := q.withheld.tail(&sh.buckets); job != none {
			r := sh.slab.at(job)
			sh.removeReady(job, r, q)
			sh.pushReady(job, r, q, front)
		}
		if f.restore == 0 {
			sh.deferMatch(q)
		}
	}
	if f.restore == 0 && f.next == 0 {
		f.again = false
	}
	for f.restore == 0 && budget > 0 && int(f.next) < len(sh.watches) {
		w := sh.watches[f.next]
		sh.countSteps(1)
		if w != nil && w.queue == q && w.lineIndex >= 0 && w.peer.class == nameOnly {
			if budget = sh.serveWithin(now, w, lastRank, budget, sink); budget <= 0 {
				break // the watch may take more jobs
			}
		}
		f.next++
		budget--
	}
	if f.restore == 0 && int(f.next) >= len(sh.watches) {
		f.next = 0
		f.active = f.again
	}
	return budget
}
