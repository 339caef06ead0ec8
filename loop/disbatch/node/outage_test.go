package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// impatient returns a site with short time-outs, so that an outage outlasts calls.
func impatient(t *testing.T, lines ...string) *site {
	t.Helper()
	s := newFaultySite(t, lines...)
	s.Config.MongoHost = "mongodb://" + s.Fake.Address() + "/?timeoutMS=200&serverSelectionTimeoutMS=100&connectTimeoutMS=100"
	return s
}

// TestOutage: the database disappears in several ways while tasks run, for longer than the time-outs of calls. No task
// is lost, the node does not spin, it writes the ends of the tasks later, and it resumes by itself.
func TestOutage(t *testing.T) {
	for _, way := range []string{"refused", "silent", "dropped", "cut", "forbidden"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s, w := impatient(t, functionPlugin), newWorkers(true)
			q := s.Queue(d("name", "a", "plugin", "F", "threads", 4))
			ids := s.Fill(&q, sitetest.Payloads(12)...)
			lines := sitetest.NewLines()
			n := s.node("me", with(w), func(o *Options) { o.Log = lines.Logger() })
			s.Until("tasks at work", func() bool { return w.holding() == 4 })
			calls, back := s.disappear(way)
			w.mu.Lock()
			w.hold = false
			w.mu.Unlock()
			w.finish(4) // during the outage
			began, said, failed := time.Now(), lines.Count(), n.node.tally.errors.Load()
			s.Until("calls that gave up", func() bool { return n.node.tally.errors.Load() >= failed+20 && time.Since(began) > time.Second })
			// A node with back-off makes a few calls, a node that spins makes thousands.
			most := 100 + int64(100*time.Since(began).Seconds())
			if got := calls(); got > most {
				t.Errorf("%d calls in %v without a database", got, time.Since(began))
			}
			if got := lines.Count() - said; got > 20 {
				t.Errorf("%d lines of log in %v without a database", got, time.Since(began))
			}
			back()
			s.Ends(ids...)
			w.once(t, len(ids), 4)
		})
	}
}

// disappear stops the database in one way. It returns the number of commands since then, and a function that ends the
// outage.
func (s *site) disappear(way string) (calls func() int64, back func()) {
	var asked atomic.Int64
	accepted, gone := int64(s.Fake.Accepted()), make(chan struct{})
	calls = func() int64 { return asked.Load() + int64(s.Fake.Accepted()) - accepted }
	if way == "refused" {
		s.Fake.Stop()
		return calls, func() { must(s.T, s.Fake.Resume()) }
	}
	s.Fake.Inject(func(command string) mongotest.Fault {
		asked.Add(1)
		forbidden := mongotest.Refuse
		if strings.EqualFold(command, "ismaster") || command == "hello" {
			forbidden = mongotest.None
		}
		switch way {
		case "dropped":
			return mongotest.LoseCall
		case "cut":
			return mongotest.CutReply
		case "forbidden":
			return forbidden
		}
		<-gone // the command runs long after the time-out of its caller
		return mongotest.None
	})
	return calls, func() {
		s.Fake.Inject(nil)
		close(gone)
	}
}

// TestRunnerStops: a runner whose context ends stops its plugins and fails their tasks. The node queues the tasks that
// have not begun again.
func TestRunnerStops(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	s := newSite(t, plugins(map[string]string{"Wait": shell(fmt.Sprintf("echo why >&2; echo >> %s; exec sleep 300", begun), "")}))
	q := s.Queue(d("name", "a", "plugin", "Wait", "threads", 1))
	ids := s.Fill(&q, sitetest.Payloads(1)...)
	n := s.node("me")
	s.Until("the plugin", func() bool { _, err := os.Stat(begun); return err == nil })
	n.node.executor.mu.Lock()
	runner := n.node.executor.process.Process
	n.node.executor.mu.Unlock()
	must(t, runner.Signal(syscall.SIGTERM))
	got := s.Ends(ids...)[0]
	if want := errToldToEnd.Error() + "\nwhy"; got.Status != store.StatusFailed || sitetest.Stored(&got, "stdout") != unableToComplete || !strings.HasPrefix(sitetest.Stored(&got, "stderr"), want) {
		t.Errorf("ended as %s", got.Raw)
	}
}

// TestRunnerStopsWithoutDatabase: a runner whose context ends during an outage returns the task whose end is lost.
func TestRunnerStopsWithoutDatabase(t *testing.T) {
	begun := filepath.Join(t.TempDir(), "begun")
	s := impatient(t, plugins(map[string]string{"Wait": shell(fmt.Sprintf("echo >> %s; exec sleep 300", begun), "")}))
	q := s.Queue(d("name", "a", "plugin", "Wait", "threads", 1))
	s.Fill(&q, sitetest.Payloads(1)...)
	task, err := s.Store.Claim(s.Ctx, &q, "me", time.Now())
	must(t, err)
	site, err := store.Open(s.Config.Connection(config.ComponentRunner))
	must(t, err)
	t.Cleanup(site.Close)
	p := newPerformer(site, s.Config, slog.New(slog.DiscardHandler))
	p.grace = 300 * time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- p.perform(ctx, &assignment{Task: task.Raw, Plugin: s.Config.TreadlePlugins["Wait"], Schema: store.Schema2018})
	}()
	s.Until("the plugin", func() bool { _, err := os.Stat(begun); return err == nil })
	s.Fake.Stop()
	end()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "its end with status 2 is not written") {
			t.Errorf("it says %v", err)
		}
	case <-time.After(sitetest.Patience):
		t.Error("it does not end")
	}
}
