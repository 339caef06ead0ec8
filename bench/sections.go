package main

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"treadle/bench/peer"
)

// sectionsText describes the sections of the tables.
//
//go:embed sections.toml
var sectionsText string

// layout describes how a section is shown: a table of its timed rows, and a table of their ratios.
type layout struct {
	Section section
	Title   string
	Columns []column
	Ratios  []column
	Pairs   []versus // servers of one row whose ratios are shown
	Legend  string
}

// versus names a server and the one that it is divided by.
type versus struct{ server, by string }

// UnmarshalText reads "SERVER / SERVER".
func (v *versus) UnmarshalText(text []byte) error {
	v.server, v.by, _ = strings.Cut(string(text), " / ")
	return nil
}

// column is one figure of a table.
type column struct{ heading, figure string }

// UnmarshalText reads "HEADING: FIGURE", or a figure that is its own heading.
func (c *column) UnmarshalText(text []byte) error {
	heading, figure, ok := strings.Cut(string(text), ": ")
	if !ok {
		figure = heading
	}
	if !slices.Contains(figureNames, figure) {
		return fmt.Errorf("there is no figure %q", figure)
	}
	*c = column{heading, figure}
	return nil
}

// sizeColumns are the columns of rows that were not timed.
var sizeColumns = []column{
	{"MB/1M", "MB/1M"}, {"MB later", "MB later"}, {"after s", "after s"}, {"KB/conn", "KB/conn"}, {"connect us", "connect us"},
}

// layouts lists the sections in the order of the tables.
func layouts() []layout { return readTOML[layout](sectionsText)["sections"] }

// pair holds the figures of two samples whose ratios are shown.
type pair struct {
	first, second string // the first two cells of the line
	a, b          figures
}

// pairs returns the comparisons of one section: within each row, and with the rows that rows name.
func (r *report) pairs(p layout, list []*sample) (pairs []pair) {
	for _, row := range distinct(list, rowName) {
		for _, v := range p.Pairs {
			if a, b := find(list, cell{row, v.server}), find(list, cell{row, v.by}); a != nil && b != nil {
				pairs = append(pairs, pair{row, v.server + " / " + v.by, besidePeer(a), besidePeer(b)})
			}
		}
		pairs = append(pairs, diskPairs(list, row)...)
	}
	for _, a := range list {
		for _, of := range r.rows {
			if b := find(r.Medians, cell{of.Against, a.Server}); of.Name == a.Row && b != nil {
				pairs = append(pairs, pair{a.Row, b.Row, a.Figures, b.Figures})
			}
		}
	}
	return pairs
}

// besidePeer returns the figures without those that say nothing beside another server. In a closed loop the wait in the
// queue depends on which side is faster, producers or workers. In an open loop every server reaches the rate, or its
// latencies show it.
func besidePeer(s *sample) figures {
	kept := maps.Clone(s.Figures)
	maps.DeleteFunc(kept, func(name string, _ float64) bool {
		return s.Rate == 0 && strings.HasPrefix(name, "to worker ") || s.Rate > 0 && name == "jobs/s"
	})
	return kept
}

// diskPairs compares a synced submit with the time of the disk plus the time of a submit in memory, in the row that has
// all three.
func diskPairs(list []*sample, row string) []pair {
	at := func(server string) *sample { return find(list, cell{row, server}) }
	always, disk, memory := at(peer.Always), at(peer.RawDisk), at("treadle")
	if always == nil || disk == nil || memory == nil {
		return nil
	}
	const p50 = "submit p50"
	return []pair{{row, peer.Always + " / (disk + treadle)",
		figures{p50: always.Figures[p50]}, figures{p50: disk.Figures[p50] + memory.Figures[p50]}}}
}

// print writes the tables, the ratios, the legends, the targets and the circumstances.
func (r *report) print(w io.Writer) error {
	var text strings.Builder
	for _, p := range layouts() {
		if table := r.sectionText(p); table != "" {
			fmt.Fprintf(&text, "%s\n\n%s", p.Title, table)
		}
	}
	if judged := r.targetTable(); len(judged) > 1 {
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

// sectionText returns the text of one section, "" when none of its rows was measured.
func (r *report) sectionText(p layout) string {
	by := "divided by" // of a row, the other row
	if len(p.Pairs) > 0 {
		by = "ratio"
	}
	flows, sizes, ratios := newTable("server", p.Columns), newTable("server", sizeColumns), newTable(by, p.Ratios)
	list := r.ofSection(p.Section)
	for _, m := range list {
		t := flows
		if m.Figures["jobs/s"] == 0 && m.Section != nodeSection {
			t = sizes
		}
		t.add(m.Row, m.Server, func(figure string) string { return number(m.Figures[figure]) })
	}
	if len(list) == 0 {
		return ""
	}
	for _, pair := range r.pairs(p, list) {
		ratios.add(pair.first, pair.second, func(figure string) string { return ratio(pair.a[figure], pair.b[figure]) })
	}
	var text strings.Builder
	for _, t := range []*table{flows, sizes, ratios} {
		if len(t.lines) > 1 {
			text.WriteString(align(t.lines) + "\n")
		}
	}
	text.WriteString(p.Legend)
	if p.Section == durableSection {
		text.WriteString("files       in fresh directories, removed afterwards, on a file system of the type " + r.Machine.Disk + "\n")
	}
	return text.String() + "\n"
}
