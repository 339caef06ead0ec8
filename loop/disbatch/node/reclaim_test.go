package node

import (
	"os/exec"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestReclaimOwn: a starting node orphans its running tasks that no process of the host runs. A task runner of the
// original has the id among its arguments; one of Treadle and a plugin have it in the environment. A process that runs
// the tasks of an earlier instance may run any task.
func TestReclaimOwn(t *testing.T) {
	f := func(lines string, want ...int) {
		t.Helper()
		s := newSite(t, lines)
		q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 0))
		ids := s.Fill(&q, sitetest.Payloads(4)...)
		for i, node := range []string{"me", "me", "me", "other"} {
			_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[i]), set(d("status", store.StatusRunning, "node", node)))
			must(t, err)
		}
		lives := func(variable string, args ...string) (end func()) {
			c := exec.Command("/bin/sh", append([]string{"-c", "exec 3<&0; read x <&3; :", "runner"}, args...)...)
			c.Env = []string{variable}
			in, err := c.StdinPipe()
			must(t, err)
			must(t, c.Start())
			return func() {
				in.Close()
				must(t, c.Wait())
			}
		}
		ends := []func(){
			lives("A=b", "--config", "F", "--task", ids[1].Hex()), lives(selfVariable + "=" + ids[2].Hex()),
			lives(nodeVariable + "=" + newInstance(s.Config.Database, "me").String()),
		}
		n, _ := s.idle("me", &q)
		for range 2 * reclaimTicks {
			must(t, n.tick(s.Ctx))
		}
		s.have(t, ids, store.StatusRunning, store.StatusRunning, store.StatusRunning, store.StatusRunning)
		ends[2]()
		for range 2 * reclaimTicks {
			must(t, n.tick(s.Ctx))
		}
		s.have(t, ids, want...)
		ends[0]()
		ends[1]()
		for range 2 * reclaimTicks {
			must(t, n.tick(s.Ctx))
		}
		s.have(t, ids, want[0], want[0], want[0], store.StatusRunning)
		// The node does not reclaim a task that it runs itself.
		_, err := s.Tasks.UpdateMany(s.Ctx, bson.D{}, set(d("status", store.StatusRunning, "node", "me")))
		must(t, err)
		n.runningAtStart = map[primitive.ObjectID]bool{}
		for range 2 * reclaimTicks {
			must(t, n.tick(s.Ctx))
		}
		s.have(t, ids, store.StatusRunning, store.StatusRunning, store.StatusRunning, store.StatusRunning)
	}
	f("", store.StatusOrphaned, store.StatusRunning, store.StatusRunning, store.StatusRunning)
	f(`"treadle_node": {"reclaim_own": false},`, store.StatusRunning, store.StatusRunning, store.StatusRunning, store.StatusRunning)
}

// TestOrphanThatEnded: a node counts a task of a function as orphaned only if the task has not ended since the tick
// read it.
func TestOrphanThatEnded(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 0))
	ids := s.Fill(&q, sitetest.Payloads(2)...)
	for i, status := range []int{store.StatusSucceeded, store.StatusRunning} {
		_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[i]), set(d("status", status, "node", "me")))
		must(t, err)
	}
	n, _ := s.idle("me", &q)
	running := func(id primitive.ObjectID) store.Task {
		return store.Task{ID: id, Queue: q.ID, Status: store.StatusRunning}
	}
	must(t, n.resumeForeign(s.Ctx, []store.Queue{q}, []store.Task{running(ids[0]), running(ids[1])}))
	s.have(t, ids, store.StatusSucceeded, store.StatusOrphaned)
	if got := n.tally.orphaned.Load(); got != 1 {
		t.Errorf("it counts %d orphans, want 1", got)
	}
}

// have checks the statuses of tasks.
func (s *site) have(t *testing.T, ids []primitive.ObjectID, want ...int) {
	t.Helper()
	for i, id := range ids {
		if got := s.Task(id).Status; got != want[i] {
			t.Errorf("task %d has status %d, want %d", i, got, want[i])
		}
	}
}
