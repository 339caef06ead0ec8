package loop

import (
	"testing"

	"treadle/sched"
)

// TestKtsVersionOfOldDirectories: a journal of an older version has jobs whose first batches
// decided nothing. The next batch that is finished decides.
func TestKtsVersionOfOldDirectories(t *testing.T) {
	d := newDisk()
	r := newKtsDiskRig(t, d, newKtsRig(t, Kts46Options{}).clock)
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
	r.server.feed.flush(1)
	r = r.again(d)
	r.report(task, "working")
	r.report(task, "finished")
	r.wants(`{"empty":true}`, "getTask", "v", kinds)
	r.wantJob("w", "a simulation")
}

// TestKtsVersionHalfKept: a crash in the middle of what replaces a first batch by one for its
// version may keep both, or the old one in line. One is left, for the version.
func TestKtsVersionHalfKept(t *testing.T) {
	for _, f := range []struct {
		name string
		half func(r *ktsRig, j *ktsJob)
	}{
		{"both", func(r *ktsRig, j *ktsJob) { // and the old one held
			r.extend(j, ktsSimulationV1)
		}},
		{"the old one in line", func(r *ktsRig, j *ktsJob) {
			held := j.tasks[ktsSimulation]
			j.progress.Version = 0
			r.requeue(held, false)
			j.progress.Version = 1
			r.saveProgress(j)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			d := newDisk()
			r := newKtsDiskRig(t, d, newKtsRig(t, Kts46Options{}).clock)
			r.does("createProject", "p")
			r.does("addJob", "p", "a", definition(4, 1, 2))
			r.does("runJob", "p", "a")
			r.wantJob("w", "a simulation")
			j, err := r.job("p", "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.turn(func() error { f.half(r, j); return nil }); err != nil {
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

// extend puts a job's task in line in the scheduler alone.
func (r *ktsRig) extend(j *ktsJob, k ktsKind) {
	r.t.Helper()
	if err := r.server.sched.Extend(r.now, ktsSpace, k.queue(), []sched.Task{{Name: j.taskName()}}, &r.sink); err != nil {
		r.t.Fatal(err)
	}
	r.changed = true
}
