package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// listFlags are the flags of a command that shows a list.
type listFlags struct {
	JSON  bool    `name:"json" help:"Print JSON, one object a line."`
	Watch repeats `help:"Show the list again and again until an interrupt: every 2s, or as --watch=10s says."`
}

// tableFlags are the flags of a list that has more columns than fit a usual terminal.
type tableFlags struct {
	listFlags
	Output string `short:"o" enum:"table,wide" default:"table" placeholder:"FORM" help:"Columns of the list: table, or wide for all of them, with long texts whole (default: ${default})."`
}

// maxCell is how many characters of a text a column shows that is not of a wide list.
const maxCell = 60

// table writes a list. Its columns are headings with blanks between them. Marks in front of a heading say: + shows the
// column in a wide list alone, > aligns it to the right, ~ cuts its texts unless the list is wide.
func (t *tableFlags) table(w io.Writer, columns string, rows [][]string) error {
	wide := t.Output == "wide"
	lines, right := make([][]string, len(rows)+1), []bool(nil)
	for i, column := range strings.Fields(columns) {
		head := strings.TrimLeft(column, "+>~")
		marks := strings.TrimSuffix(column, head)
		if strings.Contains(marks, "+") && !wide {
			continue
		}
		right = append(right, strings.Contains(marks, ">"))
		lines[0] = append(lines[0], head)
		for n, row := range rows {
			cell := row[i]
			if text := []rune(cell); strings.Contains(marks, "~") && !wide && len(text) > maxCell {
				cell = string(text[:maxCell]) + "..."
			}
			lines[n+1] = append(lines[n+1], cell)
		}
	}
	return alignBy(w, lines, func(column int) bool { return right[column] })
}

// repeats is how long a list waits until it is shown again; 0: it is shown once.
type repeats time.Duration

const (
	usualRepeat = 2 * time.Second
	minRepeat   = 100 * time.Millisecond // more often a reader sees nothing, and the server has work
)

// Decode implements kong.MapperValue: the flag may have a value.
func (r *repeats) Decode(ctx *kong.DecodeContext) error {
	d := usualRepeat
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		var err error
		if d, err = parseDuration(fmt.Sprint(ctx.Scan.Pop().Value)); err != nil {
			return err
		}
	}
	if d < minRepeat {
		return fmt.Errorf("%v is too short: at least %v", d, minRepeat)
	}
	*r = repeats(d)
	return nil
}

// IsBool implements kong.BoolMapperValue.
func (repeats) IsBool() bool { return true }

// clearScreen moves the cursor to the first line of a terminal, and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// show prints a list, with --watch again and again until an interrupt. On a terminal a list takes the place of the one
// before.
func (l *listFlags) show(con *console, list func(io.Writer) error) error {
	if l.Watch == 0 {
		return list(con.out)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	for {
		var page bytes.Buffer
		if isTerminal(con.out) {
			page.WriteString(clearScreen)
		}
		if err := list(&page); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if _, err := con.out.Write(page.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(l.Watch)):
		}
	}
}

// writeLines writes JSON, one object a line.
func writeLines[T any](w io.Writer, rows []T) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, row := range rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}
