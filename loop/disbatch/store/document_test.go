package store_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestDecodeQueue: queues of both dialects and their faults.
func TestDecodeQueue(t *testing.T) {
	f := func(doc bson.D, want store.Queue) {
		t.Helper()
		s, _ := bson.Marshal(append(d("_id", primitive.NewObjectID()), doc...))
		q := store.DecodeQueue(s)
		if q.Schema != want.Schema || q.Plugin != want.Plugin || q.Limit != want.Limit || (q.Problem == "") != (want.Problem == "") ||
			!strings.Contains(q.Problem, want.Problem) || q.Todo != want.Todo {
			t.Errorf("%v is read as %+v", doc, q)
		}
	}
	f(d("name", "a", "constructor", "P", "maxthreads", "5", "count_todo", 3), store.Queue{Schema: store.Schema2016, Plugin: "P", Limit: 5, Todo: 3})
	f(d("name", "a", "constructor", "P", "count_todo", "3"), store.Queue{Schema: store.Schema2016, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", 5.0, "maxthreads", 7), store.Queue{Schema: store.Schema2018, Plugin: "P", Limit: 5, Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", nil), store.Queue{Schema: store.Schema2018, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P"), store.Queue{Schema: store.Schema2018, Plugin: "P", Todo: -1})
	f(d("name", "a", "plugin", "P", "threads", -1), store.Queue{Schema: store.Schema2018, Plugin: "P", Todo: -1, Problem: "threads is"})
	f(d("name", "a", "constructor", "P", "maxthreads", "many"), store.Queue{Schema: store.Schema2016, Plugin: "P", Todo: -1, Problem: "maxthreads is"})
	f(d("name", "a", "constructor", "rm -rf", "count_todo", -4), store.Queue{Schema: store.Schema2016, Plugin: "rm -rf", Todo: -1, Problem: "no name of a plugin"})
	f(d("name", "a"), store.Queue{Schema: store.Schema2018, Todo: -1, Problem: "no name of a plugin"})
	f(d("name", "a", "plugin", "P", "sort", "random"), store.Queue{Schema: store.Schema2018, Plugin: "P", Todo: -1, Problem: "fifo, lifo or default"})
}

// TestOldTimesAndNumbers: tasks with the forms of times and numbers in old data.
func TestOldTimesAndNumbers(t *testing.T) {
	f := func(v any, want int64) {
		t.Helper()
		doc, _ := bson.Marshal(d("status", "-2", "mtime", v))
		if task := store.DecodeTask(doc); task.Status != store.StatusQueued || task.MTime.UnixMilli() != want {
			t.Errorf("%v is read as %+v", v, task)
		}
	}
	f(time.UnixMilli(1461693573123), 1461693573123)
	f(int32(1461693573), 1461693573000)
	f(1461693573.25, 1461693573250)
	f(int64(1461693573123), 1461693573123)
	f("1461693573", 1461693573000)
}

// TestInvalidLimits: limits that are too large, have a fraction or are no number.
func TestInvalidLimits(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), math.Inf(-1), 0.5, store.MaxLimit + 1, int64(math.MaxInt64), -1, "-1", "1.5", "NaN", "1e99", "", "x", true, bson.A{1}} {
		for _, schema := range []store.Schema{store.Schema2016, store.Schema2018} {
			doc, err := bson.Marshal(d("_id", primitive.NewObjectID(), "name", "a", schema.PluginField(), "P", schema.LimitField(), v))
			must(t, err)
			if q := store.DecodeQueue(doc); q.Limit != 0 || !strings.HasPrefix(q.Problem, schema.LimitField()+" is") {
				t.Errorf("%v is read as %d, %q", v, q.Limit, q.Problem)
			}
		}
		doc, err := bson.Marshal(d("node", "a", "maxthreads", v))
		must(t, err)
		if n := store.DecodeNode(doc); n.Limit != 0 || n.Problem == "" {
			t.Errorf("a node's %v is read as %d, %q", v, n.Limit, n.Problem)
		}
	}
}

// TestInvalidStringLength: a string with an invalid length reads as no string.
func TestInvalidStringLength(t *testing.T) {
	for _, field := range []string{"threads", "count_todo", "status", "ctime", "params"} {
		// .. 00 00 00             its size
		//   02 f i e l d 00       a string
		//     00 00 00 00         of length 0, without its zero byte
		//   00                    the end
		in := bson.Raw(fmt.Sprintf("%c\x00\x00\x00\x02%s\x00\x00\x00\x00\x00\x00", 11+len(field), field))
		q, task := store.DecodeQueue(in), store.DecodeTask(in)
		if q.Limit != 0 || q.Todo != -1 || task.Status != 0 || !task.CTime.IsZero() {
			t.Errorf("%s: read as %+v and %+v", field, q, task)
		}
	}
}

// FuzzDocument reads bytes as a queue, a task and a node. The results are within their bounds.
func FuzzDocument(f *testing.F) {
	for _, doc := range sitetest.FuzzDocuments(f) {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		raw := bson.Raw(in[:min(len(in), sitetest.FuzzBytes)])
		q, n := store.DecodeQueue(raw), store.DecodeNode(raw)
		store.DecodeTask(raw)
		if q.Limit < 0 || q.Limit > store.MaxLimit || q.Problem != "" && q.Limit != 0 || q.Problem == "" && !config.IsPluginName(q.Plugin) || q.Todo < -1 {
			t.Fatalf("%x is the queue %+v", in, q)
		}
		if n.Limit != store.NoLimit && (n.Limit < 0 || n.Limit > store.MaxLimit || n.Problem != "" && n.Limit != 0) {
			t.Fatalf("%x is the node %+v", in, n)
		}
	})
}
