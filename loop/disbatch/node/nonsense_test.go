package node

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestInvalidDocuments: documents with values of any type in any field, or without the field, stop neither the node nor
// valid tasks.
func TestInvalidDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	t.Parallel()
	s := newFaultySite(t)
	good := s.Queue(d("name", "good", "plugin", config.DemoPlugin, "threads", 5))
	insert := func(into string, doc bson.D) {
		t.Helper()
		_, err := s.DB.Collection(into).InsertOne(s.Ctx, doc)
		must(t, err)
	}
	for _, c := range []struct {
		collection string
		doc        bson.D
		fields     []string
	}{
		{"queues", d("name", "q", "plugin", config.DemoPlugin, "threads", 1, "sort", "fifo", "nodes_pin", nil, "nodes_ignore", nil), []string{"name", "plugin", "threads", "sort", "nodes_pin", "nodes_ignore"}},
		{"queues", d("name", "q", "constructor", config.DemoPlugin, "maxthreads", 1, "count_todo", 0, "count_total", 0), []string{"constructor", "maxthreads", "count_todo", "count_total"}},
		{"tasks", d("queue", good.ID, "status", -2, "node", nil, "ctime", time.Now(), "mtime", time.Now(), "params", bson.D{}, "stdout", nil, "stderr", nil),
			[]string{"queue", "status", "node", "ctime", "mtime", "params", "stdout", "stderr"}},
		{"nodes", d("node", "other", "timestamp", time.Now(), "maxthreads", 1, "queues", bson.A{}), []string{"timestamp", "maxthreads", "queues"}},
	} {
		for _, field := range c.fields {
			insert(c.collection, sitetest.Changed(c.doc, field, nil, true))
			for i, v := range sitetest.Nonsense() {
				doc := sitetest.Changed(c.doc, field, v, false)
				if c.collection == "nodes" {
					doc[0].Value = fmt.Sprint("other", field, i) // names of nodes are unique
				}
				insert(c.collection, doc)
			}
		}
	}
	n := s.node("me")
	s.Ends(s.Fill(&good, d("commands", "a"))...)
	s.ticks(n, 3)
	left, err := s.Store.Search(s.Ctx, d("queue", good.ID, "status", -2, "node", nil), store.SearchOptions{Limit: 1})
	if must(t, err); len(left) > 0 {
		s.Until("the end of the tasks of nonsense", func() bool {
			left, err := s.Store.CountTasks(s.Ctx, d("queue", good.ID, "status", -2, "node", nil))
			return err == nil && left == 0
		})
	}
}

// TestTaskWithoutJSON: a task that is damaged or has no form in JSON fails. The node and the process that runs its
// tasks go on.
func TestTaskWithoutJSON(t *testing.T) {
	f := func(in string) {
		t.Helper()
		if text, err := extendedJSON(bson.Raw(in)); err == nil {
			t.Fatalf("it is said as %s", text)
		}
		b, err := bson.Marshal(&assignment{Task: []byte(in), Plugin: config.Plugin{Kind: config.KindExec, Command: []string{"true"}}})
		must(t, err)
		var a assignment
		must(t, readDocument(bytes.NewReader(b), &a))
		task := store.DecodeTask(a.Task)
		if o := new(performer).execute(t.Context(), &a, &task); o.Status != store.StatusFailed || o.Stdout != unableToStart {
			t.Errorf("it ended with %+v", o)
		}
	}
	// 18 00 00 00                 its size
	//   03 p a r a m s 00         an embedded document
	//     0b 00 00 00             its size
	//       72 2 00               an element of an unknown type
	//         00 00 00            its value, perhaps
	//     00                      the end of params
	//   00                        the end
	f("\x18\x00\x00\x00\x03params\x00\x0b\x00\x00\x00r2\x00\x00\x00\x00\x00\x00")
	// 0d 00 00 00                 its size
	//   04 a 00                   an array
	//     64 65 00 05             size, larger than the document
	//     00                      the end of a
	//   00                        the end
	f("\x0d\x00\x00\x00\x04a\x00de\x00\x05\x00\x00")
	// 1a 00 00 00                 its size
	//   0c a 00                   a DBPointer
	//     02 00 00 00 01 00       to a collection with the name \x01
	//     00 .. .. .. 00          of this id, twelve bytes
	//   00                        the end
	f("\x1a\x00\x00\x00\x0ca\x00\x02\x00\x00\x00\x01\x00" + strings.Repeat("\x00", 13))
}

// TestNegativeLength: a negative length ends the reading of the pipe. The driver's decoder would loop on it.
func TestNegativeLength(t *testing.T) {
	// 0e 00 00 00                 its size
	//   05 d1 30 30 00            a binary
	//     02 00 00 80             of a negative length
	//     00                      the end
	in := "\x0e\x00\x00\x00\x05\xd100\x00\x02\x00\x00\x80\x00"
	for _, into := range []any{new(assignment), new(report)} {
		if err := readDocument(strings.NewReader(in), into); err == nil {
			t.Errorf("it is read as %v", into)
		}
	}
	if text, err := extendedJSON(bson.Raw(in)); err == nil {
		t.Errorf("it is said as %s", text)
	}
}

// TestFullDocuments: a task that nearly fills its document ends with its output in files, or with its status alone if
// its document has no room for the field of its run.
func TestFullDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	t.Parallel()
	s := newFaultySite(t)
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
	s.node("me")
	for _, c := range []struct{ room, status int }{{100 << 10, 1}, {200, 1}, {60, 1}, {45, 2}, {20, 2}, {8, 2}} {
		id := primitive.NewObjectID()
		doc := d("_id", id, "queue", q.ID, "status", int32(-2), "node", nil, "stdout", nil, "stderr", nil, "params", d("commands", "a", "pad", ""))
		small, err := bson.Marshal(doc)
		must(t, err)
		doc[len(doc)-1].Value = d("commands", "a", "pad", strings.Repeat("x", 16<<20-c.room-len(small)))
		_, err = s.Tasks.InsertOne(s.Ctx, doc)
		must(t, err)
		if got := s.Ends(id)[0]; got.Status != c.status {
			t.Errorf("with room for %d bytes it ended with status %d", c.room, got.Status)
		}
	}
}
