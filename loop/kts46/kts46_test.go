package kts46

import (
	"fmt"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
	"treadle/sched"
)

// TestKts46Batches: a job of version 1 is handed out in batches, its statistics last. New tasks are queued behind all
// earlier ones, of other kinds too.
func TestKts46Batches(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(1, 0.1, 4)) // 10 steps: 3 batches
	r.does("addJob", "p", "b", definition(1, 1, 1))
	r.does("runJob", "p", "a")
	r.does("runJob", "p", "b")
	r.does("runJob", "p", "a") // it is queued already: nothing is queued twice
	for _, want := range []string{"a simulation", "b simulation", "a simulation", "b statistics", "a simulation", "a statistics", ""} {
		if task := r.wantJob("w", want); task != nil {
			r.report(task, "working")
			r.report(task, "finished")
		}
		r.advance(10 * time.Second)
	}
	r.does("runJob", "p", "a") // it is done: nothing is queued
	r.wantJob("w", "")
	if got, want := r.does("getJobStatus", "p", "a"), "p.a: 1 (10/10)."; got != want {
		t.Errorf("the status is %v, want %v", got, want)
	}
	st := r.server.sched.Stats()
	if st.Jobs != 0 || st.Done != 6 {
		t.Errorf("%d tasks are left, %d are done", st.Jobs, st.Done)
	}
}

// TestKts46Line: abort, restartTask and a second getJob put a task at the end of the line.
func TestKts46Line(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	for _, name := range []string{"a", "b", "c"} {
		r.does("addJob", "p", name, definition(9, 1, 3))
		r.does("runJob", "p", name)
	}
	a := r.wantJob("w", "a simulation")
	r.report(a, "abort")
	r.wantJob("w", "b simulation")
	r.wantJob("w", "c simulation") // b is released
	if got := r.does("restartTask", "w", r.getCurrent("w")); got != true {
		t.Errorf("restartTask: %v", got)
	}
	r.wantJob("x", "a simulation")
	r.wantJob("y", "b simulation")
	r.wantJob("z", "c simulation")
	r.wantJob("w", "")
	// Without other tasks, a worker that asks again gets the released one.
	z := r.wantJob("z", "c simulation")
	r.faults("doesn't match", "reportStatus", "z", "working", codec.NewDateTime(start))
	r.report(z, "working")
}

// getCurrent returns the last update of a worker's task in getCurrentTasks.
func (r *testHub) getCurrent(worker string) codec.DateTime {
	r.t.Helper()
	all, _ := r.does("getCurrentTasks").([]any)
	for _, e := range all {
		if s := e.(codec.Struct); s.Get("workerId") == worker {
			return s.Get("lastUpdate").(codec.DateTime)
		}
	}
	return ""
}

// TestKts46Revisions: no report matches an earlier revision, however fast updates follow each other, of any version and
// task.
func TestKts46Revisions(t *testing.T) {
	for _, step := range []time.Duration{0, time.Millisecond, 400 * time.Millisecond, time.Second, time.Minute} {
		r := newTestHub(t, Options{})
		r.twoVersions("a", "b")
		seen := make(map[string]bool)
		fresh := func(revision string) {
			t.Helper()
			if seen[revision] {
				t.Errorf("steps of %v: %s was given before", step, revision)
			}
			seen[revision] = true
			r.advance(step)
		}
		for range 10 {
			task := r.wantJob("w", "a simulation")
			fresh(string(task.last))
			r.report(task, "working")
			fresh(string(task.last))
			stale := *task
			r.does("restartTask", "w", task.last)
			r.faults("no current tasks", "reportStatus", "w", "finished", stale.last)
			other := r.wantJob("other", "a simulation")
			fresh(string(other.last))
			r.report(other, "abort")
			task = r.wantJob("w", "a simulation")
			fresh(string(task.last))
			r.faults("doesn't match", "reportStatus", "w", "finished", stale.last)
			r.report(task, "finished")
			r.faults("no current tasks", "reportStatus", "w", "finished", task.last)
			sig := r.sigOf(r.json("getTask", "w", []string{"simulation"}))
			fresh(sig)
			sig = r.sigOf(r.json("acceptTask", "w", sig))
			fresh(sig)
			fresh(r.sigOf(r.json("taskInProgress", "w", sig)))
			r.does("restartTask", "w", r.getCurrent("w"))
		}
	}
}

// TestKts46LateOtherVersion: version 1 compares revisions by the second. A report of that second does not match a later
// task of version 2 in it, nor after a restart in it.
func TestKts46LateOtherVersion(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	r.twoVersions("a", "b")
	for range 3 {
		other := r.sigOf(r.json("getTask", "other", []string{"simulation"}))
		r.wants(quoted, "rejectTask", "other", other)
		stale := r.wantJob("w", "a simulation").last
		r.does("reportStatus", "w", "abort", stale)
		r.sigOf(r.json("getTask", "w", []string{"simulation"}))
		r.faults("doesn't match", "reportStatus", "w", "finished", stale)
		r.does("restartTask", "w", r.getCurrent("w"))

		stale = r.wantJob("w", "a simulation").last
		r.does("reportStatus", "w", "abort", stale)
		other = r.sigOf(r.json("getTask", "other", []string{"simulation"}))
		r.wants(quoted, "rejectTask", "other", other)
		r = r.again(d)
		r.sigOf(r.json("getTask", "w", []string{"simulation"}))
		r.faults("doesn't match", "reportStatus", "w", "finished", stale)
		r.does("restartTask", "w", r.getCurrent("w"))
	}
}

// TestKts46ClockSetBack: a removed worker gets no revision twice when the clock is set back.
func TestKts46ClockSetBack(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(50, 1, 1))
	r.does("addJob", "p", "b", definition(50, 1, 1))
	r.does("runJob", "p", "a")
	r.does("runJob", "p", "b")
	stale := r.wantJob("w", "a simulation")
	r.advance(time.Minute)
	r.does("reportStatus", "w", "abort", stale.last)
	if len(r.workers) > 0 {
		t.Error("the worker is not forgotten")
	}
	r.advance(-time.Minute)
	r.wantJob("w", "b simulation")
	r.faults("doesn't match", "reportStatus", "w", "finished", stale.last)
}

// twoVersions runs two jobs of a project, one for workers of each version.
func (r *testHub) twoVersions(v1, v2 string) {
	r.t.Helper()
	r.does("createProject", "p")
	r.does("addJob", "p", v1, definition(50, 1, 1))
	r.does("addJob", "p", v2, definition(50, 1, 1))
	r.does("runJob", "p", v1)
	r.report(r.wantJob("first", v1+" simulation"), "abort")
	r.does("runJob", "p", v2)
	r.json("acceptTask", "first", r.sigOf(r.json("getTask", "first", []string{"simulation"})))
	r.does("restartTask", "first", r.getCurrent("first"))
}

// sigOf reads the sig of a result.
func (r *testHub) sigOf(result string) string {
	r.t.Helper()
	_, sig, ok := strings.Cut(result, `"sig":"`)
	if len(sig) < 24 || !ok {
		r.t.Fatalf("no sig in %s", result)
	}
	return sig[:24]
}

// TestKts46Accept: version 2 reserves a task, and the worker holds it once it has accepted it.
func TestKts46Accept(t *testing.T) {
	r := newTestHub(t, Options{Databases: []string{"db:27017"}})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(10, 1, 5))
	r.does("addJob", "p", "b", definition(10, 1, 5))
	r.wants(`"success"`, "addTask", "p", "a")
	r.wants(`{"type":"DuplicateTask","taskType":"simulation"}`, "addTask", "p", "a")
	r.wants(`"success"`, "addTask", "p", "b")
	r.wants(`{"empty":true}`, "getTask", "w", []string{"throughput"})
	r.advance(7 * time.Millisecond)
	sig := r.sigOf(r.json("getTask", "w", []string{"throughput", "simulation"}))
	r.wants(`{"type":"WorkerHasTask"}`, "getTask", "w", []string{"simulation"})
	r.faults("Has: 2011-02-13 18:56:37.130000.", "reportStatus", "w", "working", nil)
	r.wants(`{"type":"InvalidWorkerId"}`, "taskInProgress", "w", sig)
	r.wants(`{"type":"InvalidWorkerId"}`, "taskFinished", "w", sig)
	r.wants(`"success"`, "rejectTask", "w", sig)
	r.wants(`{"type":"InvalidWorkerId"}`, "acceptTask", "w", sig)
	sig = r.sigOf(r.json("getTask", "w", []string{"simulation"}))
	if task := r.workers["w"].task; task.job.name != "a" {
		t.Errorf("what was rejected is not first in line, but %s", task.job.name)
	}
	r.wants(`[{"id":"w","sig":"`+sig+`"}]`, "getCurrentTasks")
	sig = r.sigOf(r.json("acceptTask", "w", sig))
	r.wants(`{"type":"InvalidWorkerId"}`, "rejectTask", "w", sig)
	r.wants(`{"restarted":0}`, "restartTasks", []any{map[string]string{"id": "w", "sig": "other"}, map[string]string{"id": "x", "sig": sig}})
	r.wants(`"success"`, "taskFinished", "w", sig, map[string]float64{"vmPeak": 1.5})
	r.wants(`{"type":"InvalidWorkerId"}`, "taskFinished", "w", sig)
	sig = r.sigOf(r.json("getTask", "w", []string{"simulation"}))
	r.wants(`{"restarted":1}`, "restartTasks", []any{map[string]string{"id": "w", "sig": sig}})
	r.wants(`1`, "abortTask", "p", "a")
	r.wants(`0`, "abortTask", "p", "a")
	r.wants(`0`, "abortTask", "p", "nope")
	r.wants(`0`, "abortTask", "nope", "a")
	for range 2 {
		sig = r.sigOf(r.json("getTask", "w", []string{"simulation"}))
		sig = r.sigOf(r.json("acceptTask", "w", sig))
		r.wants(`"success"`, "taskFinished", "w", sig)
	}
	if got := r.server.sched.Stats().Jobs; got != 3 {
		t.Errorf("%d tasks end job b", got)
	}
	r.wantJob("v1", "") // version 2 finishes what it started
	for i, kind := range []string{"throughput", "basicStatistics", "idleTimes"} {
		sig = r.sigOf(r.json("getTask", fmt.Sprint("w", i), []string{kind}))
		sig = r.sigOf(r.json("acceptTask", fmt.Sprint("w", i), sig))
		r.wants(`"success"`, "taskFinished", fmt.Sprint("w", i), sig)
		r.wants([]string{
			`{"type":"DuplicateTask","taskType":"basicStatistics"}`, `{"type":"DuplicateTask","taskType":"idleTimes"}`, `{"type":"AlreadyDone"}`,
		}[i], "addTask", "p", "b")
	}
}

// TestKts46Projects: the calls of the original's command line client.
func TestKts46Projects(t *testing.T) {
	r := newTestHub(t, Options{})
	is := func(want any, method string, args ...any) {
		t.Helper()
		if got := fmt.Sprint(r.does(method, args...)); got != fmt.Sprint(want) {
			t.Errorf("%s%q: %v, want %v", method, args, got, want)
		}
	}
	is(false, "projectExists", "p")
	is("[]", "getServerStatus")
	r.faults(`<type 'exceptions.KeyError'>:"Couldn't delete project 'p' because it doesn't exists."`, "deleteProject", "p")
	r.faults("Couldn't get project 'p'", "deleteJob", "p", "a")
	for _, c := range []string{"getJobsList", "getProjectStatus", "getNewJobId"} {
		r.faults("Couldn't get project 'p'", c, "p")
	}
	is(nil, "createProject", "p")
	r.faults("<class 'kts46.mongodb.StorageException'>:Couldn't create project because it already exists. Project name: p.", "createProject", "p")
	is(true, "projectExists", "p")
	is(false, "jobExists", "p", "a")
	is("[[{project p} {visible false}]]", "getServerStatus")
	r.faults(`<type 'exceptions.KeyError'>:"Couldn't delete job 'a' in project 'p' because it doesn't exist."`, "deleteJob", "p", "a")
	r.faults("Couldn't get job 'a' from project 'p'", "getJobStatus", "p", "a")
	is(nil, "addJob", "p", "b", definition(10, 1, 5))
	is(nil, "addJob", "p", "a", definition(0, 1, 5))
	r.faults("<class 'kts46.mongodb.StorageException'>:Couldn't add job 'a' to project 'p' because it already exists.", "addJob", "p", "a", definition(0, 1, 5))
	is(true, "jobExists", "p", "a")
	is("[a b]", "getJobsList", "p")
	const flags = " {basicStatistics false} {idleTimes false} {throughput false} {fullStatistics false}]"
	is("[[{project p} {name a} {done 0} {total 0} {totalSteps 0}"+flags+" [{project p} {name b} {done 0} {total 10} {totalSteps 10}"+flags+"]", "getProjectStatus", "p")
	is("p.b: 0 (0/10).", "getJobStatus", "p", "b")
	is(1, "getNewJobId", "p")
	is(2, "getNewJobId", "p")
	// There is nothing to simulate, only the statistics.
	is(nil, "runJob", "p", "a")
	a := r.wantJob("w", "a statistics")
	is(nil, "runJob", "p", "b")
	b := r.wantJob("x", "b simulation")
	is(nil, "deleteJob", "p", "a")
	r.faults("no current tasks", "reportStatus", "w", "finished", a.last)
	is("[b]", "getJobsList", "p")
	is(nil, "deleteProject", "p")
	r.faults("no current tasks", "reportStatus", "x", "working", b.last)
	is("[]", "getServerStatus")
	if r.entries != 0 || len(r.heldTasks()) != 0 || r.server.sched.Stats().Jobs != 0 {
		t.Errorf("%d entries, %d held tasks, %d tasks are left", r.entries, len(r.heldTasks()), r.server.sched.Stats().Jobs)
	}
}

// TestKts46Refuses: wrong types, wrong numbers of arguments, unusable names and definitions.
func TestKts46Refuses(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.faults("is not supported", "nosuch")
	r.faults("names no method", "")
	r.faults("getJob() takes exactly 2 arguments (1 given)", "getJob")
	r.faults("hello() takes exactly 1 argument (2 given)", "hello", "x")
	r.faults("argument 1 of getJob() is no string", "getJob", int64(5))
	r.faults("argument 2 of runJob() is no string", "runJob", "p", nil)
	r.faults("worker's name is empty", "getJob", "")
	r.faults("256 bytes", "getJob", strings.Repeat("w", 256))
	r.faults("no text", "createProject", "a\tb")
	r.faults("empty", "addJob", "p", "", definition(1, 1, 1))
	for text, says := range map[string]string{
		"": "three numbers", ": x": "no YAML", "[": "no YAML", "5": "three numbers", "simulationParameters: 5": "three numbers",
		"simulationParameters: {duration: 1, stepDuration: 0, batchLength: 1}":          "have to be times",
		"simulationParameters: {duration: .nan, stepDuration: 1, batchLength: 1}":       "have to be times",
		"simulationParameters: {duration: .inf, stepDuration: 1, batchLength: 1}":       "steps are more than",
		"simulationParameters: {duration: 1, stepDuration: 1}":                          "three numbers",
		"simulationParameters: {stepDuration: 1, batchLength: 1}":                       "three numbers",
		"simulationParameters: {duration: 1, batchLength: 1}":                           "three numbers",
		"simulationParameters: {duration: 1, stepDuration: 1, batchLength: x}":          "three numbers",
		"simulationParameters: {duration: 1, stepDuration: 1, batchLength: 0}":          "batchLength 0",
		"simulationParameters: {duration: 1, stepDuration: 1, batchLength: 1.5}":        "batchLength 1.5",
		"simulationParameters: {duration: 1e300, stepDuration: 1e-300, batchLength: 1}": "steps are more than",
	} {
		r.faults(says, "addJob", "p", "j", text)
	}
	r.does("addJob", "p", "j", definition(1, 1, 1))
	r.does("runJob", "p", "j")
	task := r.wantJob("w", "j simulation")
	for _, last := range []any{"5", int64(5), nil, true, string(task.last), codec.DateTime("abc"), []any{}, codec.Struct{}} {
		r.faults("doesn't match", "reportStatus", "w", "working", last)
		if got := r.does("restartTask", "w", last); got != false {
			t.Errorf("restartTask with %v: %v", last, got)
		}
	}
	r.faults("Your: None. Has: 2011-02-13 18:56:37.", "reportStatus", "w", "working", nil)
	r.faults("none of working, abort, finished", "reportStatus", "w", "bogus", task.last)
	r.faults("none of working, abort, finished", "reportStatus", "w", int64(1), task.last)
	r.report(task, "working")

	r.wants(`"Invalid request method"`, "nosuch")
	for _, f := range []struct {
		want, method string
		params       []any
	}{
		{"projectName", "addTask", nil}, {"jobName", "abortTask", []any{"p", nil}}, {"workerId", "getTask", []any{5}},
		{"workerId", "getTask", []any{""}}, {"taskTypes", "getTask", []any{"w", "x"}}, {"taskTypes[1]", "getTask", []any{"w", []any{"simulation", 5}}},
		{"sig", "acceptTask", []any{"w", 5}}, {"workerId", "taskFinished", nil}, {"tasks", "restartTasks", []any{map[string]int{}}},
		{"tasks[0]", "restartTasks", []any{[]any{5}}}, {"tasks[0]", "restartTasks", []any{[]any{map[string]int{"id": 5}}}},
		{"tasks[0]", "restartTasks", []any{[]any{map[string]string{"id": "w"}}}}, {"tasks[1]", "restartTasks", []any{[]any{heldJSON{"w", "x"}, nil}}},
		{"tasks[0]", "restartTasks", []any{[]any{map[string]string{"ID": "w", "Sig": "x"}}}},
	} {
		r.wants(`{"type":"InvalidArgumentType","argumentName":"`+f.want+`"}`, f.method, f.params...)
	}
}

// TestKts46Timeout: version 1 gets the interval in the unit of the setting.
func TestKts46Timeout(t *testing.T) {
	for _, f := range []struct {
		o    Options
		want int64
	}{
		{Options{}, 5}, {Options{TimeoutUnit: seconds}, 5}, {Options{TimeoutUnit: milliseconds}, 5000},
		{Options{Timeout: 1500 * time.Millisecond}, 2}, {Options{Timeout: time.Minute, TimeoutUnit: milliseconds}, 60000},
	} {
		r := newTestHub(t, f.o)
		r.does("createProject", "p")
		r.does("addJob", "p", "j", definition(1, 1, 1))
		r.does("runJob", "p", "j")
		if got := r.does("getJob", "w").(codec.Struct).Get("timeout"); got != f.want {
			t.Errorf("%+v: %v", f.o, got)
		}
	}
}

// TestKts46Supervisor: only the task of a worker that is silent for the set time is queued again; a report in either
// version counts.
func TestKts46Supervisor(t *testing.T) {
	r := newTestHub(t, Options{RestartAfter: time.Minute})
	r.does("createProject", "p")
	for _, name := range []string{"a", "b"} {
		r.does("addJob", "p", name, definition(1, 1, 1))
		r.does("runJob", "p", name)
	}
	a := r.wantJob("v1", "a simulation")
	sig := r.sigOf(r.json("getTask", "v2", []string{"simulation"}))
	expire := func(after time.Duration, left int) {
		t.Helper()
		r.advance(after)
		if err := r.update(r.expire); err != nil {
			t.Fatal(err)
		}
		if got := len(r.heldTasks()); got != left {
			t.Errorf("%d tasks are held, want %d", got, left)
		}
	}
	expire(59*time.Second, 2)
	r.report(a, "working")
	expire(time.Second, 1) // v2 has not accepted its task
	r.wants(`{"type":"InvalidWorkerId"}`, "acceptTask", "v2", sig)
	expire(58*time.Second, 1)
	expire(time.Second, 0)
	r.faults("no current tasks", "reportStatus", "v1", "finished", a.last)
	r.wantJob("v1", "b simulation")
}

// TestKts46Private: a worker of another protocol on a queue of these tasks never gets one, and the queue cannot be
// dropped.
func TestKts46Private(t *testing.T) {
	r := newTestHub(t, Options{})
	s := r.server.sched
	p := s.NewPeer(1, sched.NameOnly)
	for k := range kindCount {
		if err := s.Watch(r.clock, p, k.queue(), false, r.sink); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Reserve(r.clock, p, 1, nowhere{t}); err != nil {
		t.Fatal(err)
	}
	r.does("createProject", "p")
	r.does("addJob", "p", "j", definition(1, 1, 1))
	r.does("runJob", "p", "j")
	status := func(workers, jobs, running int) {
		t.Helper()
		s.Status(func(q sched.QueueStatus) {
			if q.Name == "kts46.simulation" && (q.Workers != workers || q.Jobs != jobs || q.Running != running) {
				t.Errorf("the status is %+v", q)
			}
		})
	}
	status(1, 1, 0)
	s.Unwatch(p, simulation.queue())
	status(0, 1, 0)
	if s.Drop(simulation.queue()) {
		t.Error("the queue was dropped")
	}
	task := r.wantJob("w", "j simulation")
	status(1, 1, 1)
	r.report(task, "finished")
	status(0, 0, 0)
	r.wantJob("w", "j statistics")
}

// nowhere is a sink that fails the test on any delivery.
type nowhere struct{ t *testing.T }

func (n nowhere) Deliver(d *sched.Delivery) { n.t.Errorf("delivered: %+v", d) }

// TestKts46ShutMeanwhile: a queue that a stop or a policy shuts after a worker's call has looked at it hands out
// nothing.
func TestKts46ShutMeanwhile(t *testing.T) {
	pause, err := sched.NewPolicies([]sched.PolicyRule{{Pattern: "*", Values: map[string]string{"paused": "hand-out"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, shut := range map[string]func(r *testHub, s *sched.Scheduler){
		"stop": func(_ *testHub, s *sched.Scheduler) { s.Halt() },
		"policy": func(r *testHub, s *sched.Scheduler) {
			s.SetPolicies(pause)
			s.Tick(r.clock, r.sink)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestHub(t, Options{})
			r.does("createProject", "p")
			r.does("addJob", "p", "j", definition(1, 1, 1))
			r.does("runJob", "p", "j")
			w, err := r.addWorker("w")
			k, ok := r.oldest(v1Kinds)
			if err != nil || !ok {
				t.Fatalf("no task in line: %v", err)
			}
			shut(r, r.server.sched)
			if got := r.take(w, k, secondUnit); got != nil || w.task != nil {
				t.Errorf("the worker has %v", got)
			}
			r.wantJob("w", "")
		})
	}
}

// TestKts46Sweep: workers without a task are removed as soon as their revisions cannot recur.
func TestKts46Sweep(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "j", definition(1e6, 1, 1))
	r.does("runJob", "p", "j")
	for i := range 3 * minSweep {
		r.report(r.getJob(fmt.Sprint("w", i)), "finished")
		r.advance(10 * time.Millisecond)
	}
	if n := len(r.workers); n == 0 || n > 2*minSweep {
		t.Errorf("%d workers are known", n)
	}
}
