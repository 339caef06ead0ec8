package node

import (
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// What a node says of a queue of 2016 has null where the queue has, and nothing of tasks
// that are yet to be counted; where all queues are of 2018 its entry has no queues.
func TestTheReportIsTheQueues(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "count_todo", nil, "count_total", 5))
	n, _ := s.still("me", &q)
	must(t, n.report(s.Ctx, []disbatch.Queue{q}, nil))
	e, err := n.entry(s.Ctx)
	must(t, err)
	limit := e.Raw.Lookup("queues", "0", "maxthreads")
	if done, ok := disbatch.Integer(e.Raw.Lookup("queues", "0", "tasks_done")); limit.Type != bson.TypeNull || !ok || done != 0 {
		t.Errorf("the entry is %s", e.Raw)
	}
	must(t, n.report(s.Ctx, nil, nil))
	e, err = n.entry(s.Ctx)
	must(t, err)
	if left := e.Raw.Lookup("queues"); left.Type != 0 || e.Timestamp.IsZero() {
		t.Errorf("without queues of 2016 the entry is %s", e.Raw)
	}
}

// A task that fails for want of room in its document is counted like any other, and has
// the mark of its end where that fits.
func TestTasksWithoutRoomAreCounted(t *testing.T) {
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
		n := s.node("me", rarely) // too rarely to count all tasks anew
		task := s.Ends(id)[0]
		if complete, _ := task.Raw.Lookup("complete").BooleanOK(); task.Status != disbatch.StatusFailed || complete != c.complete {
			t.Errorf("with room for %d bytes it ended with status %d, complete: %v", c.room, task.Status, complete)
		}
		s.Until("the counter", func() bool {
			q, err := s.Store.Queue(s.Ctx, q.ID.Hex())
			return err == nil && q.Todo == 0 && q.Total == 1
		})
		n.stop()
		_, err = s.Nodes.DeleteOne(s.Ctx, d("node", "me")) // the next one need not look for another process
		must(t, err)
	}
}

// A node that stops before its first tick gives back in the queue's dialect what an
// earlier life of it has claimed.
func TestANodeThatHasSeenNothingGivesBack(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "maxthreads", 1))
	id := s.Fill(&q, "x")[0]
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("node", "me", "status", int32(disbatch.StatusClaimed))))
	must(t, err)
	n, err := New(Options{Config: s.Config, Name: "me"})
	must(t, err)
	defer n.store.Close()
	n.stop()
	if task := s.Task(id); task.Status != disbatch.StatusQueued || task.Raw.Lookup("node").Type != bson.TypeInt32 {
		t.Errorf("given back as %s", task.Raw)
	}
}

// What a worker answers is text in the database, whatever bytes it is.
func TestResultsOfWorkersAreText(t *testing.T) {
	got := parseResult([]byte("{\"status\":1,\"stdout\":[\"\xff\"],\"stderr\":\"\xff\"}"))
	if want := (outcome{status: disbatch.StatusSucceeded, stdout: "[\"\uFFFD\"]", stderr: "\uFFFD"}); got != want {
		t.Errorf("read as %+v", got)
	}
}
