package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"treadle/loop"
	"treadle/loop/disbatch"
)

// nodeWithin starts the server that is a node inside of this process.
func nodeWithin(t *testing.T) startNode {
	return func(ctx context.Context, config string) (*server, error) {
		running, cancel := context.WithCancel(ctx)
		ready, done := make(chan string, 1), make(chan error, 1)
		go func() {
			done <- loop.Run(running, loop.Options{
				Disbatch: loop.DisbatchOptions{Config: config, Node: "me"}, Data: loop.NoData, Drain: time.Second,
				Periodic: []string{"tcp://127.0.0.1:0"}, GloomMasters: []string{"off"}, GloomSlaves: []string{"off"},
				Dwork: loop.DworkOptions{Listen: []string{"off"}}, Kts46: loop.Kts46Options{Listen: []string{"off"}, JSON: []string{"off"}}, HTTP: "off",
				Started: func(l []loop.Listening) { ready <- l[0].Address },
			})
		}()
		s := &server{pid: os.Getpid(), said: func() string { return "" }, stop: func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}}
		select {
		case address := <-ready:
			s.address = strings.TrimPrefix(address, "tcp://")
			return s, nil
		case err := <-done:
			cancel()
			return nil, err
		}
	}
}

// TestNodeRows takes small samples of the rows whose tasks are done by a worker, and of an idle node.
func TestNodeRows(t *testing.T) {
	for _, r := range nodeRows() {
		if r.plugin != disbatch.KindFunction && r.kind != idle || r.load.depth == 1 {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var s sample
			if err := s.measureNode(t.Context(), r, 200, nodeWithin(t)); err != nil {
				t.Fatal(err)
			}
			if timed := s.JobsPerSecond > 0 && s.ServerCPU > 0 && s.Jobs == 200; timed == (r.kind == idle) || s.CorePercent <= 0 {
				t.Errorf("something was not measured: %+v", s)
			}
		})
	}
}

// TestNodeAudit: a task that was done twice, or not at all, fails the measurement.
func TestNodeAudit(t *testing.T) {
	r := nodeRows()[1]
	f := func(spoil func(trial *nodeTrial), want string) {
		t.Helper()
		trial := &nodeTrial{begun: make(chan struct{})}
		trial.arrived = make([]atomic.Uint32, 50)
		stop, err := trial.open(t.Context(), r, nodeWithin(t))
		defer stop()
		if err != nil {
			t.Fatal(err)
		}
		var s sample
		spoil(trial)
		if err = s.busyNode(t.Context(), trial, r, 50); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(func(trial *nodeTrial) { trial.arrived[7].Add(1) }, "task 7 was given to a worker 2 times")
	f(func(trial *nodeTrial) { trial.arrived = make([]atomic.Uint32, 51) }, "50 of 51 tasks have succeeded")
	f(func(trial *nodeTrial) { trial.arrived = trial.arrived[:49] }, "a worker was given a task that nobody made")
}

// TestNodeCounts: of commands, the node's own count decides.
func TestNodeCounts(t *testing.T) {
	page := ""
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	defer metrics.Close()
	trial := &nodeTrial{running: &server{address: strings.TrimPrefix(metrics.URL, "http://")}}
	f := func(claims, ends, want string) {
		t.Helper()
		page = "# HELP\ntreadle_disbatch_claims_total " + claims + "\ntreadle_disbatch_tasks_total{end=\"succeeded\"} " + ends + "\n"
		err := trial.checkMetrics(t.Context(), 5)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s and %s: got %v, want %q", claims, ends, err, want)
		}
	}
	f("5", "5", "")
	f("6", "5", "claims_total")
	f("5", "4", "tasks_total")
	f("5", "55", "tasks_total")
}

// TestChildren finds a process that this one has started.
func TestChildren(t *testing.T) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if pids := children(os.Getpid()); !slices.Contains(pids, c.Process.Pid) {
		t.Errorf("%d is not one of %v", c.Process.Pid, pids)
	}
	_ = in.Close()
	_ = c.Wait()
	if pids := children(os.Getpid()); slices.Contains(pids, c.Process.Pid) {
		t.Errorf("%d has ended, and is one of %v", c.Process.Pid, pids)
	}
}
