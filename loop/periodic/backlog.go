package periodic

import (
	"slices"

	"treadle/sched"
)

// backlog holds the jobs that were broadcast to a worker while it slept, oldest first. The
// worker's next grabs take them.
type backlog struct {
	jobs []*sched.Job
	size int // by sizeOf; Loop.Backlog sums all workers of the loop
}

// maxBacklog bounds the bytes of one worker's backlog, as the window of unsent jobs does for
// workers that grab. A sleeping worker misses broadcasts beyond it. Loop.Backlog has a bound
// too, since one large job may be held for thousands of workers.
const maxBacklog = sched.DefaultWindow

// jobOverhead is the size of a job in a backlog beside its bytes.
const jobOverhead = 73

func sizeOf(j *sched.Job) int { return jobOverhead + len(j.Queue) + len(j.Name) + len(j.Workload) }

func (b *backlog) empty() bool { return len(b.jobs) == 0 }

// pushBacklog adds a copy of a job, if there is room.
func (c *conversation) pushBacklog(j *sched.Job) {
	if c.backlog.size >= maxBacklog || c.s.Loop.Backlog >= c.p.limits.MaxUnsent {
		return
	}
	own := *j
	own.Name, own.Workload = slices.Clone(j.Name), slices.Clone(j.Workload)
	c.backlog.jobs = append(c.backlog.jobs, &own)
	c.countBacklog(sizeOf(j))
}

func (c *conversation) countBacklog(n int) {
	c.backlog.size += n
	c.s.Loop.Backlog += n
}

// popBacklog takes the oldest job from a backlog that is not empty.
func (c *conversation) popBacklog() *sched.Job {
	j := c.backlog.jobs[0]
	c.countBacklog(-sizeOf(j))
	c.backlog.jobs = slices.Delete(c.backlog.jobs, 0, 1)
	return j
}

// dropBacklog removes the jobs of a queue that the worker no longer serves.
func (c *conversation) dropBacklog(queue string) {
	c.backlog.jobs = slices.DeleteFunc(c.backlog.jobs, func(j *sched.Job) bool {
		if j.Queue == queue {
			c.countBacklog(-sizeOf(j))
		}
		return j.Queue == queue
	})
}
