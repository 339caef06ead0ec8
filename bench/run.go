package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"treadle/bench/peer"
)

// settings are the flags of a run. Those with a name in JSON are saved with its results.
type settings struct {
	Server   string         `json:"-"`
	Rows     *regexp.Regexp `json:"-"`
	Out      string         `json:"-"`
	Report   string         `json:"-"` // saved results to print in place of a run
	Frames   string         `json:"-"` // address to echo frames on, in place of a run
	Together []string       `json:"-"` // commands to run, in place of a run; see peer.RunTogether
	Rounds   int            `json:"rounds"`
	Scale    float64        `json:"scale"`
}

// task is one measurement: a row, a server and a round.
type task struct {
	row   row
	peer  peer.Contender
	round int
}

// plan lists the measurements in their order: row by row, and within a row the servers in turn, round after round, so
// that other work on the machine disturbs all of them. It also lists the rows and servers that the machine lacks
// programs for.
func plan(list []row, servers []peer.Contender, rounds int) (tasks []task, missing []string) {
	note := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	for _, r := range list {
		if lacks := r.lacks(); lacks != "" {
			note("%s, because %s are not installed", r.Name, lacks)
			continue
		}
		for round := range min(rounds, cmp.Or(r.Rounds, rounds)) {
			for _, p := range servers {
				switch {
				case r.Jobs[p.Name] == 0:
				case p.Missing != "":
					note("%s, because %s is not installed", p.Name, p.Missing)
				default:
					tasks = append(tasks, task{row: r, peer: p, round: round + 1})
				}
			}
		}
	}
	return tasks, missing
}

// run takes every measurement, prints the tables and writes the results.
func run(ctx context.Context, s settings, list []row, servers []peer.Contender, stdout, stderr io.Writer) error {
	started := time.Now()
	list = slices.DeleteFunc(list, func(r row) bool { return !s.Rows.MatchString(r.Name) })
	tasks, missing := plan(list, servers, s.Rounds)
	if len(tasks) == 0 {
		return fmt.Errorf("nothing to measure: no row matches %q%s", s.Rows, strings.Join(append([]string{""}, missing...), "; "))
	}
	samples, failure := takeSamples(ctx, s, tasks, stderr)
	if len(samples) == 0 {
		return failure
	}
	// A failed run prints its figures, but does not replace the results of a whole run.
	r := newReport(s, started, list, servers, samples)
	r.Missing = missing
	if err := r.print(stdout); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	return r.save(s.Out)
}

// takeSamples executes the tasks until one fails. On w it reports each measurement, and its result.
func takeSamples(ctx context.Context, s settings, tasks []task, w io.Writer) ([]*sample, error) {
	var samples []*sample
	for i, t := range tasks {
		name := fmt.Sprintf("%s, %s, round %d", t.row.Name, t.peer.Name, t.round)
		fmt.Fprintf(w, "[%d/%d] %s: ", i+1, len(tasks), name)
		taken, err := measure(ctx, t.row.scaled(s.Scale), t.peer, t.row.size(t.peer.Name, s.Scale))
		if err != nil {
			fmt.Fprintln(w, "failed")
			return samples, fmt.Errorf("%s: %w", name, err)
		}
		taken.Round = t.round
		samples = append(samples, &taken)
		fmt.Fprintln(w, taken.summary())
	}
	return samples, nil
}

// summary returns the main figure of a sample.
func (s *sample) summary() string {
	of := []string{"MB/1M", "jobs/s", "% of a core", "KB/conn"}
	i := max(0, slices.IndexFunc(of, func(name string) bool { return s.Figures[name] > 0 }))
	return number(s.Figures[of[i]]) + " " + of[i]
}
