package disbatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.uber.org/goleak"
)

// The test binary runs a node's tasks when this names the configuration.
const runnerVariable = "TREADLE_TEST_RUNNER_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(runnerVariable); path != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		c, err := ReadConfig(path)
		if err == nil && len(os.Args) > 1 { // as the original's: --config F --task HEX --gfs V
			err = RunTask(ctx, c, TaskOptions{Task: os.Args[4], GFS: GFSAuto}, log)
		} else if err == nil {
			err = RunTasks(ctx, c, os.Stdin, os.Stdout, log)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// No test may leave a goroutine behind: neither a node's nor the driver's.
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to happen.
const patience = 2 * time.Minute

// started is a running node of a test.
type started struct {
	node *ExecutionNode
	stop func() // and waits for its end
}

// node starts a node that ticks often.
func (s *site) node(name string, change ...func(*NodeOptions)) *started {
	s.t.Helper()
	o := NodeOptions{
		Config: s.config, Name: name, Interval: 20 * time.Millisecond,
		Runner: []string{"/usr/bin/env", runnerVariable + "=" + s.config.Path, os.Args[0]},
		Log:    slog.New(slog.NewTextHandler(logTo{s.t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&o)
	}
	n, err := NewExecutionNode(o)
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				s.t.Errorf("node %s: %v", name, err)
			}
		case <-time.After(patience):
			s.t.Errorf("node %s does not stop", name)
		}
	})
	s.t.Cleanup(func() { // the database is there until its runner has written all
		stop()
		ended := make(chan struct{})
		go func() {
			n.runner.lives.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(patience):
			s.t.Errorf("the runner of node %s does not end", name)
		}
	})
	return &started{n, stop}
}

// logTo keeps a node's log with its test's.
type logTo struct{ t *testing.T }

func (l logTo) Write(b []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", b)
	}
	return len(b), nil
}

var _ io.Writer = logTo{}

// until waits for a condition of the database.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); !ok(); <-ticker.C {
		if time.Now().After(end) {
			tasks, _ := s.store.Search(s.ctx, bson.D{}, SearchOptions{Limit: 5})
			for _, t := range tasks {
				s.t.Logf("%s", t.Raw)
			}
			s.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// ends waits until tasks have a status of 1 or more, or the wanted one.
func (s *site) ends(ids ...primitive.ObjectID) []Task {
	s.t.Helper()
	s.until("the end of the tasks", func() bool {
		n, err := s.store.CountTasks(s.ctx, d("_id", in(ids), "status", d("$gte", 1)))
		return err == nil && int(n) == len(ids)
	})
	var out []Task
	for _, id := range ids {
		out = append(out, s.task(id))
	}
	return out
}

func (s *site) status(id primitive.ObjectID, want int) {
	s.t.Helper()
	s.until(fmt.Sprintf("status %d", want), func() bool {
		t, err := s.store.Task(s.ctx, id)
		return err == nil && t.Status == want
	})
}

// stored is the text of a field of a task.
func stored(t *Task, name string) string { return text(t.Raw.Lookup(name)) }

func TestTheDemoRuns(t *testing.T) {
	s := newSite(t)
	q := s.queue(d("name", "demo", "plugin", DemoPlugin, "threads", "1"))
	old := s.queue(d("name", "old", "constructor", DemoPlugin, "maxthreads", 1, "count_todo", nil))
	ids := append(s.fill(&q, d("commands", "ab"), d("commands", "ac")), s.fill(&old, d("commands", "a"))...)
	s.node("me")
	got := s.ends(ids...)
	for i, want := range []struct {
		status         int
		stdout, stderr string
	}{{1, "a\n", "b\n"}, {2, "a\n", ""}, {1, "a\n", ""}} {
		if got[i].Status != want.status || stored(&got[i], "stdout") != want.stdout || stored(&got[i], "stderr") != want.stderr || got[i].Node != "me" ||
			!got[i].Raw.Lookup("complete").Boolean() || got[i].Raw.Lookup(runField).Type != 0 || !got[i].MTime.After(got[i].CTime) {
			t.Errorf("task %d ended as %s", i, got[i].Raw)
		}
	}
	s.until("the counters", func() bool {
		q, err := s.store.Queue(s.ctx, "old")
		return err == nil && q.Todo == 0 && q.Total == 1
	})
	s.until("the report", func() bool {
		n, err := s.store.Node(s.ctx, "me")
		done, _ := integer(n.Raw.Lookup("queues", "0", "tasks_done"))
		return err == nil && text(n.Raw.Lookup("queues", "0", "constructor")) == DemoPlugin && done == 1
	})
}

// lineCount counts lines of log.
type lineCount struct {
	mu sync.Mutex
	n  int
}

func newLineCount() *lineCount { return &lineCount{} }

func (l *lineCount) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Write implements io.Writer.
func (l *lineCount) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return len(b), nil
}

func (l *lineCount) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// TestNodeForgets: a node keeps nothing of nodes that are gone, and of troubles that are over.
func TestNodeForgets(t *testing.T) {
	t.Parallel()
	n := ExecutionNode{said: map[string]string{}, performer: performer{log: slog.New(slog.DiscardHandler)}}
	n.watch([]Node{{Name: "here"}, {Name: "gone"}}, &view{})
	n.watch([]Node{{Name: "here"}}, &view{})
	n.say("a queue", "its plugin is unknown")
	n.say("a queue", "")
	if _, here := n.seen["here"]; !here || len(n.seen) != 1 || len(n.said) != 0 {
		t.Errorf("it keeps %v and %v", n.seen, n.said)
	}
}
