package loop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"treadle/loop/journal"
	"treadle/sched"
)

// splitKtsName splits a name at its first two NULs: project, job and the rest.
func splitKtsName(name []byte) (parts [3]string) {
	for i, p := range bytes.SplitN(name, []byte{0}, 3) {
		parts[i] = string(p)
	}
	return parts
}

// keepSetting takes a setting from the journal.
func (h *ktsHub) keepSetting(key string, value []byte) (err error) {
	if key != ktsRetiredKey {
		return nil
	}
	if h.retired, err = strconv.ParseInt(string(value), 10, 64); err != nil {
		return fmt.Errorf("cannot read the setting %q of the journal: %w", key, err)
	}
	h.floor = h.retired
	return nil
}

// keep enters a document of the journal in the book. Projects come first, then numbers,
// definitions and progress. A definition makes a job, but not without its project: that was
// being deleted. Nor do numbers without a definition. Of a definition only its numbers are
// kept: all together may be far larger than memory.
func (h *ktsHub) keep(d *journal.Document) error {
	project, name := string(d.Project), string(d.Name)
	var j *ktsJob
	p := h.projects[project]
	if p != nil {
		j = p.jobs[name]
	}
	var err error
	switch {
	case d.Kind == journal.KindProject:
		var saved ktsProjectSaved
		err = json.Unmarshal(d.Value, &saved)
		h.projects[project] = &ktsProject{name: project, lastID: saved.LastID, jobs: make(map[string]*ktsJob)}
		h.entries++
	case d.Kind == journal.KindNumbers:
		h.restored[project+"\x00"+name] = &journal.Document{Kind: d.Kind, Project: []byte(project), Name: []byte(name), Value: bytes.Clone(d.Value)}
	case d.Kind == journal.KindDefinition && p != nil:
		err = h.keepJob(p, name, d.Value)
	case d.Kind == journal.KindProgress && j != nil:
		if err = json.Unmarshal(d.Value, &j.progress); err == nil && (j.progress.Version < 0 || j.progress.Version > 2) {
			err = fmt.Errorf("version %d is neither 1 nor 2", j.progress.Version)
		}
	default:
		h.drop(d)
	}
	if err != nil {
		return fmt.Errorf("cannot read the %v of %q, %q, in the journal: %w", d.Kind, project, name, err)
	}
	return nil
}

// keepJob makes a job of its definition and the numbers beside it.
func (h *ktsHub) keepJob(p *ktsProject, name string, definition []byte) (err error) {
	j := &ktsJob{project: p, name: name}
	key := p.name + "\x00" + name
	saved := h.restored[key]
	delete(h.restored, key)
	if saved == nil || !j.load(saved.Value, definition) {
		if h.stats.parsed.Load() == 0 {
			h.server.log.Info("parsing the definitions of kts46 jobs that an older version has journaled: this start takes longer")
		}
		if j.ktsNumbers, err = h.parse(definition); err != nil {
			return err
		}
		if value := j.save(definition); value != nil {
			h.put(j.document(journal.KindNumbers, value))
		}
	}
	p.jobs[name] = j
	h.entries++
	return nil
}

// holder finds the peer of a restored task's worker.
func (h *ktsHub) holder(id string) *sched.Peer {
	w, err := h.worker(id)
	if err != nil {
		return nil
	}
	return w.peer
}

// restore completes the book with the journal's tasks. A crash may have kept the progress
// of a job and not its tasks, or the other way round, of what was not acknowledged: the
// progress counts. Tasks that it does not ask for are removed, and missing ones queued.
func (h *ktsHub) restore() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.server.now()
	for _, key := range slices.Sorted(maps.Keys(h.restored)) {
		h.drop(h.restored[key])
	}
	h.restored = nil
	h.adopt()
	for _, name := range slices.Sorted(maps.Keys(h.projects)) {
		p := h.projects[name]
		for _, name := range slices.Sorted(maps.Keys(p.jobs)) {
			if err := h.settle(p.jobs[name]); err != nil {
				return fmt.Errorf("cannot queue the tasks of job %q in project %q: %w", name, p.name, err)
			}
		}
	}
	h.server.feed.flush(0)
	return nil
}

// ktsRestored is a task that the scheduler has from the journal.
type ktsRestored struct {
	kind     ktsKind
	queue    string
	name     []byte
	holder   string
	lease    sched.Lease
	accepted bool
	started  int64
}

// adopt enters the scheduler's tasks in the book, and removes those that it has no use for.
func (h *ktsHub) adopt() {
	var all []ktsRestored
	for cursor, done := (sched.Cursor{}), false; !done; {
		cursor, done = h.server.sched.WalkTasks(cursor, sched.WalkBatch, ktsSpace, func(v *sched.TaskView) {
			k, ok := ktsKindOf(v.Queue)
			if !ok {
				k = ktsKinds
			}
			t := ktsRestored{kind: k, queue: v.Queue, name: bytes.Clone(v.Name), lease: sched.Lease{Ref: v.Ref, Revision: v.Revision}}
			if v.Stage == sched.StageReserved {
				t.holder = v.Holder
			}
			for _, e := range v.Log {
				switch e.Stage {
				case sched.StageReserved:
					t.started, t.accepted = e.Micros/1000, false
				case ktsAccepted:
					t.accepted = true
				}
			}
			all = append(all, t)
			h.floor = max(h.floor, t.lease.Revision)
		})
	}
	// A worker that gave one task back and was given another may be restored with both:
	// the one with the later revision is its own.
	slices.SortFunc(all, func(a, b ktsRestored) int { return cmp.Compare(a.lease.Revision, b.lease.Revision) })
	for i := range all {
		h.adoptTask(&all[i])
	}
}

// adopts says whether a job has a use for a task from the journal. A first batch that was
// decided is only held; a crash may have kept it beside the one that has replaced it.
func (j *ktsJob) adopts(k ktsKind, held bool) bool {
	if plan := j.plan(); k != ktsSimulation || plan&ktsBatches == 0 || j.progress.Version == 0 {
		return plan.has(k)
	}
	return held && j.tasks[j.batches()] == nil
}

func (h *ktsHub) adoptTask(r *ktsRestored) {
	parts := splitKtsName(r.name)
	j, err := h.job(parts[0], parts[1])
	if err != nil || string(j.taskName()) != string(r.name) || !j.adopts(r.kind, r.holder != "") {
		h.retire(r.lease)
		h.server.sched.RemoveTask(h.now, ktsSpace, []byte(r.queue), r.name, &h.sink)
		if w := h.workers[r.holder]; w != nil {
			w.last = max(w.last, r.lease.Revision)
			h.server.sched.Unwatch(w.peer, []byte(r.queue))
		}
		return
	}
	t := &ktsTask{job: j, kind: r.kind, lease: r.lease, accepted: r.accepted, started: r.started, seen: h.now.Mono}
	j.tasks[r.kind] = t
	if r.holder == "" {
		return
	}
	w := h.workers[r.holder]
	if w.task != nil {
		h.requeue(w.task, false)
		h.workers[w.id] = w // letGo may have forgotten it
	}
	t.holder, w.task, w.last = w, t, max(w.last, r.lease.Revision)
}
