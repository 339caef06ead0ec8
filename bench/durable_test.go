package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDurableRows sees to it that the durable contenders, the disk and Treadle in memory take part where they belong.
func TestDurableRows(t *testing.T) {
	field := []contender{
		{name: "treadle", ours: true, gloom: true}, {name: "treadle unix", ours: true, variant: overUnix}, {name: "redis"},
		{name: "treadle always", ours: true, variant: synced}, {name: "redis always", variant: synced},
		{name: rawDisk, variant: rawDisk},
	}
	f := func(r row, want ...string) {
		t.Helper()
		var got []string
		for _, c := range field {
			if r.admits(c) {
				got = append(got, c.name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", r.name, got, want)
		}
	}
	for _, r := range durableRows() {
		if r.name == syncedAlone {
			f(r, "treadle", "treadle always", "redis always", rawDisk)
		} else {
			f(r, "treadle", "treadle always", "redis always")
		}
	}
	f(row{name: "in memory"}, "treadle", "redis")
	f(row{name: "gloom", section: gloomSection}, "treadle")

	var names []string
	for _, c := range durables("treadle") {
		names = append(names, c.name)
	}
	for _, name := range []string{"treadle always", "treadle interval", "treadle never", rawDisk} {
		if !slices.Contains(names, name) {
			t.Errorf("no %s in %q", name, names)
		}
	}
	for _, c := range durables("") {
		if c.ours || c.variant == rawDisk {
			t.Errorf("%s takes part without a Treadle", c.name)
		}
	}
	s := settings{Rows: regexp.MustCompile("synced"), Peers: regexp.MustCompile("^$")}
	if _, chosen := choose(s, rows(), field); len(chosen) != 4 || chosen[3].name != rawDisk {
		t.Errorf("without peers: got %+v", chosen)
	}
}

// durableSample is one of the rows of one server.
func durableSample(row, server string, rate, cpu, p50 float64) sample {
	return sample{
		Section: durableSection, Row: row, Server: server, JobsPerSecond: rate, ServerCPU: cpu, Submit: quantiles{P50: p50},
	}
}

func TestDurableRatios(t *testing.T) {
	r := newReport(settings{Rounds: 1}, time.Now(), nil, []sample{
		durableSample("synced pipe 8", "treadle", 1000, 1, 10),
		durableSample("synced pipe 8", "treadle interval", 800, 2, 20),
		durableSample("synced pipe 8", "treadle always", 500, 3, 30),
		durableSample("synced pipe 8", "redis always", 200, 4, 60),
		durableSample("synced pipe 8", "beanstalkd -f0", 5, 60, 120),
		durableSample(syncedAlone, "treadle", 1000, 1, 40),
		durableSample(syncedAlone, "treadle always", 100, 1, 140),
		durableSample(syncedAlone, rawDisk, 900, 0, 100),
		{Row: syncedAlone, Server: "redis always", JobsPerSecond: 1}, // of another section
	})
	got := r.durableRatios()[1:]
	want := [][]string{
		{"synced pipe 8", "treadle always / redis always", "2.50", "0.75", "0.50", "-", "-"},
		{"synced pipe 8", "treadle always / beanstalkd -f0", "100.00", "0.05", "0.25", "-", "-"},
		{"synced pipe 8", "treadle interval / treadle", "0.80", "2.00", "2.00", "-", "-"},
		{syncedAlone, "treadle always / (disk + treadle)", "-", "-", "1.00", "-", "-"},
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	var text strings.Builder
	if err := r.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"jobs on disk\n\n", "file system of the type " + r.Machine.Disk + "\n", "(disk + treadle)"} {
		if !strings.Contains(text.String(), said) {
			t.Errorf("nothing about %q in\n%s", said, text.String())
		}
	}
}

// TestDurableRun takes a durable row of fake servers and the real disk, and sees to it that no directory is left.
func TestDurableRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	always := fakeContender(t, "treadle always", flawless, "")
	always.variant = synced
	field := []contender{fakeContender(t, "treadle", flawless, ""), always, {name: rawDisk, variant: rawDisk}}
	list := []row{{
		name: syncedAlone, section: durableSection, load: load{connections: 1, depth: 1}, variants: []string{synced, rawDisk}, fixed: 200,
	}}
	s := settings{Rounds: 2, Scale: 1, Rows: regexp.MustCompile(""), Peers: regexp.MustCompile("^$")}
	s.Out = filepath.Join(t.TempDir(), "latest.json")
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), s, list, field, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text, err := os.ReadFile(s.Out)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Medians) != 3 {
		t.Fatalf("got %+v", r.Medians)
	}
	for _, m := range r.Medians {
		if m.Jobs != 200 || m.JobsPerSecond <= 0 || m.Submit.P50 <= 0 || m.Submit.P999 < m.Submit.P50 {
			t.Errorf("%+v: something was not measured", m)
		}
	}
	if !regexp.MustCompile(`treadle always / \(disk \+ treadle\) +- +- +\d`).MatchString(stdout.String()) {
		t.Errorf("no ratio to the disk in\n%s", stdout.String())
	}
	for _, place := range []string{os.TempDir(), "."} {
		if left, _ := filepath.Glob(filepath.Join(place, "treadle-bench-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

func TestMountedType(t *testing.T) {
	const mounts = "rootfs / rootfs rw 0 0\n/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0\nbroken\n"
	f := func(directory, want string) {
		t.Helper()
		if got := mountedType(mounts, directory); got != want {
			t.Errorf("%s: got %q, want %q", directory, got, want)
		}
	}
	f("/", "ext4")
	f("/home", "ext4")
	f("/tmp", "tmpfs")
	f("/tmpx", "ext4")
	f("/tmp/disk/new", "xfs")
	if got := mountedType("", "/"); got != "unknown" {
		t.Errorf("no mounts: got %q", got)
	}
}
