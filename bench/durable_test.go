package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// layoutOf returns the layout of a section.
func layoutOf(of section) layout {
	all := layouts()
	return all[slices.IndexFunc(all, func(p layout) bool { return p.Section == of })]
}

// durableSample is one of the rows of one server.
func durableSample(row, server string, rate, cpu, p50 float64) *sample {
	return &sample{
		Section: durableSection, Row: row, Server: server, Figures: figures{"jobs/s": rate, "CPU": cpu, "submit p50": p50},
	}
}

func TestDurableRatios(t *testing.T) {
	r := newReport(settings{Rounds: 1}, time.Now(), nil, nil, []*sample{
		durableSample("synced pipe 8", "treadle", 1000, 1, 10),
		durableSample("synced pipe 8", "treadle interval", 800, 2, 20),
		durableSample("synced pipe 8", "treadle always", 500, 3, 30),
		durableSample("synced pipe 8", "redis always", 200, 4, 60),
		durableSample("synced pipe 8", "beanstalkd -f0", 5, 60, 120),
		durableSample("synced sync 1", "treadle", 1000, 1, 40),
		durableSample("synced sync 1", "treadle always", 100, 1, 140),
		durableSample("synced sync 1", peer.RawDisk, 900, 0, 100),
		{Row: "synced sync 1", Server: "redis always", Figures: figures{"jobs/s": 1}}, // of another section
	})
	durable := layoutOf(durableSection)
	got := newTable("", durable.Ratios)
	for _, pair := range r.pairs(durable, r.ofSection(durableSection)) {
		got.add(pair.first, pair.second, func(figure string) string { return ratio(pair.a[figure], pair.b[figure]) })
	}
	want := [][]string{
		{"synced pipe 8", "treadle always / redis always", "2.50", "0.75", "0.50", "-", "-"},
		{"synced pipe 8", "treadle always / beanstalkd -f0", "100.00", "0.05", "0.25", "-", "-"},
		{"synced pipe 8", "treadle interval / treadle", "0.80", "2.00", "2.00", "-", "-"},
		{"synced sync 1", "treadle always / (disk + treadle)", "-", "-", "1.00", "-", "-"},
	}
	if !slices.EqualFunc(got.lines[1:], want, slices.Equal) {
		t.Errorf("got\n%q\nwant\n%q", got.lines[1:], want)
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
	servers := []peer.Contender{fakePeer(t, "treadle", flawless, ""), fakePeer(t, "treadle always", flawless, ""), {Name: peer.RawDisk}}
	list := []row{{
		Name: "synced sync 1", Section: durableSection, Load: load.Load{Connections: 1, Depth: 1},
		Jobs: map[string]int{"treadle": 200, "treadle always": 200, peer.RawDisk: 200},
	}}
	r, stdout, _ := runSmall(t, list, servers)
	if len(r.Medians) != 3 {
		t.Fatalf("got %+v", r.Medians)
	}
	for _, m := range r.Medians {
		if m.Jobs != 200 || m.Figures["jobs/s"] <= 0 || m.Figures["submit p50"] <= 0 || m.Figures["submit p99.9"] < m.Figures["submit p50"] {
			t.Errorf("%+v: something was not measured", m)
		}
	}
	if !regexp.MustCompile(`treadle always / \(disk \+ treadle\) +- +- +\d`).MatchString(stdout) {
		t.Errorf("no ratio to the disk in\n%s", stdout)
	}
	for _, place := range []string{os.TempDir(), "."} {
		if left, _ := filepath.Glob(filepath.Join(place, "treadle-bench-*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// TestFileSystem finds the type of what is always there.
func TestFileSystem(t *testing.T) {
	if got := fileSystem("/proc"); got != "proc" {
		t.Errorf("/proc is %q", got)
	}
	if got := fileSystem("no/such/directory"); got != "unknown" {
		t.Errorf("no directory is %q", got)
	}
}
