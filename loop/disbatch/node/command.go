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
	// killGrace is the time between asking a plugin to end and ending it, and how long
	// after its end its own children may keep its output open.
	killGrace = 5 * time.Second
	// defaultMaxOutput is how much of a stream is kept: several times what fits a document.
	defaultMaxOutput = 64 << 20
)

// selfVariable names, in a plugin's environment, the task that it is run for: a runner that
// is given the same task again would start itself for ever.
const selfVariable = "TREADLE_DISBATCH_TASK"

// capture keeps the front of what is written to it.
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

// run is one execution of a command that could start.
type run struct {
	stdout, stderr capture
	exit           int   // the exit code
	broken         error // it was killed, or its time was over
}

// errToldToEnd is why a plugin was ended before its time.
var errToldToEnd = errors.New("its task runner was told to end")

// executeCommand runs a plugin's command with more arguments for a task, in a process group of
// its own, until it ends or runner does. The error says why it could not start.
func executeCommand(runner context.Context, p *config.Plugin, task string, more []string, input []byte) (*run, error) {
	ctx, cancel := runner, context.CancelFunc(func() {})
	if p.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, p.Timeout.Duration())
	}
	defer cancel()
	r := &run{}
	r.stdout.room, r.stderr.room = p.MaxOutput, p.MaxOutput
	if p.MaxOutput == 0 {
		r.stdout.room, r.stderr.room = defaultMaxOutput, defaultMaxOutput
	}
	c := exec.CommandContext(ctx, p.Command[0], append(slices.Clone(p.Command[1:]), more...)...)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = p.Dir, bytes.NewReader(input), &r.stdout, &r.stderr
	c.Env = append(ofPlugin(os.Environ()), selfVariable+"="+task)
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
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // what is left of the group, most often nothing
	}
	var exit *exec.ExitError
	switch {
	case runner.Err() != nil:
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
