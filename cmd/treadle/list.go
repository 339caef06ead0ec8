package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// listFlags are the flags of a command that shows a list.
type listFlags struct {
	JSON  bool    `name:"json" help:"Print JSON, one object a line."`
	Watch repeats `help:"Show the list again and again until an interrupt: every 2s, or as --watch=10s says."`
}

// repeats is how long a list waits until it is shown again; 0: it is shown once.
type repeats time.Duration

const (
	usualRepeat = 2 * time.Second
	leastRepeat = 100 * time.Millisecond // more often a reader sees nothing, and the server has work
)

// Decode implements kong.MapperValue: the flag may have a value.
func (r *repeats) Decode(ctx *kong.DecodeContext) error {
	d := usualRepeat
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		var err error
		if d, err = parseSpan(fmt.Sprint(ctx.Scan.Pop().Value)); err != nil {
			return err
		}
	}
	if d < leastRepeat {
		return fmt.Errorf("%v is too short: at least %v", d, leastRepeat)
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
