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

// TestQuantiles records runs of equal values, as a pipeline does, and one value beyond the histogram's range.
func TestQuantiles(t *testing.T) {
	l := newLatencies()
	for range 980 {
		l.record(50_000)
	}
	for range 19 {
		l.record(200_000)
	}
	l.record(2 * latencyHighest)
	q := l.quantiles()
	about := func(name string, got, want float64) {
		t.Helper()
		if got < want*0.998 || got > want*1.002 {
			t.Errorf("%s: got %v us, want about %v", name, got, want)
		}
	}
	about("p50", q.P50, 50)
	about("p99", q.P99, 200)
	about("p99.9", q.P999, 200)
	about("highest", q.Max, latencyHighest/1000)
	if l.histogram.TotalCount() != 1000 {
		t.Errorf("got %d values, want 1000", l.histogram.TotalCount())
	}
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
func someSamples() []sample {
	var samples []sample
	for round, rate := range []float64{100, 300, 200} {
		samples = append(samples,
			sample{Row: "pipe 8", Server: "treadle", Round: round + 1, Jobs: 9, JobsPerSecond: 10 * rate, ServerCPU: 0.5,
				ToWorker: quantiles{P50: 80}},
			sample{Row: "pipe 8", Server: "redis", Round: round + 1, Jobs: 7, JobsPerSecond: rate, ServerCPU: 2,
				ToWorker: quantiles{P50: 20}})
	}
	return append(samples,
		sample{Row: "paced", Server: "treadle", Rate: 1000, JobsPerSecond: 1000, ToWorker: quantiles{P99: 90}},
		sample{Row: "paced", Server: "redis", Rate: 1000, JobsPerSecond: 999, ToWorker: quantiles{P99: 120}})
}

func TestMedians(t *testing.T) {
	got := medians(someSamples())
	if len(got) != 4 {
		t.Fatalf("got %d rows, want 4", len(got))
	}
	if m := got[0]; m.Server != "treadle" || m.JobsPerSecond != 2000 || m.ServerCPU != 0.5 || m.Round != 3 || m.Jobs != 9 {
		t.Errorf("got %+v", m)
	}
	if m := got[1]; m.Server != "redis" || m.JobsPerSecond != 200 {
		t.Errorf("got %+v", m)
	}
}

func TestReport(t *testing.T) {
	field := []contender{{name: "treadle", version: "1.2", ours: true}, {name: "redis", version: "7.0"}}
	r := newReport(settings{Rounds: 3, Scale: 1}, time.Now(), field, someSamples())
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		`(?m)^pipe 8 +treadle +2,000 .* 0\.50 +-$`,
		`(?m)^ +redis +200 .* 2\.00 +-$`,
		`(?m)^pipe 8 +treadle / redis +10\.00 +0\.25( +-){7}$`,
		`(?m)^paced +treadle / redis( +-){6} +0\.75( +-){2}$`,
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
	field := []contender{{name: "treadle", version: "1.2", ours: true}}
	if err := newReport(settings{Rounds: 3}, time.Now(), field, someSamples()).save(path); err != nil {
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

// TestPlan sees to it that the contenders take turns within a row.
func TestPlan(t *testing.T) {
	field := []contender{{name: "treadle", ours: true, gloom: true}, {name: "treadle unix", ours: true, variant: overUnix}, {name: "redis"}}
	list := []row{{name: "a"}, {name: "b", variants: []string{overUnix}, once: true}, {name: "c", section: gloomSection, once: true}, {name: "d", section: gloomSection, fewer: true}}
	var got []string
	for _, task := range plan(list, field, 2) {
		got = append(got, task.row.name+" "+task.contender.name)
	}
	want := "a treadle, a redis, a treadle, a redis, b treadle, b treadle unix, b redis, c treadle, d treadle"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if got := plan(list[3:], field, 1); len(got) != 1 {
		t.Errorf("of one round: got %d tasks, want 1", len(got))
	}
}

func TestChoose(t *testing.T) {
	s := settings{Rows: regexp.MustCompile("^pipe"), Peers: regexp.MustCompile("redis")}
	list, field := choose(s, rows(), []contender{{name: "treadle", ours: true}, {name: "gearmand"}, {name: "redis"}})
	if len(list) != 3 || len(field) != 2 || field[1].name != "redis" {
		t.Errorf("got %d rows and %+v", len(list), field)
	}
}

// TestRowSizes sees to it that every contender has a guess in every row.
func TestRowSizes(t *testing.T) {
	for _, r := range rows() {
		for _, c := range contenders("treadle") {
			if r.admits(c) && r.size(c.name, 1) < 1000 && !r.exact {
				t.Errorf("%s, %s: %d jobs", r.name, c.name, r.size(c.name, 1))
			}
		}
		if got := r.size("treadle", 1e-9); got != leastJobs && !r.exact {
			t.Errorf("%s: %d jobs at the smallest scale, want %d", r.name, got, leastJobs)
		}
	}
}

func TestSettings(t *testing.T) {
	f := func(ok bool, args ...string) {
		t.Helper()
		_, err := parseSettings(append([]string{"-server", ""}, args...), &strings.Builder{})
		if (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
	f(true)
	f(true, "-rounds", "1", "-scale", "0.01", "-rows", "pipe", "-peers", "^$")
	f(false, "-rounds", "0")
	f(false, "-scale", "0")
	f(false, "-rows", "(")
	f(false, "-peers", "(")
	f(false, "pipe")
	f(false, "-server", "no/such/file")
}

// TestScaled sees to it that the scale counts for what stands around the jobs as well.
func TestScaled(t *testing.T) {
	r := row{load: load{connections: 5, ready: 1000, delayed: 5000, idlers: 300}}.scaled(0.1)
	if r.load.ready != 100 || r.load.delayed != 500 || r.load.idlers != 30 || r.load.connections != 5 {
		t.Errorf("got %+v", r.load)
	}
	if got := (row{fixed: 100, exact: true}).size("treadle", 0.1); got != 100 {
		t.Errorf("got %d of exactly 100", got)
	}
	if r := (row{load: load{idlers: 1e9}}).scaled(1); r.load.idlers != descriptors() {
		t.Errorf("got %d idle connections, and %d descriptors", r.load.idlers, descriptors())
	}
}

// TestSides sees to it that each section's rows go to the addresses that speak their protocols.
func TestSides(t *testing.T) {
	s := &server{network: "tcp", address: "a", masters: "m", slaves: "s"}
	f := func(of section, produce, work string) {
		t.Helper()
		got := row{section: of}.sides(contender{protocol: newPeriodic()}, s)
		describe := func(of side) string {
			return fmt.Sprintf("%T %v at %s", of.protocol, of.protocol.traits().text, of.address)
		}
		if describe(got.produce) != produce || describe(got.work) != work || got.ask.address != "a" {
			t.Errorf("%q: got %s, %s and %s", of, describe(got.produce), describe(got.work), got.ask.address)
		}
	}
	f(periodicSection, "*main.periodic false at a", "*main.periodic false at a")
	f(gloomSection, "*main.gloom true at m", "*main.gloom true at s")
	f(acrossSection, "*main.periodic true at a", "*main.gloom true at s")
}
