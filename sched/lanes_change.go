package sched

import "maps"

// laneChange is the deferred part of a change of a queue's key, or of the rules for its lanes. Until the change is
// done, jobs stand where the earlier rules have put them, and the first job of all places is next.
type laneChange struct {
	active bool
	watch  int // the next of the shard's watches whose jobs are counted by their lanes
	held   int // the jobs of that watch before this index are not counted yet; less than 0: none of its jobs is
	lane   int // the next lane
}

// setKeyed gives a queue lanes as its policy says.
func (sh *shard) setKeyed(q *queue) {
	var p Policy
	if q.policy != nil && (q.policy.Fair || q.policy.KeyConcurrency > 0) {
		p = *q.policy
	}
	on := p.Key.text != ""
	k := q.keyed
	switch {
	case k == nil && !on:
		return
	case k == nil:
		k = newKeyedJobs()
		q.keyed = k
	case k.rule.text == p.Key.text && int64(k.limit) == p.KeyConcurrency && k.fair == p.Fair && maps.Equal(k.weightByName, p.Weights):
		return
	}
	limit := int32(p.KeyConcurrency)
	restore := limit > 0 && (k.limit == 0 || limit < k.limit)
	if k.rule.text != p.Key.text {
		restore = true
		k.rule, k.byKey = p.Key, make(map[uint64]*lane)
		k.generation++
		k.change.watch, k.change.held = 0, -1
	}
	if restore && q.withheld.jobs > 0 { // the lanes have counted them as taken under the earlier rules
		q.offers.restore = q.withheld.jobs
		sh.startOffers(q)
	}
	k.limit, k.fair, k.weightByName, k.weightByHash = limit, p.Fair, p.Weights, make(map[uint64]int32)
	for key, weight := range p.Weights {
		k.weightByHash[sh.hash([]byte(key))] = int32(weight)
	}
	if !on && k.count == 0 {
		q.keyed = nil
		return
	}
	k.change.lane = 0
	if !k.change.active && (q.running > 0 || q.pending() > 0) {
		k.change.active = true
		sh.changing = append(sh.changing, q)
		sh.s.alarmMono(0)
	}
}

// continueLaneChanges does a batch of the changes. more reports whether some are left.
func (sh *shard) continueLaneChanges(stepLimit int) (more bool) {
	for sh.mu.steps < stepLimit && len(sh.changing) > 0 {
		q := sh.changing[0]
		k := q.keyed
		done := k == nil || q.dropped || sh.countKeyed(q, k, stepLimit) && sh.relaneReady(q, k, stepLimit) && sh.changeLanes(q, k, stepLimit)
		if !q.lineEmpty() {
			sh.deferMatch(q)
		}
		if !done {
			break
		}
		if k != nil {
			k.change.active = false
		}
		sh.changing.pop()
	}
	return len(sh.changing) > 0
}

// countKeyed has the lanes count the jobs that run. A job that is handed out meanwhile is counted by take.
func (sh *shard) countKeyed(q *queue, k *keyedJobs, stepLimit int) (done bool) {
	c := &k.change
	for ; c.watch < len(sh.watches); c.watch, c.held = c.watch+1, -1 {
		w := sh.watches[c.watch]
		if w != nil && w.queue == q && !sh.countHeld(q, k, w, stepLimit) || sh.mu.steps >= stepLimit {
			return false
		}
		sh.countSteps(1)
	}
	return true
}

// countHeld is countKeyed for the jobs of a watch. It begins with the last job. When a job leaves between two batches,
// the last job takes its place in the list, and that job has been counted.
func (sh *shard) countHeld(q *queue, k *keyedJobs, w *watch, stepLimit int) (done bool) {
	c := &k.change
	if c.held < 0 || c.held > len(w.held) {
		c.held = len(w.held)
	}
	for ; c.held > 0; c.held-- {
		if sh.mu.steps >= stepLimit {
			return false
		}
		sh.countSteps(1)
		sh.recount(q, k, &w.held[c.held-1])
	}
	return true
}

// recount counts a job that runs in the lane of its present key, and no longer in another lane.
func (sh *shard) recount(q *queue, k *keyedJobs, h *held) {
	if h.lane != none {
		if k.lanes[h.lane].generation == k.generation {
			return
		}
		sh.removeTaken(q, h.lane)
		h.lane = none
	}
	if r := sh.slab.at(h.job); k.hasKey(r) {
		l := sh.laneFor(k, r)
		h.lane = l.id
		l.taken++
		sh.placeLane(q, l)
	}
}

// relaneReady moves the jobs of the ready index to their lanes, from the last to the first. So they keep their order,
// and come ahead of the jobs that have entered the lanes since.
func (sh *shard) relaneReady(q *queue, k *keyedJobs, stepLimit int) (done bool) {
	for k.rule.text != "" {
		job := q.ready.tailBut(&sh.buckets, sortKey{^0, taskDue})
		if job == none {
			job = q.byNumber.tail(&sh.buckets)
		}
		if job == none {
			return true
		}
		if sh.mu.steps >= stepLimit {
			return false
		}
		sh.relane(job, q)
	}
	return true
}

// relane moves a ready job to where it belongs by the present rules.
func (sh *shard) relane(job uint32, q *queue) {
	sh.countSteps(1)
	r := sh.slab.at(job)
	sh.removeReady(job, r, q)
	sh.pushReady(job, r, q, front)
}

// changeLanes moves the jobs of lanes of another key to where they belong, and gives the other lanes their places.
func (sh *shard) changeLanes(q *queue, k *keyedJobs, stepLimit int) (done bool) {
	for c := &k.change; c.lane < len(k.lanes); {
		if sh.mu.steps >= stepLimit {
			return false
		}
		switch l := k.lanes[c.lane]; {
		case l != nil && l.generation != k.generation && l.jobs.jobs > 0:
			sh.relane(l.jobs.tail(&sh.buckets), q) // l may be gone then
			continue
		case l != nil && l.idle && l.generation != k.generation:
			sh.freeIdle(k, l)
		case l != nil && l.idle:
			l.weight = k.weightOf(l.key)
		case l != nil:
			l.weight = k.weightOf(l.key)
			sh.placeLane(q, l)
			l.endTurn() // the weight has become smaller
		}
		sh.countSteps(1)
		c.lane++
	}
	return true
}
