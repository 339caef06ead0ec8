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
