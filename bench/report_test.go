package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
)

func TestMedian(t *testing.T) {
	f := func(want float64, values ...float64) {
		t.Helper()
		if got := median(values); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
	f(0)
	f(5, 5)
	f(2, 3, 2, 1)
	f(2.5, 4, 1, 3, 2)
	f(7, 7, 100, 1)
}

func TestNumber(t *testing.T) {
	f := func(value float64, want string) {
		t.Helper()
		if got := number(value); got != want {
			t.Errorf("%v: got %q, want %q", value, got, want)
		}
	}
	f(0, "-")
	f(0.333, "0.33")
	f(12.34, "12.3")
	f(123.4, "123")
	f(1234, "1,234")
	f(2000000, "2,000,000")
}

func TestRatio(t *testing.T) {
	if got := ratio(3, 2); got != "1.50" {
		t.Errorf("got %q", got)
	}
	if ratio(0, 2) != "-" || ratio(2, 0) != "-" {
		t.Error("a value that was not measured has a ratio")
	}
}

func TestAlign(t *testing.T) {
	got := align([][]string{{"row", "server", "jobs/s"}, {"a", "x", "1"}, {"a", "long name", "1,000"}, {"b", "x", "-"}})
	want := "row  server     jobs/s\na    x               1\n     long name   1,000\nb    x               -\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// someSamples are three rounds of one row for two servers, and one paced row.
func someSamples() []*sample {
	var samples []*sample
	for round, rate := range []float64{100, 300, 200} {
		samples = append(samples,
			&sample{Row: "pipe 8", Server: "treadle", Round: round + 1, Jobs: 9,
				Figures: figures{"jobs/s": 10 * rate, "CPU": 0.5, "to worker p50": 80}},
			&sample{Row: "pipe 8", Server: "redis", Round: round + 1, Jobs: 7,
				Figures: figures{"jobs/s": rate, "CPU": 2, "to worker p50": 20}})
	}
	return append(samples,
		&sample{Row: "paced", Server: "treadle", Rate: 1000, Figures: figures{"jobs/s": 1000, "to worker p99": 90}},
		&sample{Row: "paced", Server: "redis", Rate: 1000, Figures: figures{"jobs/s": 999, "to worker p99": 120}})
}

func TestMedians(t *testing.T) {
	got := joined(someSamples(), median)
	if len(got) != 4 {
		t.Fatalf("got %d rows, want 4", len(got))
	}
	if m := got[0]; m.Server != "treadle" || m.Figures["jobs/s"] != 2000 || m.Figures["CPU"] != 0.5 || m.Round != 3 || m.Jobs != 9 {
		t.Errorf("got %+v", m)
	}
	if m := got[1]; m.Server != "redis" || m.Figures["jobs/s"] != 200 {
		t.Errorf("got %+v", m)
	}
}

func TestReport(t *testing.T) {
	servers := []peer.Contender{{Name: "treadle", Version: "1.2"}, {Name: "redis", Version: "7.0"}}
	r := newReport(settings{Rounds: 3, Scale: 1}, time.Now(), nil, servers, someSamples())
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		`(?m)^pipe 8 +treadle +2,000 .* 0\.50 +-$`,
		`(?m)^ +redis +200 .* 2\.00 +-$`,
		`(?m)^pipe 8 +treadle / redis +10\.00 +0\.25( +-){8}$`,
		`(?m)^paced +treadle / redis( +-){6} +0\.75( +-){3}$`,
		`medians of 3 rounds`,
		`redis 7\.0, treadle 1\.2;`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text.String()) {
			t.Errorf("nothing matches %s in\n%s", pattern, text.String())
		}
	}
}

func TestReportIsSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "latest.json")
	servers := []peer.Contender{{Name: "treadle", Version: "1.2"}}
	if err := newReport(settings{Rounds: 3}, time.Now(), nil, servers, someSamples()).save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Medians) != 4 || len(read.Samples) != 8 || read.Settings.Rounds != 3 || read.Versions["treadle"] != "1.2" {
		t.Errorf("got %+v", read)
	}
}

// TestPlan sees to it that the servers take turns within a row.
func TestPlan(t *testing.T) {
	servers := []peer.Contender{{Name: "treadle"}, {Name: "treadle unix"}, {Name: "gearmand", Missing: "gearmand"}, {Name: "redis"}}
	list := []row{{Name: "a", Jobs: map[string]int{"treadle": 1, "redis": 1, "gearmand": 1}}, {Name: "b", Jobs: map[string]int{"treadle": 1, "treadle unix": 2, "redis": 1, "gearmand": 1}, Rounds: 1},
		{Name: "c", Jobs: alone(1), Rounds: 1}, {Name: "d", Jobs: alone(1), Rounds: 2}}
	var got []string
	tasks, missing := plan(list, servers, 2)
	for _, task := range tasks {
		got = append(got, task.row.Name+" "+task.peer.Name)
	}
	if len(missing) != 1 || missing[0] != "gearmand, because gearmand is not installed" {
		t.Errorf("missing: %q", missing)
	}
	want := "a treadle, a redis, a treadle, a redis, b treadle, b treadle unix, b redis, c treadle, d treadle, d treadle"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if got, _ := plan(list[3:], servers, 1); len(got) != 1 {
		t.Errorf("of one round: got %d tasks, want 1", len(got))
	}
}

// TestRowSizes: at the smallest scale each connection has some jobs, and no row has more than at full scale.
func TestRowSizes(t *testing.T) {
	for _, r := range rows() {
		for server, jobs := range r.Jobs {
			if full, least := r.size(server, 1), r.size(server, 1e-9); full != jobs || least != min(minJobs, jobs) {
				t.Errorf("%s, %s: %d jobs, and %d at the smallest scale", r.Name, server, full, least)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	f := func(ok bool, args ...string) {
		t.Helper()
		_, err := parseSettings(append([]string{"-server", os.Args[0]}, args...), &strings.Builder{})
		if (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
	f(true)
	f(true, "-rounds", "1", "-scale", "0.01", "-rows", "pipe")
	f(false, "-rounds", "0")
	f(false, "-scale", "0")
	f(false, "-rows", "(")
	f(false, "pipe")
	f(false, "-server", "no/such/file")
}

// TestScaled sees to it that the scale counts for what stands around the jobs as well.
func TestScaled(t *testing.T) {
	r := row{Load: load.Load{Connections: 5, Ready: 1000, Delayed: 5000}, Idle: 300}.scaled(0.1)
	if r.Load.Ready != 100 || r.Load.Delayed != 500 || r.Idle != 30 || r.Load.Connections != 5 {
		t.Errorf("got %+v", r.Load)
	}
	if got := (row{Jobs: alone(100)}).size("treadle", 0.1); got != 100 {
		t.Errorf("got %d of 100", got)
	}
	if r := (row{Idle: 1e9}).scaled(1); r.Idle != descriptors() {
		t.Errorf("got %d idle connections, and %d descriptors", r.Idle, descriptors())
	}
}

// TestEndpoints sees to it that each section's rows go to the addresses that speak their protocols.
func TestEndpoints(t *testing.T) {
	s := &peer.Server{Network: "tcp", Address: "a", Masters: "m", Slaves: "s"}
	f := func(of section, produce, work string) {
		t.Helper()
		got := row{Section: of}.endpoints(peer.Contender{Protocol: peer.NewPeriodic(peer.PeriodicOptions{})}, s)
		describe := func(of load.Endpoint) string {
			_, _, text := of.Protocol.Traits().Parse(load.TextWorkload())
			return fmt.Sprintf("%T %v at %s", of.Protocol, text, of.Address)
		}
		if describe(got.Produce) != produce || describe(got.Work) != work || got.Ask.Address != "a" {
			t.Errorf("%q: got %s, %s and %s", of, describe(got.Produce), describe(got.Work), got.Ask.Address)
		}
	}
	f("", "*peer.periodic false at a", "*peer.periodic false at a")
	f(gloomSection, "*peer.gloom true at m", "*peer.gloom true at s")
	f(acrossSection, "*peer.periodic true at a", "*peer.gloom true at s")
}
