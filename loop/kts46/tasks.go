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
	errDiskFull  = errors.New("the disk is nearly full, see --min-free")
	errWorkers   = errors.New("too many workers are known: have some finish their tasks")
	errJobs      = fmt.Errorf("there are %d projects and jobs already: delete some", maxEntries)
	errStopping  = errors.New("the server is stopping")
	errDuplicate = errors.New("the job is queued or running already")
)

// project returns a project.
func (h *Protocol) project(name string) (*project, error) {
	p := h.projects[name]
	if p == nil {
		return nil, &missingError{project: name}
	}
	return p, nil
}

// job returns a job.
func (h *Protocol) job(project, name string) (*job, error) {
	p, err := h.project(project)
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
func (h *Protocol) checkRoom() error {
	switch {
	case h.host.Full():
		return h.diskFull()
	case h.entries >= maxEntries:
		return errJobs
	}
	return nil
}

func (h *Protocol) diskFull() error {
	h.host.Refused(protocol.ReasonDisk)
	return errDiskFull
}

func (h *Protocol) createProject(name string) error {
	if err := checkName("project", name); err != nil {
		return err
	}
	if h.projects[name] != nil {
		return &takenError{project: name}
	}
	if err := h.checkRoom(); err != nil {
		return err
	}
	p := &project{name: name, jobs: make(map[string]*job)}
	h.projects[name] = p
	h.entries++
	h.put(p.document())
	return nil
}

// deleteProject deletes a project with its jobs. It removes the project first: a restart drops the jobs of a missing
// project, so a crash in between leaves none behind.
func (h *Protocol) deleteProject(name string) error {
	p := h.projects[name]
	if p == nil {
		return &missingError{project: name, toDelete: true}
	}
	h.drop(p.document())
	for _, j := range p.jobs {
		h.discard(j)
	}
	delete(h.projects, name)
	h.entries--
	return nil
}

func (h *Protocol) addJob(project, name string, d *parsedDefinition) error {
	p, err := h.project(project)
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
	if err := h.checkRoom(); err != nil {
		return err
	}
	j := &job{project: p, name: name, numbers: d.numbers}
	p.jobs[name] = j
	h.entries++
	h.saveDefinition(j, d.text)
	return nil
}

func (h *Protocol) deleteJob(project, name string) error {
	p, err := h.project(project)
	if err != nil {
		return err
	}
	j := p.jobs[name]
	if j == nil {
		return &missingError{project: project, job: name, toDelete: true}
	}
	h.discard(j)
	return nil
}

// discard removes a job and its tasks from its project.
func (h *Protocol) discard(j *job) {
	h.abort(j)
	for _, kind := range []protocol.DocumentKind{protocol.KindProgress, protocol.KindDefinition, protocol.KindNumbers} {
		h.drop(j.document(kind, nil))
	}
	delete(j.project.jobs, j.name)
	h.entries--
}

// run starts a job that neither runs nor is done; left are the kinds that end it.
func (h *Protocol) run(j *job, left kindSet) error {
	switch {
	case j.progress.Finished:
		return errDone
	case j.progress.Running:
		return errDuplicate
	case h.host.Full():
		return h.diskFull()
	}
	before := j.progress
	j.start(left)
	if err := h.settle(j); err != nil {
		j.progress = before
		return err
	}
	h.saveProgress(j)
	return nil
}

// abort stops a running job and returns how many tasks it removed. The steps done remain.
func (h *Protocol) abort(j *job) (tasks int) {
	if !j.progress.Running {
		return 0
	}
	for k := range kindCount {
		if j.tasks[k] != nil {
			h.cancel(j, k)
			tasks++
		}
	}
	j.progress.Running = false
	h.saveProgress(j)
	return tasks
}

// cancel removes a task from the scheduler.
func (h *Protocol) cancel(j *job, k kind) {
	t := j.tasks[k]
	j.tasks[k] = nil
	h.changed = true
	h.retire(t.lease)
	h.sched.RemoveTask(h.now, Space, k.queue(), j.taskName(), h.sink)
	if t.holder != nil {
		h.unassign(t.holder)
	}
}

// retire journals the revision of a task before the task leaves the scheduler, if it is larger than those of all
// earlier ones. After a restart no worker is given that revision again. The revision is journaled first, so that no
// crash keeps the removal without it.
func (h *Protocol) retire(l sched.Lease) {
	if l.Revision > h.retired {
		h.retired = l.Revision
		h.saveRetired()
	}
}

// settle queues the tasks that a job needs and lacks. Its callers journal the progress afterwards. After an error
// nothing has changed.
func (h *Protocol) settle(j *job) error {
	var added kindSet
	for k := range kindCount {
		if !j.plan().has(k) || j.tasks[k] != nil {
			continue
		}
		j.tasks[k] = &task{job: j, kind: k}
		added |= 1 << k
		err := h.sched.Extend(h.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, h.sink)
		if err != nil {
			for k := range kindCount {
				if added.has(k) {
					h.cancel(j, k)
				}
			}
			return err
		}
	}
	return nil
}

// reserve hands a worker without a task the oldest queued task of the kinds. It returns nil when there is none. unit
// is the unit of the revision in milliseconds.
func (h *Protocol) reserve(id string, kinds kindSet, unit int64, log ...sched.Event) (*task, error) {
	k, ok := h.oldest(kinds)
	if !ok {
		return nil, nil
	}
	w, err := h.worker(id)
	if err != nil {
		return nil, err
	}
	return h.take(w, k, unit, log...), nil
}

// take reserves the first queued task of a kind for a worker. It returns nil when the queue hands out none: since
// oldest has looked, the server may have begun to stop, or a policy has shut the queue.
func (h *Protocol) take(w *worker, k kind, unit int64, log ...sched.Event) (t *task) {
	known := true
	h.sched.Steal(h.now, w.peer, k.queue(), 1, h.sink, func(v *sched.TaskView) bool {
		if t = h.find(k, v.Name); t == nil {
			known = false
			return false
		}
		// The reservation and its revision are journaled together: a crash must not keep only one of them.
		v.Revision = h.nextRevision(max(v.Revision, t.lease.Revision), w, unit)
		v.Log = append(v.Log, log...)
		t.lease = sched.Lease{Ref: v.Ref, Revision: v.Revision}
		return true
	})
	if !known {
		panic("BUG: the scheduler has a task in line that the book has not")
	}
	if t == nil {
		return nil
	}
	h.changed = true
	t.holder, t.accepted, t.started, t.seen = w, len(log) > 0, h.now.Wall, h.now.Mono
	w.task, w.last = t, t.lease.Revision
	return t
}

// oldest returns the kind whose first task has been queued for the longest.
func (h *Protocol) oldest(kinds kindSet) (best kind, ok bool) {
	least := int64(0)
	for k := range kindCount {
		if !kinds.has(k) {
			continue
		}
		if place, found := h.sched.Head(k.queue()); found && (!ok || place < least) {
			best, least, ok = k, place, true
		}
	}
	return best, ok
}

// find returns the book's task for a name of the scheduler.
func (h *Protocol) find(k kind, name []byte) *task {
	parts := splitName(name)
	j, err := h.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(name) {
		return nil
	}
	return j.tasks[k]
}

// nextRevision returns the present time in units of the revision, or the next unit that neither the task nor the
// worker has had, so that no earlier report matches. Version 1 compares revisions by the second. So the revision
// after one of version 1 is in another second, in version 2 too.
func (h *Protocol) nextRevision(task int64, w *worker, unit int64) int64 {
	last := max(task, w.last)
	if unit < secondUnit && w.last%secondUnit == 0 {
		last = max(last, w.last+secondUnit)
	}
	return max(h.now.Wall/unit*unit, (last/unit+1)*unit)
}

// touch gives a held task its next revision.
func (h *Protocol) touch(t *task, unit int64, log ...sched.Event) {
	next := h.nextRevision(t.lease.Revision, t.holder, unit)
	if err := h.sched.Touch(t.holder.peer, t.lease, next, log...); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	t.lease.Revision, t.holder.last, t.seen = next, next, h.now.Mono
}

// accepting returns the log entry of a task that its worker accepts.
func (h *Protocol) accepting() sched.Event {
	return sched.Event{Stage: stageAccepted, Micros: h.now.Micros}
}

// requeue takes a task from its holder and queues it again, first or last.
func (h *Protocol) requeue(t *task, first bool) {
	if h.requeueForVersion(t) {
		return
	}
	if err := h.sched.ReleaseLease(h.now, t.holder.peer, t.lease, first, h.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	h.unassign(t.holder)
}

// finish ends a held task and queues the next ones. After an error nothing has changed.
func (h *Protocol) finish(t *task) error {
	return h.finishBy(t, func() { t.job.count(t.kind) })
}

// finishBy is finish with another function to count the work done.
func (h *Protocol) finishBy(t *task, count func()) error {
	j, before, w := t.job, t.job.progress, t.holder
	count()
	j.tasks[t.kind] = nil
	if err := h.settle(j); err != nil {
		j.progress, j.tasks[t.kind] = before, t
		return err
	}
	h.retire(t.lease)
	if err := h.sched.FinishLease(h.now, w.peer, t.lease, h.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.unassign(w)
	h.saveProgress(j)
	return nil
}
