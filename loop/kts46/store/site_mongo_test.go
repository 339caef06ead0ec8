package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop"
	"treadle/loop/disbatch/mongotest"
)

// TestExistingProjects: jobs that were made beside Treadle, before it or by the original web interface, are known at
// once and go on where their workers left them.
func TestExistingProjects(t *testing.T) {
	s := newSite(t)
	p := s.project
	s.has("begun", 8)
	s.update("fullStates", "begun", "$set", bson.D{{Key: "data", Value: bson.D{{Key: "lastCardId", Value: int32(1)}}}}, true)
	s.has("half", 21, "idleTimes")
	s.has("done", 20, "basicStatistics", "idleTimes", "throughput", "fullStatistics")
	s.has("unmarked", 20, "basicStatistics", "idleTimes", "throughput")
	s.wants("[begun done half unmarked]", "getJobsList", p)
	s.wantStatus("begun 8/20 falsefalsefalsefalse, done 20/20 truetruetruetrue, half 21/20 falsetruefalsefalse, unmarked 20/20 truetruetruefalse")
	s.wants(p+".begun: 0.4 (8/20).", "getJobStatus", p, "begun")

	s.wants(nil, "runJob", p, "begun")
	s.did(s.work2("w2"), "") // version 1 has begun it
	s.did(s.work1("w1"), "simulation simulation statistics")
	s.wantJSON(`"success"`, "addTask", p, "half")
	s.did(s.work2("w2"), "basicStatistics throughput")
	for _, job := range []string{"begun", "half", "done", "unmarked"} {
		s.wantJSON(`{"type":"AlreadyDone"}`, "addTask", p, job)
		s.wants(nil, "runJob", p, job)
	}
	s.did(s.work1("w1"), "")
	s.wants(1, "getNewJobId", p)
}

// TestChangedBeside: what is changed in MongoDB beside Treadle counts.
func TestChangedBeside(t *testing.T) {
	s := newSite(t)
	p := s.project
	s.has("gone", 0)
	s.has("again", 0)
	s.has("stuck", 0)
	for _, job := range []string{"gone", "again", "stuck"} {
		s.wants(nil, "runJob", p, job)
	}
	gone, _, _ := held(s.does("getJob", "gone"))
	again, _, _ := held(s.does("getJob", "again"))
	stuck, _, _ := held(s.does("getJob", "stuck"))
	for _, collection := range []string{"jobs", "progresses", "statistics"} {
		_, err := s.db.Collection(collection).DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "gone"}})
		s.must(err)
	}
	s.faults("Couldn't get job 'gone'", "reportStatus", "gone", "finished", gone.Get("lastUpdate"))
	s.faults("no current tasks", "reportStatus", "gone", "working", gone.Get("lastUpdate"))

	// Its steps are fewer now, and all of them are done.
	s.update("progresses", "again", "$set", bson.D{{Key: "done", Value: int32(8)}, {Key: "totalSteps", Value: 7.0}}, false)
	s.wants(nil, "reportStatus", "again", "finished", again.Get("lastUpdate"))
	task, job, kind := held(s.does("getJob", "again"))
	if job != "again" || kind != "statistics" {
		t.Errorf("the next task is %v", task)
	}

	// A batch without a finished step is done again.
	s.wants(nil, "reportStatus", "stuck", "finished", stuck.Get("lastUpdate"))
	stuck, _, _ = held(s.does("getJob", "stuck"))
	s.wants(nil, "reportStatus", "stuck", "finished", stuck.Get("lastUpdate"))
	s.did(s.work1("stuck"), "simulation simulation simulation statistics")
}

// TestMarkedBeside: statistics that are done when the last batch is reported are not done again.
func TestMarkedBeside(t *testing.T) {
	s := newSite(t)
	p := s.project
	f := func(job, want string, marked ...string) {
		t.Helper()
		s.has(job, 16)
		s.wantJSON(`"success"`, "addTask", p, job)
		_, _, sig := s.take2("w")
		s.has(job, 20, marked...)
		s.wantJSON(`"success"`, "taskFinished", "w", sig)
		s.did(s.work2("w"), want)
		s.wantJSON(`{"type":"AlreadyDone"}`, "addTask", p, job)
	}
	f("one", "basicStatistics throughput", "idleTimes")
	f("all", "", "basicStatistics", "idleTimes", "throughput")
	s.has("full", 20, "fullStatistics")
	s.wantJSON(`{"type":"AlreadyDone"}`, "addTask", p, "full")
}

// TestRestart: a start knows what is queued and held, and how many steps MongoDB counts.
func TestRestart(t *testing.T) {
	s := newSite(t)
	p := s.project
	s.wants(nil, "createProject", p)
	s.wants(nil, "addJob", p, "whole", "simulationParameters: {duration: 10, stepDuration: 3, batchLength: 2}")
	s.has("one", 8)
	s.has("two", 0)
	s.wants(nil, "runJob", p, "one")
	s.wantJSON(`"success"`, "addTask", p, "two")
	one, _, _ := held(s.does("getJob", "w1"))
	job, kind, sig := s.take2("w2")
	if job != "two" || kind != "simulation" {
		t.Fatalf("the task is %s of %s", kind, job)
	}
	s.stop()
	s.start()
	s.works(1, "one", "simulation")
	s.wants(nil, "reportStatus", "w1", "finished", one.Get("lastUpdate"))
	s.works(2, "two", "simulation")
	s.wantJSON(`"success"`, "taskFinished", "w2", sig)
	s.did(s.work1("w1"), "simulation statistics")
	s.stop()
	s.start()
	s.did(s.work2("w2"), "simulation simulation basicStatistics idleTimes throughput")

	// Python 2 divides whole numbers so: 10 by 3 are 3 steps.
	s.wants(nil, "runJob", p, "whole")
	whole, _, _ := held(s.does("getJob", "w1"))
	s.stop()
	s.start()
	s.update("progresses", "whole", "$inc", bson.D{{Key: "done", Value: int32(3)}}, false)
	s.wants(nil, "reportStatus", "w1", "finished", whole.Get("lastUpdate"))
	s.stop()
	s.start()
	s.did(s.work1("w1"), "statistics")
}

// TestMongoAway: without MongoDB what is queued is handed out, calls that need it are refused with the reason, and a
// report that was refused is taken when it is back.
func TestMongoAway(t *testing.T) {
	s := newSite(t)
	if s.fake == nil {
		t.Skip("only a fake can be stopped")
	}
	p := s.project
	s.has("a", 0)
	s.has("b", 0)
	s.wants(nil, "runJob", p, "a")
	s.wantJSON(`"success"`, "addTask", p, "b")
	s.fake.Stop()
	const says = "the call needs MongoDB, which has failed; repeat it when the server of --kts46-mongodb works: "
	task, job, _ := held(s.does("getJob", "w"))
	if job != "a" {
		t.Errorf("the task is %v", task)
	}
	last := s.does("reportStatus", "w", "working", task.Get("lastUpdate"))
	s.faults(says, "reportStatus", "w", "finished", last)
	for _, c := range [][]any{{"runJob", p, "b"}, {"createProject", p}, {"addJob", p, "c", definition}, {"deleteJob", p, "a"}, {"deleteProject", p}, {"getServerStatus"}, {"getJobStatistics", p, "a", false}, {"getJobsList", p}} {
		s.faults(s.fake.Address(), c[0].(string), c[1:]...)
	}
	_, _, sig := s.take2("v")
	if got := s.json("taskFinished", "v", sig); !strings.HasPrefix(got, `"`+says) {
		t.Errorf("taskFinished: %s", got)
	}
	s.stop()
	s.start() // MongoDB need not be there
	s.must(s.fake.Resume())
	s.answers()
	s.works(1, "a", "simulation")
	s.wants(nil, "reportStatus", "w", "finished", last)
	s.works(2, "b", "simulation")
	s.wantJSON(`"success"`, "taskFinished", "v", sig)
	s.did(s.work1("w"), "simulation simulation statistics")
	s.did(s.work2("v"), "simulation simulation basicStatistics idleTimes throughput")
}

// TestMongoUnusable: a MongoDB that no waiting makes usable ends the server with one line that names the setting and
// the remedy.
func TestMongoUnusable(t *testing.T) {
	s := newSite(t)
	if s.fake == nil {
		t.Skip("only a fake has users")
	}
	s.stop()
	const selection = "serverSelectionTimeoutMS=3000" // outlasts a TLS handshake on a busy machine
	uri := strings.Replace(s.options.Kts46.MongoDB, "serverSelectionTimeoutMS=500", selection, 1)
	f := func(uri, cause, remedy string) {
		t.Helper()
		var log bytes.Buffer
		s.options.Kts46.MongoDB, s.options.Log = uri, slog.New(slog.NewTextHandler(&log, nil))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := loop.Run(ctx, s.options)
		var bad *loop.OptionError
		if !errors.As(err, &bad) || bad.Setting != "kts46-mongodb" || bad.ExitCode() != 2 || strings.Contains(err.Error(), "\n") {
			t.Fatalf("got the error %v", err)
		}
		if says := err.Error(); !strings.Contains(says, cause) || !strings.Contains(says, remedy) || strings.Contains(log.String(), "MongoDB has failed") {
			t.Errorf("got the error %v, want one with %q and %q; the log is %s", err, cause, remedy, log.String())
		}
	}
	f("http://127.0.0.1", "scheme", "")
	s.must(s.fake.Require("admin", map[string]string{"kts46": "right"}))
	f(uri, "requires authentication", "put user and password into the URI")
	f(strings.Replace(uri, "//", "//kts46:wrong@", 1), "Authentication failed", "correct user, password or authSource")
	s.fake.SetVersion(mongotest.MongoDB34)
	f(uri, "wire version", "3.6 to 5.0")
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // of handshakes
	secure.StartTLS()
	defer secure.Close()
	f("mongodb://"+secure.Listener.Addr().String()+"/?tls=true&"+selection, "x509:", "tlsCAFile=FILE")
}

// TestMongoPasswordChanged: a server whose MongoDB has answered goes on when MongoDB no longer accepts the user, and
// says so in each answer.
func TestMongoPasswordChanged(t *testing.T) {
	s := newSite(t)
	if s.fake == nil {
		t.Skip("only a fake has users")
	}
	s.wants(nil, "createProject", s.project)
	s.must(s.fake.Require("admin", map[string]string{"kts46": "right"}))
	s.faults("requires authentication", "getServerStatus")
	s.wants(nil, "getJob", "w")
	s.stop()
	s.options.Kts46.MongoDB = strings.Replace(s.options.Kts46.MongoDB, "//", "//kts46:right@", 1)
	s.start()
	s.wants(nil, "deleteProject", s.project)
}

// TestMongoWrongDocuments: a call that meets a document it cannot use is answered with what is wrong with the document.
// MongoDB has not failed, and the log does not say so.
func TestMongoWrongDocuments(t *testing.T) {
	s := newSite(t)
	s.stop()
	var log bytes.Buffer
	s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.start()
	s.update("info", "project", "$set", bson.D{{Key: "v", Value: int32(1)}}, true)
	says := "SchedulerException'>:the database " + s.project + " has an info document without v: 2"
	s.faults(says, "createProject", s.project)
	s.update("info", "project", "$set", bson.D{{Key: "v", Value: int32(2)}}, false)
	s.update("jobs", "a", "$set", bson.D{{Key: "definition", Value: "text"}}, true)
	s.faults("SchedulerException'>:the job a in the database "+s.project+" has no number", "runJob", s.project, "a")
	s.stop()
	if strings.Contains(log.String(), "MongoDB has failed") {
		t.Errorf("the log is %s", log.String())
	}
}
