package kts46

import "treadle/sched"

// The workers of the two versions cannot continue each other's simulation. A first batch
// stands in a line that both are given from; the version whose worker accepts it is given
// all later ones, which stand in a line of its own.

// decide notes that a worker of a version does a task. The first batch decides.
func (h *Hub) decide(t *task, version int) {
	if !batchKinds.has(t.kind) || t.job.progress.Version != 0 {
		return
	}
	t.job.progress.Version = version
	h.saveProgress(t.job)
}

// requeueForOne is requeue for a first batch that was decided: the task is replaced by one,
// last in the line of its version, whose revisions go on from there. false: t is none, or
// there are too many queues for another.
func (h *Hub) requeueForOne(t *task) bool {
	j := t.job
	if t.kind != simulation || j.progress.Version == 0 {
		return false
	}
	j.tasks[simulation] = nil
	k := j.batches()
	j.tasks[simulation] = t
	if err := h.sched.Extend(h.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, h.sink); err != nil {
		return false
	}
	j.tasks[k] = &task{job: j, kind: k, lease: sched.Lease{Revision: t.lease.Revision}}
	h.cancel(j, simulation)
	return true
}
