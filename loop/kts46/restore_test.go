package kts46

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
)

// again ends the server and starts it on the same disk at the same moment.
func (r *testHub) again(d *disk) *testHub {
	r.t.Helper()
	r.end()
	return newDiskHub(r.t, d, r.clock)
}

// TestKts46Restart: projects, jobs, progress, queued tasks and held tasks with their revisions survive the process, in
// both versions.
func TestKts46Restart(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	r.does("createProject", "empty")
	r.does("getNewJobId", "p")
	for _, name := range []string{"a", "b", "c", "idle", "gone"} {
		r.does("addJob", "p", name, definition(4, 1, 2))
	}
	r.does("runJob", "p", "a")
	r.report(r.wantJob("w", "a simulation"), "finished")
	a := r.wantJob("w", "a simulation")
	r.report(a, "working")
	r.wants(quoted, "addTask", "p", "b")
	sig := r.sigOf(r.json("getTask", "v", []string{"simulation"}))
	r.does("runJob", "p", "c")
	r.does("deleteJob", "p", "gone")
	before := r.does("getServerStatus")
	status := get(t, r.serveJSON)

	r = r.again(d)
	if after := r.does("getServerStatus"); !sameJSON(before, after) {
		t.Errorf("the status was %v, is %v", before, after)
	}
	if after := get(t, r.serveJSON); !sameJSON(status, after) {
		t.Errorf("the status was %+v, is %+v", status, after)
	}
	if got := r.does("getNewJobId", "p"); got != int64(2) {
		t.Errorf("the next job id is %v", got)
	}
	r.wants(`{"type":"InvalidWorkerId"}`, "taskInProgress", "v", sig) // not accepted yet
	sig = r.sigOf(r.json("acceptTask", "v", sig))
	r = r.again(d)
	r.wants(quoted, "taskFinished", "v", r.sigOf(r.json("taskInProgress", "v", sig)))
	r.report(a, "working")
	r.report(a, "finished")
	for _, want := range []string{"c simulation", "a statistics", ""} {
		r.wantJob("for "+want, want)
	}
	r.sigOf(r.json("getTask", "v", []string{"simulation"})) // b belongs to the version of its first batch
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// TestKts46Reconcile: a crash may keep half of an unacknowledged change, the progress or the tasks. The progress
// decides.
func TestKts46Reconcile(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	r.does("createProject", "q")
	for _, name := range []string{"ahead", "behind", "stopped", "started"} {
		r.does("addJob", "p", name, definition(6, 1, 2))
	}
	r.does("addJob", "q", "orphan", definition(6, 1, 2))
	for _, name := range []string{"ahead", "behind", "stopped"} {
		r.does("runJob", "p", name)
	}
	r.does("runJob", "q", "orphan")
	ahead := r.wantJob("w1", "ahead simulation")
	behind := r.wantJob("w2", "behind simulation")
	r.report(behind, "finished")
	set := func(name string, p progress) {
		t.Helper()
		j, err := r.job("p", name)
		if err != nil {
			t.Fatal(err)
		}
		j.progress = p
		r.saveProgress(j)
	}
	set("ahead", progress{Done: 6, Running: true, Left: v2End}) // the batch and all later tasks are done
	set("behind", progress{Done: 0, Running: true, Left: v1End})
	set("stopped", progress{})
	set("started", progress{Done: 2, Running: true, Left: v1End})
	r.drop(r.projects["q"].document())

	r = r.again(d)
	check := func() {
		t.Helper()
		var waiting []string
		for _, q := range get(t, r.serveJSON).WaitingQueue {
			waiting = append(waiting, q.Job+" "+q.Type)
		}
		want := "ahead basicStatistics, ahead idleTimes, ahead throughput, behind simulation, started simulation"
		if got := strings.Join(waiting, ", "); got != want {
			t.Errorf("waiting: %s, want %s", got, want)
		}
		if got := r.server.sched.Stats().Jobs; got != 5 || len(r.heldTasks()) != 0 || r.projects["q"] != nil {
			t.Errorf("%d tasks, %d held", got, len(r.heldTasks()))
		}
	}
	check()
	r.faults("no current tasks", "reportStatus", "w1", "finished", ahead.last)
	r = r.again(d)
	check() // the disk agrees
	r.does("createProject", "q")
	r.does("addJob", "q", "orphan", definition(6, 1, 2))
	orphan := r.does("getJobStatus", "q", "orphan")
	r = r.again(d)
	if got := r.does("getJobStatus", "q", "orphan"); got != orphan || r.server.sched.Stats().Jobs != 5 {
		t.Errorf("a job was %v, is %v: it has the progress of another of its name", orphan, got)
	}
}

// TestKts46TwoHeld: in the journal a worker may hold two tasks, if only the end of the first was lost. The later one is
// its own.
func TestKts46TwoHeld(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	for _, name := range []string{"a", "b"} {
		r.does("addJob", "p", name, definition(0, 1, 1))
		r.does("runJob", "p", name)
	}
	first := r.wantJob("w", "a statistics")
	w := r.workers["w"]
	w.task.holder, w.task = nil, nil // as if released, without the scheduler's knowledge
	second := r.wantJob("w", "b statistics")
	if first.last >= second.last {
		t.Fatalf("%s, then %s", first.last, second.last)
	}
	r = r.again(d)
	r.faults("doesn't match", "reportStatus", "w", "finished", first.last)
	r.wantJob("x", "a statistics")
	r.report(second, "finished")
}

// TestKts46RevisionsAfterRestart: a revision from before the start never matches one from after it, also when the task
// has left no trace.
func TestKts46RevisionsAfterRestart(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	for _, name := range []string{"a", "b"} {
		r.does("addJob", "p", name, definition(0, 1, 1))
		r.does("runJob", "p", name)
	}
	a := r.wantJob("w", "a statistics")
	r.does("deleteJob", "p", "a")
	r = r.again(d)
	b := r.wantJob("w", "b statistics")
	if a.last >= b.last {
		t.Errorf("%s, then %s", a.last, b.last)
	}
	r.faults("doesn't match", "reportStatus", "w", "finished", a.last)
}

// leaves are the ways in which the last revision of a task leaves the journal with the task: the calls of worker w,
// which holds the task, and the calls after a start.
var leaves = map[string]struct {
	version2    bool // w gets the task by version 2
	leave, then func(r *testHub, stamp any)
}{
	"finished": {leave: func(r *testHub, last any) { r.does("reportStatus", "w", "finished", last) }},
	"finished in version 2": {true, func(r *testHub, sig any) {
		r.wants(quoted, "taskFinished", "w", r.sigOf(r.json("acceptTask", "w", sig)))
	}, nil},
	"cancelled":             {leave: cancel},
	"deleted":               {leave: deleteIt},
	"deleted with others":   {leave: deleteAll},
	"given back, cancelled": {leave: func(r *testHub, last any) { giveBack(r, last); cancel(r, nil) }},
	"restarted, deleted":    {leave: func(r *testHub, last any) { r.does("restartTask", "w", last); deleteIt(r, nil) }},
	"restarted in version 2, deleted with others": {true, func(r *testHub, sig any) {
		r.wants(`{"restarted":1}`, "restartTasks", []any{map[string]any{"id": "w", "sig": sig}})
		deleteAll(r, nil)
	}, nil},
	"rejected, cancelled": {true, func(r *testHub, sig any) { r.wants(quoted, "rejectTask", "w", sig); cancel(r, nil) }, nil},
	"silent, cancelled": {leave: func(r *testHub, _ any) {
		r.o.RestartAfter = time.Second
		r.advance(time.Second)
		if err := r.update(r.expire); err != nil || r.workers["w"] != nil {
			r.t.Errorf("w is not silent: %v", err)
		}
		cancel(r, nil)
	}},
	"held at a start, cancelled":            {then: cancel},
	"queued at a start, cancelled":          {leave: giveBack, then: cancel},
	"held at a start without its project":   {leave: func(r *testHub, _ any) { orphan(r) }},
	"queued at a start without its project": {leave: func(r *testHub, last any) { giveBack(r, last); orphan(r) }},
}

func giveBack(r *testHub, last any) { r.does("reportStatus", "w", "abort", last) }
func cancel(r *testHub, _ any)      { r.wants("1", "abortTask", "p", "a") }
func deleteIt(r *testHub, _ any)    { r.does("deleteJob", "p", "a") }
func deleteAll(r *testHub, _ any)   { r.does("deleteProject", "p") }

// orphan leaves the state of a crash during deleteProject.
func orphan(r *testHub) { r.drop(r.projects["p"].document()) }

// TestKts46RevisionsThatLeave: however a task ends, a worker gets no revision twice after a start with the clock set
// back. If the clock is right, it gets none ahead of it.
func TestKts46RevisionsThatLeave(t *testing.T) {
	for name, way := range leaves {
		for _, step := range []time.Duration{2 * time.Second, -time.Hour} {
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				d := newDisk()
				r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
				for _, job := range [][2]string{{"p", "a"}, {"q", "b"}} {
					r.does("createProject", job[0])
					r.does("addJob", job[0], job[1], definition(40, 1, 1))
					r.does("runJob", job[0], job[1])
				}
				var stamp any
				if way.version2 {
					stamp = r.sigOf(r.json("getTask", "w", []string{"simulation"}))
				} else {
					stamp = r.wantJob("w", "a simulation").last
				}
				had := r.workers["w"].last
				for _, fn := range []func(*testHub, any){way.leave, way.then} {
					if fn != nil {
						fn(r, stamp)
					}
					r = r.again(d)
				}
				r.clock.Wall += step.Milliseconds()
				r.clock.WallMicros += step.Microseconds()
				r.getJob("w")
				got := r.workers["w"].last
				if got <= had || step > 0 && got > r.clock.Wall {
					t.Errorf("w had %d, is given %d at %d", had, got, r.clock.Wall)
				}
			})
		}
	}
}

// TestKts46AcknowledgedAfterSync: a call that changes something is answered after the sync. A call that changes nothing
// does not wait.
func TestKts46AcknowledgedAfterSync(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(40, 1, 1))
	r.does("runJob", "p", "a")
	for _, f := range []struct {
		method string
		args   []any
	}{
		{"createProject", []any{"q"}}, {"addJob", []any{"p", "b", definition(1, 1, 1)}}, {"runJob", []any{"p", "b"}}, {"getJob", []any{"w"}},
		{"reportStatus", []any{"w", "working", nil}}, {"reportStatus", []any{"w", "finished", nil}}, {"getJob", []any{"w"}},
		{"restartTask", []any{"w", nil}}, {"getNewJobId", []any{"p"}}, {"deleteJob", []any{"p", "b"}}, {"deleteProject", []any{"q"}},
	} {
		if n := len(f.args); n > 0 && f.args[n-1] == nil {
			f.args[n-1] = r.getCurrent("w")
		}
		d.gate.Lock()
		body := string(codec.AppendCall(nil, f.method, f.args...))
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			post(r.serveXML, "/", body)
		}()
		changed := func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.changed
		}
		for !changed() {
			select {
			case <-answered:
				t.Fatalf("%s changed nothing", f.method)
			default:
			}
		}
		r.does("getServerStatus") // also resets changed for the next call
		select {
		case <-answered:
			t.Errorf("%s is answered before it is on disk", f.method)
		default:
		}
		d.gate.Unlock()
		<-answered
	}
}

// TestKts46JournalFails: a change that could not be written is not acknowledged.
func TestKts46JournalFails(t *testing.T) {
	d := newDisk()
	s := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	s.t = nopErrors{t}
	d.fail.Store(true)
	w := post(s.serveXML, "/", string(codec.AppendCall(nil, "createProject", "p")))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "the journal failed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = post(s.serveJSON, "/jsonrpc", `{"method":"hello","id":1}`) // it needs no disk
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// nopErrors ignores the errors that this test causes when the journal ends.
type nopErrors struct{ testing.TB }

func (nopErrors) Error(...any) {}

// TestKts46DiskFull: with a nearly full disk new entries are refused and workers continue.
func TestKts46DiskFull(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.entries = maxEntries
	r.faults("delete some", "createProject", "q")
	r.faults("delete some", "addJob", "p", "a", definition(1, 1, 1))
}
