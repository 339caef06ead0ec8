package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"treadle/bench/peer"
)

// targetSamples are as much of a run as some targets need.
func targetSamples() []*sample {
	return []*sample{
		{Row: "pipe 8", Server: "treadle", Figures: figures{"jobs/s": 2e6, "CPU": 0.5}},
		{Row: "pipe 8", Server: "gearmand", Figures: figures{"jobs/s": 1e6}},
		{Row: "pipe 8", Server: "redis", Figures: figures{"jobs/s": 1e6}},
		{Row: "sync 64", Server: "treadle", Figures: figures{"jobs/s": 50}},
		{Row: "sync 64", Server: "redis", Figures: figures{"jobs/s": 40}},
		{Row: "sync 64", Server: "beanstalkd", Figures: figures{"jobs/s": 100}},
		{Row: "paced 1000/s", Server: "treadle", Figures: figures{"submit p99": 90, "submit p99.9": 130}},
		{Row: "paced 1000/s", Server: "redis", Figures: figures{"submit p99": 120, "submit p99.9": 200}},
		{Row: "paced 1000/s", Server: "beanstalkd", Figures: figures{"submit p99": 100, "submit p99.9": 100}},
		{Row: "queued", Server: "treadle", Figures: figures{"MB/1M": 180, "MB later": 50}},
		{Row: "frames echoed", Server: peer.Frames, Figures: figures{"jobs/s": 3.2e6}},
		{Row: "periodic to gloom", Server: "treadle", Figures: figures{"jobs/s": 300e3}},
		{Row: "gloom 1000x64", Server: "treadle", Figures: figures{"jobs/s": 400e3}},
	}
}

// TestTargets saves a run and prints its targets.
func TestTargets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	if err := newReport(settings{}, time.Now(), nil, nil, targetSamples()).save(path); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := bench(t.Context(), []string{"-report", path}, &text, io.Discard); err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(` +`).ReplaceAllString(text.String(), " ")
	for _, want := range []string{
		"\ntarget figure wanted got least largest\n",
		"\nPeriodic, pipelined 64, 8 connections jobs/s of gearmand -t 0 at least 2.00 2.00 2.00 2.00 reached\n",
		"\n jobs/s of redis lists at least 3.50 2.00 2.00 2.00 not reached\n",
		"\n server CPU s per 1M jobs at most 0.45 0.50 0.50 0.50 not reached\n",
		"\nPeriodic, sync, 64 connections jobs/s of the best peer, TCP at least 1.00 0.50 0.50 0.50 not reached\n",
		"\npaced 1000 jobs/s submit p99 of the best peer at most 1.00 0.90 0.90 0.90 reached\n",
		"\n submit p99.9 of the best peer at most 1.20 1.30 1.30 1.30 not reached\n",
		" at most 220, goal 185 180 180 180 reached, and the goal\n",
		" at most 40.0 50.0 50.0 50.0 not reached\n",
		" at least 0.50 0.75 0.75 0.75 reached\n", // of the slower alone
		" at least 0.50 0.62 0.62 0.62 reached\n", // of the echo
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no line %q in\n%s", want, said)
		}
	}
	if strings.Contains(said, "jobs/s of beanstalkd at least") {
		t.Errorf("a target that was not measured is judged in\n%s", said)
	}
	if err := bench(t.Context(), []string{"-report", path + ".no"}, &text, io.Discard); err == nil {
		t.Error("a file that is not there has targets")
	}
}

// TestUndecided: a target is undecided when its bound lies between the figures of the rounds. Results without samples
// have the verdict of their medians.
func TestUndecided(t *testing.T) {
	f := func(want string, samples bool, rates ...float64) {
		t.Helper()
		var list []*sample
		for round, rate := range rates {
			list = append(list, &sample{Row: "pipe 8", Server: "treadle", Round: round + 1, Figures: figures{"jobs/s": rate}},
				&sample{Row: "pipe 8", Server: "gearmand", Round: round + 1, Figures: figures{"jobs/s": []float64{100, 100, 125}[round]}})
		}
		r := newReport(settings{}, time.Now(), nil, nil, list)
		if !samples {
			r.Samples = nil
		}
		if got := strings.Join(r.targetTable()[1][3:], " "); got != want {
			t.Errorf("%v: got %q, want %q", rates, got, want)
		}
	}
	f("2.10 1.52 2.20 undecided", true, 190, 220, 210)
	f("1.80 1.20 2.20 undecided", true, 150, 220, 180)
	f("2.70 2.08 2.80 reached", true, 260, 270, 280)
	f("1.80 1.36 1.90 not reached", true, 170, 180, 190)
	f("2.10 - - reached", false, 190, 220, 210)
}

// TestTargetsHaveRows sees to it that a target's row is one that is measured: every target has a figure when every row
// has every value.
func TestTargetsHaveRows(t *testing.T) {
	r, all := &report{}, figures{}
	for _, name := range figureNames {
		all[name] = 1
	}
	for _, row := range rows() {
		for server := range row.Jobs {
			r.Medians = append(r.Medians, &sample{Row: row.Name, Server: server, Figures: all})
		}
	}
	list := targets()
	if len(list) != 69 {
		t.Fatalf("%d targets", len(list))
	}
	for _, target := range list {
		if target.got(r.Medians, r.Medians) == 0 {
			t.Errorf("%s, %s: no row has it", target.About, target.Figure)
		}
	}
}

// TestRowsHaveServers: a server that a row names is one that there is, and the servers of a section's pairs are in its
// rows.
func TestRowsHaveServers(t *testing.T) {
	known := map[string]bool{}
	for _, p := range peer.All("treadle") {
		known[p.Name] = true
	}
	measured := map[cell]bool{} // by section in place of a row
	for _, r := range rows() {
		for server := range r.Jobs {
			measured[cell{string(r.Section), server}] = true
			if !known[server] {
				t.Errorf("%s: there is no %q", r.Name, server)
			}
		}
	}
	for _, p := range layouts() {
		for _, v := range p.Pairs {
			if !measured[cell{string(p.Section), v.server}] || !measured[cell{string(p.Section), v.by}] {
				t.Errorf("%s: no row has both %s and %s", p.Title, v.server, v.by)
			}
		}
	}
}
