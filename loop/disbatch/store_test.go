package disbatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"

	"treadle/loop/disbatch/mongotest"
)

// site is a database for one test: a double, or a real MongoDB when the environment names
// one.
type site struct {
	t      *testing.T
	double *mongotest.Server // nil with a real database
	config *Config
	store  *Store
	ctx    context.Context
}

// realMongo is the address of a real MongoDB, empty without one.
var realMongo = os.Getenv("TREADLE_TEST_MONGODB")

// newSite makes a database with a configuration of these further lines.
func newSite(t *testing.T, lines ...string) *site {
	t.Helper()
	s := &site{t: t, ctx: t.Context()}
	address := realMongo
	if address == "" {
		s.double = startDouble(t)
		address = s.double.Address()
	}
	address = unhurried(address)
	text := fmt.Sprintf("{ # a test's\n\"mongohost\": %q, \"database\": %q,\n%s }", address, "treadle_"+primitive.NewObjectID().Hex(), strings.Join(lines, "\n"))
	path := t.TempDir() + "/config.json"
	must(t, os.WriteFile(path, []byte(text), 0o600))
	var err error
	s.config, err = ReadConfig(path)
	must(t, err)
	s.store, err = Open(s.config, ComponentNode)
	must(t, err)
	t.Cleanup(func() {
		if s.double == nil {
			_ = s.store.db.Drop(context.Background()) // the test has said what it had to say
		}
		s.store.Close()
	})
	return s
}

// unhurried is the address of a database of which calls may take as long as a test waits: on a
// busy machine one of many megabytes can take longer than a node gives it.
func unhurried(host string) string {
	if strings.Contains(host, "://") {
		return host // it says itself how long
	}
	return fmt.Sprintf("mongodb://%s/?timeoutMS=%d", host, patience.Milliseconds())
}

func startDouble(t *testing.T) *mongotest.Server {
	t.Helper()
	d, err := mongotest.Start()
	must(t, err)
	t.Cleanup(d.Stop)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// queue inserts a queue's document, and id is added.
func (s *site) queue(doc bson.D) Queue {
	s.t.Helper()
	id := primitive.NewObjectID()
	_, err := s.store.queues.InsertOne(s.ctx, append(bson.D{{Key: "_id", Value: id}}, doc...))
	must(s.t, err)
	q, err := s.store.Queue(s.ctx, id.Hex())
	must(s.t, err)
	return q
}

// fill adds tasks with these payloads.
func (s *site) fill(q *Queue, params ...any) []primitive.ObjectID {
	s.t.Helper()
	r, err := s.store.InsertTasks(s.ctx, q, params)
	must(s.t, err)
	var ids []primitive.ObjectID
	for _, id := range r.InsertedIDs {
		ids = append(ids, id.(primitive.ObjectID))
	}
	return ids
}

func (s *site) task(id primitive.ObjectID) Task {
	s.t.Helper()
	t, err := s.store.Task(s.ctx, id)
	must(s.t, err)
	return t
}

func d(pairs ...any) (out bson.D) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}

func TestConfigIsTheOriginals(t *testing.T) {
	c, err := ParseConfig([]byte(`{
	# where it is
	"mongohost": "db1:27017,db2", "database": "jobs", # a # in a comment
	"attributes": { "ssl": { "SSL_verify_mode": 0, }, "w": 1 },
	"auth": { "disbatchd": "a # b", "task_runner": "c\"#" },
	"plugins": [ "A::B", "C", ], "gfs": "auto", "unknown": [1, 2,],
	"activequeues": ["571f8951b75bf335634ec271"],
	"treadle_plugins": { "A::B": {"kind": "exec", "command": ["/bin/true"], "timeout": 1.5}, },
}
# the end`))
	must(t, err)
	if c.MongoHost != "db1:27017,db2" || c.Auth["disbatchd"] != "a # b" || c.Auth["task_runner"] != `c"#` || c.GFS != GFSAuto ||
		len(c.Plugins) != 2 || c.Schema != Schema2018 || len(c.ActiveQueues) != 1 {
		t.Errorf("read as %+v", c)
	}
	if p := c.TreadlePlugins["A::B"]; p.Timeout.Duration() != 1500*time.Millisecond {
		t.Errorf("the plugin is %+v", p)
	}
	o, err := clientOptions(c, ComponentNode)
	must(t, err)
	if o.Auth == nil || o.Auth.Username != "disbatchd" || o.Auth.AuthSource != "jobs" || o.TLSConfig == nil || !o.TLSConfig.InsecureSkipVerify || len(o.Hosts) != 2 {
		t.Errorf("the driver is told %+v", o)
	}
	if o, err = clientOptions(c, ComponentWeb); err != nil || o.Auth != nil {
		t.Errorf("a component without a password: %v, %v", o, err)
	}
	for text, want := range map[string]string{
		"{\n\"a\": 1,\n\"b\" 2}":                      "line 3",
		`{"gfs": "sometimes"}`:                        "say false, true or auto",
		`{"schema": 2017}`:                            "say 2016 or 2018",
		`{"treadle_plugins": {"A": {"kind": "x"}}}`:   "say exec, function or runner",
		`{"treadle_plugins": {"A!": {}}}`:             "a plugin's name",
		`{"treadle_plugins": {"A": {"kind":"exec"}}}`: "needs a command",
		`{"treadle_node": {"mtime": "never"}}`:        "say finish or claim",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Times that a clock cannot tell: ages are not over at once, and a moment is not for ever.
func TestTimesOfNonsense(t *testing.T) {
	c, err := ParseConfig([]byte(`{"treadle_plugins": {"A": {"kind": "function", "timeout": 1e300}, "B": {"kind": "function", "timeout": 1e-300}, "C": {"kind": "function"}},
		"treadle_node": {"reclaim_after": 9223372037}}`))
	must(t, err)
	for name, want := range map[string]time.Duration{"A": math.MaxInt64, "B": 1, "C": 0} {
		if p := c.TreadlePlugins[name]; p.Timeout.Duration() != want {
			t.Errorf("%v seconds are %v", p.Timeout, p.Timeout.Duration())
		}
	}
	if got := c.Node.ReclaimAfter.Duration(); got != math.MaxInt64 {
		t.Errorf("%v seconds are %v", c.Node.ReclaimAfter, got)
	}
}

func TestQueuesOfBothDialectsAreRead(t *testing.T) {
	f := func(doc bson.D, want Queue) {
		t.Helper()
		s, _ := bson.Marshal(append(d("_id", primitive.NewObjectID()), doc...))
		q := DecodeQueue(s)
		if q.Schema != want.Schema || q.Plugin != want.Plugin || q.Limit != want.Limit || (q.Problem == "") != (want.Problem == "") ||
			!strings.Contains(q.Problem, want.Problem) || q.Todo != want.Todo {
			t.Errorf("%v is read as %+v", doc, q)
		}
	}
	f(d("name", "a", "constructor", "P", "maxthreads", "5", "count_todo", 3), Queue{Schema: Schema2016, Plugin: "P", Limit: 5, Todo: 3})
	f(d("name", "a", "constructor", "P", "count_todo", "3"), Queue{Schema: Schema2016, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", 5.0, "maxthreads", 7), Queue{Schema: Schema2018, Plugin: "P", Limit: 5, Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", nil), Queue{Schema: Schema2018, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P"), Queue{Schema: Schema2018, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", -1), Queue{Schema: Schema2018, Plugin: "P", Todo: -1, Problem: "threads is"})
	f(d("name", "a", "constructor", "P", "maxthreads", "many"), Queue{Schema: Schema2016, Plugin: "P", Todo: -1, Problem: "maxthreads is"})
	f(d("name", "a", "constructor", "rm -rf", "count_todo", -4), Queue{Schema: Schema2016, Plugin: "rm -rf", Todo: -1, Problem: "no name of a plugin"})
	f(d("name", "a"), Queue{Schema: Schema2018, Todo: -1, Problem: "no name of a plugin"})
	f(d("name", "a", "plugin", "P", "sort", "random"), Queue{Schema: Schema2018, Plugin: "P", Todo: -1, Problem: "fifo, lifo or default"})
}

func TestTimesAndNumbersOfOldData(t *testing.T) {
	f := func(v any, want int64) {
		t.Helper()
		doc, _ := bson.Marshal(d("status", "-2", "mtime", v))
		if task := DecodeTask(doc); task.Status != StatusQueued || task.MTime.UnixMilli() != want {
			t.Errorf("%v is read as %+v", v, task)
		}
	}
	f(time.UnixMilli(1461693573123), 1461693573123)
	f(int32(1461693573), 1461693573000)
	f(1461693573.25, 1461693573250)
	f(int64(1461693573123), 1461693573123)
	f("1461693573", 1461693573000)
}

func TestTasksAreWrittenInTheirQueuesDialect(t *testing.T) {
	s := newSite(t)
	old := s.queue(d("name", "old", "constructor", "P", "count_todo", 0, "count_total", 0))
	young := s.queue(d("name", "young", "plugin", "P"))
	was := s.task(s.fill(&old, d("a", 1), d("a", 2))[0])
	is := s.task(s.fill(&young, d("a", 1))[0])
	if n, ok := integer(was.Raw.Lookup("node")); !ok || n != -1 || was.Raw.Lookup("parameters", "a").AsInt64() != 1 || was.Status != StatusQueued {
		t.Errorf("2016: %s", was.Raw)
	}
	if is.Raw.Lookup("node").Type != bson.TypeNull || is.Raw.Lookup("params", "a").AsInt64() != 1 || is.MTime.IsZero() || is.Raw.Lookup("stdout").Type != bson.TypeNull {
		t.Errorf("2018: %s", is.Raw)
	}
	if q, err := s.store.Queue(s.ctx, "old"); err != nil || q.Todo != 2 || q.Total != 2 {
		t.Errorf("the counters are %d and %d, %v", q.Todo, q.Total, err)
	}
	counts, err := s.store.Counts(s.ctx)
	if must(t, err); counts[old.ID].Queued != 2 || counts[young.ID] != (Counts{Queued: 1}) {
		t.Errorf("counted %v", counts)
	}
}

func TestClaimsFollowTheQueuesSort(t *testing.T) {
	s := newSite(t)
	for sort, order := range map[string][]int{SortFIFO: {0, 1, 2}, SortLIFO: {2, 1, 0}, SortDefault: {0, 1, 2}} {
		q := s.queue(d("name", sort, "plugin", "P", "sort", sort))
		ids := s.fill(&q, d("n", 0), d("n", 1), d("n", 2))
		for _, n := range order {
			task, err := s.store.claim(s.ctx, &q, "me", time.Now())
			if must(t, err); task.ID != ids[n] || task.Status != StatusClaimed || task.Node != "me" {
				t.Errorf("%s: claimed %s, want the one of %d", sort, task.Raw, n)
			}
		}
		if _, err := s.store.claim(s.ctx, &q, "me", time.Now()); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: a fourth claim: %v", sort, err)
		}
	}
}

func TestOnlyOneRunBegins(t *testing.T) {
	s := newSite(t)
	q := s.queue(d("name", "a", "plugin", "P"))
	s.fill(&q, d("n", 0))
	task, err := s.store.claim(s.ctx, &q, "me", time.Now())
	must(t, err)
	first, second := primitive.NewObjectID(), primitive.NewObjectID()
	for _, step := range []struct {
		run  primitive.ObjectID
		want bool
	}{{first, true}, {first, true}, {second, false}} {
		if ok, err := s.store.begin(s.ctx, &task, step.run); err != nil || ok != step.want {
			t.Errorf("begin: %v, %v, want %v", ok, err, step.want)
		}
	}
	if ok, err := s.store.finish(s.ctx, &task, second, outcome{status: 1}, time.Now()); err != nil || ok {
		t.Errorf("another run could finish it: %v, %v", ok, err)
	}
	for range 2 {
		if ok, err := s.store.finish(s.ctx, &task, first, outcome{status: 7, stdout: "o", stderr: "e"}, time.Now()); err != nil || !ok {
			t.Errorf("finish: %v, %v", ok, err)
		}
	}
	end := s.task(task.ID)
	if end.Status != 7 || !end.Raw.Lookup("complete").Boolean() || end.Raw.Lookup(runField).Type != 0 || end.Raw.Lookup("stdout").StringValue() != "o" {
		t.Errorf("the task ended as %s", end.Raw)
	}
}

// file writes a task's output to a new file of GridFS.
func (s *site) file(task primitive.ObjectID, name, text string) primitive.ObjectID {
	s.t.Helper()
	id := primitive.NewObjectID()
	must(s.t, s.store.writeFile(s.ctx, id, task, name, text))
	return id
}

func TestFilesHaveChunksOfCharacters(t *testing.T) {
	s := newSite(t)
	want := strings.Repeat("æ", chunkSize) + "tail"
	id := s.file(primitive.NewObjectID(), FileStdout, want)
	chunk, err := s.store.chunks.FindOne(s.ctx, d("files_id", id, "n", 1)).Raw()
	if must(t, err); chunk.Lookup("data").StringValue() != "tail" {
		t.Errorf("the second chunk is %s", chunk)
	}
	if got, err := s.store.ReadFile(s.ctx, id); err != nil || got != want {
		t.Errorf("read %d bytes back, %v", len(got), err)
	}
	_, err = s.store.chunks.UpdateOne(s.ctx, d("files_id", id, "n", 1), set(d("data", primitive.Binary{Data: []byte("tail")})))
	must(t, err)
	if got, err := s.store.ReadFile(s.ctx, id); err != nil || got != want {
		t.Errorf("with a binary chunk: %d bytes, %v", len(got), err)
	}
	_, err = s.store.chunks.DeleteOne(s.ctx, d("files_id", id, "n", 0))
	must(t, err)
	if _, err := s.store.ReadFile(s.ctx, id); err == nil || !strings.Contains(err.Error(), "chunk 0 is missing") {
		t.Errorf("without its first chunk: %v", err)
	}
}

func TestIndexesThatCannotBeAreReported(t *testing.T) {
	s := newSite(t)
	s.queue(d("name", "twin", "plugin", "P"))
	s.queue(d("name", "twin", "plugin", "P"))
	if faults := s.store.EnsureIndexes(s.ctx); len(faults) != 1 || !strings.Contains(faults[0].Error(), "queues") {
		t.Errorf("faults: %v", faults)
	}
	if _, err := s.store.nodes.InsertOne(s.ctx, d("node", "a")); err != nil {
		t.Error(err)
	}
	if _, err := s.store.nodes.InsertOne(s.ctx, d("node", "a")); err == nil {
		t.Error("two nodes have one name")
	}
}

// The indexes have the names that the original's driver gives them: under another name its node would not start.
func TestIndexesHaveTheOriginalsNames(t *testing.T) {
	s := newSite(t)
	for _, fault := range s.store.EnsureIndexes(s.ctx) {
		t.Error(fault)
	}
	for collection, want := range map[*mongo.Collection]string{
		s.store.tasks:  "_id_ node_1_status_1_queue_1 node_1_status_1_queue_1__id_-1 node_1_status_1_queue_1__id_1 queue_1_status_1",
		s.store.queues: "_id_ name_1", s.store.nodes: "_id_ node_1", s.store.chunks: "_id_ files_id_1_n_1", s.store.files: "_id_ filename_1_metadata.task_id_1",
	} {
		all, err := collection.Indexes().ListSpecifications(s.ctx)
		must(t, err)
		var names []string
		for _, index := range all {
			names = append(names, index.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, want %s", collection.Name(), got, want)
		}
	}
}

func TestTheConfigCollectionFillsTheFile(t *testing.T) {
	s := newSite(t, `"plugins": ["File"],`)
	for _, doc := range []bson.D{
		d("active", false, "task_runner", "/no"),
		d("active", d("plugins", bson.A{"DB"}, "activequeues", bson.A{primitive.NewObjectID()}), "task_runner", "/yes"),
	} {
		_, err := s.store.config.InsertOne(s.ctx, doc)
		must(t, err)
	}
	c, err := s.store.overlay(s.ctx, s.config)
	if must(t, err); c.TaskRunner != "/yes" || len(c.ActiveQueues) != 1 || c.Plugins[0] != "File" {
		t.Errorf("together: %+v", c)
	}
}
