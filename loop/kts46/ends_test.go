package kts46

import (
	"errors"
	"testing"

	"treadle/loop/kts46/store"
	"treadle/loop/protocol"
)

// TestKts46Abort: a job that is started again continues where it was aborted, also within the tasks that end it.
func TestKts46Abort(t *testing.T) {
	r := newTestHub(t, Options{})
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(2, 1, 1))
	do := func(kind string) {
		t.Helper()
		sig := r.sigOf(r.json("getTask", "w", []string{kind}))
		r.wants(quoted, "taskFinished", "w", r.sigOf(r.json("acceptTask", "w", sig)))
	}
	again := func(tasks string) {
		t.Helper()
		r.wants(tasks, "abortTask", "p", "a")
		r.wants(`{"empty":true}`, "getTask", "w", []string{"simulation", "basicStatistics", "idleTimes", "throughput"})
		r.wants(quoted, "addTask", "p", "a")
	}
	r.wants(quoted, "addTask", "p", "a")
	again("1")
	do("simulation")
	again("1")
	do("simulation")
	do("idleTimes")
	again("2")
	r.wants(`{"empty":true}`, "getTask", "w", []string{"simulation", "idleTimes"})
	do("throughput")
	r.wants("1", "abortTask", "p", "a")
	r.does("runJob", "p", "a") // this call decides how the job ends
	task := r.wantJob("v1", "a statistics")
	r.wants("1", "abortTask", "p", "a")
	r.faults("no current tasks", "reportStatus", "v1", "finished", task.last)
	r.does("runJob", "p", "a")
	r.report(r.wantJob("v1", "a statistics"), "finished")
	r.wants(`{"type":"AlreadyDone"}`, "addTask", "p", "a")
}

// TestKts46Versions: the version whose worker accepts the first batch gets all later batches, also after an abort and a
// restart. The call that started the job decides how it ends. A worker has one name in both versions.
func TestKts46Versions(t *testing.T) {
	d := newDisk()
	r := newDiskHub(t, d, newTestHub(t, Options{}).clock)
	kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(3, 1, 1))
	r.does("addJob", "p", "b", definition(2, 1, 1))
	r.does("runJob", "p", "a")
	r.wants(`{"type":"DuplicateTask","taskType":"simulation"}`, "addTask", "p", "a")
	sig := r.sigOf(r.json("getTask", "w", kinds))
	r.wants(quoted, "rejectTask", "w", sig) // a task that is not accepted decides nothing
	task := r.wantJob("w", "a simulation")
	r.wants(`{"type":"WorkerHasTask"}`, "getTask", "w", kinds)
	r = r.again(d) // a worker holds the first batch
	r.report(task, "working")
	r.report(task, "abort")
	r.wants(`{"empty":true}`, "getTask", "w", kinds)
	if again := r.wantJob("w", "a simulation"); again.last <= task.last {
		t.Errorf("the revision of the task was %v, is %v", task.last, again.last)
	} else {
		r.report(again, "finished")
	}
	r = r.again(d)
	r.wants(`{"empty":true}`, "getTask", "w", kinds)
	task = r.wantJob("w", "a simulation")
	r = r.again(d) // a worker holds it
	r.report(task, "abort")
	r.wants(`{"empty":true}`, "getTask", "w", kinds)
	r.report(r.wantJob("w", "a simulation"), "finished")
	r.report(r.wantJob("w", "a simulation"), "finished")
	r.wants(`{"empty":true}`, "getTask", "w", kinds)

	r.wants(quoted, "addTask", "p", "b")
	sig = r.sigOf(r.json("acceptTask", "v", r.sigOf(r.json("getTask", "v", kinds))))
	b := r.wantJob("w", "a statistics")
	r.report(b, "abort")
	r.does("restartTask", "v", r.getCurrent("v"))
	r.wantJob("other", "a statistics")
	r.wantJob("another", "")
	r.wants(`{"type":"InvalidWorkerId"}`, "taskFinished", "v", sig)
	for range 2 {
		sig = r.sigOf(r.json("acceptTask", "v", r.sigOf(r.json("getTask", "v", kinds))))
		r.wantJob("another", "")
		r.wants(quoted, "taskFinished", "v", sig)
	}
	r.does("restartTask", "other", r.getCurrent("other"))
	r.sigOf(r.json("getTask", "v", kinds))
	r.wants(`{"type":"UnknownTaskType","taskType":"statistics","argumentName":"taskTypes[0]"}`, "getTask", "w", []string{"statistics"})
	r.wants(`{"type":"DuplicateTask","taskType":"statistics"}`, "addTask", "p", "a")
	r.report(r.wantJob("w", "a statistics"), "finished")
	r.wants(`{"type":"AlreadyDone"}`, "addTask", "p", "a")
}

// TestKts46UnusableAfterAnswer: a refused login ends the server only until MongoDB has answered a call.
func TestKts46UnusableAfterAnswer(t *testing.T) {
	s := &mongoSite{ctx: t.Context()}
	refused := errors.New("auth error: Authentication failed.")
	if err := s.permanentError(refused); !errors.As(err, new(*protocol.OptionError)) {
		t.Errorf("got the error %v", err)
	}
	if err := s.permanentError(errors.New("server selection error: connection refused")); err != nil {
		t.Errorf("a server that is away: %v", err)
	}
	_ = s.outcome("p", "", store.ErrNoProject) // an answer
	if err := s.permanentError(refused); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}
