package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// legends has a text for each section: the meaning of its columns and rows.
//
//go:embed legends
var legends embed.FS

// part describes how a section is shown: a table of its timed rows, and a table of their ratios.
type part struct {
	section section
	title   string
	columns []column
	ratios  []column
	pairs   func(r *report, list []*sample) []pair
	legend  string // a file of legends, without .txt
}

// column is one figure of a table; value is a name in values.
type column struct{ heading, value string }

// columns returns columns whose headings are the names of their values.
func columns(names ...string) (list []column) {
	for _, name := range names {
		list = append(list, column{name, name})
	}
	return list
}

// latencies returns three columns of one latency. The heading of the first names the latency.
func latencies(heading, of string) []column {
	return []column{{heading + " p50", of + " p50"}, {"p99", of + " p99"}, {"p99.9", of + " p99.9"}}
}

// values holds the figures of a sample by name, for tables, targets and charts.
var values = func() map[string]func(s *sample) float64 {
	all := map[string]func(s *sample) float64{
		"jobs/s":      func(s *sample) float64 { return s.JobsPerSecond },
		"MB/s":        func(s *sample) float64 { return s.JobsPerSecond * float64(s.Payload) / 1e6 },
		"CPU":         func(s *sample) float64 { return s.ServerCPU },
		"driver":      func(s *sample) float64 { return s.DriverCPU },
		"memory":      func(s *sample) float64 { return s.QueuedMB + s.IdleKB },
		"MB/1M":       func(s *sample) float64 { return s.QueuedMB },
		"MB later":    func(s *sample) float64 { return s.RestMB },
		"after s":     func(s *sample) float64 { return s.RestSeconds },
		"KB/conn":     func(s *sample) float64 { return s.IdleKB },
		"connect us":  func(s *sample) float64 { return s.ConnectCPU },
		"% of a core": func(s *sample) float64 { return s.CorePercent },
		"cycles":      func(s *sample) float64 { return s.Collections.Cycles },
		"pause":       func(s *sample) float64 { return s.Collections.PauseUS },
		"assist":      func(s *sample) float64 { return s.Collections.AssistMS },
		"silent":      func(s *sample) float64 { return float64(s.Connections) },
	}
	for of, quantiles := range map[string]func(s *sample) *load.Quantiles{
		"submit":    func(s *sample) *load.Quantiles { return &s.Submit },
		"to worker": func(s *sample) *load.Quantiles { return &s.ToWorker },
		"answer":    func(s *sample) *load.Quantiles { return &s.Answer },
	} {
		all[of+" p50"] = func(s *sample) float64 { return quantiles(s).P50 }
		all[of+" p90"] = func(s *sample) float64 { return quantiles(s).P90 }
		all[of+" p99"] = func(s *sample) float64 { return quantiles(s).P99 }
		all[of+" p99.9"] = func(s *sample) float64 { return quantiles(s).P999 }
		all[of+" p99.99"] = func(s *sample) float64 { return quantiles(s).P9999 }
		all[of+" max"] = func(s *sample) float64 { return quantiles(s).Max }
	}
	return all
}()

// parts lists the sections in the order of the tables.
func parts() []part {
	rate, cost, submit, toWorker := columns("jobs/s"), columns("CPU", "driver"), latencies("submit", "submit"), latencies("to worker", "to worker")
	byWorker := slices.Concat(rate, submit, toWorker, cost)
	ratios := slices.Concat(columns("jobs/s", "CPU"), submit)
	rows := append(columns("jobs/s", "CPU", "submit p99"), column{"p99.9", "submit p99.9"}, column{"KB/conn", "KB/conn"}, column{"connect us", "connect us"})
	return []part{
		{periodicSection, "Periodic and its peers", byWorker, slices.Concat(ratios, toWorker, []column{{"memory", "memory"}}), peerPairs, "periodic"},
		{gloomSection, "Gloom", slices.Concat(rate, latencies("answer", "answer"), submit, latencies("to slave", "to worker"), cost), rows, rowPairs, "gloom"},
		{dworkSection, "dwork", slices.Concat(rate, latencies("request", "submit"), cost), rows, rowPairs, "dwork"},
		{nodeSection, "Disbatch", slices.Concat([]column{{"tasks/s", "jobs/s"}}, columns("% of a core"), cost), rows, rowPairs, "node"},
		{acrossSection, "Submitted in one protocol, done in another", byWorker, rows, rowPairs, "across"},
		{payloadSection, "Periodic and redis, workloads of other sizes", slices.Concat(columns("MB/s"), rate, submit, cost), rows, rowPairs, "payload"},
		{aloneSection, "Long queues, many queues, many connections",
			slices.Concat(rate, submit, cost, columns("cycles", "pause", "assist", "silent")), rows, rowPairs, "alone"},
		{durableSection, "Periodic and its peers, jobs on disk", slices.Concat(rate, submit, cost), ratios, durablePairs, "durable"},
	}
}

// pair holds two samples whose ratios are shown.
type pair struct {
	first, second string // the first two cells of the line
	a, b          *sample
}

// peerPairs compares each Treadle with each peer of the same row, and the CRC framing with the framing of 2018 alone.
func peerPairs(_ *report, list []*sample) (pairs []pair) {
	for _, a := range list {
		for _, b := range list {
			wanted := !ours(b.Server)
			if a.Server == "treadle crc" {
				wanted = b.Server == "treadle"
			}
			if a.Row == b.Row && ours(a.Server) && wanted {
				pairs = append(pairs, pair{a.Row, a.Server + " / " + b.Server, besidePeer(*a), besidePeer(*b)})
			}
		}
	}
	return pairs
}

// besidePeer drops the figures that say nothing beside another server. In a closed loop the wait in the queue depends on
// which side is faster, producers or workers. In an open loop every server reaches the rate, or its latencies show it.
func besidePeer(s sample) *sample {
	if s.Rate == 0 {
		s.ToWorker = load.Quantiles{}
	} else {
		s.JobsPerSecond = 0
	}
	return &s
}

// rowPairs compares each row with the row that it names.
func rowPairs(r *report, list []*sample) (pairs []pair) {
	for _, a := range list {
		if b := find(r.Medians, cell{r.against[a.Row], a.Server}); b != nil {
			pairs = append(pairs, pair{a.Row, b.Row, a, b})
		}
	}
	return pairs
}

// durablePairs compares the servers that sync alike. It also compares one submit at a time with the time of the disk plus
// the time of a submit in memory.
func durablePairs(_ *report, list []*sample) (pairs []pair) {
	for _, row := range distinct(list, rowName) {
		at := func(server string) *sample { return find(list, cell{row, server}) }
		for _, two := range [][2]string{{peer.Always, "redis always"}, {peer.Always, "beanstalkd -f0"}, {"treadle interval", "treadle"}} {
			if a, b := at(two[0]), at(two[1]); a != nil && b != nil {
				pairs = append(pairs, pair{row, two[0] + " / " + two[1], a, b})
			}
		}
		if always, disk, memory := at(peer.Always), at(peer.RawDisk), at("treadle"); always != nil && disk != nil && memory != nil {
			pairs = append(pairs, pair{row, peer.Always + " / (disk + treadle)", &sample{Submit: load.Quantiles{P50: always.Submit.P50}},
				&sample{Submit: load.Quantiles{P50: disk.Submit.P50 + memory.Submit.P50}}})
		}
	}
	return pairs
}

// print writes the tables, the ratios, the legends, the targets and the circumstances.
func (r *report) print(w io.Writer) error {
	var text strings.Builder
	for _, p := range parts() {
		if table := r.part(p); table != "" {
			fmt.Fprintf(&text, "%s\n\n%s", p.title, table)
		}
	}
	if judged := r.targetTable(false); len(judged) > 1 {
		fmt.Fprintf(&text, "Targets\n\n%s\n", align(judged))
	}
	text.WriteString(strings.Join(r.circumstances(), "\n") + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// circumstances returns lines about the machine, the versions, and the rows and peers that were not measured.
func (r *report) circumstances() []string {
	m := r.Machine
	var versions []string
	for name, version := range r.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	lines := []string{
		"Servers on loopback, jobs in memory except where a table says on disk, started afresh for each measurement",
		fmt.Sprintf("medians of %d rounds, interleaved; %d cores (%s), %d GB, Linux %s, %s %s, shared with the load generator",
			r.Settings.Rounds, m.Cores, m.CPU, m.MemoryGB, m.Kernel, m.Go, m.Arch),
		fmt.Sprintf("%s; %.0f s in all", strings.Join(versions, ", "), r.Took),
	}
	for _, missing := range r.Missing {
		lines = append(lines, "not measured: "+missing)
	}
	return lines
}

// part returns the text of one section, "" when none of its rows was measured.
func (r *report) part(p part) string {
	by := "ratio"
	if p.section != periodicSection && p.section != durableSection {
		by = "divided by"
	}
	flows, ratios := newTable("server", p.columns), newTable(by, p.ratios)
	sizes := newTable("server", columns("MB/1M", "MB later", "after s", "KB/conn", "connect us"))
	list := r.in(p.section)
	for _, m := range list {
		t := flows
		if m.JobsPerSecond == 0 && m.Section != nodeSection {
			t = sizes
		}
		t.add(m.Row, m.Server, func(value string) string { return number(values[value](m)) })
	}
	if len(list) == 0 {
		return ""
	}
	for _, pair := range p.pairs(r, list) {
		ratios.add(pair.first, pair.second, func(value string) string { return ratio(values[value](pair.a), values[value](pair.b)) })
	}
	var text strings.Builder
	for _, t := range []*table{flows, sizes, ratios} {
		if len(t.lines) > 1 {
			text.WriteString(align(t.lines) + "\n")
		}
	}
	legend, _ := legends.ReadFile("legends/" + p.legend + ".txt") // embedded
	text.Write(legend)
	if p.section == durableSection {
		text.WriteString("files       in fresh directories, removed afterwards, on a file system of the type " + r.Machine.Disk + "\n")
	}
	return text.String() + "\n"
}
