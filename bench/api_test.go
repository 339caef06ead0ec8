package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/loop"
	"treadle/loop/client"
)

// serveAPI runs a server with the HTTP API at a port, and its files in a directory.
func serveAPI(port, directory string) error {
	off := []string{"off"}
	return loop.Run(context.Background(), loop.Options{
		Data: filepath.Join(directory, "data"), HTTP: "127.0.0.1:" + port,
		Admin:    loop.AdminOptions{Listen: []string{"unix://" + filepath.Join(directory, "admin.sock")}},
		Periodic: loop.PeriodicOptions{Listen: off}, Gloom: loop.GloomOptions{Masters: off, Slaves: off},
		Dwork: loop.DworkOptions{Listen: off}, Kts46: loop.Kts46Options{Listen: off, JSON: off},
	})
}

// startAPI runs it as a child of the test program, whose processor time is the server's alone.
func startAPI(t *testing.T) *peer.Server {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	s, err := peer.Command{Path: program, Arguments: []string{"serve-api", "{port0}", directory}}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.HTTP, s.Admin = s.Address, "unix://"+filepath.Join(directory, "admin.sock")
	return s
}

// TestAPIRows takes a small sample of each row of the HTTP API.
func TestAPIRows(t *testing.T) {
	for _, r := range rowsOf("api") {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			var s sample
			a := newAPITrial(t.Context(), &s, startAPI(t), 10*time.Millisecond)
			defer a.admin.Close()
			if err := a.measure(r.scaled(1e-4), 20); err != nil {
				t.Fatal(err)
			}
			f := s.Figures
			beside := r.Kind == "page" || r.Kind == "search" || r.Kind == "remove" || r.Kind == "retry" || r.Kind == "backup"
			if f["jobs/s"] <= 0 || beside != (f["of quiet"] > 0) || (beside || r.Kind == "submit") != (f["submit p99"] > 0) {
				t.Errorf("got %+v", s)
			}
			if reads := r.Kind == "page" || r.Kind == "search" || r.Kind == "metrics" || r.Kind == "browse"; reads != (f["longest"] > 0) {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// TestAPIAudit: jobs that the server does not hold fail a measurement, and so does an answer that is an error.
func TestAPIAudit(t *testing.T) {
	a := newAPITrial(t.Context(), &sample{}, startAPI(t), 0)
	defer a.admin.Close()
	if err := a.measure(row{Kind: "submit", Load: load.Load{Connections: 2}}, 10); err != nil {
		t.Fatal(err)
	}
	c, err := dialAPI(a.ctx, a.server.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	_, refused := c.post("/jobs", []byte("no JSON"))
	f := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(refused, "/jobs was answered 400")
	f(a.holds(11), "11 jobs were submitted, the server holds 10")
	f(a.change("remove", "", 11), "remove changed 10 of 11 jobs")
	f(a.fail(1), "0 of 1 jobs failed")
}

// TestWatch: each page that is watched has events, and the end of the server is an error.
func TestWatch(t *testing.T) {
	s := startAPI(t)
	a := newAPITrial(t.Context(), &sample{}, s, 0)
	defer a.admin.Close()
	if err := a.measure(row{Kind: "submit lines"}, 1); err != nil {
		t.Fatal(err)
	}
	for _, page := range watchedPages {
		reply, err := getPage(t.Context(), s.HTTP, "/live?at="+url.QueryEscape(page))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reply.Body.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s has no events: %v", page, err)
		}
		_ = reply.Body.Close()
	}
	do := watch(s)
	if err := do(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := do(t.Context()); err == nil {
		t.Error("a server that has ended is watched on")
	}
}

// TestLookedAt: of three pages, each job counts once.
func TestLookedAt(t *testing.T) {
	var got []int64
	var looked, before int64
	for _, page := range []client.JobPage{{Looked: 100, Next: "a"}, {Looked: 250}, {Looked: 100, Next: "a"}} {
		looked, before = lookedAt(page, before)
		got = append(got, looked)
	}
	if !slices.Equal(got, []int64{100, 150, 100}) {
		t.Errorf("got %v", got)
	}
}
