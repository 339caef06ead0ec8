package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
)

// metric returns the value of a metric of a node, or -1. The value of its label follows the name after a space.
func metric(n *started, name string) float64 {
	for _, s := range n.node.Samples() {
		if strings.TrimSpace(strings.TrimPrefix(s.Name, "treadle_disbatch_")+" "+s.LabelValue) == name {
			return s.Value
		}
	}
	return -1
}

// counted waits until the metrics of a node have the given values, as "name value".
func (s *site) counted(n *started, want ...string) {
	s.T.Helper()
	for _, w := range want {
		name := w[:strings.LastIndexByte(w, ' ')]
		s.Until("the metric "+w, func() bool { return fmt.Sprintf("%s %v", name, metric(n, name)) == w })
	}
}

// TestMetricsCountEnds: the metrics count ends by status, written by the process that runs commands, by the node for
// functions, or by a task runner of the original.
func TestMetricsCountEnds(t *testing.T) {
	t.Parallel()
	runner := filepath.Join(t.TempDir(), "runner")
	s := newSite(t, plugins(map[string]string{
		"Good": shell(":", ""), "Bad": shell("exit 1", ""), "Own": shell(`echo '{"status": 7}'`, ""), "F": `{"kind": "function"}`,
		"Old": fmt.Sprintf(`{"kind": "runner", "command": [%q]}`, runner),
	}))
	inner := filepath.Join(t.TempDir(), "inner.json") // configuration of the runner, with the plugin as a command
	must(t, os.WriteFile(inner, []byte(fmt.Sprintf(`{"mongohost": %q, "database": %q, %s}`,
		s.Config.MongoHost, s.Config.Database, plugins(map[string]string{"Old": shell(`echo '{"status": 3}'`, "")}))), 0o600))
	must(t, os.WriteFile(runner, []byte(fmt.Sprintf("#!/bin/sh\n%s=%s exec %s --config %[2]s \"$3\" \"$4\" \"$5\" \"$6\"\n", runnerVariable, inner, os.Args[0])), 0o700))
	n := s.node("me", with(newWorkers(false)))
	s.counted(n, "claims_total 0", "tasks_total succeeded 0", "tasks_total failed 0", "tasks_total other 0", "database_errors_total 0")
	for _, plugin := range []string{"Good", "Good", "Bad", "Own", "F", "Old"} {
		s.endOf(plugin)
	}
	s.counted(n, "claims_total 6", "tasks_total succeeded 3", "tasks_total failed 1", "tasks_total other 2",
		"given_back_total 0", "orphaned_total 0", "database_errors_total 0", "slots 0", "tasks 0", "queues 6")
	if at := metric(n, "last_tick_seconds"); time.Since(time.UnixMilli(int64(at*1000))) > sitetest.Patience {
		t.Errorf("the last tick was at %v", at)
	}
}

// unseen is a server whose workers have not reserved their jobs.
type unseen struct{ *workers }

// Withdraw implements Functions.
func (unseen) Withdraw(string, string) bool { return true }

// TestMetricsOfStoppingNode: the metrics count held and released tasks and failed calls.
func TestMetricsOfStoppingNode(t *testing.T) {
	t.Parallel()
	s, w := newFaultySite(t, functionPlugin), newWorkers(true)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 3))
	s.Fill(&q, sitetest.Payloads(5)...)
	n := s.node("me", with(w), func(o *Options) { o.Functions = unseen{w} })
	s.counted(n, "claims_total 3", "slots 3", "tasks 3", "queues 1")
	s.Fake.Stop()
	s.Until("an error", func() bool { return metric(n, "database_errors_total") > 0 })
	must(t, s.Fake.Resume())
	n.stop()
	s.counted(n, "claims_total 3", "given_back_total 3", "slots 0", "tasks 0", "tasks_total succeeded 0")
}

// late is a server that takes a job when the stopping node's time is over, and whose workers have not reserved it.
type late struct {
	unseen
	asked chan struct{} // closed by Submit
	over  chan struct{}
}

// Submit implements Functions.
func (l late) Submit(function, name string, workload []byte, done func([]byte, error)) error {
	close(l.asked)
	<-l.over
	return l.unseen.Submit(function, name, workload, done)
}

// TestTakenTooLate: the task of a job that the server takes too late is queued again, and the job is withdrawn.
func TestTakenTooLate(t *testing.T) {
	t.Parallel()
	s, asked, over := newSite(t, functionPlugin), make(chan struct{}), make(chan struct{})
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 1))
	s.Fill(&q, sitetest.Payloads(1)...)
	n := s.node("me", func(o *Options) {
		o.Functions, o.Drain = late{unseen{newWorkers(true)}, asked, over}, func() time.Duration { return time.Millisecond }
	})
	s.counted(n, "claims_total 1", "slots 1", "tasks 1")
	<-asked // the task's start is written
	context.AfterFunc(n.node.callsCtx, func() { close(over) })
	n.stop()
	s.counted(n, "given_back_total 1", "slots 0", "tasks_total failed 0")
}

// prompt is a server whose workers finish a job during Submit.
type prompt struct{ *workers }

// Submit implements Functions.
func (prompt) Submit(_, _ string, _ []byte, done func([]byte, error)) error {
	done([]byte(`{"status": 1}`), nil)
	return nil
}

// TestAnswerBeforeTimeout: a task whose result and time-out arrive together has its result.
func TestAnswerBeforeTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t, `"treadle_plugins": {"F": {"kind": "function", "timeout": 1e-9}},`)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 3))
	s.Fill(&q, sitetest.Payloads(30)...)
	n := s.node("me", func(o *Options) { o.Functions = prompt{newWorkers(false)} })
	s.counted(n, "tasks_total succeeded 30", "tasks_total failed 0")
}

// listened collects a log with the address of a listener.
type listened struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *listened) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// TestMetricsDuringOutage: a node that starts without a database serves its metrics, and runs tasks once the database
// answers.
func TestMetricsDuringOutage(t *testing.T) {
	t.Parallel()
	s, log := newFaultySite(t), &listened{}
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
	ids := s.Fill(&q, d("commands", "a"))
	s.Fake.Stop()
	s.node("me", func(o *Options) { o.HTTP, o.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil)) })
	url := ""
	s.Until("an address", func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		url = regexp.MustCompile(`http://[0-9.:]+`).FindString(log.text.String())
		return url != ""
	})
	defer http.DefaultClient.CloseIdleConnections()
	s.Until("an error", func() bool {
		r, err := http.Get(url + "/metrics")
		must(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		must(t, err)
		return regexp.MustCompile(`(?m)^treadle_disbatch_database_errors_total [1-9]`).Match(text) &&
			strings.Contains(string(text), `treadle_disbatch_tasks_total{end="succeeded"} 0`)
	})
	must(t, s.Fake.Resume())
	s.Ends(ids...)
}
