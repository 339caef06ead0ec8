package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"treadle/loop"
	"treadle/loop/client"
	"treadle/loop/journal"
)

type dworkAddfileCmd struct {
	File string `arg:"" help:"File to read, or - for standard input: a task a line, its name and then those of the tasks that must be complete first. A name with spaces stands in double quotes, as a Go string; a line that begins with # is a comment."`
}

// Help implements kong.HelpProvider.
func (dworkAddfileCmd) Help() string {
	return `Tasks are made line by line, so a task stands below its predecessors:

	chop
	soup  chop
	"serve the soup"  soup

	treadle dwork addfile dinner.txt
	make -Bn | ./to-tasks | treadle dwork addfile -`
}

// Bounds of addfile.
const (
	// fileBlock is the number of tasks in a request: enough to share one sync.
	fileBlock = 1024
	// maxTaskLine has room for a task that waits for a hundred thousand others.
	maxTaskLine = 16 << 20
	// fileBlockBytes keeps a block well within the server's largest frame.
	fileBlockBytes = 1 << 20
)

// Run adds the tasks in their order, block by block. After an error the tasks in front of it are added.
func (d *dworkAddfileCmd) Run(c *cli, con *console) error {
	source, size := con.in, int64(-1)
	if d.File != "-" {
		f, err := os.Open(d.File) // only read: left open to the end of the process
		if err != nil {
			return fmt.Errorf("cannot add: %w", err)
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		source, size = f, info.Size()
	}
	return c.Dwork.adding(adder{size: size, progress: progress(con.err, "add")}, func(ctx context.Context, a *adder) error {
		if err := a.read(ctx, source); err != nil {
			return fmt.Errorf("%s: %w (added before: %s)", d.File, err, counted(a.added, "task"))
		}
		fmt.Fprintf(con.out, "%s added\n", counted(a.added, "task"))
		return nil
	})
}

// adding connects a and calls f. The context ends with a signal only, because a file may take long.
func (d *dworkCmd) adding(a adder, f func(context.Context, *adder) error) (err error) {
	if a.origin, err = location(""); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	dialed, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	if a.hub, err = client.DialHub(dialed, d.Server); err != nil {
		return err
	}
	defer a.hub.Close()
	return f(ctx, &a)
}

// adder sends a file's tasks.
type adder struct {
	hub      *client.HubClient
	origin   string // of every task
	size     int64
	progress client.Progress

	block []client.DworkTask
	bytes int // in the block
	done  int64
	added int
}

// read reads tasks, one a line, and adds them block by block. Its errors name the line.
func (a *adder) read(ctx context.Context, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxTaskLine)
	n := 0
	for lines.Scan() {
		n++
		a.done += int64(len(lines.Bytes())) + 1
		words, err := splitWords(lines.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(words) == 0 {
			continue
		}
		a.block = append(a.block, client.DworkTask{Name: words[0], Origin: a.origin, After: words[1:]})
		if a.bytes += len(lines.Bytes()); len(a.block) == fileBlock || a.bytes > fileBlockBytes {
			if err := a.send(ctx); err != nil {
				return fmt.Errorf("up to line %d: %w", n, err)
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d has more than %v", n+1, journal.Size(maxTaskLine))
	case err != nil:
		return err
	}
	return a.send(ctx)
}

// send adds the tasks of the block, if there are any, and reports the progress.
func (a *adder) send(ctx context.Context) error {
	if len(a.block) == 0 {
		return nil
	}
	if err := a.add(ctx, a.block); err != nil {
		return err
	}
	a.block, a.bytes = a.block[:0], 0
	if a.progress != nil {
		a.progress(min(a.done, max(a.size, a.done)), a.size)
	}
	return nil
}

// add adds tasks in their order. It sends a refused block again in halves: the block may be too expensive as a whole,
// and otherwise all tasks in front of the faulty task are added.
func (a *adder) add(ctx context.Context, tasks []client.DworkTask) error {
	call, cancel := context.WithTimeout(ctx, replyTimeout)
	err := a.hub.Create(call, tasks...)
	cancel()
	half := len(tasks) / 2
	switch {
	case err == nil:
		a.added += len(tasks)
		return nil
	case !errors.Is(err, client.ErrHubRefused):
		return err
	case half == 0:
		return fmt.Errorf("task %q: %w", tasks[0].Name, err)
	}
	if err := a.add(ctx, tasks[:half]); err != nil {
		return err
	}
	return a.add(ctx, tasks[half:])
}

// splitWords splits a line at white space; a word in double quotes is a Go string.
func splitWords(line string) (words []string, err error) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " \t") {
		switch line[0] {
		case '#':
			if len(words) == 0 {
				return nil, nil
			}
			fallthrough
		default:
			end := strings.IndexAny(line, " \t")
			if end < 0 {
				end = len(line)
			}
			words, line = append(words, line[:end]), line[end:]
		case '"':
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, errors.New("a quoted name does not end")
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			words, line = append(words, word), line[len(quoted):]
		}
	}
	return words, nil
}

type dworkGraphCmd struct {
	File string `arg:"" help:"File to write, or - for standard output."`
	HTTP string `name:"http" hidden:"" help:"As -H."`
}

// Help implements kong.HelpProvider.
func (dworkGraphCmd) Help() string {
	return `Writes the tasks that are not complete in Graphviz' DOT language: ready ones are bold, assigned ones filled. It asks the server's HTTP port (treadle serve --http, 5001 by default).

	treadle dwork graph live.dot && dot -Tsvg live.dot -o live.svg`
}

// AfterApply is called by kong.
func (d *dworkGraphCmd) AfterApply(c *cli) error {
	return c.setServer(&d.HTTP, "TREADLE_HTTP", loop.DefaultHTTP)
}

// Run fetches the graph over HTTP: the protocol has no request for it.
func (d *dworkGraphCmd) Run(con *console) error {
	base, requests, err := httpBase(d.HTTP, httpSetting, loop.DefaultHTTPPort)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return fetchGraph(ctx, base, requests, replyTimeout, func(write func(io.Writer) error) error {
		if d.File == "-" {
			return write(con.out)
		}
		return replaceFile(d.File, write)
	})
}

// httpSetting is the flag and the variable that name the server's HTTP port.
const httpSetting = "-H or TREADLE_HTTP"

// fetchGraph calls keep with a function that writes the graph. It gives up when nothing comes for patience.
func fetchGraph(ctx context.Context, base string, requests *http.Client, patience time.Duration, keep func(write func(io.Writer) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no answer for %v", patience)) })
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/dwork/graph", nil)
	if err != nil {
		return err
	}
	response, err := requests.Do(request)
	if err != nil {
		return reachError{fmt.Errorf("cannot reach %s: %w (is `treadle serve` running? %s names it)", base, cause(ctx, err), httpSetting)}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s has no graph of tasks, it answers %s (%s names the server's HTTP)", base, response.Status, httpSetting)
	}
	return keep(func(w io.Writer) error {
		// A graph that is cut off lacks its last line.
		end := tail{heard: func() { silence.Reset(patience) }}
		if _, err := io.Copy(io.MultiWriter(w, &end), response.Body); err != nil {
			return fmt.Errorf("the graph is not whole: %w", cause(ctx, err))
		}
		if !bytes.HasSuffix(end.last, []byte("}\n")) {
			return errors.New("the graph is not whole: the server stopped writing it")
		}
		return nil
	})
}

// cause returns the innermost reason of an error: why ctx ended, if it did, or the system's error.
func cause(ctx context.Context, err error) error {
	var errno syscall.Errno
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &errno):
		return errno
	}
	return err
}

// tail keeps the last bytes written.
type tail struct {
	last  []byte
	heard func() // called at every write
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.heard()
	t.last = append(t.last, p[max(0, len(p)-2):]...)
	t.last = t.last[max(0, len(t.last)-2):]
	return len(p), nil
}
