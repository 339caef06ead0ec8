package kts46

import "slices"

// maxWorkers bounds the workers known at a time; each takes about 500 bytes.
const maxWorkers = 1 << 18

// letGo notes that a worker's task is not its own any more.
func (h *Hub) letGo(w *worker) {
	w.task.holder = nil
	h.sched.Unwatch(w.peer, w.task.kind.queue())
	w.task = nil
	if h.outlived(w) {
		h.forget(w)
	}
}

// outlived says that a worker which holds nothing will get a larger revision than ever
// before without our remembering it, unless the clock is set back.
func (h *Hub) outlived(w *worker) bool {
	return w.task == nil && (w.last <= h.floor || w.last < h.now.Wall/secondGrain*secondGrain)
}

// forget forgets a worker that is outlived. The floor sees to it that the clock may be set.
func (h *Hub) forget(w *worker) {
	h.floor = max(h.floor, w.last)
	delete(h.workers, w.id)
}

// minSweep is a number of workers that are not worth a look.
const minSweep = 1024

// worker returns the worker of an id, known from now on.
func (h *Hub) worker(id string) (*worker, error) {
	if w := h.workers[id]; w != nil {
		return w, nil
	}
	if len(h.workers) >= h.sweepAt {
		for _, w := range h.workers {
			if h.outlived(w) {
				h.forget(w)
			}
		}
		h.sweepAt = max(2*len(h.workers), minSweep)
	}
	if len(h.workers) >= maxWorkers {
		return nil, errWorkers
	}
	w := &worker{id: id, peer: h.sched.NewHolder(id), last: h.floor/secondGrain*secondGrain + secondGrain - 1}
	h.workers[id] = w
	return w, nil
}

// held returns the task that a worker holds.
func (h *Hub) held(id string) (*task, error) {
	if w := h.workers[id]; w != nil && w.task != nil {
		return w.task, nil
	}
	return nil, errNoTask
}

// silenceChecks is how often in Options.RestartAfter silent workers are looked for.
const silenceChecks = 4

// Expire queues again what silent workers hold.
func (h *Hub) Expire() {
	_, _, _ = h.own(h.expire) // it fails when the server has stopped
	h.host.Flush(0)
}

func (h *Hub) expire() error {
	after := h.o.RestartAfter
	var silent []*task
	for _, w := range h.workers {
		if w.task != nil && h.now.Mono-w.task.seen >= after.Milliseconds() {
			silent = append(silent, w.task)
		}
	}
	slices.SortFunc(silent, byHolder) // which stands in line first is the same in every play
	for _, t := range silent {
		h.host.Log().Info("a kts46 worker is silent, its task is queued again", "worker", t.holder.id,
			"project", t.job.project.name, "job", t.job.name, "kts46-restart-after", after)
		h.requeue(t, false)
	}
	return nil
}
