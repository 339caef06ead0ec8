package main

import (
	"cmp"
	_ "embed"
	"slices"
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
	Value         string  // one of figureNames
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

// got returns the figure of some samples, 0 when a part of it was not measured. by has the samples to divide by.
func (t target) got(of, by []*sample) float64 {
	figure := figureOf(of, t.Of, t.Value)
	if len(t.By) == 0 {
		return figure
	}
	best := 0.0
	for _, c := range t.By {
		if v := figureOf(by, c, t.Value); v > 0 && (best == 0 || (v > best) == (t.Least > 0 && !t.Slowest)) {
			best = v
		} else if v == 0 && t.Slowest {
			return 0
		}
	}
	return divide(figure, best)
}

// figureOf returns a figure of one row and server, 0 when it was not measured.
func figureOf(list []*sample, c cell, figure string) float64 {
	if m := find(list, c); m != nil {
		return m.Figures[figure]
	}
	return 0
}

// keeps reports whether a figure is on the good side of a bound.
func (t target) keeps(got, bound float64) bool {
	return t.Least > 0 && got >= bound || t.Most > 0 && got <= bound
}

// verdict judges a figure. It is undecided when the bound lies between the least and the largest figure that the rounds
// allow; results without samples have neither.
func (t target) verdict(got, least, largest float64) string {
	bound := cmp.Or(t.Least, t.Most) // a target has one of them
	switch {
	case least > 0 && t.keeps(least, bound) != t.keeps(largest, bound):
		return "undecided"
	case t.Goal != 0 && t.keeps(got, t.Goal):
		return "reached, and the goal"
	case t.keeps(got, bound):
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

// targetTable judges a run, without the targets that were not measured. A ratio is least with the least dividend and
// the largest divisor of the rounds.
func (r *report) targetTable() [][]string {
	low, high := joined(r.Samples, slices.Min[[]float64]), joined(r.Samples, slices.Max[[]float64])
	table := [][]string{{"target", "figure", "wanted", "got", "least", "largest", ""}}
	for _, t := range targets() {
		if got := t.got(r.Medians, r.Medians); got != 0 {
			least, largest := t.got(low, high), t.got(high, low)
			table = append(table, []string{
				t.About, t.Figure, t.wanted(), number(got), number(least), number(largest), t.verdict(got, least, largest),
			})
		}
	}
	return table
}
