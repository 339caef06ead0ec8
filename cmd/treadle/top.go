package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"treadle/loop/client"
	"treadle/loop/setting"
)

type topCmd struct {
	Once  bool          `help:"Print one frame as plain text; its rates are those of one second."`
	Every time.Duration `default:"2s" placeholder:"TIME" help:"Time between two frames, at least 100ms (default: ${default})."`
	Sort  string        `enum:"submitted,ready,done,failed,oldest,name" default:"ready" placeholder:"KEY" help:"What the queues are sorted by at first: submitted, ready, done, failed, oldest or name (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (topCmd) Help() string {
	return `The rates of the server, its journal and memory, and a line for each queue: jobs that are ready, running, delayed and failed, how long the oldest ready job has waited, workers and how many of them are busy, and rates. Failed runs are all that failed, timed out or lost their worker, FAILED are the jobs that were given up and kept.

	treadle top
	treadle top --sort oldest --every 10s
	treadle top --once

Keys: q quits; s, r, d, f, o and n sort by jobs submitted per second, ready jobs, jobs done per second, failed jobs, the oldest ready job and the name; space holds the frame, ? explains.

The first --metrics-max-queues queues of the server have lines; all others are one line.`
}

// rateTime is the time between the two observations of a single frame.
const rateTime = time.Second

// Run shows frames until a key or a signal ends it.
func (t *topCmd) Run(c *cli, con *console) error {
	if t.Every < minRepeat {
		return badUsage("--every: %s is too short: at least %s", setting.FormatDuration(t.Every), setting.FormatDuration(minRepeat))
	}
	view := &topView{sort: t.Sort, every: t.Every}
	fetch := func() (o client.Overview, err error) {
		err = c.withAdmin(func(ctx context.Context, a *client.Admin) error {
			o, err = a.Overview(ctx, maxPage)
			return err
		})
		return o, err
	}
	in, isFile := con.in.(*os.File)
	if !t.Once && (!isFile || !isTerminal(in) || !isTerminal(con.out)) {
		return badUsage("treadle top needs a terminal; --once prints a frame without one")
	}
	if view.observe(fetch()); view.err != nil { // before the screen is entered
		return view.err
	}
	if t.Once {
		time.Sleep(rateTime)
		if view.observe(fetch()); view.err != nil {
			return view.err
		}
		_, err := io.WriteString(con.out, view.text(0, 0))
		return err
	}
	s := &screen{in: in, out: con.out.(*os.File)}
	return s.run(view, fetch)
}

// screen is a terminal that shows frames.
type screen struct {
	in, out *os.File
}

// The sequences that a terminal understands: enter and leave the whole screen, with the cursor hidden meanwhile; go to
// its first line; clear the rest of a line and of the screen.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	firstLine   = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBehind = "\x1b[J"
)

// ctrlC is the key of a terminal that sends keys as they are.
const ctrlC = 3

// run shows frames until a key or a signal ends it. It leaves the terminal as it was, also by a panic.
func (s *screen) run(view *topView, fetch func() (client.Overview, error)) (err error) {
	before, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return fmt.Errorf("cannot read single keys of this terminal: %w", err)
	}
	_, _ = io.WriteString(s.out, enterScreen) // draw says when it cannot be written
	defer func() {
		_, _ = io.WriteString(s.out, leaveScreen)
		err = errors.Join(err, term.Restore(int(s.in.Fd()), before))
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	keys := make(chan byte)
	go readKeys(ctx, s.in, keys)
	results := make(chan func(), 1)
	tick := time.NewTicker(view.every)
	defer tick.Stop()
	for busy := false; ; {
		if err := s.draw(view); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
		case key, open := <-keys:
			if !open || !view.handleKey(key) {
				return nil
			}
		case result := <-results:
			busy = false
			result()
		case <-tick.C:
			if !busy && !view.paused { // one request at a time; the server may be slow
				busy = true
				go func() { // a panic there would leave the terminal as it is
					defer func() {
						if p := recover(); p != nil {
							results <- func() { panic(p) }
						}
					}()
					o, err := fetch()
					results <- func() { view.observe(o, err) }
				}()
			}
		}
	}
}

// readKeys passes on the keys of a terminal until it ends.
func readKeys(ctx context.Context, in io.Reader, keys chan<- byte) {
	defer close(keys)
	for buffer := make([]byte, 1); ; {
		if n, err := in.Read(buffer); n == 0 || err != nil {
			return
		}
		select {
		case keys <- buffer[0]:
		case <-ctx.Done():
			return
		}
	}
}

// draw writes a frame in the present size of the terminal.
func (s *screen) draw(view *topView) error {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil {
		return fmt.Errorf("cannot see the size of this terminal: %w", err)
	}
	var b bytes.Buffer
	b.WriteString(firstLine)
	text := []byte(view.text(width, height))
	b.Write(bytes.ReplaceAll(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"), []byte(clearLine+"\r\n")))
	b.WriteString(clearLine + clearBehind)
	_, err = s.out.Write(b.Bytes())
	return err
}
