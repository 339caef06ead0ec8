package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.uber.org/goleak"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// runnerVariable is an environment variable with the path of a configuration. With it the test binary runs tasks of a
// node.
const runnerVariable = "TREADLE_TEST_RUNNER_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(runnerVariable); path != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		c, err := config.Read(path)
		if err == nil && len(os.Args) > 1 { // arguments of the original: --config F --task HEX --gfs V
			err = RunTask(ctx, c, TaskOptions{Task: os.Args[4], GFS: c.GFS}, log)
		} else if err == nil {
			err = RunTasks(ctx, c, os.Stdin, os.Stdout, log)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// No test may leave a goroutine of a node or of the driver behind.
	goleak.VerifyTestMain(m)
}

// started is a running node of a test.
type started struct {
	node *Node
	stop func() // stops the node and waits for its end
}

// node starts a node with frequent ticks.
func (s *site) node(name string, change ...func(*Options)) *started {
	s.T.Helper()
	o := Options{
		Config: s.Config, Name: name, Interval: 20 * time.Millisecond,
		Executor: []string{"/usr/bin/env", runnerVariable + "=" + s.Config.Path, os.Args[0]},
		Log:      slog.New(slog.NewTextHandler(logTo{s.T}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	n, err := New(o)
	must(s.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				s.T.Errorf("node %s: %v", name, err)
			}
		case <-time.After(sitetest.Patience):
			s.T.Errorf("node %s does not stop", name)
		}
	})
	s.T.Cleanup(func() { // the database outlasts the runner
		stop()
		ended := make(chan struct{})
		go func() {
			n.executor.running.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(sitetest.Patience):
			s.T.Errorf("the runner of node %s does not end", name)
		}
	})
	return &started{n, stop}
}

// logTo writes the log of a node to the log of its test.
type logTo struct{ t *testing.T }

func (l logTo) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", b)
	}
	return len(b), nil
}

var _ io.Writer = logTo{}

// TestDemoPlugin: tasks of the demo plugin end in queues of both dialects, and the 2016 counters and report follow.
func TestDemoPlugin(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "demo", "plugin", config.DemoPlugin, "threads", "1"))
	old := s.Queue(d("name", "old", "constructor", config.DemoPlugin, "maxthreads", 1, "count_todo", nil))
	ids := append(s.Fill(&q, d("commands", "ab"), d("commands", "ac")), s.Fill(&old, d("commands", "a"))...)
	s.node("me")
	got := s.Ends(ids...)
	for i, want := range []struct {
		status         int
		stdout, stderr string
	}{{1, "a\n", "b\n"}, {2, "a\n", ""}, {1, "a\n", ""}} {
		if got[i].Status != want.status || sitetest.Stored(&got[i], "stdout") != want.stdout || sitetest.Stored(&got[i], "stderr") != want.stderr || got[i].Node != "me" ||
			!got[i].Raw.Lookup("complete").Boolean() || got[i].Raw.Lookup("treadle_run").Type != 0 || !got[i].MTime.After(got[i].CTime) {
			t.Errorf("task %d ended as %s", i, got[i].Raw)
		}
	}
	s.Until("the counters", func() bool {
		q, err := s.Store.Queue(s.Ctx, "old")
		return err == nil && q.Todo == 0 && q.Total == 1
	})
	s.Until("the report", func() bool {
		n, err := s.Store.Node(s.Ctx, "me")
		done, _ := store.Integer(n.Raw.Lookup("queues", "0", "tasks_done"))
		return err == nil && store.Text(n.Raw.Lookup("queues", "0", "constructor")) == config.DemoPlugin && done == 1
	})
}

// TestConditionsEnd: the conditions of a queue end with the queue, and those of the node stay. Running tasks of an
// earlier process are a fault only while they exist.
func TestConditionsEnd(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 1))
	n, _ := s.idle("me", &q)
	gone := store.Queue{ID: primitive.NewObjectID(), Name: "gone"}
	for _, of := range []*store.Queue{&q, &gone} {
		n.setQueueCondition("claims of queue", of, "the database does not answer")
	}
	n.setQueueCondition("queue", &gone, "its plugin is unknown")
	n.setCondition("tick", "the database does not answer")
	n.setCondition("running tasks of an earlier process", "they stay")
	n.unattended(nil)
	n.adjust(&snapshot{queues: []store.Queue{q}, settings: s.Config})
	want := map[subject]string{
		{"claims of queue", q.ID}: "the database does not answer", {about: "tick"}: "the database does not answer",
		{"queue", q.ID}: n.conditions[subject{"queue", q.ID}],
	}
	if !maps.Equal(n.conditions, want) {
		t.Errorf("it keeps %v", n.conditions)
	}
}

// TestNodeForgets: a node drops the heartbeats of absent nodes and the conditions that have ended.
func TestNodeForgets(t *testing.T) {
	t.Parallel()
	n := Node{conditions: map[subject]string{}, performer: performer{log: slog.New(slog.DiscardHandler)}}
	n.noteHeartbeats([]store.Node{{Name: "here"}, {Name: "gone"}})
	n.noteHeartbeats([]store.Node{{Name: "here"}})
	n.setCondition("a queue", "its plugin is unknown")
	n.setCondition("a queue", "")
	if _, here := n.heartbeats["here"]; !here || len(n.heartbeats) != 1 || len(n.conditions) != 0 {
		t.Errorf("it keeps %v and %v", n.heartbeats, n.conditions)
	}
}

// TestTaskAfterDetach: a slot that has claimed a task while the node stops neither begins it nor starts a process for
// it, since stop has released the task.
func TestTaskAfterDetach(t *testing.T) {
	s := newSite(t)
	var log strings.Builder
	n := s.node("me", func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	s.Until("a tick", func() bool {
		n.node.mu.Lock()
		defer n.node.mu.Unlock()
		return n.node.ticks > 0
	})
	n.stop()
	q := s.Queue(d("name", "demo", "plugin", config.DemoPlugin, "threads", "1"))
	id := s.Fill(&q, d("commands", "a"))[0]
	task, err := s.Store.Claim(s.Ctx, &q, "me", time.Now())
	must(t, err)
	n.node.runTask(&assignment{Task: task.Raw, Plugin: config.Plugin{Kind: kindDemo}, Schema: store.Schema2018})
	s.Status(id, store.StatusClaimed)
	if n.node.executor.process != nil || log.Len() > 0 {
		t.Errorf("the process is %v, the log %q", n.node.executor.process, log.String())
	}
}
