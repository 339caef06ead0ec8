package kts46

import "slices"

// maxWorkers bounds the workers that are known at once; each takes about 500 bytes.
const maxWorkers = 1 << 18

// unassign records that a worker does not hold its task any more.
func (h *Protocol) unassign(w *worker) {
	w.task.holder = nil
	h.sched.Unwatch(w.peer, w.task.kind.queue())
	w.task = nil
	if h.removable(w) {
		h.remove(w)
	}
}

// removable reports whether a worker holds no task and would get a larger revision than ever before even if it were
// removed, unless the clock is set back.
func (h *Protocol) removable(w *worker) bool {
	return w.task == nil && (w.last <= h.floor || w.last < h.now.Wall/secondUnit*secondUnit)
}

// remove removes a worker. The floor protects its revisions when the clock is set back.
func (h *Protocol) remove(w *worker) {
	h.floor = max(h.floor, w.last)
	delete(h.workers, w.id)
}

// minSweep is the smallest number of workers that a sweep is worth.
const minSweep = 1024

// worker returns the worker of an id, a new one if needed.
func (h *Protocol) worker(id string) (*worker, error) {
	if w := h.workers[id]; w != nil {
		return w, nil
	}
	if len(h.workers) >= h.sweepAt {
		for _, w := range h.workers {
			if h.removable(w) {
				h.remove(w)
			}
		}
		h.sweepAt = max(2*len(h.workers), minSweep)
	}
	if len(h.workers) >= maxWorkers {
		return nil, errWorkers
	}
	w := &worker{id: id, peer: h.sched.NewHolder(id), last: h.floor/secondUnit*secondUnit + secondUnit - 1}
	h.workers[id] = w
	return w, nil
}

// held returns the task that a worker holds.
func (h *Protocol) held(id string) (*task, error) {
	if w := h.workers[id]; w != nil && w.task != nil {
		return w.task, nil
	}
	return nil, errNoTask
}

// silenceChecks is how often silent workers are looked for within Options.RestartAfter.
const silenceChecks = 4

// Expire queues the tasks of silent workers again.
func (h *Protocol) Expire() {
	_, _, _ = h.locked(h.expire) // fails only when the server has stopped
	h.host.Flush(0)
}

func (h *Protocol) expire() error {
	after := h.o.RestartAfter
	var silent []*task
	for _, w := range h.workers {
		if w.task != nil && h.now.Mono-w.task.seen >= after.Milliseconds() {
			silent = append(silent, w.task)
		}
	}
	slices.SortFunc(silent, byHolder) // so that every run requeues them in the same order
	for _, t := range silent {
		h.host.Log().Info("a kts46 worker is silent, its task is queued again", "worker", t.holder.id,
			"project", t.job.project.name, "job", t.job.name, "kts46-restart-after", after)
		h.requeue(t, false)
	}
	return nil
}
