package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestFaults: every task runs once although replies are lost or cut, calls are lost, and calls run twice.
func TestFaults(t *testing.T) {
	const tasks, threads = 200, 10
	for most, queue := range map[int]bson.D{
		2 * threads: d("name", "a", "constructor", "F", "maxthreads", threads, "count_todo", nil),
		threads:     d("name", "a", "plugin", "F", "threads", threads),
	} {
		t.Run(fmt.Sprint(queue), func(t *testing.T) {
			t.Parallel()
			s, w := newFaultySite(t, functionPlugin), newWorkers(false)
			q := s.Queue(queue)
			s.Fill(&q, sitetest.Payloads(tasks)...)
			s.Faults(1, 20, "findAndModify", "update", "find", "aggregate")
			a, b := s.node("a", with(w)), s.node("b", with(w))
			s.Until("the end of all tasks", func() bool {
				n, err := s.Store.CountTasks(s.Ctx, d("status", 1, "complete", true))
				return err == nil && n == tasks
			})
			s.Fake.Inject(nil)
			s.Until("the counters", func() bool {
				q, err := s.Store.Queue(s.Ctx, q.ID.Hex())
				return err == nil && (q.Schema == store.Schema2018 || q.Todo == 0 && q.Total == tasks)
			})
			a.stop()
			b.stop()
			w.once(t, tasks, most)
		})
	}
}

// TestNoTaskIsClaimedTwice: eight nodes run 2000 tasks, or 1000 with -short. Each task runs once, and never more of
// them than the queue's threads, which are more than the nodes.
func TestNoTaskIsClaimedTwice(t *testing.T) {
	t.Parallel()
	nodes, threads, tasks := 8, 12, 2000
	if testing.Short() {
		tasks = 1000
	}
	s, w := newSite(t, functionPlugin), newWorkers(true)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", threads, "sort", "fifo"))
	for range tasks / 500 {
		s.Fill(&q, sitetest.Payloads(500)...)
	}
	for i := range nodes {
		s.node(fmt.Sprint("node", i), with(w), func(o *Options) { o.Interval = 200 * time.Millisecond })
	}
	for done := 0; done < tasks; {
		s.Until("the end of more tasks", func() bool {
			w.finish(threads / 2) // the others run until the next round
			n, err := s.Store.CountTasks(s.Ctx, d("status", 1))
			more := err == nil && int(n) > done
			if more {
				done = int(n)
			}
			return more
		})
	}
	w.once(t, tasks, threads)
}

// TestStopReleasesClaims: a stopping node queues its claimed tasks that have not begun again, in the dialect of the
// queue.
func TestStopReleasesClaims(t *testing.T) {
	s := newSite(t)
	var ids []primitive.ObjectID
	for field, limit := range map[string]string{"constructor": "maxthreads", "plugin": "threads"} {
		q := s.Queue(d("name", field, field, config.DemoPlugin, limit, 2))
		ids = append(ids, s.Fill(&q, sitetest.Payloads(2)...)...)
	}
	// The process that runs commands begins none.
	n := s.node("me", func(o *Options) { o.Executor = []string{"/bin/sh", "-c", "cat > /dev/null"} })
	s.Until("claims", func() bool {
		claimed, err := s.Store.CountTasks(s.Ctx, d("status", store.StatusClaimed, "node", "me"))
		return err == nil && claimed == 4
	})
	n.stop()
	for _, id := range ids {
		task := s.Task(id)
		_, is2016 := task.Raw.Lookup("parameters").DocumentOK()
		if node := task.Raw.Lookup("node"); task.Status != store.StatusQueued || is2016 != (node.Type == bson.TypeInt32) || !is2016 && node.Type != bson.TypeNull {
			t.Errorf("given back as %s", task.Raw)
		}
	}
}

// TestRestart: before its first claim a node orphans old claimed tasks, starts or releases recent ones, and keeps
// running ones if configured, which count against the limit.
func TestRestart(t *testing.T) {
	s, w := newSite(t, functionPlugin, `"treadle_node": {"reclaim_own": false},`), newWorkers(true)
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 2))
	f := s.Queue(d("name", "f", "plugin", "F", "threads", 9))
	g := s.Queue(d("name", "g", "plugin", config.DemoPlugin, "threads", 1))
	ids, mine, begins := s.Fill(&q, sitetest.Payloads(6)...), s.Fill(&f, sitetest.Payloads(1)...), s.Fill(&g, sitetest.Payloads(1)...)
	put := func(id primitive.ObjectID, status int, mtime any) {
		_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("status", status, "node", "me", "mtime", mtime)))
		must(t, err)
	}
	long, short := time.Now().Add(-6*time.Minute), time.Now().Add(-4*time.Minute)
	put(ids[0], store.StatusClaimed, long)
	put(ids[1], store.StatusClaimed, long.Unix()) // in the form of old data
	put(ids[2], store.StatusClaimed, short)
	put(ids[3], store.StatusRunning, long)
	put(ids[4], store.StatusRunning, long)
	put(mine[0], store.StatusRunning, short)
	put(begins[0], store.StatusClaimed, short)
	n := s.node("me", with(w))
	s.Ends(begins...)
	s.Status(mine[0], store.StatusOrphaned) // the server of its worker has ended
	s.ticks(n, 5)
	for i, want := range []int{store.StatusOrphaned, store.StatusOrphaned, store.StatusQueued, store.StatusRunning, store.StatusRunning, store.StatusQueued} {
		if got := s.Task(ids[i]).Status; got != want {
			t.Errorf("task %d has status %d, want %d", i, got, want)
		}
	}
	put(ids[4], 1, long) // its runner has finished it: there is room for another
	s.Ends(ids[2], ids[5])
}

// TestCommandsSurviveNode: a command continues after the end of its node. Its process writes the end of the task, and a
// new node counts it.
func TestCommandsSurviveNode(t *testing.T) {
	dir := t.TempDir()
	gate, begun := filepath.Join(dir, "gate"), filepath.Join(dir, "begun")
	s := newSite(t, plugins(map[string]string{"Wait": shell(fmt.Sprintf("echo >> %s; while ! test -e %s; do sleep 0.05; done; echo done", begun, gate), "")}))
	q := s.Queue(d("name", "a", "plugin", "Wait", "threads", 1))
	ids := s.Fill(&q, sitetest.Payloads(2)...)
	first := s.node("me")
	s.Status(ids[0], store.StatusRunning)
	first.stop()
	second := s.node("me")
	s.ticks(second, 3)
	if a, b := s.Task(ids[0]), s.Task(ids[1]); a.Status != store.StatusRunning || b.Status != store.StatusQueued {
		t.Errorf("between: %s, %s", a.Raw, b.Raw)
	}
	must(t, os.WriteFile(gate, nil, 0o600))
	for _, task := range s.Ends(ids...) {
		if task.Status != 1 || sitetest.Stored(&task, "stdout") != "done\n" {
			t.Errorf("ended as %s", task.Raw)
		}
	}
	if times, err := os.ReadFile(begun); err != nil || len(times) != 2 {
		t.Errorf("%d starts, %v", len(times), err)
	}
}

// TestRunnerDies: when the process that runs tasks dies, its tasks fail, and the next ones run in a new process.
func TestRunnerDies(t *testing.T) {
	s := newSite(t, plugins(map[string]string{"Kill": shell("kill -9 $PPID; sleep 0.2", ""), "Good": shell("echo out", "")}))
	s.node("me")
	if got := s.endOf("Kill"); got.Status != 2 || sitetest.Stored(&got, "stdout") != unableToComplete || !strings.Contains(sitetest.Stored(&got, "stderr"), "signal: killed") {
		t.Errorf("ended as %s", got.Raw)
	}
	if got := s.endOf("Good"); got.Status != 1 {
		t.Errorf("the next one ended as %s", got.Raw)
	}
}

// TestReclaimAfter: a node orphans the running tasks of a node whose entry does not change, if configured. It does not
// compare clocks.
func TestReclaimAfter(t *testing.T) {
	s := newSite(t, `"treadle_node": {"reclaim_after": 3600},`)
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 0))
	ids := s.Fill(&q, sitetest.Payloads(2)...)
	for i, node := range []string{"gone", "slow"} {
		_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[i]), set(d("status", store.StatusRunning, "node", node)))
		must(t, err)
	}
	// One entry does not change and is in the future, the other changes and is a day behind.
	must(t, s.Store.ReportNode(s.Ctx, "gone", time.Now().Add(24*time.Hour), nil))
	n, _ := s.idle("me", &q)
	behind := time.Now().Add(-24 * time.Hour)
	for hours, want := range []int{store.StatusRunning, store.StatusOrphaned, store.StatusOrphaned} {
		behind = behind.Add(time.Second)
		must(t, s.Store.ReportNode(s.Ctx, "slow", behind, nil))
		must(t, n.tick(s.Ctx))
		if gone, slow := s.Task(ids[0]).Status, s.Task(ids[1]).Status; gone != want || slow != store.StatusRunning {
			t.Errorf("after %d hours the task of the node that is gone has status %d, that of the slow one %d", hours, gone, slow)
		}
		for name, last := range n.heartbeats { // pretend that an hour passes
			last.Since = last.Since.Add(-time.Hour)
			n.heartbeats[name] = last
		}
	}
}

// TestDuplicateNode: a node does not start while another process has its name, and reports a later one.
func TestDuplicateNode(t *testing.T) {
	s := newSite(t)
	refused := func(name string, meanwhile func()) {
		t.Helper()
		second, err := New(Options{Config: s.Config, Name: name})
		must(t, err)
		second.after = func(time.Duration) <-chan time.Time {
			meanwhile()
			over := make(chan time.Time)
			close(over)
			return over
		}
		ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
		defer cancel()
		if err := second.Run(ctx); !errors.Is(err, errDuplicate) || !strings.Contains(err.Error(), "--node") {
			t.Errorf("a second process is %s: %v", name, err)
		}
	}
	me := s.node("me")
	s.Until("the entry", func() bool { _, err := s.Store.Node(s.Ctx, "me"); return err == nil })
	refused("me", func() { s.ticks(me, 2) }) // the first tick may have passed
	// The clock of the node does not matter.
	for _, skew := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		at := time.Now().Add(skew)
		goesOn := func() {
			at = at.Add(time.Second)
			must(t, s.Store.ReportNode(s.Ctx, "off", at, nil))
		}
		goesOn()
		refused("off", goesOn)
	}
	other := s.node("other")
	s.ticks(other, 1)
	must(t, s.Store.ReportNode(s.Ctx, "other", time.Now().Add(time.Hour), nil))
	s.Until("a word about it", func() bool {
		must(t, s.Store.ReportNode(s.Ctx, "other", time.Now().Add(time.Hour), nil))
		other.node.mu.Lock()
		defer other.node.mu.Unlock()
		return other.node.conditions[subject{about: "name of the node"}] != ""
	})
	s.Until("the end of the other process", func() bool {
		other.node.mu.Lock()
		defer other.node.mu.Unlock()
		return other.node.conditions[subject{about: "name of the node"}] == ""
	})
}

// TestLateHeartbeat: the last heartbeat of a killed process, which arrives while its successor observes the entry, does
// not prevent the start.
func TestLateHeartbeat(t *testing.T) {
	s := newFaultySite(t)
	must(t, s.Store.ReportNode(s.Ctx, "me", time.Now(), nil))
	var finds atomic.Int64
	s.Fake.Inject(func(command string) mongotest.Fault {
		if command == "find" && finds.Add(1) == 3 { // after the reads of Usable and of the entry
			s.Fake.Run(d("update", "nodes", "$db", s.Config.Database, "updates", bson.A{
				d("q", d("node", "me"), "u", set(d("timestamp", primitive.NewDateTimeFromTime(time.Now().Add(time.Hour))))),
			}))
		}
		return mongotest.None
	})
	s.ticks(s.node("me"), 1)
}

// TestOutageAtStart: an outage while a starting node observes its entry delays the start.
func TestOutageAtStart(t *testing.T) {
	s := newFaultySite(t)
	must(t, s.Store.ReportNode(s.Ctx, "me", time.Now(), nil))
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
	ids := s.Fill(&q, d("commands", "a"))
	var finds atomic.Int64
	s.Fake.Inject(func(command string) mongotest.Fault {
		if command != "find" {
			return mongotest.None
		}
		if n := finds.Add(1); n == 1 || n > 4 { // after the read of Usable
			return mongotest.None
		}
		return mongotest.Refuse
	})
	s.node("me")
	s.Until("its reading of the entry", func() bool { return finds.Load() > 4 })
	s.Fake.Inject(nil)
	s.Ends(ids...)
}

// TestConfigCollection: changes of the active document of the collection config take effect at the next tick.
func TestConfigCollection(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
	_, err := s.DB.Collection("config").InsertOne(s.Ctx, d("active", true, "ignorequeues", bson.A{q.ID.Hex()}))
	must(t, err)
	n := s.node("me")
	ids := s.Fill(&q, d("commands", "a"))
	s.ticks(n, 3)
	if got := s.Task(ids[0]).Status; got != store.StatusQueued {
		t.Errorf("a task of an ignored queue has status %d", got)
	}
	_, err = s.DB.Collection("config").UpdateOne(s.Ctx, bson.D{}, set(d("ignorequeues", bson.A{})))
	must(t, err)
	s.Ends(ids...)
}
