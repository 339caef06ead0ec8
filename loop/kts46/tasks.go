package kts46

import (
	"errors"
	"fmt"

	"treadle/loop/protocol"
	"treadle/sched"
)

// stageAccepted is the log entry of a task whose worker has accepted it, behind the one of
// its being handed out.
const stageAccepted = sched.StageOther

// Grains of revisions, in milliseconds: what a version's form of a time has room for.
const (
	secondGrain      = 1000
	millisecondGrain = 1
)

// Refusals that the two versions word differently.
var (
	errNoTask    = errors.New("the worker has no task")
	errDone      = errors.New("the job is done already")
	errDiskFull  = errors.New("the disk is nearly full, see --min-free")
	errWorkers   = errors.New("too many workers are known: have some finish their tasks")
	errJobs      = fmt.Errorf("there are %d projects and jobs already: delete some", maxEntries)
	errStopping  = errors.New("the server is stopping")
	errDuplicate = errors.New("the job is queued or running already")
)

// project finds a project.
func (h *Hub) project(name string) (*project, error) {
	p := h.projects[name]
	if p == nil {
		return nil, &missingError{project: name}
	}
	return p, nil
}

// job finds a job.
func (h *Hub) job(project, name string) (*job, error) {
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

// room says whether another project or job may be taken in.
func (h *Hub) room() error {
	switch {
	case h.host.Full():
		return h.diskFull()
	case h.entries >= maxEntries:
		return errJobs
	}
	return nil
}

func (h *Hub) diskFull() error {
	h.host.Refused(protocol.ReasonDisk)
	return errDiskFull
}

func (h *Hub) createProject(name string) error {
	if err := checkName("project", name); err != nil {
		return err
	}
	if h.projects[name] != nil {
		return &takenError{project: name}
	}
	if err := h.room(); err != nil {
		return err
	}
	p := &project{name: name, jobs: make(map[string]*job)}
	h.projects[name] = p
	h.entries++
	h.put(p.document())
	return nil
}

// deleteProject deletes a project with its jobs. The jobs of a project that is gone are
// nobody's: a crash in the middle leaves none behind.
func (h *Hub) deleteProject(name string) error {
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

func (h *Hub) addJob(project, name string, d *parsedDefinition) error {
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
	if err := h.room(); err != nil {
		return err
	}
	j := &job{project: p, name: name, numbers: d.numbers}
	p.jobs[name] = j
	h.entries++
	h.saveDefinition(j, d.text)
	return nil
}

func (h *Hub) deleteJob(project, name string) error {
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

// discard takes a job out of its project, with its tasks.
func (h *Hub) discard(j *job) {
	h.abort(j)
	for _, kind := range []protocol.DocumentKind{protocol.KindProgress, protocol.KindDefinition, protocol.KindNumbers} {
		h.drop(j.document(kind, nil))
	}
	delete(j.project.jobs, j.name)
	h.entries--
}

// run starts a job unless it runs or is done; left ends it.
func (h *Hub) run(j *job, left kindSet) error {
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

// abort stops a job that runs and returns how many tasks that ended. What is done of it
// stays done.
func (h *Hub) abort(j *job) (tasks int) {
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
func (h *Hub) cancel(j *job, k kind) {
	t := j.tasks[k]
	j.tasks[k] = nil
	h.changed = true
	h.retire(t.lease)
	h.sched.RemoveTask(h.now, Space, k.queue(), j.taskName(), h.sink)
	if t.holder != nil {
		h.letGo(t.holder)
	}
}

// retire journals the last revision of a task that is about to leave the scheduler, held
// or not, when none of a task that is gone was larger: behind a restart no worker is given
// it again. It goes before the task does, so that no crash keeps the end without it.
func (h *Hub) retire(l sched.Lease) {
	if l.Revision > h.retired {
		h.retired = l.Revision
		h.saveRetired()
	}
}

// settle queues the tasks that a job is to have and has not; its callers save the
// progress behind it. With an error nothing has happened.
func (h *Hub) settle(j *job) error {
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

// take hands a worker that holds nothing the task, of the kinds given, that has been in
// line for longest; nil when there is none. unit is the grain of the revision in
// milliseconds.
func (h *Hub) take(id string, kinds kindSet, unit int64, log ...sched.Event) (*task, error) {
	k, ok := h.first(kinds)
	if !ok {
		return nil, nil
	}
	w, err := h.worker(id)
	if err != nil {
		return nil, err
	}
	var t *task
	h.changed = true
	h.sched.Steal(h.now, w.peer, k.queue(), 1, h.sink, func(v *sched.TaskView) bool {
		if t = h.known(k, v.Name); t != nil {
			// Handed out and under its new revision at once: a crash must not keep the one without the other.
			v.Revision = h.nextRevision(max(v.Revision, t.lease.Revision), w, unit)
			v.Log = append(v.Log, log...)
			t.lease = sched.Lease{Ref: v.Ref, Revision: v.Revision}
		}
		return true
	})
	if t == nil {
		panic("BUG: the scheduler has a task in line that the book has not")
	}
	t.holder, t.accepted, t.started, t.seen = w, len(log) > 0, h.now.Wall, h.now.Mono
	w.task, w.last = t, t.lease.Revision
	return t, nil
}

// first returns the kind whose line has the oldest head.
func (h *Hub) first(kinds kindSet) (best kind, ok bool) {
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

// known finds the book's task for a name of the scheduler's.
func (h *Hub) known(k kind, name []byte) *task {
	parts := splitName(name)
	j, err := h.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(name) {
		return nil
	}
	return j.tasks[k]
}

// nextRevision is the time, or the next of its unit when the task or the worker has had
// that already, so that no report made earlier can match. Version 1 knows a revision by
// its second: the one behind it is of another, in version 2 too.
func (h *Hub) nextRevision(task int64, w *worker, unit int64) int64 {
	last := max(task, w.last)
	if unit < secondGrain && w.last%secondGrain == 0 {
		last = max(last, w.last+secondGrain)
	}
	return max(h.now.Wall/unit*unit, (last/unit+1)*unit)
}

// touch gives a held task its next revision.
func (h *Hub) touch(t *task, unit int64, log ...sched.Event) {
	next := h.nextRevision(t.lease.Revision, t.holder, unit)
	if err := h.sched.Touch(t.holder.peer, t.lease, next, log...); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	t.lease.Revision, t.holder.last, t.seen = next, next, h.now.Mono
}

// accepting is the log entry of a worker that means to do its task.
func (h *Hub) accepting() sched.Event {
	return sched.Event{Stage: stageAccepted, Micros: h.now.Micros}
}

// requeue takes a task from its holder and queues it again, first or last.
func (h *Hub) requeue(t *task, first bool) {
	if h.requeueForOne(t) {
		return
	}
	if err := h.sched.ReleaseLease(h.now, t.holder.peer, t.lease, first, h.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	h.letGo(t.holder)
}

// finish ends a held task and queues what comes next. With an error nothing has happened.
func (h *Hub) finish(t *task) error {
	return h.finishBy(t, func() { t.job.count(t.kind) })
}

// finishBy is finish with another way to count what is done.
func (h *Hub) finishBy(t *task, count func()) error {
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
	h.letGo(w)
	h.saveProgress(j)
	return nil
}
