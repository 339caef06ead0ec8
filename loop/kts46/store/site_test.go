package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"

	"treadle/codec/kts46"
	"treadle/loop"
	"treadle/loop/disbatch/mongotest"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// site is a Treadle beside a MongoDB, and what its original workers and web interface do with both.
type site struct {
	t        *testing.T
	fake     *mongotest.Server // nil with a real MongoDB
	db       *mongo.Database   // the project's
	project  string
	options  loop.Options
	xml, rpc string // URLs
	stop     func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, project: "treadle_" + primitive.NewObjectID().Hex()}
	address := os.Getenv("TREADLE_TEST_MONGODB")
	if address == "" {
		var err error
		s.fake, err = mongotest.Start()
		s.must(err)
		t.Cleanup(s.fake.Stop)
		address = s.fake.Address()
	}
	client, err := mongo.Connect(context.Background(), options.Client().ApplyURI("mongodb://"+address))
	s.must(err)
	s.db = client.Database(s.project)
	t.Cleanup(func() {
		_ = s.db.Drop(context.Background())
		_ = client.Disconnect(context.Background()) // the test has said what it had to say
	})
	off, any := []string{"off"}, []string{"tcp://127.0.0.1:0"}
	s.options = loop.Options{
		Periodic: loop.PeriodicOptions{Listen: off}, Gloom: loop.GloomOptions{Masters: off, Slaves: off}, Dwork: loop.DworkOptions{Listen: off}, HTTP: "off",
		Kts46: loop.Kts46Options{Listen: any, JSON: any, MongoDB: "mongodb://" + address + "/?serverSelectionTimeoutMS=500"}, Data: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// start starts Treadle, on the same directory.
func (s *site) start() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	o := s.options
	o.Started = func(listening []loop.Listening) {
		for _, l := range listening {
			url := "http://" + strings.TrimPrefix(l.Address, "tcp://")
			switch l.Setting {
			case "kts46":
				s.xml = url + "/RPC2"
			case "kts46-json":
				s.rpc = url + "/jsonrpc"
			}
		}
		close(ready)
	}
	go func() { ended <- loop.Run(ctx, o) }()
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		s.stop = func() {}
	}
	select {
	case <-ready:
	case err := <-ended:
		s.t.Fatal(err)
	}
}

func (s *site) post(url string, body []byte) []byte {
	s.t.Helper()
	c := http.Client{Timeout: patience}
	r, err := c.Post(url, "text/xml", bytes.NewReader(body))
	s.must(err)
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	s.must(err)
	return answer
}

// call is a call of version 1.
func (s *site) call(method string, args ...any) (any, error) {
	s.t.Helper()
	return kts46.ReadAnswer(bytes.NewReader(s.post(s.xml, kts46.AppendCall(nil, method, args...))))
}

func (s *site) does(method string, args ...any) any {
	s.t.Helper()
	v, err := s.call(method, args...)
	if err != nil {
		s.t.Fatalf("%s%q: %v", method, args, err)
	}
	return v
}

func (s *site) wants(want any, method string, args ...any) {
	s.t.Helper()
	if got := s.does(method, args...); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s%q: %v, want %v", method, args, got, want)
	}
}

func (s *site) faults(says, method string, args ...any) {
	s.t.Helper()
	v, err := s.call(method, args...)
	if !errors.As(err, new(*kts46.Fault)) || !strings.Contains(err.Error(), says) {
		s.t.Errorf("%s%q: %v, %v, want a fault that says %q", method, args, v, err, says)
	}
}

// answers waits until Treadle has found MongoDB again. The driver looks for a lost server every 500 ms at most, so a
// call with a server selection time-out of 500 ms may still fail after the server is back.
func (s *site) answers() {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := s.call("getServerStatus")
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("MongoDB is back, and Treadle has not found it in %v: %v", patience, err)
		}
	}
}

// json is a call of version 2: its result, or its error.
func (s *site) json(method string, params ...any) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"method": method, "params": params, "id": 1})
	s.must(err)
	var reply struct{ Result, Error json.RawMessage }
	s.must(json.Unmarshal(s.post(s.rpc, body), &reply))
	if string(reply.Error) != "null" {
		return string(reply.Error)
	}
	return string(reply.Result)
}

func (s *site) wantJSON(want, method string, params ...any) {
	s.t.Helper()
	if got := s.json(method, params...); got != want {
		s.t.Errorf("%s%q: %s, want %s", method, params, got, want)
	}
}

// definition has 20 steps in batches of 8. Both its numbers are doubles: nothing is rounded.
const definition = "simulationParameters: {duration: 10.0, stepDuration: 0.5, batchLength: 8}\ntrafficLights: {}\n"

// update changes a document as a worker does.
func (s *site) update(collection, id, operator string, fields bson.D, upsert bool) {
	s.t.Helper()
	r, err := s.db.Collection(collection).UpdateOne(s.t.Context(), bson.D{{Key: "_id", Value: id}}, bson.D{{Key: operator, Value: fields}}, options.Update().SetUpsert(upsert))
	s.must(err)
	if r.MatchedCount+r.UpsertedCount != 1 {
		s.t.Fatalf("an original worker dies of %s/%s", collection, id)
	}
}

// get reads a document, without which an original worker dies.
func (s *site) get(collection, id string) map[string]any {
	s.t.Helper()
	var fields bson.D // whose own documents are decoded as these, too
	err := s.db.Collection(collection).FindOne(s.t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&fields)
	if err != nil {
		s.t.Fatalf("an original worker dies of %s/%s: %v", collection, id, err)
	}
	doc := map[string]any{}
	for _, f := range fields {
		doc[f.Key] = f.Value
	}
	return doc
}

// lastCar is the field by which each version counts cars, in which the other finds nothing.
var lastCar = map[int]string{1: "lastCardId", 2: "lastCarId"}

// works is what an original worker does with a task.
func (s *site) works(version int, job, kind string) {
	s.t.Helper()
	names, err := s.db.Client().ListDatabaseNames(s.t.Context(), bson.D{{Key: "name", Value: s.project}})
	s.must(err)
	if !slices.Contains(names, s.project) || s.get("info", "project")["v"] != int32(2) {
		s.t.Fatal("an original worker sees no project")
	}
	parameters, _ := s.get("jobs", job)["definition"].(bson.D)
	if len(parameters) == 0 || parameters[0].Key != "simulationParameters" {
		s.t.Fatalf("an original worker cannot read the definition %v", parameters)
	}
	progress := s.get("progresses", job)
	s.get("statistics", job)
	flags := map[string]bson.D{
		"basicStatistics": {{Key: "basicStatistics", Value: true}}, "idleTimes": {{Key: "idleTimes", Value: true}}, "throughput": {{Key: "throughput", Value: true}},
		"statistics": {{Key: "basicStatistics", Value: true}, {Key: "idleTimes", Value: true}, {Key: "throughput", Value: true}, {Key: "fullStatistics", Value: true}},
	}
	if kind != "simulation" {
		s.update("statistics", job, "$set", bson.D{{Key: "average", Value: 12.5}}, false)
		s.update("progresses", job, "$set", flags[kind], false)
		if p := s.get("progresses", job); p["basicStatistics"] == true && p["idleTimes"] == true && p["throughput"] == true {
			s.update("progresses", job, "$set", bson.D{{Key: "fullStatistics", Value: true}}, false)
		}
		return
	}
	var full struct {
		Data bson.D `bson:"data"`
	}
	err = s.db.Collection("fullStates").FindOne(s.t.Context(), bson.D{{Key: "_id", Value: job}}).Decode(&full)
	if err == nil && full.Data[0].Key != lastCar[version] {
		s.t.Fatalf("a worker of version %d cannot continue %v", version, full)
	}
	var done int
	_, err = fmt.Sscan(fmt.Sprint(progress["done"]), &done) // of any type: $inc may change it
	s.must(err)
	steps := min(8, 20-done)
	if steps < 8 {
		steps++ // the original's last batch ends one above
	}
	s.update("fullStates", job, "$set", bson.D{{Key: "data", Value: bson.D{{Key: lastCar[version], Value: int32(1)}}}}, true)
	s.update("progresses", job, "$inc", bson.D{{Key: "done", Value: int32(steps)}}, false)
}

// held is a task of a worker of version 1.
func held(answer any) (task kts46.Struct, job, kind string) {
	task, _ = answer.(kts46.Struct)
	job, _ = task.Get("job").(string)
	kind, _ = task.Get("type").(string)
	return task, job, kind
}

// work1 does what there is as an original worker of version 1, and tells the kinds.
func (s *site) work1(worker string) (did []string) {
	s.t.Helper()
	for {
		task, job, kind := held(s.does("getJob", worker))
		if task == nil {
			return did
		}
		s.works(1, job, kind)
		s.wants(nil, "reportStatus", worker, "finished", task.Get("lastUpdate"))
		did = append(did, kind)
	}
}

// kinds2 are the kinds of version 2.
var kinds2 = []string{"simulation", "basicStatistics", "idleTimes", "throughput"}

// take2 takes and accepts a task of version 2; "" for the kind: there is none.
func (s *site) take2(worker string) (job, kind, sig string) {
	s.t.Helper()
	var task struct {
		Job, Type, Sig string
		Databases      []struct {
			Host string
			Port int
		}
	}
	s.must(json.Unmarshal([]byte(s.json("getTask", worker, kinds2)), &task))
	if task.Job == "" {
		return "", "", ""
	}
	if len(task.Databases) != 1 || task.Databases[0].Port == 0 {
		s.t.Fatalf("an original worker has no database in %+v", task)
	}
	s.must(json.Unmarshal([]byte(s.json("acceptTask", worker, task.Sig)), &task))
	return task.Job, task.Type, task.Sig
}

func (s *site) work2(worker string) (did []string) {
	s.t.Helper()
	for {
		job, kind, sig := s.take2(worker)
		if kind == "" {
			return did
		}
		s.works(2, job, kind)
		s.wantJSON(`"success"`, "taskFinished", worker, sig)
		did = append(did, kind)
	}
}

func (s *site) did(got []string, want string) {
	s.t.Helper()
	if g := strings.Join(got, " "); g != want {
		s.t.Errorf("the worker did %q, want %q", g, want)
	}
}

// status is what getServerStatus shows of the project.
func (s *site) status() string {
	s.t.Helper()
	var lines []string
	all, _ := s.does("getServerStatus").([]any)
	for _, e := range all {
		j := e.(kts46.Struct)
		if j.Get("project") == s.project {
			lines = append(lines, fmt.Sprintf("%v %v/%v %v%v%v%v", j.Get("name"), j.Get("done"), j.Get("totalSteps"),
				j.Get("basicStatistics"), j.Get("idleTimes"), j.Get("throughput"), j.Get("fullStatistics")))
		}
	}
	return strings.Join(lines, ", ")
}

func (s *site) wantStatus(want string) {
	s.t.Helper()
	if got := s.status(); got != want {
		s.t.Errorf("the status is %q, want %q", got, want)
	}
}

// TestOriginalWorkers: projects and jobs that Treadle makes are worked off by the original workers of each version,
// which read and write MongoDB themselves.
func TestOriginalWorkers(t *testing.T) {
	s := newSite(t)
	p := s.project
	s.wants(false, "projectExists", p)
	s.faults("Couldn't get project '"+p, "addJob", p, "one", definition)
	s.wants(nil, "createProject", p)
	s.faults("already exists", "createProject", p)
	s.faults("names a database", "createProject", "a.b")
	s.wants(true, "projectExists", p)
	s.wants(1, "getNewJobId", p)
	s.wants(nil, "addJob", p, "one", definition)
	s.faults("already exists", "addJob", p, "one", definition)
	s.faults("put it in quotes", "addJob", p, "two", definition+"more: {1: 2}")
	s.wants(nil, "addJob", p, "two", definition)
	s.wants("[one two]", "getJobsList", p)
	s.wants(true, "jobExists", p, "one")
	s.wants(false, "jobExists", p, "none")
	s.wantStatus("one 0/20 falsefalsefalsefalse, two 0/20 falsefalsefalsefalse")

	s.wants(nil, "runJob", p, "one")
	s.wants(nil, "runJob", p, "one") // it is queued
	s.did(s.work1("w1"), "simulation simulation simulation statistics")
	s.wantStatus("one 21/20 truetruetruetrue, two 0/20 falsefalsefalsefalse")
	s.wants(nil, "runJob", p, "one") // it is done
	s.did(s.work1("w1"), "")
	s.wants(p+".one: 1 (21/20).", "getJobStatus", p, "one")
	s.wants("[{average 12.5} {stdeviation <nil>} {averageSpeed <nil>} {idleTimes [{values <nil>}]} {thoughput []} {throughput []} {finished false}]", "getJobStatistics", p, "one", false)
	s.wants("[]", "getJobStatistics", p, "none", false)

	s.wantJSON(`{"type":"JobNotFound"}`, "addTask", p, "none")
	s.wantJSON(`{"type":"JobNotFound"}`, "addTask", p+"x", "two")
	s.wantJSON(`"success"`, "addTask", p, "two")
	s.wantJSON(`{"type":"DuplicateTask","taskType":"simulation"}`, "addTask", p, "two")
	s.did(s.work2("w2"), "simulation simulation simulation basicStatistics idleTimes throughput")
	s.wantJSON(`{"type":"AlreadyDone"}`, "addTask", p, "two")
	s.wants(nil, "deleteJob", p, "one")
	s.faults("Couldn't delete job 'one'", "deleteJob", p, "one")
	s.wantStatus("two 21/20 truetruetruetrue")
	s.wants(nil, "deleteProject", p)
	s.faults("Couldn't delete project", "deleteProject", p)
	s.wants(false, "projectExists", p)
	s.wantStatus("")
}

// has makes the documents of a job as the original database server does.
func (s *site) has(job string, done int32, flags ...string) {
	s.t.Helper()
	if n, err := s.db.Collection("info").CountDocuments(s.t.Context(), bson.D{}); err == nil && n == 0 {
		s.update("info", "project", "$set", bson.D{{Key: "name", Value: s.project}, {Key: "v", Value: int32(2)}}, true)
	}
	parameters := bson.D{{Key: "duration", Value: int32(10)}, {Key: "stepDuration", Value: 0.5}, {Key: "batchLength", Value: int32(8)}}
	s.update("jobs", job, "$set", bson.D{{Key: "name", Value: job}, {Key: "definition", Value: bson.D{{Key: "simulationParameters", Value: parameters}}}}, true)
	progress := bson.D{{Key: "totalSteps", Value: 20.0}, {Key: "batches", Value: 3.0}, {Key: "done", Value: done}}
	for _, f := range []string{"basicStatistics", "idleTimes", "throughput", "fullStatistics"} {
		progress = append(progress, bson.E{Key: f, Value: slices.Contains(flags, f)})
	}
	s.update("progresses", job, "$set", progress, true)
	s.update("statistics", job, "$set", bson.D{{Key: "average", Value: nil}, {Key: "idleTimes", Value: bson.D{}}}, true)
}

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
