package kts46

import "slices"

// maxWorkers bounds the workers that are known at once; each takes about 500 bytes.
const maxWorkers = 1 << 18

// unassign records that a worker does not hold its task any more.
func (b *book) unassign(w *worker) {
	w.task.holder = nil
	b.sched.Unwatch(w.peer, w.task.kind.queue())
	w.task = nil
	if b.removable(w) {
		b.removeWorker(w)
	}
}

// removable reports whether a worker holds no task and would get a larger revision than ever before even if it were
// removed, unless the clock is set back.
func (b *book) removable(w *worker) bool {
	return w.task == nil && (w.last <= b.floor || w.last < b.now.Wall/secondUnit*secondUnit)
}

// removeWorker removes a worker. The floor protects its revisions when the clock is set back.
func (b *book) removeWorker(w *worker) {
	b.floor = max(b.floor, w.last)
	delete(b.workers, w.id)
}

// minSweep is the smallest number of workers that a sweep is worth.
const minSweep = 1024

// addWorker returns the worker of an id, and adds it when it is new.
func (b *book) addWorker(id string) (*worker, error) {
	if w := b.workers[id]; w != nil {
		return w, nil
	}
	if len(b.workers) >= b.sweepAt {
		for _, w := range b.workers {
			if b.removable(w) {
				b.removeWorker(w)
			}
		}
		b.sweepAt = max(2*len(b.workers), minSweep)
	}
	if len(b.workers) >= maxWorkers {
		return nil, errWorkers
	}
	w := &worker{id: id, peer: b.sched.NewHolderPeer(id), last: b.floor/secondUnit*secondUnit + secondUnit - 1}
	b.workers[id] = w
	return w, nil
}

// held returns the task that a worker holds.
func (b *book) held(id string) (*task, error) {
	if w := b.workers[id]; w != nil && w.task != nil {
		return w.task, nil
	}
	return nil, errNoTask
}

// silenceChecks is how often silent workers are looked for within Options.RestartAfter.
const silenceChecks = 4

// Expire queues the tasks of silent workers again.
func (b *book) Expire() {
	_, _, _ = b.locked(b.expire) // fails only when the server has stopped
	b.host.Flush(0)
}

// expire requeues the tasks of workers that have been silent for restartAfter, and removes idle workers.
func (b *book) expire() error {
	after := b.restartAfter
	var silent []*task
	for _, w := range b.workers {
		if w.task != nil && b.now.Mono-w.task.seen >= after.Milliseconds() {
			silent = append(silent, w.task)
		}
	}
	slices.SortFunc(silent, byHolder) // so that every run requeues them in the same order
	for _, t := range silent {
		b.host.Log().Info("a kts46 worker is silent, its task is queued again", "worker", t.holder.id,
			"project", t.job.project.name, "job", t.job.name, "kts46-restart-after", after)
		b.requeue(t, false)
	}
	return nil
}
