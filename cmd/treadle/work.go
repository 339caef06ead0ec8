package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
)

const (
	// The pause before reconnecting doubles from the first to the last value: a
	// restarted server is found soon, a flapping one is not hammered.
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
	// laterStep is what putting a job off adds to its count.
	laterStep = 1
)

type workCmd struct {
	Func      string   `arg:"" help:"Function whose jobs to do."`
	Command   []string `arg:"" name:"cmd" passthrough:"" help:"Command and arguments, after --; the job's name is added as the last."`
	Thread    int      `default:"1" placeholder:"N" help:"Jobs done at a time (default: ${default})."`
	Data      bool     `help:"Return what the command prints as the job's result (default: it goes to standard output)."`
	Broadcast bool     `help:"Make FUNC a function whose jobs go to every waiting worker."`
	Timeout   uint32   `default:"0" placeholder:"SECONDS" help:"Seconds after which the command and its children are killed and the job has failed; 0: none (default: ${default})."`
	RetrySecs uint32   `default:"0" placeholder:"SECONDS" help:"Put a failed job off by this many seconds; 0: it is tried again at once (default: ${default})."`
	SkipFail  bool     `help:"Count a failed job as done."`
	Stream    bool     `help:"Send what the command prints to those who treadle recv the job, while it runs. Implies --crc."`
	LockName  string   `placeholder:"NAME" help:"Named lock that a job must have to run; one that cannot have it waits at the server while the worker does others. Implies --crc (default: none)."`
	LockCount int16    `default:"1" placeholder:"N" help:"Jobs that may have the lock at a time, over all workers (default: ${default})."`
}

// Validate is called by kong.
func (w *workCmd) Validate(ctx *kong.Context) (err error) {
	if w.Command, err = checkCommand(ctx, w.Command, "treadle work echo -- sh -c cat"); err != nil {
		return err
	}
	switch {
	case w.Thread < 1:
		return fmt.Errorf("--thread: %d is below 1", w.Thread)
	case w.Broadcast && w.Thread > 1:
		return errors.New("--broadcast with --thread above 1 would do every job several times")
	case w.Broadcast && (w.Stream || w.LockName != ""):
		return errors.New("--broadcast with --stream or --lock-name: no worker holds a broadcast job")
	case w.LockCount < 1:
		return fmt.Errorf("--lock-count: %d is below 1", w.LockCount)
	case w.LockCount > 1 && w.LockName == "":
		return errors.New("--lock-count without --lock-name")
	}
	return checkNames(w.Func, w.LockName)
}

// Run works until a signal.
func (w *workCmd) Run(c *cli, con *console) error {
	if _, err := exec.LookPath(w.Command[0]); err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	first, second, stop := signals()
	defer stop()
	c.CRC = c.CRC || w.Stream || w.LockName != ""
	p := &pool{workCmd: w, con: con, host: c.host(), options: c.options(), pause: firstPause}
	err := p.run(first, second)
	if err == nil && second.Err() != nil {
		return killed{}
	}
	return err
}

// pool is the threads of one treadle work and the connection they share.
type pool struct {
	*workCmd
	con     *console
	host    string
	options client.Options

	mu      sync.Mutex // held while connecting
	current *client.Worker
	since   time.Time // of the connection
	pause   time.Duration
}

func (p *pool) say(format string, args ...any) { p.con.say(format, args...) }

// run works until stop ends, then lets running commands finish unless kill ends.
func (p *pool) run(stop, kill context.Context) error {
	worker, err := p.connect(stop)
	if err != nil {
		return err
	}
	p.current, p.since = worker, time.Now()
	stop, fail := context.WithCancelCause(stop)
	defer fail(nil)
	grabbing, endGrabbing := context.WithCancel(context.Background())
	defer endGrabbing()
	context.AfterFunc(stop, func() {
		p.withdraw()
		endGrabbing()
	})
	var threads sync.WaitGroup
	for range p.Thread {
		threads.Go(func() {
			if err := p.thread(stop, grabbing, kill); err != nil {
				fail(err)
			}
		})
	}
	threads.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.current.Close()
	ctx, cancel := context.WithTimeout(kill, replyTimeout)
	defer cancel()
	// Results still on their way would be lost by closing; a server that is
	// gone has lost them anyway.
	_ = p.current.Ping(ctx)
	if err := context.Cause(stop); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// withdraw tells the server to send no more jobs, so that none is on its way
// when the threads stop grabbing.
func (p *pool) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	// On failure closing the connection has the same effect a little later.
	_ = p.current.CantDo(ctx, p.Func)
}

// thread does one job after the other.
func (p *pool) thread(stop, grabbing, kill context.Context) error {
	for stop.Err() == nil {
		worker := p.connection(stop)
		if worker == nil {
			return nil
		}
		a, err := worker.Grab(grabbing)
		switch {
		case err == nil:
			p.do(kill, worker, a)
		case grabbing.Err() != nil:
			return nil
		case !ended(worker):
			return err // not a lost connection: trying again would not help
		}
	}
	return nil
}

func ended(w *client.Worker) bool {
	select {
	case <-w.Ended():
		return true
	default:
		return false
	}
}

// connection returns the shared connection, reconnecting when it was lost; nil
// when ctx has ended.
func (p *pool) connection(ctx context.Context) *client.Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ended(p.current) {
		return p.current
	}
	p.current.Close()
	p.say("lost the server at %s; trying again until it is back", p.current.Address())
	if time.Since(p.since) > lastPause {
		p.pause = firstPause
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.pause):
		}
		p.pause = min(2*p.pause, lastPause)
		worker, err := p.connect(ctx)
		if err == nil {
			p.say("connected to %s again", worker.Address())
			p.current, p.since = worker, time.Now()
			return worker
		}
	}
}

// connect dials and offers the function.
func (p *pool) connect(ctx context.Context) (*client.Worker, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	worker, err := client.DialWorker(ctx, p.host, p.options)
	if err != nil {
		return nil, err
	}
	if p.Broadcast {
		err = worker.Broadcast(ctx, p.Func)
	} else {
		err = worker.CanDo(ctx, p.Func)
	}
	if err != nil {
		worker.Close()
		return nil, err
	}
	return worker, nil
}

// do runs the command for a job and reports how it ended.
func (p *pool) do(kill context.Context, worker *client.Worker, a *client.Assignment) {
	if p.LockName != "" && !p.acquire(worker, a) {
		return
	}
	c := &child{
		command: p.Command, name: a.Job.Name, input: a.Job.Workload,
		timeout: p.Timeout, con: p.con, keep: p.Data,
	}
	if p.Stream {
		c.publish = p.publisher(worker, a)
	}
	result := c.run(kill)
	if kill.Err() != nil {
		return // the end of the connection gives the job back
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	var err error
	if p.LockName != "" {
		err = worker.Release(ctx, a, p.LockName)
	}
	switch {
	case err != nil:
	case result.err != nil && !p.SkipFail:
		err = p.failed(ctx, worker, a, result.err)
	case result.err == nil && result.later >= 0:
		err = worker.Later(ctx, a, result.later, laterStep)
	default:
		err = worker.Done(ctx, a, result.data)
	}
	p.unreported(err)
}

// failed gives the job back.
func (p *pool) failed(ctx context.Context, worker *client.Worker, a *client.Assignment, why error) error {
	p.say("%q %q failed: %v", a.Job.Func, a.Job.Name, why)
	if p.RetrySecs > 0 {
		return worker.Later(ctx, a, int64(p.RetrySecs), laterStep)
	}
	return worker.Fail(ctx, a)
}

func (p *pool) unreported(err error) {
	if err != nil {
		p.say("%v; another worker will be given the job", err)
	}
}

// acquire asks for the lock. A job that is refused waits at the server, one that
// the server does not want to lock has failed.
func (p *pool) acquire(worker *client.Worker, a *client.Assignment) bool {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	got, err := worker.Acquire(ctx, a, p.LockName, p.LockCount)
	if err != nil {
		p.unreported(p.failed(ctx, worker, a, err))
	}
	return got
}

// publisher sends a running job's output. What cannot be sent is said once and
// does not disturb the command.
func (p *pool) publisher(worker *client.Worker, a *client.Assignment) func(context.Context, []byte) {
	broken := false
	return func(ctx context.Context, data []byte) {
		if broken || ctx.Err() != nil {
			return
		}
		if err := worker.Publish(ctx, a, data); err != nil && ctx.Err() == nil {
			broken = true
			p.say("%v; the command goes on", err)
		}
	}
}
