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

	"treadle/loop/client"
)

type dworkWorkCmd struct {
	Command []string `arg:"" name:"cmd" passthrough:"" help:"Command and arguments, after --; the task's name is added as the last."`
	Jobs    int      `short:"j" default:"1" placeholder:"N" help:"Tasks done at a time, each over a connection of its own (default: ${default})."`
	Timeout uint32   `default:"0" placeholder:"SECONDS" help:"Seconds after which the command and its children are killed and the task has failed; 0: none (default: ${default})."`
	Keep    bool     `name:"keep-going" help:"Go on when a command fails: its task is given back, to be tried again behind all others."`
	Host    string   `name:"worker" placeholder:"NAME" help:"Name of the worker (default: the host's and the process's number)."`
}

// Bounds of the time between two steals when nothing is ready. The reference's workers ask
// without a pause.
const (
	firstIdle = 5 * time.Millisecond
	lastIdle  = time.Second
)

// Validate is called by kong.
func (d *dworkWorkCmd) Validate() error {
	if len(d.Command) > 0 && d.Command[0] == "--" {
		d.Command = d.Command[1:]
	}
	switch {
	case len(d.Command) == 0:
		return errors.New("no command: write it after --, as in treadle dwork work -- echo")
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
	t := team{dworkWorkCmd: d, con: con, server: c.Dwork.Server, host: host}
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
		return fmt.Errorf("the running commands were killed: %w", context.Canceled)
	case t.failed.Load() > 0:
		return fmt.Errorf("%d commands failed; their tasks were given back", t.failed.Load())
	}
	return nil
}

// team is the workers of one treadle dwork work.
type team struct {
	*dworkWorkCmd
	con          *console
	server, host string
	known        atomic.Bool // the hub knows the host
	failed       atomic.Int64
}

// worker does one task after the other.
func (t *team) worker(stop, kill context.Context) error {
	dialed, cancel := context.WithTimeout(stop, replyTimeout)
	defer cancel()
	hub, err := client.DialHub(dialed, t.server)
	if err != nil {
		return err
	}
	defer hub.Close()
	pause := firstIdle
	for stop.Err() == nil {
		tasks, err := t.ask(func(ctx context.Context) ([]client.DworkTask, error) { return hub.Steal(ctx, t.host, 1) })
		switch {
		case errors.Is(err, client.ErrAllDone):
			return nil
		case errors.Is(err, client.ErrNoTask):
			select {
			case <-stop.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, lastIdle)
			continue
		case err != nil:
			return err
		}
		t.known.Store(true)
		pause = firstIdle
		for _, task := range tasks {
			if err := t.do(kill, hub, task); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask bounds one request. It is not cut short by a signal: what the hub hands out then
// would have nobody to do it.
func (t *team) ask(f func(context.Context) ([]client.DworkTask, error)) ([]client.DworkTask, error) {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	return f(ctx)
}

// do runs the command for a task and says that it is complete, or gives it back.
func (t *team) do(kill context.Context, hub *client.Hub, task client.DworkTask) error {
	run := &child{command: t.Command, name: task.Name, timeout: t.Timeout, con: t.con}
	result := run.run(kill)
	if kill.Err() != nil {
		return nil // leaving makes it ready again
	}
	if result.err == nil {
		_, err := t.ask(func(ctx context.Context) ([]client.DworkTask, error) { return hub.Complete(ctx, t.host, task) })
		if errors.Is(err, client.ErrNoTask) {
			t.con.say("%q is done, but was given to another worker meanwhile", task.Name)
			return nil
		}
		return err
	}
	t.con.say("%q failed: %v", task.Name, result.err)
	_, err := t.ask(func(ctx context.Context) ([]client.DworkTask, error) { return nil, hub.Transfer(ctx, t.host, task) })
	if err != nil && !errors.Is(err, client.ErrNoTask) {
		return err
	}
	t.failed.Add(1)
	if !t.Keep {
		return fmt.Errorf("%q failed and was given back (see --keep-going): %w", task.Name, result.err)
	}
	return nil
}

// leave tells the hub that the worker is gone.
func (t *team) leave() error {
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
		return fmt.Errorf("cannot say that the worker leaves: %w", err)
	}
	return nil
}
