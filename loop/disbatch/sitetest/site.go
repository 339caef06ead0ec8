package sitetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

// Site is a database for one test: a fake, or the MongoDB of TREADLE_TEST_MONGODB.
type Site struct {
	T      *testing.T
	Fake   *mongotest.Server // nil with a real database
	Config *config.File
	Store  *store.Store
	Ctx    context.Context // context of the test

	// DB is the database itself, for queries that the store does not make. Queues, Tasks and Nodes are its collections.
	DB                   *mongo.Database
	Queues, Tasks, Nodes *mongo.Collection
}

// realMongo is the address of a real MongoDB, or empty.
var realMongo = os.Getenv("TREADLE_TEST_MONGODB")

// New makes a database and a configuration with further lines.
func New(t *testing.T, lines ...string) *Site {
	t.Helper()
	s := &Site{T: t, Ctx: t.Context()}
	address := realMongo
	if address == "" {
		s.Fake = StartFake(t)
		address = s.Fake.Address()
	}
	address = patient(address)
	text := fmt.Sprintf("{ # a test's\n\"mongohost\": %q, \"database\": %q,\n%s }", address, "treadle_"+primitive.NewObjectID().Hex(), strings.Join(lines, "\n"))
	path := t.TempDir() + "/config.json"
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	var err error
	s.Config, err = config.Read(path)
	Must(t, err)
	s.open()
	t.Cleanup(func() {
		if s.Fake == nil {
			_ = s.DB.Drop(context.Background()) // the test has ended
		}
		s.Store.Close()
	})
	return s
}

// open connects to the database of the configuration.
func (s *Site) open() {
	s.T.Helper()
	var err error
	s.Store, err = store.Open(s.Config.Connection(config.ComponentNode))
	Must(s.T, err)
	s.DB = Connect(s.T, s.Config)
	s.Queues, s.Tasks, s.Nodes = s.DB.Collection("queues"), s.DB.Collection("tasks"), s.DB.Collection("nodes")
}

// Connect returns the database of a configuration for the length of a test. It ignores the attributes.
func Connect(t testing.TB, c *config.File) *mongo.Database {
	t.Helper()
	address := c.MongoHost
	if !strings.Contains(address, "://") {
		address = "mongodb://" + address
	}
	o := options.Client().ApplyURI(address)
	if password, ok := c.Auth[config.ComponentNode]; ok {
		o.SetAuth(options.Credential{Username: config.ComponentNode, Password: password, AuthSource: c.Database})
	}
	client, err := mongo.Connect(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) }) // the test has ended
	return client.Database(c.Database)
}

// patient returns an address with the time-out of a test for every call: on a busy machine a call with many megabytes
// takes longer than the default.
func patient(host string) string {
	if strings.Contains(host, "://") {
		return host // it has its own time-outs
	}
	return fmt.Sprintf("mongodb://%s/?timeoutMS=%d", host, Patience.Milliseconds())
}

// StartFake starts a fake MongoDB for one test.
func StartFake(t *testing.T) *mongotest.Server {
	t.Helper()
	d, err := mongotest.Start()
	Must(t, err)
	t.Cleanup(d.Stop)
	return d
}

// Must ends the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Queue inserts the document of a queue with a new id.
func (s *Site) Queue(doc bson.D) store.Queue {
	s.T.Helper()
	id := primitive.NewObjectID()
	_, err := s.Queues.InsertOne(s.Ctx, append(bson.D{{Key: "_id", Value: id}}, doc...))
	Must(s.T, err)
	q, err := s.Store.Queue(s.Ctx, id.Hex())
	Must(s.T, err)
	return q
}

// Fill inserts tasks with the payloads.
func (s *Site) Fill(q *store.Queue, params ...any) []primitive.ObjectID {
	s.T.Helper()
	ids, err := s.Store.InsertTasks(s.Ctx, q, params)
	Must(s.T, err)
	return ids
}

// Task reads a task.
func (s *Site) Task(id primitive.ObjectID) store.Task {
	s.T.Helper()
	t, err := s.Store.Task(s.Ctx, id)
	Must(s.T, err)
	return t
}

// D returns a document of alternating names and values.
func D(pairs ...any) (out bson.D) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}

// ByID returns a filter for the document of an id.
func ByID(id primitive.ObjectID) bson.D { return D("_id", id) }

// Set returns an update that sets fields.
func Set(fields bson.D) bson.D { return D("$set", fields) }

// File writes a task's output to a new file of GridFS.
func (s *Site) File(task primitive.ObjectID, name, text string) primitive.ObjectID {
	s.T.Helper()
	id := primitive.NewObjectID()
	Must(s.T, s.Store.WriteFile(s.Ctx, id, task, name, text))
	return id
}

// NewFaulty is New on a fake, for faults that a real database does not inject.
func NewFaulty(t *testing.T, lines ...string) *Site {
	t.Helper()
	s := New(t, lines...)
	if s.Fake == nil {
		s.Fake = StartFake(t)
		s.Store.Close()
		s.Config.MongoHost, s.Config.Auth = patient(s.Fake.Address()), nil
		text := fmt.Sprintf("{\"mongohost\": %q, \"database\": %q,\n%s }", s.Config.MongoHost, s.Config.Database, strings.Join(lines, "\n"))
		Must(t, os.WriteFile(s.Config.Path, []byte(text), 0o600))
		s.open()
	}
	return s
}

// Faults injects faults of all kinds into one of oneIn calls of the commands.
func (s *Site) Faults(seed uint64, oneIn int, commands ...string) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	s.Fake.Inject(func(command string) mongotest.Fault {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range commands {
			if c == command && random.IntN(oneIn) == 0 {
				return mongotest.Fault(1 + random.IntN(int(mongotest.NumFaults)-1))
			}
		}
		return mongotest.None
	})
}

// Patience bounds the wait of a test for an event.
const Patience = 2 * time.Minute

// Until polls the database until a condition holds.
func (s *Site) Until(what string, ok func() bool) {
	s.T.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(Patience); !ok(); <-ticker.C {
		if time.Now().After(end) {
			tasks, _ := s.Store.Search(s.Ctx, bson.D{}, store.SearchOptions{Limit: 5})
			for _, t := range tasks {
				s.T.Logf("%s", t.Raw)
			}
			s.T.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Ends waits until all tasks have a status of 1 or more.
func (s *Site) Ends(ids ...primitive.ObjectID) []store.Task {
	s.T.Helper()
	s.Until("the end of the tasks", func() bool {
		n, err := s.Store.CountTasks(s.Ctx, D("_id", D("$in", ids), "status", D("$gte", 1)))
		return err == nil && int(n) == len(ids)
	})
	var out []store.Task
	for _, id := range ids {
		out = append(out, s.Task(id))
	}
	return out
}

// Status waits until a task has a status.
func (s *Site) Status(id primitive.ObjectID, want int) {
	s.T.Helper()
	s.Until(fmt.Sprintf("status %d", want), func() bool {
		t, err := s.Store.Task(s.Ctx, id)
		return err == nil && t.Status == want
	})
}

// Stored returns the text of a field of a task.
func Stored(t *store.Task, name string) string { return store.Text(t.Raw.Lookup(name)) }

// Payloads returns n payloads.
func Payloads(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = D("n", i)
	}
	return out
}

// Nonsense returns values of every BSON type, among them extreme and invalid ones.
func Nonsense() []any {
	return []any{
		nil, true, false, -1, 1 << 40, math.NaN(), math.Inf(1), 0.5, -1e300, "", "text", "9999999999999999999", "NaN", "a\x00b", "\xff\xfe",
		D("a", 1), bson.D{}, bson.A{}, bson.A{1, nil, bson.D{}},
		primitive.NewObjectID(), time.Unix(0, 0), primitive.DateTime(math.MaxInt64), primitive.DateTime(math.MinInt64),
		primitive.Binary{Data: []byte("x")}, primitive.Regex{Pattern: "("},
		primitive.Timestamp{T: 1}, primitive.MinKey{}, primitive.MaxKey{}, primitive.JavaScript("x"),
		primitive.CodeWithScope{Code: "x", Scope: D("a", 1)}, primitive.Symbol("x"),
		primitive.NewDecimal128(math.MaxUint64, 0), primitive.Undefined{}, primitive.DBPointer{DB: "x"},
	}
}

// Limits are parameters of an address that make a failing call end soon.
const Limits = "timeoutMS=2000&serverSelectionTimeoutMS=300"

// Lines counts log lines.
type Lines struct {
	mu sync.Mutex
	n  int
}

// NewLines returns a counter at 0.
func NewLines() *Lines { return &Lines{} }

// Logger returns a log that counts its lines.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return len(b), nil
}

// Count returns the number of lines.
func (l *Lines) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// FuzzBytes bounds the input of a fuzz target. Longer inputs find nothing more, and the fuzzer spends its time on
// shortening them.
const FuzzBytes = 1 << 10

// FuzzDocuments returns queues, tasks and nodes, and documents with a value of every type in each field.
func FuzzDocuments(f *testing.F) (all [][]byte) {
	seed := func(doc any) {
		b, err := bson.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, b)
	}
	id := primitive.NewObjectIDFromTimestamp(time.Unix(1_795_239_475, 0))
	seed(D("_id", id, "name", "q", "plugin", config.DemoPlugin, "threads", 1, "sort", "fifo", "nodes_pin", bson.A{"a", id}, "nodes_ignore", "b"))
	seed(D("_id", id, "name", "q", "constructor", config.DemoPlugin, "maxthreads", "1", "count_todo", 0, "count_total", 1.5))
	seed(D("_id", id, "queue", id, "status", -2, "node", nil, "ctime", time.UnixMilli(1795239872481), "mtime", 1795239872, "params",
		D("commands", "abc"), "stdout", nil))
	seed(D("_id", id, "node", "vm", "timestamp", time.UnixMilli(1795239872481), "maxthreads", 7, "queues", bson.A{}))
	for _, v := range Nonsense() {
		seed(D("_id", id, "plugin", v, "threads", v, "status", v, "node", v, "params", v, "commands", v, "nodes_pin", v, "ctime", v, "task", D("a", v)))
	}
	return all
}

// OnReleases runs a test on a site of every release of MongoDB that Disbatch sites run, with passwords and with a
// replica set. MongoDB 3.6 knows neither hello nor SCRAM-SHA-256 nor later fields of commands.
func OnReleases(t *testing.T, run func(*testing.T, *Site)) {
	for _, version := range []mongotest.Version{mongotest.MongoDB36, mongotest.MongoDB42, mongotest.MongoDB44, mongotest.MongoDB70} {
		for _, set := range []string{"", "rs0"} {
			t.Run(version.Name+set, func(t *testing.T) {
				s := NewFaulty(t)
				Must(t, s.Fake.Require("jobs", map[string]string{config.ComponentNode: "pencil", config.ComponentWeb: "p"}))
				s.Fake.SetVersion(version)
				if set != "" {
					s.Fake.SetReplicaSet(set)
				}
				text := fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s", "database": "jobs", "auth": {"disbatchd": "pencil", "disbatch_web": "p"}, "attributes": {"replica_set_name": %q}}`,
					s.Fake.Address(), Limits, set)
				c, err := config.Parse([]byte(text))
				Must(t, err)
				s.Store.Close()
				s.Config = c
				s.open()
				for _, fault := range s.Store.EnsureIndexes(s.Ctx) {
					t.Error(fault)
				}
				run(t, s)
			})
		}
	}
}

// OnUnusable runs a program on databases that can never be used: an old release, a wrong password, another replica set.
// The program must return a SettingError of one line.
func OnUnusable(t *testing.T, run func(context.Context, *config.File) error) {
	f := func(want, attributes, auth string, change func(*mongotest.Server)) {
		t.Helper()
		fake := StartFake(t)
		Must(t, fake.Require("jobs", map[string]string{config.ComponentNode: "a", config.ComponentWeb: "b", config.ComponentRunner: "c"}))
		change(fake)
		c, err := config.Parse([]byte(fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s", "database": "jobs", "attributes": {%s}, "auth": {%s}}`,
			fake.Address(), Limits, attributes, auth)))
		Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		err = run(ctx, c)
		var setting *config.SettingError
		if !errors.As(err, &setting) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: it ends with %v", want, err)
		}
	}
	right := `"disbatchd": "a", "disbatch_web": "b", "task_runner": "c"`
	f("MongoDB 3.6", "", right, func(d *mongotest.Server) { d.SetVersion(mongotest.MongoDB34) })
	f("of auth", "", `"disbatchd": "x", "disbatch_web": "x", "task_runner": "x"`, func(*mongotest.Server) {})
	f("requires authentication", "", "", func(*mongotest.Server) {})
	f(`is "rs1" and not "rs0"`, `"replica_set_name": "rs0"`, right, func(d *mongotest.Server) { d.SetReplicaSet("rs1") })
	f("is no member of a replica set", `"replica_set_name": "rs0"`, right, func(*mongotest.Server) {})
}

// Changed returns a document with a changed field, or without the field.
func Changed(doc bson.D, field string, value any, without bool) (out bson.D) {
	for _, e := range doc {
		switch {
		case e.Key != field:
			out = append(out, e)
		case !without:
			out = append(out, bson.E{Key: field, Value: value})
		}
	}
	return out
}
