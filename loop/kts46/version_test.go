package kts46

import (
	"testing"

	"treadle/sched"
)

// TestKts46VersionOfOldDirectories: a journal of an older version has jobs with undecided versions. The next finished
// batch decides.
func TestKts46VersionOfOldDirectories(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	kinds := []string{"simulation"}
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(4, 1, 2))
	r.does("runJob", "p", "a")
	task := r.wantJob("w", "a simulation")
	j, err := r.job("p", "a")
	if err != nil {
		t.Fatal(err)
	}
	j.progress.Version = 0
	r.saveProgress(j)
	r.server.Flush(1)
	r = r.again(d)
	r.report(task, "working")
	r.report(task, "finished")
	r.wants(`{"empty":true}`, "getTask", "v", kinds)
	r.wantJob("w", "a simulation")
}

// TestKts46VersionHalfKept: a crash while a first batch is replaced may keep both tasks, or the old one in its queue.
// One remains, of the decided version.
func TestKts46VersionHalfKept(t *testing.T) {
	for _, f := range []struct {
		name string
		half func(r *testHub, j *job)
	}{
		{"both", func(r *testHub, j *job) { // a worker holds the old one
			r.extend(j, simulationV1)
		}},
		{"the old one in line", func(r *testHub, j *job) {
			held := j.tasks[simulation]
			j.progress.Version = 0
			r.requeue(held, false)
			j.progress.Version = 1
			r.saveProgress(j)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			d := newDisk()
			r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
			r.does("createProject", "p")
			r.does("addJob", "p", "a", definition(4, 1, 2))
			r.does("runJob", "p", "a")
			r.wantJob("w", "a simulation")
			j, err := r.job("p", "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.update(func() error { f.half(r, j); return nil }); err != nil {
				t.Fatal(err)
			}
			r = r.again(d)
			if got := r.server.sched.Stats().Jobs; got != 1 {
				t.Errorf("%d tasks are left, want 1", got)
			}
			if last := r.getCurrent("w"); last != "" {
				r.does("restartTask", "w", last)
			}
			r.wants(`{"empty":true}`, "getTask", "v", []string{"simulation"})
			r.report(r.wantJob("w", "a simulation"), "finished")
			r.report(r.wantJob("w", "a simulation"), "finished")
			r.wantJob("w", "a statistics")
		})
	}
}

// extend queues a job's task in the scheduler alone.
func (r *testHub) extend(j *job, k kind) {
	r.t.Helper()
	if err := r.server.sched.AddTasks(r.now, Space, k.queue(), []sched.Task{{Name: j.taskName()}}, r.sink); err != nil {
		r.t.Fatal(err)
	}
	r.changed = true
}
