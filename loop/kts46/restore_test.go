package kts46

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
)

// again ends the server and starts it on the same disk, at the same moment.
func (r *rig) again(d *disk) *rig {
	r.t.Helper()
	r.end()
	return newDiskRig(r.t, d, r.clock)
}

// TestKtsRestart: projects, jobs, progress, what is queued and what is held under which
// revision survive the process, for both versions.
func TestKtsRestart(t *testing.T) {
	d := newDisk()
	r := newDiskRig(t, d, newRig(t, Options{}).clock)
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
	r.sigOf(r.json("getTask", "v", []string{"simulation"})) // b is for the version that did its first batch
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// TestKtsReconcile: a crash may keep half of what was not acknowledged, the progress or
// the tasks. The progress counts.
func TestKtsReconcile(t *testing.T) {
	d := newDisk()
	r := newDiskRig(t, d, newRig(t, Options{}).clock)
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
	set("ahead", progress{Done: 6, Running: true, Left: v2End}) // the batch and all behind it are done
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
		if got := r.server.sched.Stats().Jobs; got != 5 || len(r.holdings()) != 0 || r.projects["q"] != nil {
			t.Errorf("%d tasks, %d held", got, len(r.holdings()))
		}
	}
	check()
	r.faults("no current tasks", "reportStatus", "w1", "finished", ahead.last)
	r = r.again(d)
	check() // and the same on disk
	r.does("createProject", "q")
	r.does("addJob", "q", "orphan", definition(6, 1, 2))
	orphan := r.does("getJobStatus", "q", "orphan")
	r = r.again(d)
	if got := r.does("getJobStatus", "q", "orphan"); got != orphan || r.server.sched.Stats().Jobs != 5 {
		t.Errorf("a job was %v, is %v: it has the progress of another of its name", orphan, got)
	}
}

// TestKtsTwoHeld: the journal may say that a worker holds two tasks, when the end of the
// first was not written and the second was. The later one is its own.
func TestKtsTwoHeld(t *testing.T) {
	d := newDisk()
	r := newDiskRig(t, d, newRig(t, Options{}).clock)
	r.does("createProject", "p")
	for _, name := range []string{"a", "b"} {
		r.does("addJob", "p", name, definition(0, 1, 1))
		r.does("runJob", "p", name)
	}
	first := r.wantJob("w", "a statistics")
	w := r.workers["w"]
	w.task.holder, w.task = nil, nil // as if it was put back, which the scheduler does not know
	second := r.wantJob("w", "b statistics")
	if first.last >= second.last {
		t.Fatalf("%s, then %s", first.last, second.last)
	}
	r = r.again(d)
	r.faults("doesn't match", "reportStatus", "w", "finished", first.last)
	r.wantJob("x", "a statistics")
	r.report(second, "finished")
}

// TestKtsRevisionsAfterRestart: what a worker was given before the start never matches
// what it is given behind it, also when the task is gone without a trace.
func TestKtsRevisionsAfterRestart(t *testing.T) {
	d := newDisk()
	r := newDiskRig(t, d, newRig(t, Options{}).clock)
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

// leaves are the ways in which the last revision of a task leaves the journal with the
// task: what w does that holds it under a stamp, and what follows behind a start.
var leaves = map[string]struct {
	version2    bool // w is given it by that
	leave, then func(r *rig, stamp any)
}{
	"finished": {leave: func(r *rig, last any) { r.does("reportStatus", "w", "finished", last) }},
	"finished in version 2": {true, func(r *rig, sig any) {
		r.wants(quoted, "taskFinished", "w", r.sigOf(r.json("acceptTask", "w", sig)))
	}, nil},
	"cancelled":             {leave: cancel},
	"deleted":               {leave: deleteIt},
	"deleted with others":   {leave: deleteAll},
	"given back, cancelled": {leave: func(r *rig, last any) { giveBack(r, last); cancel(r, nil) }},
	"restarted, deleted":    {leave: func(r *rig, last any) { r.does("restartTask", "w", last); deleteIt(r, nil) }},
	"restarted in version 2, deleted with others": {true, func(r *rig, sig any) {
		r.wants(`{"restarted":1}`, "restartTasks", []any{map[string]any{"id": "w", "sig": sig}})
		deleteAll(r, nil)
	}, nil},
	"rejected, cancelled": {true, func(r *rig, sig any) { r.wants(quoted, "rejectTask", "w", sig); cancel(r, nil) }, nil},
	"silent, cancelled": {leave: func(r *rig, _ any) {
		r.o.RestartAfter = time.Second
		r.pass(time.Second)
		if err := r.turn(r.expire); err != nil || r.workers["w"] != nil {
			r.t.Errorf("w is not silent: %v", err)
		}
		cancel(r, nil)
	}},
	"held at a start, cancelled":            {then: cancel},
	"queued at a start, cancelled":          {leave: giveBack, then: cancel},
	"held at a start without its project":   {leave: func(r *rig, _ any) { orphan(r) }},
	"queued at a start without its project": {leave: func(r *rig, last any) { giveBack(r, last); orphan(r) }},
}

func giveBack(r *rig, last any) { r.does("reportStatus", "w", "abort", last) }
func cancel(r *rig, _ any)      { r.wants("1", "abortTask", "p", "a") }
func deleteIt(r *rig, _ any)    { r.does("deleteJob", "p", "a") }
func deleteAll(r *rig, _ any)   { r.does("deleteProject", "p") }

// orphan does what a crash in the middle of deleteProject leaves.
func orphan(r *rig) { r.drop(r.projects["p"].document()) }

// TestKtsRevisionsThatLeave: whatever ends a task, behind a start a worker is given no
// revision that it was given before, when the clock is set back; and none ahead of the
// clock when it is not.
func TestKtsRevisionsThatLeave(t *testing.T) {
	for name, way := range leaves {
		for _, step := range []time.Duration{2 * time.Second, -time.Hour} {
			t.Run(fmt.Sprintf("%s, %v", name, step), func(t *testing.T) {
				d := newDisk()
				r := newDiskRig(t, d, newRig(t, Options{}).clock)
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
				for _, fn := range []func(*rig, any){way.leave, way.then} {
					if fn != nil {
						fn(r, stamp)
					}
					r = r.again(d)
				}
				r.clock.Wall += step.Milliseconds()
				r.clock.Micros += step.Microseconds()
				r.getJob("w")
				got := r.workers["w"].last
				if got <= had || step > 0 && got > r.clock.Wall {
					t.Errorf("w had %d, is given %d at %d", had, got, r.clock.Wall)
				}
			})
		}
	}
}

// TestKtsAcknowledgedAfterSync: a call that changes something is answered when that is on
// disk; what changes nothing waits for nothing.
func TestKtsAcknowledgedAfterSync(t *testing.T) {
	d := newDisk()
	r := newDiskRig(t, d, newRig(t, Options{}).clock)
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
		r.does("getServerStatus") // also has changed be false for the next call
		select {
		case <-answered:
			t.Errorf("%s is answered before it is on disk", f.method)
		default:
		}
		d.gate.Unlock()
		<-answered
	}
}

// TestKtsJournalFails: nothing is acknowledged that could not be written.
func TestKtsJournalFails(t *testing.T) {
	d := newDisk()
	s := newDiskRig(t, d, newRig(t, Options{}).clock)
	s.t = nopErrors{t}
	d.fail.Store(true)
	w := post(s.serveXML, "/", string(codec.AppendCall(nil, "createProject", "p")))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "the journal failed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = post(s.serveJSON, "/jsonrpc", `{"method":"hello","id":1}`) // which needs no disk
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// nopErrors lets the journal's end fail, as it must here.
type nopErrors struct{ testing.TB }

func (nopErrors) Error(...any) {}

// TestKtsDiskFull: nothing is taken in when the disk is nearly full; workers go on.
func TestKtsDiskFull(t *testing.T) {
	r := newRig(t, Options{})
	r.does("createProject", "p")
	r.entries = maxEntries
	r.faults("delete some", "createProject", "q")
	r.faults("delete some", "addJob", "p", "a", definition(1, 1, 1))
}
