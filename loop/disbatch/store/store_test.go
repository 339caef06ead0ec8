package store_test

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestTasksAreWrittenInDialect: new tasks have the dialect of their queue and count in its counters.
func TestTasksAreWrittenInDialect(t *testing.T) {
	s := newSite(t)
	old := s.Queue(d("name", "old", "constructor", "P", "count_todo", 0, "count_total", 0))
	young := s.Queue(d("name", "young", "plugin", "P"))
	was := s.Task(s.Fill(&old, d("a", 1), d("a", 2))[0])
	is := s.Task(s.Fill(&young, d("a", 1))[0])
	if n, ok := store.Integer(was.Raw.Lookup("node")); !ok || n != -1 || was.Raw.Lookup("parameters", "a").AsInt64() != 1 || was.Status != store.StatusQueued {
		t.Errorf("2016: %s", was.Raw)
	}
	if is.Raw.Lookup("node").Type != bson.TypeNull || is.Raw.Lookup("params", "a").AsInt64() != 1 || is.MTime.IsZero() || is.Raw.Lookup("stdout").Type != bson.TypeNull {
		t.Errorf("2018: %s", is.Raw)
	}
	if q, err := s.Store.Queue(s.Ctx, "old"); err != nil || q.Todo != 2 || q.Total != 2 {
		t.Errorf("the counters are %d and %d, %v", q.Todo, q.Total, err)
	}
	counts, err := s.Store.Counts(s.Ctx)
	if must(t, err); counts[old.ID].Queued != 2 || counts[young.ID] != (store.Counts{Queued: 1}) {
		t.Errorf("counted %v", counts)
	}
}

// TestFilesHaveChunksOfCharacters: a chunk holds a number of characters, not bytes, and may be binary. A missing chunk
// is an error.
func TestFilesHaveChunksOfCharacters(t *testing.T) {
	s := newSite(t)
	want := strings.Repeat("æ", 261120) + "tail"
	id := s.File(primitive.NewObjectID(), store.FileStdout, want)
	chunk, err := s.DB.Collection("tasks.chunks").FindOne(s.Ctx, d("files_id", id, "n", 1)).Raw()
	if must(t, err); chunk.Lookup("data").StringValue() != "tail" {
		t.Errorf("the second chunk is %s", chunk)
	}
	if got, err := s.Store.ReadFile(s.Ctx, id); err != nil || got != want {
		t.Errorf("read %d bytes back, %v", len(got), err)
	}
	_, err = s.DB.Collection("tasks.chunks").UpdateOne(s.Ctx, d("files_id", id, "n", 1), set(d("data", primitive.Binary{Data: []byte("tail")})))
	must(t, err)
	if got, err := s.Store.ReadFile(s.Ctx, id); err != nil || got != want {
		t.Errorf("with a binary chunk: %d bytes, %v", len(got), err)
	}
	_, err = s.DB.Collection("tasks.chunks").DeleteOne(s.Ctx, d("files_id", id, "n", 0))
	must(t, err)
	if _, err := s.Store.ReadFile(s.Ctx, id); err == nil || !strings.Contains(err.Error(), "chunk 0 is missing") {
		t.Errorf("without its first chunk: %v", err)
	}
}

// TestIndexesReportErrors: EnsureIndexes returns an error for an index that two documents violate, and creates the
// others.
func TestIndexesReportErrors(t *testing.T) {
	s := newSite(t)
	s.Queue(d("name", "same", "plugin", "P"))
	s.Queue(d("name", "same", "plugin", "P"))
	if faults := s.Store.EnsureIndexes(s.Ctx); len(faults) != 1 || !strings.Contains(faults[0].Error(), "queues") {
		t.Errorf("faults: %v", faults)
	}
	if _, err := s.Nodes.InsertOne(s.Ctx, d("node", "a")); err != nil {
		t.Error(err)
	}
	if _, err := s.Nodes.InsertOne(s.Ctx, d("node", "a")); err == nil {
		t.Error("two nodes have one name")
	}
}

// TestIndexesHaveTheOriginalsNames: the indexes have the names of the original's driver. Its node would not start with
// other names.
func TestIndexesHaveTheOriginalsNames(t *testing.T) {
	s := newSite(t)
	for _, fault := range s.Store.EnsureIndexes(s.Ctx) {
		t.Error(fault)
	}
	for collection, want := range map[*mongo.Collection]string{
		s.Tasks:  "_id_ node_1_status_1_queue_1 node_1_status_1_queue_1__id_-1 node_1_status_1_queue_1__id_1 queue_1_status_1",
		s.Queues: "_id_ name_1", s.Nodes: "_id_ node_1", s.DB.Collection("tasks.chunks"): "_id_ files_id_1_n_1", s.DB.Collection("tasks.files"): "_id_ filename_1_metadata.task_id_1",
	} {
		all, err := collection.Indexes().ListSpecifications(s.Ctx)
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

// TestConfigCollection: the active document of the collection config has values for keys that the file does not set.
func TestConfigCollection(t *testing.T) {
	s := newSite(t, `"plugins": ["File"],`)
	for _, doc := range []bson.D{
		d("active", false, "task_runner", "/no"),
		d("active", d("plugins", bson.A{"DB"}, "activequeues", bson.A{primitive.NewObjectID()}), "task_runner", "/yes"),
	} {
		_, err := s.DB.Collection("config").InsertOne(s.Ctx, doc)
		must(t, err)
	}
	value, err := s.Store.ActiveSettings(s.Ctx)
	must(t, err)
	c, err := s.Config.Overlay(value)
	if must(t, err); c.TaskRunner != "/yes" || len(c.ActiveQueues) != 1 || c.Plugins[0] != "File" {
		t.Errorf("together: %+v", c)
	}
}

// TestInvalidConfigCollection: a wrong value in the collection config is an error and changes nothing.
func TestInvalidConfigCollection(t *testing.T) {
	s := newFaultySite(t)
	for _, field := range []string{"active", "plugins", "web_root", "activequeues", "ignorequeues", "task_runner", "log"} {
		for _, v := range sitetest.Nonsense() {
			_, err := s.DB.Collection("config").DeleteMany(s.Ctx, bson.D{})
			must(t, err)
			_, err = s.DB.Collection("config").InsertOne(s.Ctx, sitetest.Changed(d("active", true, field, v), "", nil, false))
			must(t, err)
			value, err := s.Store.ActiveSettings(s.Ctx)
			if err != nil {
				t.Fatalf("%s is %v: %v", field, v, err)
			}
			_, err = s.Config.Overlay(value)
			if err != nil && !strings.Contains(err.Error(), "collection config: "+field) {
				t.Errorf("%s is %v: %v", field, v, err)
			}
		}
	}
}

// TestInsertInSeveralMessages: the result of an insert in several messages has the tasks of all messages but the one
// that fails.
func TestInsertInSeveralMessages(t *testing.T) {
	s := newFaultySite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "maxthreads", 1, "count_todo", 0, "count_total", 0))
	param := func(size int) any { return d("a", strings.Repeat("p", size)) }
	for i, want := range []int{0, 1} {
		ids, err := s.Store.InsertTasks(s.Ctx, &q, []any{param(9 << 20), param(9 << 20), param(17 << 20)}[2-2*i:])
		if err == nil || ids == nil || len(ids) != want {
			t.Fatalf("%d tasks were to be created, the result is %v, %v", want, ids, err)
		}
		for _, id := range ids {
			s.Task(id)
		}
		now, err := s.Store.Queue(s.Ctx, q.ID.Hex())
		all, cerr := s.Store.CountTasks(s.Ctx, bson.D{})
		if err != nil || cerr != nil || now.Todo != int64(want) || all != int64(want) {
			t.Errorf("the queue has %d tasks to do, %v, and %d are there, %v", now.Todo, err, all, cerr)
		}
	}
}
