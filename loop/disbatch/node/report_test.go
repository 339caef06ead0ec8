package node

import (
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// TestReport: the entry of a node has null where a 2016 queue has null, and no number of tasks that is unknown. Without
// 2016 queues the entry has no queues.
func TestReport(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "count_todo", nil, "count_total", 5))
	n, _ := s.idle("me", &q)
	must(t, n.report(s.Ctx, &snapshot{queues: []store.Queue{q}}))
	e, err := n.entry(s.Ctx)
	must(t, err)
	limit := e.Raw.Lookup("queues", "0", "maxthreads")
	if done, ok := store.Integer(e.Raw.Lookup("queues", "0", "tasks_done")); limit.Type != bson.TypeNull || !ok || done != 0 {
		t.Errorf("the entry is %s", e.Raw)
	}
	must(t, n.report(s.Ctx, new(snapshot)))
	e, err = n.entry(s.Ctx)
	must(t, err)
	if left := e.Raw.Lookup("queues"); left.Type != 0 || e.Timestamp.IsZero() {
		t.Errorf("without queues of 2016 the entry is %s", e.Raw)
	}
}

// TestFullTaskIsCounted: a task that fails because its document is full counts as failed, and has the fields of an end
// where they fit.
func TestFullTaskIsCounted(t *testing.T) {
	s := newFaultySite(t)
	for _, c := range []struct {
		room     int
		complete bool
	}{{40, true}, {10, false}} {
		q := s.Queue(d("name", strconv.Itoa(c.room), "constructor", config.DemoPlugin, "maxthreads", 1, "count_todo", 1, "count_total", 1))
		id := primitive.NewObjectID()
		doc := d("_id", id, "queue", q.ID, "status", int32(-2), "node", int32(-1), "stdout", nil, "stderr", nil, "parameters", "")
		small, err := bson.Marshal(doc)
		must(t, err)
		doc[len(doc)-1].Value = strings.Repeat("x", 16<<20-c.room-len(small))
		_, err = s.Tasks.InsertOne(s.Ctx, doc)
		must(t, err)
		n := s.node("me", rarely) // without a recount
		task := s.Ends(id)[0]
		if complete, _ := task.Raw.Lookup("complete").BooleanOK(); task.Status != store.StatusFailed || complete != c.complete {
			t.Errorf("with room for %d bytes it ended with status %d, complete: %v", c.room, task.Status, complete)
		}
		s.Until("the counter", func() bool {
			q, err := s.Store.Queue(s.Ctx, q.ID.Hex())
			return err == nil && q.Todo == 0 && q.Total == 1
		})
		n.stop()
		_, err = s.Nodes.DeleteOne(s.Ctx, d("node", "me")) // the next node need not observe its entry
		must(t, err)
	}
}

// TestReleaseBeforeFirstTick: a node that stops before its first tick releases the claims of an earlier process in the
// queue's dialect.
func TestReleaseBeforeFirstTick(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "maxthreads", 1))
	id := s.Fill(&q, "x")[0]
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("node", "me", "status", int32(store.StatusClaimed))))
	must(t, err)
	n, err := New(Options{Config: s.Config, Name: "me"})
	must(t, err)
	defer n.store.Close()
	n.stop()
	if task := s.Task(id); task.Status != store.StatusQueued || task.Raw.Lookup("node").Type != bson.TypeInt32 {
		t.Errorf("given back as %s", task.Raw)
	}
}
