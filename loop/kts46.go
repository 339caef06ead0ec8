package loop

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"treadle/loop/journal"
	"treadle/sched"
)

// ktsSpace is the name space of the tasks of the kts46 protocols.
const ktsSpace sched.Space = 5

// ktsRules are those of tasks: their workers steal them, and keep them until somebody who
// knows their revision says otherwise.
var ktsRules = sched.Rules{Durable: true, Graph: true, Untimed: true, Private: true}

// ktsAccepted is the log entry of a task whose worker has accepted it, behind the one of
// its being handed out.
const ktsAccepted = sched.StageOther

// Grains of revisions, in milliseconds: what a version's form of a time has room for.
const (
	ktsSecond      = 1000
	ktsMillisecond = 1
)

// Refusals that the two versions word differently.
var (
	errKtsNoTask    = errors.New("the worker has no task")
	errKtsDone      = errors.New("the job is done already")
	errKtsDiskFull  = errors.New("the disk is nearly full, see --min-free")
	errKtsWorkers   = errors.New("too many workers are known: have some finish their tasks")
	errKtsJobs      = fmt.Errorf("there are %d projects and jobs already: delete some", maxKtsJobs)
	errKtsStopping  = errors.New("the server is stopping")
	errKtsDuplicate = errors.New("the job is queued or running already")
)

// ktsHub is the conversation of the kts46 protocols, protocols/kts46.md: the book of
// projects and jobs, and the workers of both versions. The tasks are the scheduler's. What
// the book says decides which tasks there are to be, see settle.
type ktsHub struct {
	server    *Server
	site      *ktsSite // nil without a MongoDB
	databases []ktsDatabase
	stats     ktsStats
	active    atomic.Int64       // calls that are being answered
	await     func(uint64) error // awaitCommit, but in an Offline server
	composing sync.Mutex         // see compose
	defining  sync.Mutex         // see define
	unread    ktsLarge           // answers
	unheard   ktsLarge           // calls
	hearing   chan struct{}      // see hear
	sockets   []net.Listener
	servers   []*http.Server

	mu       sync.Mutex // guards what follows, and the workers' sides of the scheduler
	now      sched.Time
	sink     timerSink
	changed  bool // something was journaled in this turn
	closed   bool
	projects map[string]*ktsProject
	entries  int // projects and jobs
	workers  map[string]*ktsWorker
	sweepAt  int                          // number of workers at which the idle ones are forgotten
	floor    int64                        // no revision given before the start, or to a worker that is forgotten, is of a later second
	retired  int64                        // nor one of a task that is gone
	restored map[string]*journal.Document // numbers whose definition has not come yet, by the names with a NUL between
}

func newKtsHub(s *Server) *ktsHub {
	databases, _ := s.o.Kts46.databases() // validated
	return &ktsHub{
		server: s, databases: databases, await: s.awaitCommit, stats: ktsStats{requests: ktsCounters()}, sink: timerSink{s, make([]bool, s.o.Loops)},
		projects: make(map[string]*ktsProject), workers: make(map[string]*ktsWorker),
		hearing: make(chan struct{}, 1), sweepAt: minKtsSweep, restored: make(map[string]*journal.Document),
	}
}

// turn runs fn as the owner of the book. It returns when what fn changed is on disk.
func (h *ktsHub) turn(fn func() error) error {
	group, wait, err := h.own(fn)
	acknowledgements := 0
	if wait {
		acknowledgements = 1
	}
	h.server.feed.flush(acknowledgements)
	if wait {
		if failed := h.await(group); failed != nil {
			return failed
		}
	}
	return err
}

func (h *ktsHub) own(fn func() error) (group uint64, wait bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, false, errKtsStopping
	}
	h.now, h.changed = h.server.now(), false
	err = fn()
	h.server.wake(h.sink.mailed)
	if h.changed {
		group, wait = h.server.durableAll()
	}
	return group, wait, err
}

// project finds a project.
func (h *ktsHub) project(name string) (*ktsProject, error) {
	p := h.projects[name]
	if p == nil {
		return nil, &ktsMissing{project: name}
	}
	return p, nil
}

// job finds a job.
func (h *ktsHub) job(project, name string) (*ktsJob, error) {
	p, err := h.project(project)
	if err != nil {
		return nil, err
	}
	j := p.jobs[name]
	if j == nil {
		return nil, &ktsMissing{project: project, job: name}
	}
	return j, nil
}

// room says whether another project or job may be taken in.
func (h *ktsHub) room() error {
	switch {
	case h.server.full():
		return h.diskFull()
	case h.entries >= maxKtsJobs:
		return errKtsJobs
	}
	return nil
}

func (h *ktsHub) diskFull() error {
	h.server.counters.diskFull()
	return errKtsDiskFull
}

func (h *ktsHub) createProject(name string) error {
	if err := checkKtsName("project", name); err != nil {
		return err
	}
	if h.projects[name] != nil {
		return &ktsTaken{project: name}
	}
	if err := h.room(); err != nil {
		return err
	}
	p := &ktsProject{name: name, jobs: make(map[string]*ktsJob)}
	h.projects[name] = p
	h.entries++
	h.put(p.document())
	return nil
}

// deleteProject deletes a project with its jobs. The jobs of a project that is gone are
// nobody's: a crash in the middle leaves none behind.
func (h *ktsHub) deleteProject(name string) error {
	p := h.projects[name]
	if p == nil {
		return &ktsMissing{project: name, toDelete: true}
	}
	h.drop(p.document())
	for _, j := range p.jobs {
		h.discard(j)
	}
	delete(h.projects, name)
	h.entries--
	return nil
}

func (h *ktsHub) addJob(project, name string, d *ktsDefinition) error {
	p, err := h.project(project)
	if err != nil {
		return err
	}
	if err := checkKtsName("job", name); err != nil {
		return err
	}
	if p.jobs[name] != nil {
		return &ktsTaken{project, name}
	}
	if d.err != nil {
		return d.err
	}
	if err := h.room(); err != nil {
		return err
	}
	j := &ktsJob{project: p, name: name, ktsNumbers: d.numbers}
	p.jobs[name] = j
	h.entries++
	h.saveDefinition(j, d.text)
	return nil
}

func (h *ktsHub) deleteJob(project, name string) error {
	p, err := h.project(project)
	if err != nil {
		return err
	}
	j := p.jobs[name]
	if j == nil {
		return &ktsMissing{project: project, job: name, toDelete: true}
	}
	h.discard(j)
	return nil
}

// discard takes a job out of its project, with its tasks.
func (h *ktsHub) discard(j *ktsJob) {
	h.abort(j)
	for _, kind := range []journal.Kind{journal.KindProgress, journal.KindDefinition, journal.KindNumbers} {
		h.drop(j.document(kind, nil))
	}
	delete(j.project.jobs, j.name)
	h.entries--
}

// run starts a job unless it runs or is done; left ends it.
func (h *ktsHub) run(j *ktsJob, left ktsSet) error {
	switch {
	case j.progress.Finished:
		return errKtsDone
	case j.progress.Running:
		return errKtsDuplicate
	case h.server.full():
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
func (h *ktsHub) abort(j *ktsJob) (tasks int) {
	if !j.progress.Running {
		return 0
	}
	for k := range ktsKinds {
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
func (h *ktsHub) cancel(j *ktsJob, k ktsKind) {
	t := j.tasks[k]
	j.tasks[k] = nil
	h.changed = true
	h.retire(t.lease)
	h.server.sched.RemoveTask(h.now, ktsSpace, k.queue(), j.taskName(), &h.sink)
	if t.holder != nil {
		h.letGo(t.holder)
	}
}

// retire journals the last revision of a task that is about to leave the scheduler, held
// or not, when none of a task that is gone was larger: behind a restart no worker is given
// it again. It goes before the task does, so that no crash keeps the end without it.
func (h *ktsHub) retire(l sched.Lease) {
	if l.Revision > h.retired {
		h.retired = l.Revision
		h.saveRetired()
	}
}

// settle queues the tasks that a job is to have and has not; its callers save the
// progress behind it. With an error nothing has happened.
func (h *ktsHub) settle(j *ktsJob) error {
	var added ktsSet
	for k := range ktsKinds {
		if !j.plan().has(k) || j.tasks[k] != nil {
			continue
		}
		j.tasks[k] = &ktsTask{job: j, kind: k}
		added |= 1 << k
		err := h.server.sched.Extend(h.now, ktsSpace, k.queue(), []sched.Task{{Name: j.taskName()}}, &h.sink)
		if err != nil {
			for k := range ktsKinds {
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
func (h *ktsHub) take(id string, kinds ktsSet, unit int64, log ...sched.Event) (*ktsTask, error) {
	k, ok := h.first(kinds)
	if !ok {
		return nil, nil
	}
	w, err := h.worker(id)
	if err != nil {
		return nil, err
	}
	var t *ktsTask
	h.changed = true
	h.server.sched.Steal(h.now, w.peer, k.queue(), 1, &h.sink, func(v *sched.TaskView) bool {
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
func (h *ktsHub) first(kinds ktsSet) (best ktsKind, ok bool) {
	least := int64(0)
	for k := range ktsKinds {
		if !kinds.has(k) {
			continue
		}
		if place, found := h.server.sched.Head(k.queue()); found && (!ok || place < least) {
			best, least, ok = k, place, true
		}
	}
	return best, ok
}

// known finds the book's task for a name of the scheduler's.
func (h *ktsHub) known(k ktsKind, name []byte) *ktsTask {
	parts := splitKtsName(name)
	j, err := h.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(name) {
		return nil
	}
	return j.tasks[k]
}

// nextRevision is the time, or the next of its unit when the task or the worker has had
// that already, so that no report made earlier can match. Version 1 knows a revision by
// its second: the one behind it is of another, in version 2 too.
func (h *ktsHub) nextRevision(task int64, w *ktsWorker, unit int64) int64 {
	last := max(task, w.last)
	if unit < ktsSecond && w.last%ktsSecond == 0 {
		last = max(last, w.last+ktsSecond)
	}
	return max(h.now.Wall/unit*unit, (last/unit+1)*unit)
}

// touch gives a held task its next revision.
func (h *ktsHub) touch(t *ktsTask, unit int64, log ...sched.Event) {
	next := h.nextRevision(t.lease.Revision, t.holder, unit)
	if err := h.server.sched.Touch(t.holder.peer, t.lease, next, log...); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	t.lease.Revision, t.holder.last, t.seen = next, next, h.now.Mono
}

// accepting is the log entry of a worker that means to do its task.
func (h *ktsHub) accepting() sched.Event {
	return sched.Event{Stage: ktsAccepted, Micros: h.now.Micros}
}

// requeue takes a task from its holder and queues it again, first or last.
func (h *ktsHub) requeue(t *ktsTask, first bool) {
	if h.requeueForOne(t) {
		return
	}
	if err := h.server.sched.ReleaseLease(h.now, t.holder.peer, t.lease, first, &h.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.changed = true
	h.letGo(t.holder)
}

// finish ends a held task and queues what comes next. With an error nothing has happened.
func (h *ktsHub) finish(t *ktsTask) error {
	return h.finishBy(t, func() { t.job.count(t.kind) })
}

// finishBy is finish with another way to count what is done.
func (h *ktsHub) finishBy(t *ktsTask, count func()) error {
	j, before, w := t.job, t.job.progress, t.holder
	count()
	j.tasks[t.kind] = nil
	if err := h.settle(j); err != nil {
		j.progress, j.tasks[t.kind] = before, t
		return err
	}
	h.retire(t.lease)
	if err := h.server.sched.FinishLease(h.now, w.peer, t.lease, &h.sink); err != nil {
		panic("BUG: a task that the book says is held: " + err.Error())
	}
	h.letGo(w)
	h.saveProgress(j)
	return nil
}
