package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
	"treadle/loop/setting"
)

type dworkWorkCmd struct {
	Command []string      `arg:"" name:"cmd" passthrough:"" help:"Command and arguments, after --; the task's name is added as the last."`
	Jobs    int           `short:"j" default:"1" placeholder:"N" help:"Tasks done at a time, each over a connection of its own (default: ${default})."`
	Timeout time.Duration `default:"0s" placeholder:"TIME" help:"Time after which the command and its children are killed and the task has failed; 0s: none (default: ${default})."`
	NoName  bool          `help:"Do not add the task's name to the command; TREADLE_NAME has it."`
	Verbose bool          `short:"v" help:"Print a line for each task."`
	Keep    bool          `name:"keep-going" help:"Go on when a command fails: its task is given back, to be tried again behind all others."`
	Host    string        `name:"worker" placeholder:"NAME" help:"Name of the worker (default: the host's and the process's number)."`
}

// Help implements kong.HelpProvider.
func (dworkWorkCmd) Help() string {
	return `Runs CMD once a task, with the task's name as the last argument, until the hub says that no task is left. Exit code 0 completes the task. Any other gives it back, behind all others, and ends the worker with exit code 1, unless --keep-going. A name that begins with - fails unless CMD ends with --, or --no-name leaves it to the environment's TREADLE_NAME: CMD may take it for an option.

	treadle dwork work -- ./simulate.sh
	treadle dwork work -j 8 --keep-going -H head -- ./simulate.sh

SIGTERM and SIGINT: no more tasks are stolen, running commands finish; a second signal kills them. The tasks that the worker still holds are ready again. While the hub is away the worker waits and its commands go on; their tasks are completed when the hub is back.`
}

// Bounds of the time between two steals when nothing is ready. The reference's workers ask
// without a pause.
const (
	firstIdle = 5 * time.Millisecond
	lastIdle  = time.Second
)

// Validate is called by kong.
func (d *dworkWorkCmd) Validate(ctx *kong.Context) (err error) {
	if d.Command, err = checkCommand(ctx, d.Command, "treadle dwork work -- echo"); err != nil {
		return err
	}
	switch {
	case d.Timeout < 0:
		return fmt.Errorf("--timeout: %s is negative", setting.FormatDuration(d.Timeout))
	case d.Jobs < 1:
		return fmt.Errorf("-j: %d is below 1", d.Jobs)
	}
	return nil
}

// Run works until no task is left, a command has failed, or a signal.
func (d *dworkWorkCmd) Run(c *cli, con *console) error {
	if _, err := exec.LookPath(d.Command[0]); err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	host, err := location(d.Host)
	if err != nil {
		return err
	}
	if d.Host == "" {
		host = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	stop, kill, end := signals()
	defer end()
	stop, fail := context.WithCancelCause(stop)
	defer fail(nil)
	t := dworkWorkers{dworkWorkCmd: d, con: con, lines: newLines(con, d.Jobs), server: c.Dwork.Server, host: host}
	if d.Verbose {
		con.say("doing tasks of %s as %s", t.server, printable(host))
	}
	context.AfterFunc(stop, func() { sayFinishing(con, t.running.Load(), "task") })
	var workers sync.WaitGroup
	for range d.Jobs {
		workers.Go(func() {
			if err := t.worker(stop, kill); err != nil {
				fail(err)
			}
		})
	}
	workers.Wait()
	err = context.Cause(stop)
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if err := t.leave(); err != nil {
		con.say("%v", err)
	}
	switch {
	case err != nil:
		return err
	case kill.Err() != nil:
		return killed{}
	case t.failed.Load() > 0:
		return fmt.Errorf("%d commands failed; their tasks were given back", t.failed.Load())
	}
	return nil
}

// dworkWorkers are the workers of one treadle dwork work.
type dworkWorkers struct {
	*dworkWorkCmd
	con          *console
	lines        *lines
	running      atomic.Int64
	server, host string
	known        atomic.Bool // the hub knows the host
	failed       atomic.Int64
	away         atomic.Bool // the hub is gone, and one worker has said so

	// busy is held for reading from a steal to the end of its tasks. stray is set when a steal's
	// reply was lost: the hub may have given the host a task that no worker does.
	busy  sync.RWMutex
	stray atomic.Bool
}

// worker does one task after the other.
func (t *dworkWorkers) worker(stop, kill context.Context) error {
	l := link{dworkWorkers: t}
	if err := l.dial(stop); err != nil {
		return err
	}
	defer l.close()
	pause := firstIdle
	for stop.Err() == nil {
		l.lastFailed = false
		err := l.giveBackStray(stop)
		if err == nil {
			err = l.next(stop, kill)
		}
		switch {
		case errors.Is(err, client.ErrAllDone):
			return nil
		case errors.Is(err, client.ErrNoTask):
			select {
			case <-stop.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, lastIdle)
		case err != nil:
			return err
		default:
			pause = firstIdle
			l.rest.restAfter(stop, !l.lastFailed)
		}
	}
	return nil
}

// next steals a task and does it.
func (l *link) next(stop, kill context.Context) error {
	l.busy.RLock()
	defer l.busy.RUnlock()
	var tasks []client.DworkTask
	err := l.ask(stop, func(ctx context.Context) (err error) {
		tasks, err = l.hub.Steal(ctx, l.host, 1)
		if lost(err) {
			l.stray.Store(true)
			l.known.Store(true)
		}
		return err
	})
	switch {
	case lost(err):
		return nil // stop has ended: there is nothing to do
	case err != nil:
		return err
	}
	l.known.Store(true)
	for _, task := range tasks {
		if err := l.do(stop, kill, task); err != nil {
			return err
		}
	}
	return nil
}

// giveBackStray makes the task of a lost reply ready again while no worker has a task: the request gives back all tasks
// of the host at once.
func (l *link) giveBackStray(stop context.Context) error {
	if !l.stray.Load() || !l.busy.TryLock() {
		return nil
	}
	defer l.busy.Unlock()
	err := l.ask(stop, func(ctx context.Context) error { return l.hub.Exit(ctx, l.host) })
	switch {
	case lost(err):
		return nil // stop has ended, and leave makes the same request
	case err == nil || errors.Is(err, client.ErrNoTask):
		l.stray.Store(false)
		return nil
	}
	return err
}

// do runs the command for a task and completes the task, or gives it back when the command has failed.
func (l *link) do(stop, kill context.Context, task client.DworkTask) error {
	began := time.Now()
	run := &child{command: l.Command, name: task.Name, noName: l.NoName, timeout: l.Timeout, con: l.con, lines: l.lines}
	l.running.Add(1)
	result := run.run(kill)
	l.lastFailed = result.err != nil
	l.running.Add(-1)
	if kill.Err() != nil {
		return nil // leave makes it ready again
	}
	if result.err == nil {
		err := l.tell(stop, func(ctx context.Context) error {
			_, err := l.hub.Complete(ctx, l.host, task)
			return err
		})
		switch {
		case errors.Is(err, client.ErrNoTask):
			l.con.say("%q is done, but the hub does not have it as this worker's any more", task.Name)
			return nil
		case err != nil:
			return fmt.Errorf("%q is done, but the hub could not be told: %w", task.Name, err)
		}
		if l.Verbose {
			l.con.say("%q is complete in %v", task.Name, time.Since(began).Round(time.Millisecond))
		}
		return nil
	}
	l.con.say("%q failed: %v", task.Name, result.err)
	err := l.tell(stop, func(ctx context.Context) error { return l.hub.Transfer(ctx, l.host, task) })
	if err != nil && !errors.Is(err, client.ErrNoTask) {
		return err
	}
	l.failed.Add(1)
	if !l.Keep {
		return fmt.Errorf("%q failed and was given back (see --keep-going): %w", task.Name, result.err)
	}
	return nil
}

// leave tells the hub that the worker is gone.
func (t *dworkWorkers) leave() error {
	if !t.known.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	hub, err := client.DialHub(ctx, t.server)
	if err != nil {
		return err
	}
	defer hub.Close()
	if err := hub.Exit(ctx, t.host); err != nil && !errors.Is(err, client.ErrNoTask) && !errors.Is(err, client.ErrAllDone) {
		return fmt.Errorf("cannot tell the hub that %s leaves, so its tasks stay its own: %w", printable(t.host), err)
	}
	return nil
}
