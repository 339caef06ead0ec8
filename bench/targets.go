package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// targetLines holds one target a line; the file describes the format.
//
//go:embed targets.txt
var targetLines string

// target is one bound that a run must keep.
type target struct {
	about, figure string // the first two columns of the table
	most          bool   // the bound is an upper one
	bound         float64
	goal          float64 // a better bound, reported apart; 0: none
	value         string  // a name in values
	of            cell
	by            []cell
	slowest       bool // the figure is divided by the least of by
}

// cell names one server in one row.
type cell struct{ row, server string }

// parseTargets reads targets.txt.
func parseTargets() (list []target, err error) {
	for line := range strings.Lines(targetLines) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		part := strings.Split(strings.TrimSpace(line), " | ")
		if len(part) < 5 {
			return nil, fmt.Errorf("targets.txt: %q has too few parts", line)
		}
		part = append(part, "")
		t := target{about: part[0], figure: part[1], most: strings.HasPrefix(part[2], "<="), value: part[3], of: cells(part[4])[0]}
		bound, goal, _ := strings.Cut(part[2][len(">= "):], ", goal ")
		if t.bound, err = strconv.ParseFloat(bound, 64); err == nil && goal != "" {
			t.goal, err = strconv.ParseFloat(goal, 64)
		}
		if err != nil || values[t.value] == nil {
			return nil, fmt.Errorf("targets.txt: %q: no such bound or value: %w", line, err)
		}
		part[5], t.slowest = strings.CutPrefix(part[5], "slowest of ")
		t.by = cells(part[5])
		list = append(list, t)
	}
	return list, nil
}

// cells reads "ROW: SERVER, SERVER; ROW: SERVER".
func cells(text string) (list []cell) {
	for part := range strings.SplitSeq(text, "; ") {
		row, servers, _ := strings.Cut(part, ": ")
		for server := range strings.SplitSeq(servers, ", ") {
			list = append(list, cell{row, server})
		}
	}
	return list
}

// got returns the figure of a run, 0 when a part of it was not measured.
func (t target) got(r *report) float64 {
	figure := r.at(t.of, t.value)
	if t.by[0].row == "" {
		return figure
	}
	best := 0.0
	for _, c := range t.by {
		if v := r.at(c, t.value); v > 0 && (best == 0 || (v > best) == (!t.most && !t.slowest)) {
			best = v
		} else if v == 0 && t.slowest {
			return 0
		}
	}
	return divide(figure, best)
}

// at returns a figure of one row and server, 0 when it was not measured.
func (r *report) at(c cell, name string) float64 {
	if m := find(r.Medians, c); m != nil {
		return values[name](m)
	}
	return 0
}

// verdict judges a figure.
func (t target) verdict(got float64) string {
	keeps := func(bound float64) bool { return got >= bound && !t.most || got <= bound && t.most }
	switch {
	case got == 0:
		return "not measured"
	case t.goal != 0 && keeps(t.goal):
		return "reached, and the goal"
	case keeps(t.bound):
		return "reached"
	}
	return "not reached"
}

// wanted returns the bound in words.
func (t target) wanted() string {
	text := "at least " + number(t.bound)
	if t.most {
		text = "at most " + number(t.bound)
	}
	if t.goal != 0 {
		text += ", goal " + number(t.goal)
	}
	return text
}

// targetTable judges a run. Without all it leaves out the targets that were not measured.
func (r *report) targetTable(all bool) [][]string {
	table := [][]string{{"target", "figure", "wanted", "got", ""}}
	list, err := parseTargets()
	if err != nil {
		panic(err) // TestTargetsHaveRows reads the same file
	}
	for _, t := range list {
		if got := t.got(r); got != 0 || all {
			table = append(table, []string{t.about, t.figure, t.wanted(), number(got), t.verdict(got)})
		}
	}
	return table
}

// markdown writes a table. A first cell equal to the one above it stays empty.
func markdown(table [][]string) string {
	var text strings.Builder
	last := ""
	for i, cells := range table {
		first := cells[0]
		if first == last {
			first = ""
		}
		last = cells[0]
		fmt.Fprintf(&text, "| %s | %s |\n", first, strings.Join(cells[1:], " | "))
		if i == 0 {
			text.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	return text.String()
}
