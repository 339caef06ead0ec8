package loop

import "testing"

// TestKtsAbort: a job that is started again goes on where it was aborted, also among the
// tasks that end it.
func TestKtsAbort(t *testing.T) {
	r := newKtsRig(t, Kts46Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(2, 1, 1))
	do := func(kind string) {
		t.Helper()
		sig := r.sigOf(r.json("getTask", "w", []string{kind}))
		r.wants(ktsQuoted, "taskFinished", "w", r.sigOf(r.json("acceptTask", "w", sig)))
	}
	again := func(tasks string) {
		t.Helper()
		r.wants(tasks, "abortTask", "p", "a")
		r.wants(`{"empty":true}`, "getTask", "w", []string{"simulation", "basicStatistics", "idleTimes", "throughput"})
		r.wants(ktsQuoted, "addTask", "p", "a")
	}
	r.wants(ktsQuoted, "addTask", "p", "a")
	again("1")
	do("simulation")
	again("1")
	do("simulation")
	do("idleTimes")
	again("2")
	r.wants(`{"empty":true}`, "getTask", "w", []string{"simulation", "idleTimes"})
	do("throughput")
	r.wants("1", "abortTask", "p", "a")
	r.does("runJob", "p", "a") // it says how the job ends now
	task := r.wantJob("v1", "a statistics")
	r.wants("1", "abortTask", "p", "a")
	r.faults("no current tasks", "reportStatus", "v1", "finished", task.last)
	r.does("runJob", "p", "a")
	r.report(r.wantJob("v1", "a statistics"), "finished")
	r.wants(`{"type":"AlreadyDone"}`, "addTask", "p", "a")
}

// TestKtsVersions: both versions' workers do one job, under one name for each worker;
// how it ends, the call that started it says.
func TestKtsVersions(t *testing.T) {
	r := newKtsRig(t, Kts46Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(2, 1, 1))
	r.does("runJob", "p", "a")
	r.wants(`{"type":"DuplicateTask","taskType":"simulation"}`, "addTask", "p", "a")
	task := r.wantJob("w", "a simulation")
	r.wants(`{"type":"WorkerHasTask"}`, "getTask", "w", []string{"simulation"})
	r.report(task, "finished")
	sig := r.sigOf(r.json("getTask", "w", []string{"simulation"}))
	sig = r.sigOf(r.json("acceptTask", "w", sig))
	r.wants(`"success"`, "taskFinished", "w", sig)
	r.wants(`{"empty":true}`, "getTask", "w", []string{"simulation", "basicStatistics", "idleTimes", "throughput"})
	r.wants(`{"type":"UnknownTaskType","taskType":"statistics","argumentName":"taskTypes[0]"}`, "getTask", "w", []string{"statistics"})
	r.wants(`{"type":"DuplicateTask","taskType":"statistics"}`, "addTask", "p", "a")
	r.report(r.wantJob("w", "a statistics"), "finished")
	r.wants(`{"type":"AlreadyDone"}`, "addTask", "p", "a")
}
