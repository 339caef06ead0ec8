package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxResult is what fits the server's default --max-frame: a larger result
	// would cost the connection.
	maxResult = 64<<20 - 1<<10
	// outputDelay is how long output is still read after the command has exited
	// but something it started keeps the pipes open.
	outputDelay = 5 * time.Second
	// maxLine holds an int64 with some space around it.
	maxLine = 64
)

// outcome is how a command ended.
type outcome struct {
	err   error  // why it failed
	later int64  // seconds to put the job off; negative: it is done
	data  []byte // what it printed, if that was to be kept
}

// child is a command that is run for one job.
type child struct {
	command []string
	name    string // its last argument
	input   []byte
	timeout uint32 // seconds; 0: none
	con     *console

	keep bool // keep what it prints instead of showing it
	// publish is given what the command prints, while it runs; nil: nobody is.
	// It may take its time, up to the end of its context.
	publish func(ctx context.Context, data []byte)
}

// run ends with the command. The end of kill kills it and whatever it has started
// in its process group.
func (c *child) run(kill context.Context) outcome {
	ctx, cancel := kill, context.CancelFunc(func() {})
	if c.timeout > 0 {
		ctx, cancel = context.WithTimeout(kill, time.Duration(c.timeout)*time.Second)
	}
	defer cancel()
	args := append(c.command[1:len(c.command):len(c.command)], c.name)
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	cmd.Stdin = bytes.NewReader(c.input)
	var last lastLine
	cmd.Stderr = io.MultiWriter(&last, c.con.err)
	var data limited
	cmd.Stdout = c.con.out
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
		cmd.Stdout = r.in
		err = cmd.Run()
		r.finish()
		return c.outcome(ctx, err, &last, &data)
	}
	return c.outcome(ctx, cmd.Run(), &last, &data)
}

// outcome judges how the command ended.
func (c *child) outcome(ctx context.Context, err error, last *lastLine, data *limited) outcome {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		err = fmt.Errorf("it took longer than %d s and was killed", c.timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it has exited well; what it left behind is not waited for
	}
	if err == nil && data.over {
		err = fmt.Errorf("its result is larger than %d bytes", maxResult)
	}
	return outcome{err: err, later: last.seconds(), data: data.kept.Bytes()}
}

// lastLine remembers the last line that is not blank, if it is short.
type lastLine struct {
	line []byte // unfinished, at most maxLine+1 bytes
	full string // the last finished one
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

// seconds is the last line as a number of seconds, -1 when it is none.
func (l *lastLine) seconds() int64 {
	l.finish()
	n, err := strconv.ParseInt(strings.TrimSpace(l.full), 10, 64)
	if err != nil || n < 0 || len(l.full) > maxLine {
		return -1
	}
	return n
}

// limited keeps what fits a result and forgets the rest. It does not embed the
// buffer, whose ReadFrom would pass Write by.
type limited struct {
	kept bytes.Buffer
	over bool
}

// Write never fails, so that a command with too much to say still ends.
func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > maxResult {
		l.over = true
		return len(p), nil
	}
	return l.kept.Write(p)
}
