package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"treadle/loop/client"
)

type statusCmd struct {
	JSON bool `name:"json" help:"Print an array of objects: function, workers, jobs, running, next (unix seconds), with --crc also locked."`
}

// Run prints the status.
func (s *statusCmd) Run(c *cli, con *console) error {
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		rows, err := server.Status(ctx)
		if err != nil {
			return err
		}
		if s.JSON {
			return writeJSON(con.out, rows)
		}
		return writeTable(con.out, rows, time.Now())
	})
}

// writeJSON writes a list, [] when it has nothing.
func writeJSON[T any](w io.Writer, rows []T) error {
	if rows == nil {
		rows = []T{}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(rows)
}

// writeTable aligns names to the left and numbers to the right.
func writeTable(w io.Writer, rows []client.Queue, now time.Time) error {
	lines := [][]string{{"FUNCTION", "WORKERS", "JOBS", "RUNNING", "NEXT"}}
	locked := len(rows) > 0 && rows[0].Locked != nil
	if locked {
		lines[0] = []string{"FUNCTION", "WORKERS", "JOBS", "RUNNING", "LOCKED", "NEXT"}
	}
	for _, r := range rows {
		line := []string{printable(r.Func), number(r.Workers), number(r.Jobs), number(r.Running)}
		if locked && r.Locked != nil {
			line = append(line, number(*r.Locked))
		}
		lines = append(lines, append(line, next(r, now)))
	}
	return align(w, lines, 1)
}

// align writes a table. The first columns are text and are aligned to the left, the others
// to the right.
func align(w io.Writer, lines [][]string, left int) error {
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
			case i >= left:
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

// printable quotes a name that would disturb the table or the terminal.
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

// next says when the next pending job is due.
func next(q client.Queue, now time.Time) string {
	locked := int64(0)
	if q.Locked != nil {
		locked = *q.Locked
	}
	switch {
	case q.Jobs <= q.Running+locked:
		return "-"
	case q.Next <= now.Unix():
		return "now"
	case q.Next-now.Unix() < 100*24*3600:
		return fmt.Sprintf("in %v", time.Duration(q.Next-now.Unix())*time.Second)
	}
	return time.Unix(q.Next, 0).Format(time.DateOnly)
}
