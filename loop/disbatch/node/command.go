package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"treadle/loop/disbatch/config"
)

const (
	// killGrace is the time between SIGTERM and SIGKILL to a plugin. It also bounds the time that children of a
	// finished plugin may keep its output open.
	killGrace = 5 * time.Second
	// defaultMaxOutput bounds the bytes kept of an output. It is several times the size of a document.
	defaultMaxOutput = 64 << 20
)

// selfVariable is an environment variable of a plugin with the id of its task. It stops a task runner that starts
// itself for the same task.
const selfVariable = "TREADLE_DISBATCH_TASK"

// capture is a writer that keeps the first room bytes and counts the others in cut.
type capture struct {
	kept []byte
	room int
	cut  int64
}

// Write implements io.Writer.
func (c *capture) Write(b []byte) (int, error) {
	keep := min(len(b), c.room-len(c.kept))
	c.kept = append(c.kept, b[:keep]...)
	c.cut += int64(len(b) - keep)
	return len(b), nil
}

// commandResult is the result of a command that has started.
type commandResult struct {
	stdout, stderr capture
	exit           int   // exit code
	broken         error // not nil: a signal or its time-out has ended the command
}

// errToldToEnd is the reason of a plugin that stops with its task runner.
var errToldToEnd = errors.New("its task runner was told to end")

// executeCommand runs the command of a plugin with further arguments for a task. The command has its own process group
// and stops if parent ends. An error means that it has not started.
func executeCommand(parent context.Context, p *config.Plugin, task string, more []string, input []byte) (*commandResult, error) {
	ctx, cancel := parent, context.CancelFunc(func() {})
	if p.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, p.Timeout.Duration())
	}
	defer cancel()
	r := &commandResult{}
	r.stdout.room, r.stderr.room = p.MaxOutput, p.MaxOutput
	if p.MaxOutput == 0 {
		r.stdout.room, r.stderr.room = defaultMaxOutput, defaultMaxOutput
	}
	c := exec.CommandContext(ctx, p.Command[0], append(slices.Clone(p.Command[1:]), more...)...)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = p.Dir, bytes.NewReader(input), &r.stdout, &r.stderr
	c.Env = append(pluginEnvironment(os.Environ()), selfVariable+"="+task)
	for name, value := range p.Env {
		c.Env = append(c.Env, name+"="+value)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = killGrace
	if err := c.Start(); err != nil {
		return nil, err
	}
	err := c.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // the rest of the group, usually none
	}
	var exit *exec.ExitError
	switch {
	case parent.Err() != nil:
		r.broken = errToldToEnd
	case ctx.Err() != nil:
		r.broken = fmt.Errorf("its time-out of %v is over", p.Timeout.Duration())
	case errors.As(err, &exit) && !exit.Exited():
		r.broken = fmt.Errorf("it ended by a signal: %v", exit)
	case errors.As(err, &exit):
		r.exit = exit.ExitCode()
	}
	return r, nil
}
