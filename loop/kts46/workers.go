package kts46

import "slices"

// maxWorkers bounds the workers that are known at once; each takes about 500 bytes.
const maxWorkers = 1 << 18

// unassign records that a worker does not hold its task any more.
func (r *registry) unassign(w *worker) {
	w.task.holder = nil
	r.sched.Unwatch(w.peer, w.task.kind.queue())
	w.task = nil
	if r.removable(w) {
		r.removeWorker(w)
	}
}

// removable reports whether a worker holds no task and would get a larger revision than ever before even if it were
// removed, unless the clock is set back.
func (r *registry) removable(w *worker) bool {
	return w.task == nil && (w.last <= r.minRevision || w.last < r.now.Wall/secondUnit*secondUnit)
}

// removeWorker removes a worker. The floor protects its revisions when the clock is set back.
func (r *registry) removeWorker(w *worker) {
	r.minRevision = max(r.minRevision, w.last)
	delete(r.workers, w.id)
}

// minSweep is the smallest number of workers that a sweep is worth.
const minSweep = 1024

// addWorker returns the worker of an id, and adds it when it is new.
func (r *registry) addWorker(id string) (*worker, error) {
	if w := r.workers[id]; w != nil {
		return w, nil
	}
	if len(r.workers) >= r.sweepAt {
		for _, w := range r.workers {
			if r.removable(w) {
				r.removeWorker(w)
			}
		}
		r.sweepAt = max(2*len(r.workers), minSweep)
	}
	if len(r.workers) >= maxWorkers {
		return nil, errWorkers
	}
	w := &worker{id: id, peer: r.sched.NewHolderPeer(id), last: r.minRevision/secondUnit*secondUnit + secondUnit - 1}
	r.workers[id] = w
	return w, nil
}

// held returns the task that a worker holds.
func (r *registry) held(id string) (*task, error) {
	if w := r.workers[id]; w != nil && w.task != nil {
		return w.task, nil
	}
	return nil, errNoTask
}

// silenceChecks is how often silent workers are looked for within Options.RestartAfter.
const silenceChecks = 4

// Expire queues the tasks of silent workers again.
func (r *registry) Expire() {
	_, _, _ = r.locked(r.expire) // fails only when the server has stopped
	r.host.Flush(0)
}

// expire requeues the tasks of workers that have been silent for restartAfter, and removes idle workers.
func (r *registry) expire() error {
	after := r.restartAfter
	var silent []*task
	for _, w := range r.workers {
		if w.task != nil && r.now.Mono-w.task.seen >= after.Milliseconds() {
			silent = append(silent, w.task)
		}
	}
	slices.SortFunc(silent, byHolder) // so that every run requeues them in the same order
	for _, t := range silent {
		r.host.Log().Info("a kts46 worker is silent, its task is queued again", "worker", t.holder.id,
			"project", t.job.project.name, "job", t.job.name, "kts46-restart-after", after)
		r.requeue(t, false)
	}
	return nil
}
