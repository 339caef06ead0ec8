package kts46

import "treadle/sched"

// Workers of one version cannot continue a simulation of the other. The first batch is in a queue that both versions
// take tasks from. The version of the worker that accepts it gets all later batches, which are in that version's own
// queue.

// bindVersion records that a worker of a version works on a task. The first batch decides the version of its job.
func (r *registry) bindVersion(t *task, version int) {
	if !batchKinds.has(t.kind) || t.job.progress.Version != 0 {
		return
	}
	t.job.progress.Version = version
	r.saveProgress(t.job)
}

// requeueForVersion is requeue for a first batch whose version is decided. It replaces the task by one at the end of
// that version's queue, whose revisions continue. It returns false if the task is no such batch, or if there are too
// many queues.
func (r *registry) requeueForVersion(t *task) bool {
	j := t.job
	if t.kind != simulation || j.progress.Version == 0 {
		return false
	}
	k := j.versionBatches()
	if err := r.sched.AddTasks(r.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, r.sink); err != nil {
		return false
	}
	j.tasks[k] = &task{job: j, kind: k, revision: sched.TaskRevision{Number: t.revision.Number}}
	r.cancel(j, simulation)
	return true
}
