package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"treadle/loop/client"
	"treadle/loop/setting"
)

type statusCmd struct {
	listFlags
	All bool `help:"Also show functions without workers and jobs."`
}

// Help implements kong.HelpProvider.
func (statusCmd) Help() string {
	return `One line a function, sorted by name: workers that can do it, and its jobs: all, running, ready to be handed out, delayed (not due yet), locked (waiting for a lock, see treadle work --lock-name) and waiting (for other tasks). NEXT is when the next pending job is due ("-": none is pending). --all also shows functions without workers and jobs. A server other than Treadle tells workers, jobs and running only, and since 2019 locked. In JSON next is in Unix seconds, or null.

	treadle status
	treadle status --all
	treadle status --watch
	treadle status --json | jq 'select(.workers == 0) | .function'`
}

// Run prints the status: all columns from a Treadle, else the columns of the protocol.
func (s *statusCmd) Run(c *cli, con *console) error {
	return s.show(con, func(w io.Writer) error {
		return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
			rows, err := server.Details(ctx)
			if errors.Is(err, client.ErrNoDetails) {
				rows, err = server.Status(ctx)
			}
			if err != nil {
				return err
			}
			rows = s.choose(rows)
			if s.JSON {
				return writeLines(w, statusRows(rows))
			}
			return writeTable(w, rows, time.Now())
		})
	})
}

// choose sorts the rows by name and, without --all, drops functions without workers and jobs.
func (s *statusCmd) choose(rows []client.Queue) []client.Queue {
	if !s.All {
		rows = slices.DeleteFunc(rows, func(q client.Queue) bool { return q.Workers == 0 && q.Jobs == 0 && value(q.Failed) == 0 })
	}
	slices.SortFunc(rows, func(a, b client.Queue) int { return cmp.Compare(a.Func, b.Func) })
	return rows
}

// statusRow is a row of the JSON output. It leaves out the columns that the server does not tell.
type statusRow struct {
	Func    string `json:"function"`
	Workers int64  `json:"workers"`
	Jobs    int64  `json:"jobs"`
	Running int64  `json:"running"`
	Ready   *int64 `json:"ready,omitempty"`
	Delayed *int64 `json:"delayed,omitempty"`
	Locked  *int64 `json:"locked,omitempty"`
	Waiting *int64 `json:"waiting,omitempty"`
	Failed  *int64 `json:"failed,omitempty"`
	Next    *int64 `json:"next"`
}

// statusRows returns the queues in the form of --json. Counts that the server does not know are left out.
func statusRows(queues []client.Queue) []statusRow {
	rows := make([]statusRow, 0, len(queues))
	for _, q := range queues {
		r := statusRow{Func: q.Func, Workers: q.Workers, Jobs: q.Jobs, Running: q.Running, Ready: ready(q), Delayed: q.Delayed,
			Locked: q.Locked, Waiting: q.Waiting, Failed: q.Failed}
		if pending(q) {
			r.Next = &q.Next
		}
		rows = append(rows, r)
	}
	return rows
}

// pending reports whether the queue has a job that can become due.
func pending(q client.Queue) bool { return q.Jobs > q.Running+value(q.Locked)+value(q.Waiting) }

// ready returns the number of ready jobs, nil when it is unknown. A policy, or a clash of names, may hold some of them
// back.
func ready(q client.Queue) *int64 {
	if q.Delayed == nil {
		return nil
	}
	n := q.Jobs - q.Running - value(q.Locked) - value(q.Waiting) - *q.Delayed
	return &n
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// writeTable writes the rows as a table, without the columns that the server does not tell. There are failed jobs only
// where a policy keeps them: their column is there when one of the rows has some.
func writeTable(w io.Writer, rows []client.Queue, now time.Time) error {
	head := []string{"FUNCTION", "WORKERS", "JOBS", "RUNNING"}
	columns := []func(client.Queue) *int64{
		func(q client.Queue) *int64 { return &q.Workers },
		func(q client.Queue) *int64 { return &q.Jobs },
		func(q client.Queue) *int64 { return &q.Running },
	}
	for _, c := range []struct {
		name  string
		value func(client.Queue) *int64
	}{
		{"READY", ready},
		{"DELAYED", func(q client.Queue) *int64 { return q.Delayed }},
		{"LOCKED", func(q client.Queue) *int64 { return q.Locked }},
		{"WAITING", func(q client.Queue) *int64 { return q.Waiting }},
	} {
		if len(rows) > 0 && c.value(rows[0]) != nil {
			head, columns = append(head, c.name), append(columns, c.value)
		}
	}
	if failed := func(q client.Queue) *int64 { return q.Failed }; slices.ContainsFunc(rows, func(q client.Queue) bool { return value(q.Failed) > 0 }) {
		head, columns = append(head, "FAILED"), append(columns, failed)
	}
	lines := [][]string{append(head, "NEXT")}
	for _, r := range rows {
		line := []string{printable(r.Func)}
		for _, value := range columns {
			line = append(line, number(*value(r)))
		}
		lines = append(lines, append(line, next(r, now)))
	}
	return align(w, lines, 1)
}

// align writes a table. The first columns are text and are aligned to the left, the others to the right.
func align(w io.Writer, lines [][]string, left int) error {
	return alignBy(w, lines, func(column int) bool { return column >= left })
}

// alignBy writes a table. right says which columns are aligned to the right.
func alignBy(w io.Writer, lines [][]string, right func(column int) bool) error {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString("  ")
			}
			switch {
			case right(i):
				b.WriteString(pad + cell)
			case i == len(line)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + pad)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// printable returns a name, quoted when it is empty or has bytes that are not printable.
func printable(name string) string {
	plain := name != "" && utf8.ValidString(name)
	for _, r := range name {
		plain = plain && unicode.IsGraphic(r)
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}

// next returns the cell that says when the next pending job is due.
func next(q client.Queue, now time.Time) string {
	switch {
	case !pending(q):
		return "-"
	case q.Next <= now.Unix():
		return "now"
	case q.Next-now.Unix() < 100*24*3600:
		return fmt.Sprintf("in %s", setting.FormatDuration(time.Duration(q.Next-now.Unix())*time.Second))
	}
	return time.Unix(q.Next, 0).Format(time.DateOnly)
}
