package kts46

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"treadle/loop/protocol"
	"treadle/sched"
)

// splitName splits a name at its first two NULs into project, job and the rest.
func splitName(name []byte) (parts [3]string) {
	for i, p := range bytes.SplitN(name, []byte{0}, 3) {
		parts[i] = string(p)
	}
	return parts
}

// Restore implements protocol.SettingsRestorer.
func (r *registry) Restore(key string, value []byte) (err error) {
	if key != retiredKey {
		return nil
	}
	if r.maxRetired, err = strconv.ParseInt(string(value), 10, 64); err != nil {
		return fmt.Errorf("cannot read the setting %q of the journal: %w", key, err)
	}
	r.minRevision = r.maxRetired
	return nil
}

// RestoreDocument implements protocol.DocumentRestorer: it adds a document of the journal to the registry. Projects
// come first, then numbers, definitions and progress. A definition makes a job. Documents of a project or job that is
// missing are dropped: a crash interrupted its deletion. The registry keeps only the numbers of a definition, because
// all definitions together may exceed memory.
func (r *registry) RestoreDocument(d *protocol.Document) error {
	in, name := string(d.Project), string(d.Name)
	var j *job
	p := r.projects[in]
	if p != nil {
		j = p.jobs[name]
	}
	var err error
	switch {
	case d.Kind == protocol.KindProject:
		var saved savedProject
		err = json.Unmarshal(d.Value, &saved)
		r.projects[in] = &project{name: in, lastID: saved.LastID, jobs: make(map[string]*job)}
		r.entries++
	case d.Kind == protocol.KindBatchParams:
		r.restored[in+"\x00"+name] = &protocol.Document{Kind: d.Kind, Project: []byte(in), Name: []byte(name), Value: bytes.Clone(d.Value)}
	case d.Kind == protocol.KindDefinition && p != nil:
		err = r.restoreJob(p, name, d.Value)
	case d.Kind == protocol.KindProgress && j != nil:
		if err = json.Unmarshal(d.Value, &j.progress); err == nil && (j.progress.Version < 0 || j.progress.Version > 2) {
			err = fmt.Errorf("version %d is neither 1 nor 2", j.progress.Version)
		}
	default:
		r.drop(d)
	}
	if err != nil {
		return fmt.Errorf("cannot read the %v of %q, %q, in the journal: %w", d.Kind, in, name, err)
	}
	return nil
}

// restoreJob makes a job from its definition and its saved numbers.
func (r *registry) restoreJob(p *project, name string, definition []byte) (err error) {
	j := &job{project: p, name: name}
	key := p.name + "\x00" + name
	saved := r.restored[key]
	delete(r.restored, key)
	if saved == nil || !j.load(saved.Value, definition) {
		if r.parsed.Load() == 0 {
			r.host.Log().Info("parsing the definitions of kts46 jobs that an older version has journaled: this start takes longer")
		}
		if j.batchParams, err = r.parse(definition); err != nil {
			return err
		}
		if value := j.save(definition); value != nil {
			r.put(j.document(protocol.KindBatchParams, value))
		}
	}
	p.jobs[name] = j
	r.entries++
	return nil
}

// Holder implements protocol.HolderRestorer.
func (r *registry) Holder(id string) *sched.Peer {
	w, err := r.addWorker(id)
	if err != nil {
		return nil
	}
	return w.peer
}

// Restored implements protocol.DocumentRestorer: it completes the registry with the journal's tasks. A crash may have
// kept the progress of a job and lost its tasks, or the other way round, for changes that were not acknowledged. The
// progress decides: tasks that it does not need are removed, missing ones are queued.
func (r *registry) Restored() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.host.Now()
	for _, key := range slices.Sorted(maps.Keys(r.restored)) {
		r.drop(r.restored[key])
	}
	r.restored = nil
	r.restoreTasks()
	for _, name := range slices.Sorted(maps.Keys(r.projects)) {
		p := r.projects[name]
		for _, name := range slices.Sorted(maps.Keys(p.jobs)) {
			if err := r.queueMissingTasks(p.jobs[name]); err != nil {
				return fmt.Errorf("cannot queue the tasks of job %q in project %q: %w", name, p.name, err)
			}
		}
	}
	r.host.Flush(0)
	return nil
}

// restoredTask is a task that the scheduler has from the journal.
type restoredTask struct {
	kind     kind
	queue    string
	name     []byte
	holder   string
	revision sched.TaskRevision
	accepted bool
	started  int64
}

// restoreTasks adds the scheduler's tasks to the registry, and removes those that no job needs.
func (r *registry) restoreTasks() {
	var all []restoredTask
	for cursor, done := (sched.Cursor{}), false; !done; {
		cursor, done = r.sched.WalkTasks(cursor, sched.WalkBatch, Space, func(v *sched.TaskView) {
			k, ok := kindOf(v.Queue)
			if !ok {
				k = kindCount
			}
			t := restoredTask{kind: k, queue: v.Queue, name: bytes.Clone(v.Name), revision: sched.TaskRevision{Ref: v.Ref, Number: v.Revision}}
			if v.Stage == sched.StageReserved {
				t.holder = v.Holder
			}
			for _, e := range v.Log {
				switch e.Stage {
				case sched.StageReserved:
					t.started, t.accepted = e.Micros/1000, false
				case stageAccepted:
					t.accepted = true
				}
			}
			all = append(all, t)
			r.minRevision = max(r.minRevision, t.revision.Number)
		})
	}
	// A worker that released one task and got another may be restored with both. The later revision is its own.
	slices.SortFunc(all, func(a, b restoredTask) int { return cmp.Compare(a.revision.Number, b.revision.Number) })
	for i := range all {
		r.restoreTask(&all[i])
	}
}

// needs reports whether a job needs a task from the journal. The first batch, once its version is decided, remains only
// while a worker holds it. A crash may have kept it beside its replacement.
func (j *job) needs(k kind, held bool) bool {
	if needed := j.neededKinds(); k != simulation || needed&batchKinds == 0 || j.progress.Version == 0 {
		return needed.has(k)
	}
	return held && j.tasks[j.batches()] == nil
}

// restoreTask gives a task of the journal back to its job, and to the worker that held it. It removes a task whose job
// has gone or does not need it.
func (r *registry) restoreTask(restored *restoredTask) {
	parts := splitName(restored.name)
	j, err := r.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(restored.name) || !j.needs(restored.kind, restored.holder != "") {
		r.retire(restored.revision.Number)
		r.sched.RemoveTask(r.now, Space, []byte(restored.queue), restored.name, r.sink)
		if w := r.workers[restored.holder]; w != nil {
			w.last = max(w.last, restored.revision.Number)
			r.sched.Unwatch(w.peer, []byte(restored.queue))
		}
		return
	}
	t := &task{job: j, kind: restored.kind, revision: restored.revision, accepted: restored.accepted, started: restored.started, seen: r.now.Mono}
	j.tasks[restored.kind] = t
	if restored.holder == "" {
		return
	}
	w := r.workers[restored.holder]
	if w.task != nil {
		r.requeue(w.task, false)
		r.workers[w.id] = w // unassign may have removed it
	}
	t.holder, w.task, w.last = w, t, max(w.last, restored.revision.Number)
}
