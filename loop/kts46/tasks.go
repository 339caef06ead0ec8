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
func (b *book) project(name string) (*project, error) {
	p := b.projects[name]
	if p == nil {
		return nil, &missingError{project: name}
	}
	return p, nil
}

// job returns a job.
func (b *book) job(project, name string) (*job, error) {
	p, err := b.project(project)
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
func (b *book) checkRoom() error {
	if err := b.refusing(); err != nil {
		return err
	}
	if b.entries >= maxEntries {
		return errJobs
	}
	return nil
}

// refusing returns why new jobs are refused, and counts the refusal.
func (b *book) refusing() error {
	err := b.host.CheckCapacity()
	if err != nil {
		b.host.CountRefusal(name, protocol.ReasonOf(err))
	}
	return err
}

// createProject adds an empty project and saves it.
func (b *book) createProject(name string) error {
	if err := checkName("project", name); err != nil {
		return err
	}
	if b.projects[name] != nil {
		return &takenError{project: name}
	}
	if err := b.checkRoom(); err != nil {
		return err
	}
	p := &project{name: name, jobs: make(map[string]*job)}
	b.projects[name] = p
	b.entries++
	b.put(p.document())
	return nil
}

// deleteProject deletes a project with its jobs. It removes the project first: a restart drops the jobs of a missing
// project, so a crash in between leaves none behind.
func (b *book) deleteProject(name string) error {
	p := b.projects[name]
	if p == nil {
		return &missingError{project: name, toDelete: true}
	}
	b.drop(p.document())
	for _, j := range p.jobs {
		b.discard(j)
	}
	delete(b.projects, name)
	b.entries--
	return nil
}

// addJob adds a job with a definition to a project and saves it.
func (b *book) addJob(project, name string, d *parsedDefinition) error {
	p, err := b.project(project)
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
	if err := b.checkRoom(); err != nil {
		return err
	}
	j := &job{project: p, name: name, numbers: d.numbers}
	p.jobs[name] = j
	b.entries++
	b.saveDefinition(j, d.text)
	return nil
}

// deleteJob removes a job with its tasks.
func (b *book) deleteJob(project, name string) error {
	p, err := b.project(project)
	if err != nil {
		return err
	}
	j := p.jobs[name]
	if j == nil {
		return &missingError{project: project, job: name, toDelete: true}
	}
	b.discard(j)
	return nil
}

// discard removes a job and its tasks from its project.
func (b *book) discard(j *job) {
	b.abort(j)
	for _, kind := range []protocol.DocumentKind{protocol.KindProgress, protocol.KindDefinition, protocol.KindNumbers} {
		b.drop(j.document(kind, nil))
	}
	delete(j.project.jobs, j.name)
	b.entries--
}

// run starts a job that neither runs nor is done; left are the kinds that end it.
func (b *book) run(j *job, left kindSet) error {
	switch {
	case j.progress.Finished:
		return errDone
	case j.progress.Running:
		return errDuplicate
	}
	if err := b.refusing(); err != nil {
		return err
	}
	before := j.progress
	j.start(left)
	if err := b.settle(j); err != nil {
		j.progress = before
		return err
	}
	b.saveProgress(j)
	return nil
}

// abort stops a running job and returns how many tasks it removed. The steps done remain.
func (b *book) abort(j *job) (tasks int) {
	if !j.progress.Running {
		return 0
	}
	for k := range kindCount {
		if j.tasks[k] != nil {
			b.cancel(j, k)
			tasks++
		}
	}
	j.progress.Running = false
	b.saveProgress(j)
	return tasks
}

// cancel removes a task from the scheduler.
func (b *book) cancel(j *job, k kind) {
	t := j.tasks[k]
	j.tasks[k] = nil
	b.changed = true
	b.retire(t.revision.Number)
	b.sched.RemoveTask(b.now, Space, k.queue(), j.taskName(), b.sink)
	if t.holder != nil {
		b.unassign(t.holder)
	}
}

// retire journals the revision of a task before the task leaves the scheduler, if it is larger than those of all
// earlier ones. After a restart no worker is given that revision again. The revision is journaled first, so that no
// crash keeps the removal without it.
func (b *book) retire(revision int64) {
	if revision > b.retired {
		b.retired = revision
		b.saveRetired()
	}
}

// settle queues the tasks that a job needs and lacks. Its callers journal the progress afterwards. After an error
// nothing has changed.
func (b *book) settle(j *job) error {
	var added kindSet
	for k := range kindCount {
		if !j.plan().has(k) || j.tasks[k] != nil {
			continue
		}
		j.tasks[k] = &task{job: j, kind: k}
		added |= 1 << k
		err := b.sched.Extend(b.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, b.sink)
		if err != nil {
			for k := range kindCount {
				if added.has(k) {
					b.cancel(j, k)
				}
			}
			return err
		}
	}
	return nil
}

// reserve hands a worker without a task the oldest queued task of the kinds. It returns nil if no task is queued. unit
// is the unit of the revision in milliseconds.
func (b *book) reserve(id string, kinds kindSet, unit int64, log ...sched.Event) (*task, error) {
	k, ok := b.oldest(kinds)
	if !ok {
		return nil, nil
	}
	w, err := b.addWorker(id)
	if err != nil {
		return nil, err
	}
	return b.take(w, k, unit, log...), nil
}

// take reserves the first queued task of a kind for a worker. It returns nil when the queue hands out none: since
// oldest has looked, the server may have begun to stop, or a policy has shut the queue.
func (b *book) take(w *worker, k kind, unit int64, log ...sched.Event) (t *task) {
	known := true
	b.sched.Steal(b.now, w.peer, k.queue(), 1, b.sink, func(v *sched.TaskView) bool {
		if t = b.find(k, v.Name); t == nil {
			known = false
			return false
		}
		// The reservation and its revision are journaled together: a crash must not keep only one of them.
		v.Revision = b.nextRevision(max(v.Revision, t.revision.Number), w, unit)
		v.Log = append(v.Log, log...)
		t.revision = sched.TaskRevision{Ref: v.Ref, Number: v.Revision}
		return true
	})
	if !known {
		panic("BUG: the scheduler has a task in line that the book has not")
	}
	if t == nil {
		return nil
	}
	b.changed = true
	t.holder, t.accepted, t.started, t.seen = w, len(log) > 0, b.now.Wall, b.now.Mono
	w.task, w.last = t, t.revision.Number
	return t
}

// oldest returns the kind whose first task has been queued for the longest.
func (b *book) oldest(kinds kindSet) (best kind, ok bool) {
	least := int64(0)
	for k := range kindCount {
		if !kinds.has(k) {
			continue
		}
		if place, found := b.sched.Head(k.queue()); found && (!ok || place < least) {
			best, least, ok = k, place, true
		}
	}
	return best, ok
}

// find returns the book's task for a name of the scheduler.
func (b *book) find(k kind, name []byte) *task {
	parts := splitName(name)
	j, err := b.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(name) {
		return nil
	}
	return j.tasks[k]
}

// nextRevision returns the present time in units of the revision, or the next unit that neither the task nor the worker
// has had, so that no earlier report matches. Version 1 compares revisions by the second. So the revision after one of
// version 1 is in another second, in version 2 too.
func (b *book) nextRevision(task int64, w *worker, unit int64) int64 {
	last := max(task, w.last)
	if unit < secondUnit && w.last%secondUnit == 0 {
		last = max(last, w.last+secondUnit)
	}
	return max(b.now.Wall/unit*unit, (last/unit+1)*unit)
}

// touch gives a held task its next revision.
func (b *book) touch(t *task, unit int64, log ...sched.Event) {
	next := b.nextRevision(t.revision.Number, t.holder, unit)
	if err := b.sched.ReviseTask(t.holder.peer, t.revision, next, log...); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	b.changed = true
	t.revision.Number, t.holder.last, t.seen = next, next, b.now.Mono
}

// accepting returns the log entry of a task that its worker accepts.
func (b *book) accepting() sched.Event {
	return sched.Event{Stage: stageAccepted, Micros: b.now.Micros}
}

// requeue takes a task from its holder and queues it again, first or last.
func (b *book) requeue(t *task, first bool) {
	if b.requeueForVersion(t) {
		return
	}
	if err := b.sched.ReleaseTask(b.now, t.holder.peer, t.revision, first, b.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	b.changed = true
	b.unassign(t.holder)
}

// finish ends a held task and queues the next ones. After an error nothing has changed.
func (b *book) finish(t *task) error {
	return b.finishBy(t, func() { t.job.count(t.kind) })
}

// finishBy is finish with another function to count the work done.
func (b *book) finishBy(t *task, count func()) error {
	j, before, w := t.job, t.job.progress, t.holder
	count()
	j.tasks[t.kind] = nil
	if err := b.settle(j); err != nil {
		j.progress, j.tasks[t.kind] = before, t
		return err
	}
	b.retire(t.revision.Number)
	if err := b.sched.FinishTask(b.now, w.peer, t.revision, b.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	b.unassign(w)
	b.saveProgress(j)
	return nil
}
