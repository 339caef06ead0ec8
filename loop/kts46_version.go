package loop

import "treadle/sched"

// The workers of the two versions cannot continue each other's simulation. A first batch
// stands in a line that both are given from; the version whose worker accepts it is given
// all later ones, which stand in a line of its own.

// decide notes that a worker of a version does a task. The first batch decides.
func (h *ktsHub) decide(t *ktsTask, version int) {
	if !ktsBatches.has(t.kind) || t.job.progress.Version != 0 {
		return
	}
	t.job.progress.Version = version
	h.saveProgress(t.job)
}

// requeueForOne is requeue for a first batch that was decided: the task is replaced by one,
// last in the line of its version, whose revisions go on from there. false: t is none, or
// there are too many queues for another.
func (h *ktsHub) requeueForOne(t *ktsTask) bool {
	j := t.job
	if t.kind != ktsSimulation || j.progress.Version == 0 {
		return false
	}
	j.tasks[ktsSimulation] = nil
	k := j.batches()
	j.tasks[ktsSimulation] = t
	if err := h.server.sched.Extend(h.now, ktsSpace, k.queue(), []sched.Task{{Name: j.taskName()}}, &h.sink); err != nil {
		return false
	}
	j.tasks[k] = &ktsTask{job: j, kind: k, lease: sched.Lease{Revision: t.lease.Revision}}
	h.cancel(j, ktsSimulation)
	return true
}
