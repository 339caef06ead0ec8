package loop

import (
	"slices"

	"treadle/sched"
)

// kept is the jobs that were broadcast to a worker while it slept, oldest first, as
// deliveries: they are nobody else's, and are handed out at its next grabs.
type kept struct {
	all   [][]byte
	size  int
	total *int // of all workers of the loop
}

// maxKept bounds the bytes of jobs kept for one worker, as the window of unsent jobs
// does where workers wait with a grab: one that is woken and never grabs misses what
// is broadcast beyond it. What is kept for all workers of a loop has a bound, too: one large
// job may be kept for thousands.
const maxKept = sched.DefaultWindow

// put keeps a copy of a delivery, unless most bytes are kept for all already.
func (k *kept) put(d *sched.Delivery, most int) {
	if k.size >= maxKept || *k.total >= most {
		return
	}
	b := appendDelivery(nil, d)
	k.all = append(k.all, b)
	k.grow(len(b))
}

func (k *kept) grow(n int) {
	k.size += n
	*k.total += n
}

// take returns the oldest, nil when there is none.
func (k *kept) take() *sched.Delivery {
	if k.empty() {
		return nil
	}
	d := new(sched.Delivery)
	nextDelivery(k.all[0], d)
	k.grow(-len(k.all[0]))
	k.all = slices.Delete(k.all, 0, 1)
	return d
}

// drop forgets the jobs of a queue that the worker does not serve any more.
func (k *kept) drop(queue string) {
	k.all = slices.DeleteFunc(k.all, func(b []byte) bool {
		var d sched.Delivery
		nextDelivery(b, &d)
		if d.Job.Queue == queue {
			k.grow(-len(b))
		}
		return d.Job.Queue == queue
	})
}

func (k *kept) empty() bool { return len(k.all) == 0 }
