package loop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"treadle/sched"
)

// splitKtsName splits a name at its first two NULs: project, job and the rest.
func splitKtsName(name []byte) (parts [3]string) {
	for i, p := range bytes.SplitN(name, []byte{0}, 3) {
		parts[i] = string(p)
	}
	return parts
}

// ktsRestoredJob is what a start keeps of a definition.
type ktsRestoredJob struct {
	numbers ktsNumbers
	save    []byte // the form of the numbers that the journal has not yet, if any
}

// keep takes a setting from the journal, for restore. Of a definition only its numbers are
// kept: all together may be far larger than memory.
func (h *ktsHub) keep(key string, value []byte) error {
	name, isDefinition := strings.CutPrefix(key, ktsDefinitionKey)
	switch {
	case !strings.HasPrefix(key, ktsPrefix):
		return nil
	case !isDefinition:
		h.restored[key] = bytes.Clone(value)
		return nil
	}
	var j ktsRestoredJob
	if !j.numbers.load(h.restored[ktsNumbersKey+name], value) {
		if h.stats.parsed.Load() == 0 {
			h.server.log.Info("parsing the definitions of kts46 jobs that an older version has journaled: this start takes longer")
		}
		var err error
		if j.numbers, err = h.parse(value); err != nil {
			return brokenSetting(key, err)
		}
		j.save = j.numbers.save(value)
	}
	h.defined[name] = j
	return nil
}

func brokenSetting(key string, err error) error {
	return fmt.Errorf("cannot read the setting %q of the journal: %w", key, err)
}

// holder finds the peer of a restored task's worker.
func (h *ktsHub) holder(id string) *sched.Peer {
	w, err := h.worker(id)
	if err != nil {
		return nil
	}
	return w.peer
}

// restore makes the book from the journal's settings. A crash may have kept the progress
// of a job and not its tasks, or the other way round, of what was not acknowledged: the
// progress counts. Tasks that it does not ask for are removed, and missing ones queued.
func (h *ktsHub) restore() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.server.now()
	if err := h.readBook(); err != nil {
		return err
	}
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

// readBook takes the settings apart. A definition makes a job, but not without its project:
// that was being deleted. Nor do numbers without a definition.
func (h *ktsHub) readBook() error {
	settings, defined := h.restored, h.defined
	h.restored, h.defined = nil, nil
	if retired := settings[ktsRetiredKey]; retired != nil {
		var err error
		if h.retired, err = strconv.ParseInt(string(retired), 10, 64); err != nil {
			return brokenSetting(ktsRetiredKey, err)
		}
		h.floor = h.retired
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if name, ok := strings.CutPrefix(key, ktsNumbersKey); ok {
			if _, known := defined[name]; !known {
				h.drop(key)
			}
			continue
		}
		name, ok := strings.CutPrefix(key, ktsProjectKey)
		if !ok {
			continue
		}
		last, err := strconv.ParseInt(string(settings[key]), 10, 64)
		if err != nil {
			return brokenSetting(key, err)
		}
		h.projects[name] = &ktsProject{name: name, lastID: last, jobs: make(map[string]*ktsJob)}
		h.entries++
	}
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		if err := h.readJob(name, defined[name], settings[ktsProgressKey+name]); err != nil {
			return err
		}
	}
	return nil
}

// readJob enters a job in the book. name has its project's name and its own.
func (h *ktsHub) readJob(name string, restored ktsRestoredJob, progress []byte) error {
	parts := splitKtsName([]byte(name))
	p := h.projects[parts[0]]
	if p == nil {
		for _, prefix := range []string{ktsDefinitionKey, ktsNumbersKey, ktsProgressKey} {
			h.drop(prefix + name)
		}
		return nil
	}
	j := &ktsJob{project: p, name: parts[1], ktsNumbers: restored.numbers}
	if progress != nil {
		if err := json.Unmarshal(progress, &j.progress); err != nil {
			return brokenSetting(ktsProgressKey+name, err)
		}
		if v := j.progress.Version; v < 0 || v > 2 {
			return brokenSetting(ktsProgressKey+name, fmt.Errorf("version %d is neither 1 nor 2", v))
		}
	}
	if restored.save != nil {
		h.put(ktsNumbersKey+name, restored.save)
	}
	p.jobs[j.name] = j
	h.entries++
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
		cursor, done = h.server.sched.WalkTasks(cursor, walkBatch, ktsSpace, func(v *sched.TaskView) {
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
