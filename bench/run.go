package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"
)

// settings are the flags of the program.
type settings struct {
	Server string         `json:"-"`
	Rows   *regexp.Regexp `json:"-"`
	Peers  *regexp.Regexp `json:"-"`
	Out    string         `json:"-"`
	Echo   string         `json:"-"`
	Attack string         `json:"-"`
	At     string         `json:"-"`
	Frames string         `json:"-"`
	Judge  string         `json:"-"`
	Allocs bool           `json:"-"`
	Rounds int            `json:"rounds"`
	Scale  float64        `json:"scale"`
}

// task is one measurement to take.
type task struct {
	row       row
	contender contender
	round     int
}

// plan lists the measurements in their order: row by row, and within a row the contenders in turn, round after round,
// so that whatever else the machine does meets all of them.
func plan(list []row, field []contender, rounds int) []task {
	var tasks []task
	for _, r := range list {
		n := rounds
		switch {
		case r.once:
			n = 1
		case r.fewer:
			n = max(1, rounds-1)
		}
		for round := range n {
			for _, c := range field {
				if r.admits(c) {
					tasks = append(tasks, task{row: r, contender: c, round: round + 1})
				}
			}
		}
	}
	return tasks
}

// choose keeps the rows and the contenders that the settings ask for. Treadle itself and the disk
// always take part.
func choose(s settings, list []row, field []contender) ([]row, []contender) {
	list = slices.DeleteFunc(list, func(r row) bool { return !s.Rows.MatchString(r.name) })
	field = slices.DeleteFunc(field, func(c contender) bool {
		return !c.ours && c.variant != rawDisk && c.variant != echoVariant && c.variant != frameEcho && !s.Peers.MatchString(c.name)
	})
	return list, field
}

// run takes every measurement, prints the tables and writes the JSON file.
func run(ctx context.Context, s settings, list []row, field []contender, stdout, stderr io.Writer) error {
	started := time.Now()
	list, field = choose(s, list, field)
	tasks := plan(list, field, s.Rounds)
	if len(tasks) == 0 {
		return fmt.Errorf("no row matches %q", s.Rows)
	}
	samples, failure := take(ctx, s, tasks, stderr)
	if len(samples) == 0 {
		return failure
	}
	// Figures from before a failure are shown, but do not replace the results of a whole run.
	r := newReport(s, started, field, samples)
	if err := r.print(stdout); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	return r.save(s.Out)
}

// take works off the tasks until one fails.
func take(ctx context.Context, s settings, tasks []task, stderr io.Writer) ([]sample, error) {
	show := newProgress(stderr, len(tasks))
	defer show.end()
	var samples []sample
	for _, t := range tasks {
		show.begin(t)
		taken, err := measure(ctx, t.row.scaled(s.Scale), t.contender, t.row.size(t.contender.name, s.Scale))
		if err != nil {
			return samples, fmt.Errorf("%s, %s, round %d: %w", t.row.name, t.contender.name, t.round, err)
		}
		taken.Round = t.round
		samples = append(samples, taken)
		show.done(taken)
	}
	return samples, nil
}

// progress is the line on stderr that says what is being measured: one that changes on a terminal, else one for each
// measurement.
type progress struct {
	w        io.Writer
	terminal bool
	total    int
	count    int
	started  time.Time
}

func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total, started: time.Now()}
	if file, ok := w.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) begin(t task) {
	p.count++
	if p.terminal {
		p.line(fmt.Sprintf("%s, %s, round %d ...%s", t.row.name, t.contender.name, t.round, p.left()))
	}
}

func (p *progress) done(s sample) {
	text := fmt.Sprintf("%s, %s, round %d: ", s.Row, s.Server, s.Round)
	switch {
	case s.QueuedMB > 0:
		text += fmt.Sprintf("%.0f MB per 1M queued", s.QueuedMB)
	case s.JobsPerSecond > 0:
		text += fmt.Sprintf("%.0f jobs/s", s.JobsPerSecond)
	case s.Section == nodeSection:
		text += fmt.Sprintf("%.2f %% of a core", s.CorePercent)
	default:
		text += fmt.Sprintf("%.1f KB per idle connection", s.IdleKB)
	}
	p.line(text + p.left())
}

// left estimates from the measurements so far how long the rest takes.
func (p *progress) left() string {
	done := p.count - 1
	if done == 0 {
		return ""
	}
	rest := time.Since(p.started) / time.Duration(done) * time.Duration(p.total-done)
	return fmt.Sprintf(" (about %v left)", rest.Round(time.Second))
}

func (p *progress) line(text string) {
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K[%d/%d] %s", p.count, p.total, text)
		return
	}
	fmt.Fprintf(p.w, "[%d/%d] %s\n", p.count, p.total, text)
}

// end leaves the line that changes.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
