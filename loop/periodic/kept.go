package periodic

import (
	"slices"

	"treadle/sched"
)

// kept holds the jobs that were broadcast to a worker while it slept, oldest first. They
// belong to nobody else and are handed out at the worker's next grabs.
type kept struct {
	jobs []*sched.Job
	size int // by sizeOf; Loop.Kept is that of all workers of the loop
}

// maxKept bounds the bytes of jobs kept for one worker, as the window of unsent jobs
// does where workers wait with a grab: one that is woken and never grabs misses what
// is broadcast beyond it. What is kept for all workers of a loop has a bound, too: one large
// job may be kept for thousands.
const maxKept = sched.DefaultWindow

// keptHead is what a kept job counts for beside its bytes.
const keptHead = 73

func sizeOf(j *sched.Job) int { return keptHead + len(j.Queue) + len(j.Name) + len(j.Workload) }

func (k *kept) empty() bool { return len(k.jobs) == 0 }

// keep keeps a copy of a job, if there is room.
func (c *conversation) keep(j *sched.Job) {
	if c.kept.size >= maxKept || c.s.Loop.Kept >= c.p.host.MostUnsent() {
		return
	}
	own := *j
	own.Name, own.Workload = slices.Clone(j.Name), slices.Clone(j.Workload)
	c.kept.jobs = append(c.kept.jobs, &own)
	c.countKept(sizeOf(j))
}

func (c *conversation) countKept(n int) {
	c.kept.size += n
	c.s.Loop.Kept += n
}

// takeKept returns the oldest of the kept jobs, of which there must be one.
func (c *conversation) takeKept() *sched.Job {
	j := c.kept.jobs[0]
	c.countKept(-sizeOf(j))
	c.kept.jobs = slices.Delete(c.kept.jobs, 0, 1)
	return j
}

// dropKept forgets the jobs of a queue that the worker does not serve any more.
func (c *conversation) dropKept(queue string) {
	c.kept.jobs = slices.DeleteFunc(c.kept.jobs, func(j *sched.Job) bool {
		if j.Queue == queue {
			c.countKept(-sizeOf(j))
		}
		return j.Queue == queue
	})
}
