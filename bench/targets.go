package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// targetLines are the targets, a line each; the file says how to read them.
//
//go:embed targets.txt
var targetLines string

// target is one bound that a run is to keep.
type target struct {
	about, figure string // what is measured, and which figure of it
	most          bool   // the figure is to be at most the bound; else at least
	bound         float64
	goal          float64 // a better bound, to be told apart; 0: none
	value         string  // one of values
	of            cell
	by            []cell
	slowest       bool // of by the least counts
}

// cell is one server in one row.
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

// got is the figure of a run, 0 when something of it was not measured.
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

// at is a value of one row and server, 0 when it was not measured.
func (r *report) at(c cell, name string) float64 {
	for i := range r.Medians {
		if m := &r.Medians[i]; m.Row == c.row && m.Server == c.server {
			return values[name](m)
		}
	}
	return 0
}

// verdict says what became of a target.
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

// wanted is the bound in words.
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

// targetTable judges a run; what was not measured is left out unless all is asked for.
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

// markdown writes a table whose first line is its heading. What stands in the line above is not repeated.
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
