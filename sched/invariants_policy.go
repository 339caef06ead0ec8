package sched

import (
	"errors"
	"fmt"
)

// keptJobs checks the kept jobs of a queue, the places of its lines and its sweep, and its counts for its policy.
func (c *checker) keptJobs(q *queue) error {
	if q.kept != nil {
		if q.keptJobs() == 0 {
			return errors.New("it has lines without kept jobs")
		}
		for use := range q.kept {
			if err := c.keptLine(q, keptUse(use)); err != nil {
				return err
			}
		}
	}
	if w := q.sweep; w != nil && !q.dropped && (w.heapIndex < 0 || c.sh.sweeps[w.heapIndex] != w) {
		return fmt.Errorf("its sweep is not at %d", w.heapIndex)
	}
	if g := q.limiter; g != nil && g.heapIndex >= 0 && c.sh.limiters[g.heapIndex] != g {
		return fmt.Errorf("its limiter is not at %d", g.heapIndex)
	}
	return nil
}

// keptLine checks the line of the jobs that a queue keeps for a use: its place in the heap, and each job's state, use
// and tables.
func (c *checker) keptLine(q *queue, use keptUse) error {
	l := &q.kept[use]
	if n := l.jobs.count(); (n == 0) != (l.heapIndex < 0) || l.heapIndex >= 0 && c.sh.keeping[l.heapIndex] != l {
		return fmt.Errorf("%d kept jobs stand at %d", n, l.heapIndex)
	}
	var err error
	visited, before := 0, firstKey
	l.jobs.eachFrom(firstKey, func(k sortKey, job uint32) bool {
		if err = c.keptJob(job, q, use, k); err == nil && !before.less(k) {
			err = fmt.Errorf("key %v is behind %v", k, before)
		}
		visited, before = visited+1, k
		return err == nil
	})
	if err == nil && visited != l.jobs.count() {
		err = fmt.Errorf("%d kept jobs of use %d are counted, %d are there", l.jobs.count(), use, visited)
	}
	return err
}

// keptJob checks a job that stands at a key of a line.
func (c *checker) keptJob(job uint32, q *queue, use keptUse, k sortKey) error {
	r := c.sh.slab.at(job)
	bySeq, found := c.sh.lookupKept(r.seq)
	_, result := c.sh.results[job]
	switch {
	case (r.state == failed) != (use == keptFailed || use == keptBuried), use == keptBuried && r.flags&numbered == 0,
		r.state != failed && r.state != finished, r.use() != use:
		return fmt.Errorf("state %d and use %d in the line of use %d", r.state, r.use(), use)
	case r.container != q.id || k != keptKey(r):
		return fmt.Errorf("container %d at key %v", r.container, k)
	case found != (use != keptName) || found && bySeq != job:
		return fmt.Errorf("is found by its number: %v, as %d", found, bySeq)
	case result != (use == keptResult), use == keptName && r.flags&hasHistory != 0:
		return fmt.Errorf("of use %d has a result: %v, flags %b", use, result, r.flags)
	}
	c.lastOfNames += oneIf(c.sh.isLastOfName(job, r, q))
	return c.stand(job, "kept")
}

// policies recounts kept jobs, histories, results and the bytes of queues.
func (c *checker) policies() error {
	sizes, histories := make(map[*queue]int64), 0
	for job := range c.seen {
		r := c.sh.slab.at(job)
		if r.flags&hasHistory != 0 {
			histories++
			if _, ok := c.sh.histories[job]; !ok {
				return fmt.Errorf("job %d has no history", job)
			}
		}
		if r.flags&task == 0 && r.state != failed && r.state != finished {
			sizes[c.sh.queueOf(r)] += int64(r.size)
		}
	}
	kept := c.sh.keptJobs
	switch {
	case histories != len(c.sh.histories), kept[keptResult] != len(c.sh.results):
		return fmt.Errorf("%d histories and %d results are kept, want %d and %d", len(c.sh.histories), len(c.sh.results), histories, kept[keptResult])
	case c.states[failed] != kept[keptFailed]+kept[keptBuried], c.states[finished] != kept[keptName]+kept[keptDone]+kept[keptResult]:
		return fmt.Errorf("%d failed and %d finished jobs are there, counted are %v", c.states[failed], c.states[finished], kept)
	case c.states[failed]+c.states[finished]-kept[keptName] != c.sh.keptBySeq.count:
		return fmt.Errorf("%d kept jobs are found by their numbers", c.sh.keptBySeq.count)
	case c.lastOfNames != c.sh.endedNames.count:
		return fmt.Errorf("%d names of kept jobs are known, want %d", c.sh.endedNames.count, c.lastOfNames)
	}
	for _, q := range c.sh.queues {
		if q != nil && q.bytes != sizes[q] {
			return fmt.Errorf("queue %q counts %d bytes, has %d", q.name, q.bytes, sizes[q])
		}
	}
	return nil
}
