package kts46

import (
	"errors"
	"fmt"

	"treadle/loop/protocol"
	"treadle/sched"
)

// stageAccepted is the log entry of a task that its worker has accepted. It follows the entry of the reservation.
const stageAccepted = sched.StageOther

// The units of revisions, in milliseconds: the precision of each version's time format.
const (
	secondUnit      = 1000
	millisecondUnit = 1
)

// Errors that each version words differently.
var (
	errNoTask    = errors.New("the worker has no task")
	errDone      = errors.New("the job is done already")
	errWorkers   = errors.New("too many workers are known: have some finish their tasks")
	errJobs      = fmt.Errorf("there are %d projects and jobs already: delete some", maxEntries)
	errStopping  = errors.New("the server is stopping")
	errDuplicate = errors.New("the job is queued or running already")
)

// project returns a project.
func (r *registry) project(name string) (*project, error) {
	p := r.projects[name]
	if p == nil {
		return nil, &missingError{project: name}
	}
	return p, nil
}

// job returns a job.
func (r *registry) job(project, name string) (*job, error) {
	p, err := r.project(project)
	if err != nil {
		return nil, err
	}
	j := p.jobs[name]
	if j == nil {
		return nil, &missingError{project: project, job: name}
	}
	return j, nil
}

// checkRoom returns an error if there can be no further project or job.
func (r *registry) checkRoom() error {
	if err := r.checkCapacity(); err != nil {
		return err
	}
	if r.entries >= maxEntries {
		return errJobs
	}
	return nil
}

// checkCapacity returns why new jobs are refused, and counts the refusal.
func (r *registry) checkCapacity() error {
	err := r.host.CheckCapacity()
	if err != nil {
		r.host.CountRefusal(name, protocol.ReasonOf(err))
	}
	return err
}

// createProject adds an empty project and saves it.
func (r *registry) createProject(name string) error {
	if err := checkName("project", name); err != nil {
		return err
	}
	if r.projects[name] != nil {
		return &takenError{project: name}
	}
	if err := r.checkRoom(); err != nil {
		return err
	}
	p := &project{name: name, jobs: make(map[string]*job)}
	r.projects[name] = p
	r.entries++
	r.put(p.document())
	return nil
}

// deleteProject deletes a project with its jobs. It removes the project first: a restart drops the jobs of a missing
// project, so a crash in between leaves none behind.
func (r *registry) deleteProject(name string) error {
	p := r.projects[name]
	if p == nil {
		return &missingError{project: name, toDelete: true}
	}
	r.drop(p.document())
	for _, j := range p.jobs {
		r.discard(j)
	}
	delete(r.projects, name)
	r.entries--
	return nil
}

// addJob adds a job with a definition to a project and saves it.
func (r *registry) addJob(project, name string, d *parsedDefinition) error {
	p, err := r.project(project)
	if err != nil {
		return err
	}
	if err := checkName("job", name); err != nil {
		return err
	}
	if p.jobs[name] != nil {
		return &takenError{project, name}
	}
	if d.err != nil {
		return d.err
	}
	if err := r.checkRoom(); err != nil {
		return err
	}
	j := &job{project: p, name: name, batchParams: d.numbers}
	p.jobs[name] = j
	r.entries++
	r.saveDefinition(j, d.text)
	return nil
}

// deleteJob removes a job with its tasks.
func (r *registry) deleteJob(project, name string) error {
	p, err := r.project(project)
	if err != nil {
		return err
	}
	j := p.jobs[name]
	if j == nil {
		return &missingError{project: project, job: name, toDelete: true}
	}
	r.discard(j)
	return nil
}

// discard removes a job and its tasks from its project.
func (r *registry) discard(j *job) {
	r.abort(j)
	for _, kind := range []protocol.DocumentKind{protocol.KindProgress, protocol.KindDefinition, protocol.KindBatchParams} {
		r.drop(j.document(kind, nil))
	}
	delete(j.project.jobs, j.name)
	r.entries--
}

// run starts a job that neither runs nor is done; left are the kinds that end it.
func (r *registry) run(j *job, left kindSet) error {
	switch {
	case j.progress.Finished:
		return errDone
	case j.progress.Running:
		return errDuplicate
	}
	if err := r.checkCapacity(); err != nil {
		return err
	}
	before := j.progress
	j.start(left)
	if err := r.queueMissingTasks(j); err != nil {
		j.progress = before
		return err
	}
	r.saveProgress(j)
	return nil
}

// abort stops a running job and returns how many tasks it removed. The steps done remain.
func (r *registry) abort(j *job) (tasks int) {
	if !j.progress.Running {
		return 0
	}
	for k := range kindCount {
		if j.tasks[k] != nil {
			r.cancel(j, k)
			tasks++
		}
	}
	j.progress.Running = false
	r.saveProgress(j)
	return tasks
}

// cancel removes a task from the scheduler.
func (r *registry) cancel(j *job, k kind) {
	t := j.tasks[k]
	j.tasks[k] = nil
	r.changed = true
	r.retire(t.revision.Number)
	r.sched.RemoveTask(r.now, Space, k.queue(), j.taskName(), r.sink)
	if t.holder != nil {
		r.unassign(t.holder)
	}
}

// retire journals the revision of a task before the task leaves the scheduler, if it is larger than those of all
// earlier ones. After a restart no worker is given that revision again. The revision is journaled first, so that no
// crash keeps the removal without it.
func (r *registry) retire(revision int64) {
	if revision > r.maxRetired {
		r.maxRetired = revision
		r.saveRetired()
	}
}

// queueMissingTasks queues the tasks that a job needs and lacks. Its callers journal the progress afterwards. After an
// error nothing has changed.
func (r *registry) queueMissingTasks(j *job) error {
	var added kindSet
	for k := range kindCount {
		if !j.neededKinds().has(k) || j.tasks[k] != nil {
			continue
		}
		j.tasks[k] = &task{job: j, kind: k}
		added |= 1 << k
		err := r.sched.AddTasks(r.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, r.sink)
		if err != nil {
			for k := range kindCount {
				if added.has(k) {
					r.cancel(j, k)
				}
			}
			return err
		}
	}
	return nil
}

// reserve hands a worker without a task the oldest queued task of the kinds. It returns nil if no task is queued. unit
// is the unit of the revision in milliseconds.
func (r *registry) reserve(id string, kinds kindSet, unit int64, log ...sched.Event) (*task, error) {
	k, ok := r.oldest(kinds)
	if !ok {
		return nil, nil
	}
	w, err := r.addWorker(id)
	if err != nil {
		return nil, err
	}
	return r.take(w, k, unit, log...), nil
}

// take reserves the first queued task of a kind for a worker. It returns nil when the queue hands out none: since
// oldest has looked, the server may have begun to stop, or a policy has shut the queue.
func (r *registry) take(w *worker, k kind, unit int64, log ...sched.Event) (t *task) {
	known := true
	r.sched.Steal(r.now, w.peer, k.queue(), 1, r.sink, func(v *sched.TaskView) bool {
		if t = r.find(k, v.Name); t == nil {
			known = false
			return false
		}
		// The reservation and its revision are journaled together: a crash must not keep only one of them.
		v.Revision = r.nextRevision(max(v.Revision, t.revision.Number), w, unit)
		v.Log = append(v.Log, log...)
		t.revision = sched.TaskRevision{Ref: v.Ref, Number: v.Revision}
		return true
	})
	if !known {
		panic("BUG: the scheduler has a task in line that the registry lacks")
	}
	if t == nil {
		return nil
	}
	r.changed = true
	t.holder, t.accepted, t.started, t.seen = w, len(log) > 0, r.now.Wall, r.now.Mono
	w.task, w.last = t, t.revision.Number
	return t
}

// oldest returns the kind whose first task has been queued for the longest.
func (r *registry) oldest(kinds kindSet) (best kind, ok bool) {
	least := int64(0)
	for k := range kindCount {
		if !kinds.has(k) {
			continue
		}
		if place, found := r.sched.Head(k.queue()); found && (!ok || place < least) {
			best, least, ok = k, place, true
		}
	}
	return best, ok
}

// find returns the registry's task for a name of the scheduler.
func (r *registry) find(k kind, name []byte) *task {
	parts := splitName(name)
	j, err := r.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(name) {
		return nil
	}
	return j.tasks[k]
}

// nextRevision returns the present time in units of the revision, or the next unit that neither the task nor the worker
// has had, so that no earlier report matches. Version 1 compares revisions by the second. So the revision after one of
// version 1 is in another second, in version 2 too.
func (r *registry) nextRevision(task int64, w *worker, unit int64) int64 {
	last := max(task, w.last)
	if unit < secondUnit && w.last%secondUnit == 0 {
		last = max(last, w.last+secondUnit)
	}
	return max(r.now.Wall/unit*unit, (last/unit+1)*unit)
}

// touch gives a held task its next revision.
func (r *registry) touch(t *task, unit int64, log ...sched.Event) {
	next := r.nextRevision(t.revision.Number, t.holder, unit)
	if err := r.sched.ReviseTask(t.holder.peer, t.revision, next, log...); err != nil {
		panic("BUG: a task that is held in the registry is not held in the scheduler: " + err.Error())
	}
	r.changed = true
	t.revision.Number, t.holder.last, t.seen = next, next, r.now.Mono
}

// accepting returns the log entry of a task that its worker accepts.
func (r *registry) accepting() sched.Event {
	return sched.Event{Stage: stageAccepted, Micros: r.now.WallMicros}
}

// requeue takes a task from its holder and queues it again, first or last.
func (r *registry) requeue(t *task, first bool) {
	if r.requeueForVersion(t) {
		return
	}
	if err := r.sched.ReleaseTask(r.now, t.holder.peer, t.revision, first, r.sink); err != nil {
		panic("BUG: a task that is held in the registry is not held in the scheduler: " + err.Error())
	}
	r.changed = true
	r.unassign(t.holder)
}

// finish ends a held task and queues the next ones. After an error nothing has changed.
func (r *registry) finish(t *task) error {
	return r.finishBy(t, func() { t.job.recordDone(t.kind) })
}

// finishBy is finish with another function to count the work done.
func (r *registry) finishBy(t *task, count func()) error {
	j, before, w := t.job, t.job.progress, t.holder
	count()
	j.tasks[t.kind] = nil
	if err := r.queueMissingTasks(j); err != nil {
		j.progress, j.tasks[t.kind] = before, t
		return err
	}
	r.retire(t.revision.Number)
	if err := r.sched.FinishTask(r.now, w.peer, t.revision, r.sink); err != nil {
		panic("BUG: a task that is held in the registry is not held in the scheduler: " + err.Error())
	}
	r.unassign(w)
	r.saveProgress(j)
	return nil
}
