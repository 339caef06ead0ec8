package loop

import (
	"slices"

	"treadle/sched"
)

// kept is the jobs that were broadcast to a worker while it slept, oldest first, as
// deliveries: they are nobody else's, and are handed out at its next grabs.
type kept struct {
	all  [][]byte
	size int
}

// maxKept bounds the bytes of jobs kept for one worker, as the window of unsent jobs
// does where workers wait with a grab: one that is woken and never grabs misses what
// is broadcast beyond it.
const maxKept = sched.DefaultWindow

// put keeps a copy of a delivery.
func (k *kept) put(d *sched.Delivery) {
	if k.size >= maxKept {
		return
	}
	b := appendDelivery(nil, d)
	k.all = append(k.all, b)
	k.size += len(b)
}

// take returns the oldest, nil when there is none.
func (k *kept) take() *sched.Delivery {
	if k.empty() {
		return nil
	}
	d := new(sched.Delivery)
	nextDelivery(k.all[0], d)
	k.size -= len(k.all[0])
	k.all = slices.Delete(k.all, 0, 1)
	return d
}

// drop forgets the jobs of a queue that the worker does not serve any more.
func (k *kept) drop(queue string) {
	k.all = slices.DeleteFunc(k.all, func(b []byte) bool {
		var d sched.Delivery
		nextDelivery(b, &d)
		if d.Job.Queue == queue {
			k.size -= len(b)
		}
		return d.Job.Queue == queue
	})
}

func (k *kept) empty() bool { return len(k.all) == 0 }
