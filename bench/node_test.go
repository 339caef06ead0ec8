package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/bench/peer"
	"treadle/loop"
	"treadle/loop/disbatch/config"
)

// nodeWithin starts the server that is a node inside of this process.
func nodeWithin(t *testing.T) startNode {
	return func(ctx context.Context, config string) (*peer.Server, error) {
		running, cancel := context.WithCancel(ctx)
		ready, done := make(chan string, 1), make(chan error, 1)
		go func() {
			done <- loop.Run(running, loop.Options{
				Disbatch: loop.DisbatchOptions{Config: config, Node: "me"}, Data: loop.NoData, Drain: time.Second,
				Periodic: loop.PeriodicOptions{Listen: []string{"tcp://127.0.0.1:0"}}, Gloom: loop.GloomOptions{Masters: []string{"off"}, Slaves: []string{"off"}}, Dwork: loop.DworkOptions{Listen: []string{"off"}}, Kts46: loop.Kts46Options{Listen: []string{"off"}, JSON: []string{"off"}}, HTTP: "off",
				Started: func(l []loop.Listening) { ready <- l[0].Address },
			})
		}()
		s := &peer.Server{PID: os.Getpid(), LastOutput: func() string { return "" }, Stop: func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}}
		select {
		case address := <-ready:
			s.Address = strings.TrimPrefix(address, "tcp://")
			return s, nil
		case err := <-done:
			cancel()
			return nil, err
		}
	}
}

// TestNodeRows takes small samples of the rows whose tasks are done by a worker, and of an idle node.
func TestNodeRows(t *testing.T) {
	for _, r := range rowsOf(nodeSection) {
		if r.Plugin != config.KindFunction && r.Kind != kindIdle || r.Load.Depth == 1 {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			var s sample
			if err := s.measureNode(t.Context(), r, 200, nodeWithin(t)); err != nil {
				t.Fatal(err)
			}
			if timed := s.Figures["jobs/s"] > 0 && s.Figures["CPU"] > 0 && s.Jobs == 200; timed == (r.Kind == kindIdle) || s.Figures["% of a core"] <= 0 {
				t.Errorf("something was not measured: %+v", s)
			}
		})
	}
}

// TestNodeAudit: a task that was done twice, or not at all, fails the measurement.
func TestNodeAudit(t *testing.T) {
	r := rowsOf(nodeSection)[1]
	f := func(size int, spoil func(trial *nodeTrial) error, want string) {
		t.Helper()
		trial := &nodeTrial{}
		defer trial.close()
		err := trial.open(t.Context(), r, nodeWithin(t))
		if err == nil {
			err = trial.fill(t.Context(), 50)
		}
		if err == nil {
			err = spoil(trial)
		}
		if err != nil {
			t.Fatal(err)
		}
		var s sample
		if err = s.busyNode(t.Context(), trial, r, size); err == nil {
			err = trial.checkDone(t.Context(), size+1)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	again := func(task string) func(trial *nodeTrial) error {
		return func(trial *nodeTrial) error {
			_, err := trial.store.InsertTasks(t.Context(), &trial.queue, []any{map[string]string{"task": task}})
			return err
		}
	}
	f(51, again("00000007"), "job 7 arrived a second time")
	f(50, func(*nodeTrial) error { return nil }, "50 of 51 tasks have succeeded")
	f(51, again("00000051"), "job 51 arrived, which was never submitted")
	f(51, again("nobody's"), "a job arrived with a damaged workload")
}

// TestNodeCounts: of commands, the node's own count decides.
func TestNodeCounts(t *testing.T) {
	page := ""
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	defer metrics.Close()
	trial := &nodeTrial{running: &peer.Server{Address: strings.TrimPrefix(metrics.URL, "http://")}}
	f := func(claims, ends, want string) {
		t.Helper()
		page = "# HELP\ntreadle_disbatch_claims_total " + claims + "\ntreadle_disbatch_tasks_total{end=\"succeeded\"} " + ends + "\n"
		err := trial.counts(t.Context(), 5)
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
