package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"treadle/loop/client"
	"treadle/loop/journal"
	"treadle/loop/setting"
)

const (
	// maxResult fits the server's default --max-frame: a server closes the connection on a larger result.
	maxResult = 64<<20 - 1<<10
	// outputDelay is how long output is read after the command has exited while a process that it
	// started keeps the pipes open.
	outputDelay = 5 * time.Second
	// maxLine holds an int64 with some space around it.
	maxLine = 64
)

// outcome is how a command ended.
type outcome struct {
	err   error  // why it failed
	later int64  // seconds to delay the job; negative: it is done
	data  []byte // standard output, if keep is set
	said  []byte // the end of standard error
}

// child is a command that is run for one job.
type child struct {
	command   []string
	function  string // of the job; empty: none
	name      string // its last argument
	noName    bool   // the name is in the environment alone
	input     []byte
	timeout   time.Duration // 0: none
	jobs      bool          // timeout is the job's, not the worker's
	began     time.Time     // start of timeout; zero: now
	maxResult int           // bytes; 0: maxResult
	con       *console
	lines     *lines // nil: output goes straight to con

	keep bool // standard output is kept instead of printed
	// publish gets the command's standard output while it runs; nil: none. It may block until its context ends.
	publish func(ctx context.Context, data []byte)
}

// run runs the command and waits for it. The end of kill kills its process group.
func (c *child) run(kill context.Context) outcome {
	args, err := c.arguments()
	if err != nil {
		return outcome{err: err, later: -1}
	}
	ctx, cancel := kill, context.CancelFunc(func() {})
	if c.timeout > 0 {
		if c.began.IsZero() {
			c.began = time.Now()
		}
		ctx, cancel = context.WithDeadline(kill, c.began.Add(c.timeout))
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	cmd.Env = c.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	cmd.Stdin = bytes.NewReader(c.input)
	if c.lines == nil {
		c.lines = newLines(c.con, 1)
	}
	out, errs, end := c.lines.open()
	defer end()
	var last lastLine
	cmd.Stderr = io.MultiWriter(&last, &last.tail, errs)
	data := limited{most: cmp.Or(c.maxResult, maxResult)}
	cmd.Stdout = out
	if c.keep {
		cmd.Stdout = &data
	}
	if c.publish != nil {
		r, err := newRelay(outputDelay, func(b []byte) {
			if c.keep {
				_, _ = data.Write(b) // never fails
			}
			c.publish(ctx, b)
		})
		if err != nil {
			return outcome{err: err, later: -1}
		}
		defer r.close()
		cmd.Stdout = r.writeEnd
		err = cmd.Run()
		r.finish()
		return c.outcome(ctx, err, &last, &data)
	}
	return c.outcome(ctx, cmd.Run(), &last, &data)
}

// limit returns the time-out for messages.
func (c *child) limit() string {
	if c.jobs {
		return "its time-out of " + setting.FormatDuration(c.timeout)
	}
	return setting.FormatDuration(c.timeout)
}

// arguments returns the command's arguments and the job's name. It refuses a name that the command could take for an
// option: any client that submits jobs chooses the name.
func (c *child) arguments() ([]string, error) {
	args := c.command[1:len(c.command):len(c.command)]
	switch {
	case c.noName:
		return args, nil
	case strings.ContainsRune(c.name, 0):
		return nil, errors.New("its name has a NUL byte, which no argument of a command can have")
	case strings.HasPrefix(c.name, "-") && (len(args) == 0 || args[len(args)-1] != "--"):
		return nil, errors.New("its name begins with -, which the command may take for an option: end the command with --, or use the environment's TREADLE_NAME and --no-name")
	}
	return append(args, c.name), nil
}

// environment returns this program's environment with the job's variables.
func (c *child) environment() []string {
	env := os.Environ()
	for _, v := range []struct{ name, value string }{
		{"TREADLE_FUNC", c.function}, {"TREADLE_NAME", c.name}, {"TREADLE_TIMEOUT", strconv.FormatInt(int64(c.timeout.Seconds()), 10)},
	} {
		if !strings.ContainsRune(v.value, 0) {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// outcome returns how the command ended.
func (c *child) outcome(ctx context.Context, err error, last *lastLine, data *limited) outcome {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		err = fmt.Errorf("it took longer than %s and was killed", c.limit())
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // exit code 0; processes that it left running are not waited for
	}
	if err == nil && data.over {
		err = fmt.Errorf("its result is larger than %v", journal.Size(data.most))
	}
	return outcome{err: err, later: last.seconds(), data: data.kept.Bytes(), said: last.tail.kept}
}

// lastLine keeps the last line that is not blank, if it is short.
type lastLine struct {
	line []byte // unfinished, at most maxLine+1 bytes
	full string // the last finished one
	tail stderrTail
}

// stderrTail keeps the last bytes that are written to it, as many as a history of attempts has room for.
type stderrTail struct{ kept []byte }

// Write never fails.
func (t *stderrTail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-client.MaxErrorText):]...)
	t.kept = t.kept[max(0, len(t.kept)-client.MaxErrorText):]
	return len(p), nil
}

// Write never fails.
func (l *lastLine) Write(p []byte) (int, error) {
	n := len(p)
	for {
		front, rest, found := bytes.Cut(p, []byte{'\n'})
		l.line = append(l.line, front[:min(len(front), maxLine+1-len(l.line))]...)
		if !found {
			return n, nil
		}
		l.finish()
		p = rest
	}
}

func (l *lastLine) finish() {
	if len(bytes.TrimSpace(l.line)) > 0 {
		l.full = string(l.line)
	}
	l.line = l.line[:0]
}

// seconds returns the last line as a number of seconds; -1: the line is no such number.
func (l *lastLine) seconds() int64 {
	l.finish()
	n, err := strconv.ParseInt(strings.TrimSpace(l.full), 10, 64)
	if err != nil || n < 0 || len(l.full) > maxLine {
		return -1
	}
	return n
}

// limited keeps the writes that fit a result and drops the others. It does not embed the buffer, because the buffer's
// ReadFrom would bypass Write.
type limited struct {
	most int
	kept bytes.Buffer
	over bool
}

// Write never fails, so that a command with too much to say still ends.
func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > l.most {
		l.over = true
		return len(p), nil
	}
	return l.kept.Write(p)
}
