package sched

import "fmt"

// failedJobs checks the failed jobs of a queue and its place among those with some, and what it counts for its policy.
func (c *checker) failedJobs(q *queue) error {
	if l := q.failed; l != nil {
		if l.jobs.jobs == 0 || l.at < 0 || l.at >= len(c.sh.failing) || c.sh.failing[l.at] != l {
			return fmt.Errorf("%d failed jobs stand at %d", l.jobs.jobs, l.at)
		}
		if err := c.index(&l.jobs, "failed", func(job uint32, r *record, k key) error {
			if r.state != failed || r.home != q.id || k != (key{r.due, int64(r.seq)}) || c.sh.failedBySeq[r.seq] != job {
				return fmt.Errorf("state %d home %d at key %v", r.state, r.home, k)
			}
			return c.stand(job, "failed")
		}); err != nil {
			return err
		}
	}
	if g := q.limiter; g != nil && g.at >= 0 && c.sh.limiters[g.at] != g {
		return fmt.Errorf("its limiter is not at %d", g.at)
	}
	return nil
}

// policies recounts failed jobs, histories and the bytes of queues.
func (c *checker) policies() error {
	sizes, histories := make(map[*queue]int64), 0
	for job := range c.seen {
		r := c.sh.slab.at(job)
		if r.flags&attempted != 0 {
			histories++
			if _, ok := c.sh.histories[job]; !ok {
				return fmt.Errorf("job %d has no history", job)
			}
		}
		if r.flags&task == 0 && r.state != failed {
			sizes[c.sh.queueOf(r)] += int64(r.size)
		}
	}
	if histories != len(c.sh.histories) || c.states[failed] != len(c.sh.failedBySeq) {
		return fmt.Errorf("%d histories and %d failed jobs are kept, want %d and %d", len(c.sh.histories), len(c.sh.failedBySeq), histories, c.states[failed])
	}
	for _, q := range c.sh.queues {
		if q != nil && q.bytes != sizes[q] {
			return fmt.Errorf("queue %q counts %d bytes, has %d", q.name, q.bytes, sizes[q])
		}
	}
	return nil
}
