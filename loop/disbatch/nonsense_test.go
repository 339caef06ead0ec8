package disbatch

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// nonsense is a value of every type that a document may have where another is wanted.
func nonsense() []any {
	return []any{
		nil, true, false, -1, 1 << 40, math.NaN(), math.Inf(1), 0.5, -1e300, "", "text", "9999999999999999999", "NaN", "a\x00b", "\xff\xfe", d("a", 1), bson.D{}, bson.A{}, bson.A{1, nil, bson.D{}},
		primitive.NewObjectID(), time.Unix(0, 0), primitive.DateTime(math.MaxInt64), primitive.DateTime(math.MinInt64), primitive.Binary{Data: []byte("x")}, primitive.Regex{Pattern: "("},
		primitive.Timestamp{T: 1}, primitive.MinKey{}, primitive.MaxKey{}, primitive.JavaScript("x"), primitive.CodeWithScope{Code: "x", Scope: d("a", 1)}, primitive.Symbol("x"),
		primitive.NewDecimal128(math.MaxUint64, 0), primitive.Undefined{}, primitive.DBPointer{DB: "x"},
	}
}

// changed returns a document with one of its fields changed, or without it.
func changed(doc bson.D, field string, value any, without bool) (out bson.D) {
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

// Documents with anything anywhere, or nothing, stop neither the node nor what is right
// beside them.
func TestDocumentsOfNonsense(t *testing.T) {
	s := newFaultySite(t)
	good := s.queue(d("name", "good", "plugin", DemoPlugin, "threads", 5))
	insert := func(into string, doc bson.D) {
		t.Helper()
		_, err := s.store.db.Collection(into).InsertOne(s.ctx, doc)
		must(t, err)
	}
	for _, c := range []struct {
		collection string
		doc        bson.D
		fields     []string
	}{
		{"queues", d("name", "q", "plugin", DemoPlugin, "threads", 1, "sort", "fifo", "nodes_pin", nil, "nodes_ignore", nil), []string{"name", "plugin", "threads", "sort", "nodes_pin", "nodes_ignore"}},
		{"queues", d("name", "q", "constructor", DemoPlugin, "maxthreads", 1, "count_todo", 0, "count_total", 0), []string{"constructor", "maxthreads", "count_todo", "count_total"}},
		{"tasks", d("queue", good.ID, "status", -2, "node", nil, "ctime", time.Now(), "mtime", time.Now(), "params", bson.D{}, "stdout", nil, "stderr", nil),
			[]string{"queue", "status", "node", "ctime", "mtime", "params", "stdout", "stderr"}},
		{"nodes", d("node", "other", "timestamp", time.Now(), "maxthreads", 1, "queues", bson.A{}), []string{"timestamp", "maxthreads", "queues"}},
	} {
		for _, field := range c.fields {
			insert(c.collection, changed(c.doc, field, nil, true))
			for i, v := range nonsense() {
				doc := changed(c.doc, field, v, false)
				if c.collection == "nodes" {
					doc[0].Value = fmt.Sprint("other", field, i) // their names are unique
				}
				insert(c.collection, doc)
			}
		}
	}
	n := s.node("me")
	s.ends(s.fill(&good, d("commands", "a"))...)
	s.ticks(n, 3)
	left, err := s.store.Search(s.ctx, d("queue", good.ID, "status", -2, "node", nil), SearchOptions{Limit: 1})
	if must(t, err); len(left) > 0 {
		s.until("the end of the tasks of nonsense", func() bool {
			left, err := s.store.CountTasks(s.ctx, d("queue", good.ID, "status", -2, "node", nil))
			return err == nil && left == 0
		})
	}
}

// A task of which a part has no form in JSON, or is broken, fails and takes nobody along: neither the node, nor the
// process that runs its tasks.
func TestATaskThatIsNoJSON(t *testing.T) {
	f := func(in string) {
		t.Helper()
		if text, err := extended(bson.Raw(in)); err == nil {
			t.Fatalf("it is said as %s", text)
		}
		b, err := bson.Marshal(&assignment{Task: []byte(in), Plugin: PluginConfig{Kind: KindExec, Command: []string{"true"}}})
		must(t, err)
		var a assignment
		must(t, readDocument(bytes.NewReader(b), &a))
		task := DecodeTask(a.Task)
		if o := new(performer).execute(t.Context(), &a, &task); o.status != StatusFailed || o.stdout != unableToStart {
			t.Errorf("it ended with %+v", o)
		}
	}
	// 18 00 00 00                 its size
	//   03 p a r a m s 00         an embedded document
	//     0b 00 00 00             its size
	//       72 2 00               an element of a type that nobody knows
	//         00 00 00            what may be its value
	//     00                      the end of params
	//   00                        the end
	f("\x18\x00\x00\x00\x03params\x00\x0b\x00\x00\x00r2\x00\x00\x00\x00\x00\x00")
	// 0d 00 00 00                 its size
	//   04 a 00                   an array
	//     64 65 00 05             its size, larger than all there is
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

// A length below nothing ends the reading of the pipe: the driver's decoder would go back, and round and round.
func TestALengthBelowNothing(t *testing.T) {
	// 0e 00 00 00                 its size
	//   05 d1 30 30 00            a binary
	//     02 00 00 80             of so many bytes below nothing
	//     00                      the end, perhaps
	in := "\x0e\x00\x00\x00\x05\xd100\x00\x02\x00\x00\x80\x00"
	for _, into := range []any{new(assignment), new(report)} {
		if err := readDocument(strings.NewReader(in), into); err == nil {
			t.Errorf("it is read as %v", into)
		}
	}
	if text, err := extended(bson.Raw(in)); err == nil {
		t.Errorf("it is said as %s", text)
	}
}

// Lengths that a string cannot have are those of no string, for whoever reads it.
func TestAStringWithoutItsEnd(t *testing.T) {
	for _, field := range []string{"threads", "count_todo", "status", "ctime", "params"} {
		// .. 00 00 00             its size
		//   02 f i e l d 00       a string
		//     00 00 00 00         of no bytes, though each ends with one
		//   00                    the end
		in := bson.Raw(fmt.Sprintf("%c\x00\x00\x00\x02%s\x00\x00\x00\x00\x00\x00", 11+len(field), field))
		q, task := DecodeQueue(in), DecodeTask(in)
		if q.Limit != 0 || q.Todo != -1 || task.Status != 0 || !task.CTime.IsZero() {
			t.Errorf("%s: read as %+v and %+v", field, q, task)
		}
		if shown := documentJSON(in, nil); string(shown) != `{"`+field+`":""}` {
			t.Errorf("%s: shown as %s", field, shown)
		}
	}
}

// A config collection of nonsense is said and changes nothing.
func TestAConfigCollectionOfNonsense(t *testing.T) {
	s := newFaultySite(t)
	for _, field := range []string{"active", "plugins", "web_root", "activequeues", "ignorequeues", "task_runner", "log"} {
		for _, v := range nonsense() {
			_, err := s.store.config.DeleteMany(s.ctx, bson.D{})
			must(t, err)
			_, err = s.store.config.InsertOne(s.ctx, changed(d("active", true, field, v), "", nil, false))
			must(t, err)
			c, err := s.store.overlay(s.ctx, s.config)
			if c == nil {
				t.Fatalf("%s is %v: %v", field, v, err)
			}
			if err != nil && !strings.Contains(err.Error(), "collection config: "+field) {
				t.Errorf("%s is %v: %v", field, v, err)
			}
		}
	}
}

// Limits that are none: huge, with a fraction, not a number.
func TestLimitsOfNonsense(t *testing.T) {
	for _, v := range []any{math.NaN(), math.Inf(1), math.Inf(-1), 0.5, maxLimit + 1, int64(math.MaxInt64), -1, "-1", "1.5", "NaN", "1e99", "", "x", true, bson.A{1}} {
		for _, schema := range []Schema{Schema2016, Schema2018} {
			doc, err := bson.Marshal(d("_id", primitive.NewObjectID(), "name", "a", schema.PluginField(), "P", schema.LimitField(), v))
			must(t, err)
			if q := DecodeQueue(doc); q.Limit != 0 || !strings.HasPrefix(q.Problem, schema.LimitField()+" is") {
				t.Errorf("%v is read as %d, %q", v, q.Limit, q.Problem)
			}
		}
		doc, err := bson.Marshal(d("node", "a", "maxthreads", v))
		must(t, err)
		if n := DecodeNode(doc); n.Limit != 0 || n.Problem == "" {
			t.Errorf("a node's %v is read as %d, %q", v, n.Limit, n.Problem)
		}
	}
}

// Tasks that nearly fill a document end: with their output in files, or, where not even
// the mark of their run fits, by their status alone.
func TestTasksAsLargeAsADocument(t *testing.T) {
	s := newFaultySite(t)
	q := s.queue(d("name", "a", "plugin", DemoPlugin, "threads", 1))
	s.node("me")
	for _, c := range []struct{ room, status int }{{100 << 10, 1}, {200, 1}, {60, 1}, {45, 2}, {20, 2}, {8, 2}} {
		id := primitive.NewObjectID()
		doc := d("_id", id, "queue", q.ID, "status", int32(-2), "node", nil, "stdout", nil, "stderr", nil, "params", d("commands", "a", "pad", ""))
		small, err := bson.Marshal(doc)
		must(t, err)
		doc[len(doc)-1].Value = d("commands", "a", "pad", strings.Repeat("x", 16<<20-c.room-len(small)))
		_, err = s.store.tasks.InsertOne(s.ctx, doc)
		must(t, err)
		if got := s.ends(id)[0]; got.Status != c.status {
			t.Errorf("with room for %d bytes it ended with status %d", c.room, got.Status)
		}
	}
}
