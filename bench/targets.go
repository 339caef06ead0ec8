package main

import (
	"cmp"
	_ "embed"
	"strings"
)

// targetsText holds the targets; the file describes their fields.
//
//go:embed targets.toml
var targetsText string

// target is one bound that a run must keep.
type target struct {
	About, Figure string  // the first two columns of the table
	Least, Most   float64 // the bound, lower or upper
	Goal          float64 // a better bound, reported apart; 0: none
	Value         string  // a name in values
	Of            cell
	By            []cell
	Slowest       bool
}

// cell names one server in one row.
type cell struct{ row, server string }

// UnmarshalText reads "ROW: SERVER".
func (c *cell) UnmarshalText(text []byte) error {
	c.row, c.server, _ = strings.Cut(string(text), ": ")
	return nil
}

// targets lists the targets of targets.toml.
func targets() []target { return readTOML[target](targetsText)["targets"] }

// got returns the figure of a run, 0 when a part of it was not measured.
func (t target) got(r *report) float64 {
	figure := r.at(t.Of, t.Value)
	if len(t.By) == 0 {
		return figure
	}
	best := 0.0
	for _, c := range t.By {
		if v := r.at(c, t.Value); v > 0 && (best == 0 || (v > best) == (t.Least > 0 && !t.Slowest)) {
			best = v
		} else if v == 0 && t.Slowest {
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
	keeps := func(bound float64) bool { return t.Least > 0 && got >= bound || t.Most > 0 && got <= bound }
	switch {
	case t.Goal != 0 && keeps(t.Goal):
		return "reached, and the goal"
	case keeps(cmp.Or(t.Least, t.Most)): // a target has one of them
		return "reached"
	}
	return "not reached"
}

// wanted returns the bound in words.
func (t target) wanted() string {
	text := "at least " + number(t.Least)
	if t.Most > 0 {
		text = "at most " + number(t.Most)
	}
	if t.Goal != 0 {
		text += ", goal " + number(t.Goal)
	}
	return text
}

// targetTable judges a run, without the targets that were not measured.
func (r *report) targetTable() [][]string {
	table := [][]string{{"target", "figure", "wanted", "got", ""}}
	for _, t := range targets() {
		if got := t.got(r); got != 0 {
			table = append(table, []string{t.About, t.Figure, t.wanted(), number(got), t.verdict(got)})
		}
	}
	return table
}
