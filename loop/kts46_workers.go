package loop

import "slices"

// maxKtsWorkers bounds the workers known at a time; each takes about 500 bytes.
const maxKtsWorkers = 1 << 18

// letGo notes that a worker's task is not its own any more.
func (h *ktsHub) letGo(w *ktsWorker) {
	w.task.holder = nil
	h.server.sched.Unwatch(w.peer, w.task.kind.queue())
	w.task = nil
	if h.outlived(w) {
		h.forget(w)
	}
}

// outlived says that a worker which holds nothing will get a larger revision than ever
// before without our remembering it, unless the clock is set back.
func (h *ktsHub) outlived(w *ktsWorker) bool {
	return w.task == nil && (w.last <= h.floor || w.last < h.now.Wall/ktsSecond*ktsSecond)
}

// forget forgets a worker that is outlived. The floor sees to it that the clock may be set.
func (h *ktsHub) forget(w *ktsWorker) {
	h.floor = max(h.floor, w.last)
	delete(h.workers, w.id)
}

// minKtsSweep is a number of workers that are not worth a look.
const minKtsSweep = 1024

// worker returns the worker of an id, known from now on.
func (h *ktsHub) worker(id string) (*ktsWorker, error) {
	if w := h.workers[id]; w != nil {
		return w, nil
	}
	if len(h.workers) >= h.sweepAt {
		for _, w := range h.workers {
			if h.outlived(w) {
				h.forget(w)
			}
		}
		h.sweepAt = max(2*len(h.workers), minKtsSweep)
	}
	if len(h.workers) >= maxKtsWorkers {
		return nil, errKtsWorkers
	}
	w := &ktsWorker{id: id, peer: h.server.sched.NewHolder(id), last: h.floor/ktsSecond*ktsSecond + ktsSecond - 1}
	h.workers[id] = w
	return w, nil
}

// held returns the task that a worker holds.
func (h *ktsHub) held(id string) (*ktsTask, error) {
	if w := h.workers[id]; w != nil && w.task != nil {
		return w.task, nil
	}
	return nil, errKtsNoTask
}

// expire queues again what silent workers hold.
func (h *ktsHub) expire() error {
	after := h.server.o.Kts46.RestartAfter
	var silent []*ktsTask
	for _, w := range h.workers {
		if w.task != nil && h.now.Mono-w.task.seen >= after.Milliseconds() {
			silent = append(silent, w.task)
		}
	}
	slices.SortFunc(silent, byHolder) // which stands in line first is the same in every play
	for _, t := range silent {
		h.server.log.Info("a kts46 worker is silent, its task is queued again", "worker", t.holder.id,
			"project", t.job.project.name, "job", t.job.name, "kts46-restart-after", after)
		h.requeue(t, false)
	}
	return nil
}
