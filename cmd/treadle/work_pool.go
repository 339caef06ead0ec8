package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop"
	"treadle/loop/client"
	"treadle/loop/setting"
)

const (
	// The pause before reconnecting doubles from firstPause to lastPause: a worker finds a
	// restarted server soon and does not flood one that fails again and again.
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
	// laterStep is the number by which a delay raises the job's count.
	laterStep = 1
)

// workers are the threads of one treadle work and the connection that they share.
type workers struct {
	*workCmd
	con     *console
	host    string
	options client.Options
	lines   *lines
	running atomic.Int64

	mu      sync.Mutex // held while connecting
	current *client.Worker
	terms   terms     // of the current connection's server
	since   time.Time // of the connection
	pause   time.Duration
}

func (p *workers) say(format string, args ...any) { p.con.say(format, args...) }

// run works until stop ends, then lets running commands finish unless kill ends.
func (p *workers) run(stop, kill context.Context) error {
	worker, t, err := p.connect(stop)
	if err != nil {
		return err
	}
	p.current, p.terms, p.since = worker, t, time.Now()
	p.announce(t)
	stop, fail := context.WithCancelCause(stop)
	defer fail(nil)
	grabbing, endGrabbing := context.WithCancel(context.Background())
	defer endGrabbing()
	context.AfterFunc(stop, func() {
		sayFinishing(p.con, p.running.Load(), "job")
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

// sayFinishing says which commands the worker waits for after the first signal.
func sayFinishing(con *console, running int64, what string) {
	if running > 0 {
		con.say("taking no more %ss, finishing %s; a second signal kills what runs", what, counted(running, what))
	}
}

// withdraw tells the server to send no more jobs, so that no job is on its way when the threads stop grabbing.
func (p *workers) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	// On failure closing the connection has the same effect a little later.
	_ = p.current.CantDo(ctx, p.Func)
}

// thread does one job after the other. It rests after a failed job, which is ready again at once and may fail always.
func (p *workers) thread(stop, grabbing, kill context.Context) error {
	var rest backoff
	for stop.Err() == nil {
		worker, t := p.connection(stop)
		if worker == nil {
			return nil
		}
		a, err := worker.Grab(grabbing)
		switch {
		case err == nil:
			p.running.Add(1)
			done := p.do(kill, worker, t, a)
			p.running.Add(-1)
			rest.restAfter(stop, done)
		case grabbing.Err() != nil:
			return nil
		case !ended(worker):
			return err // not a lost connection: trying again would not help
		}
	}
	return nil
}

// The rest after a failed job doubles from firstRest to lastRest while further jobs fail.
const (
	firstRest = 100 * time.Millisecond
	lastRest  = 10 * time.Second
)

// backoff slows a worker down while its jobs fail.
type backoff struct{ rest time.Duration }

// restAfter waits after a failure, unless stop ends.
func (b *backoff) restAfter(stop context.Context, done bool) {
	if done {
		b.rest = 0
		return
	}
	b.rest = min(max(2*b.rest, firstRest), lastRest)
	select {
	case <-stop.Done():
	case <-time.After(b.rest):
	}
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
func (p *workers) connection(ctx context.Context) (*client.Worker, terms) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ended(p.current) {
		return p.current, p.terms
	}
	p.current.Close()
	p.say("lost the server at %s; trying again until it is back", p.current.Address())
	if time.Since(p.since) > lastPause {
		p.pause = firstPause
	}
	for {
		select {
		case <-ctx.Done():
			return nil, terms{}
		case <-time.After(p.pause):
		}
		p.pause = min(2*p.pause, lastPause)
		worker, t, err := p.connect(ctx)
		if err == nil {
			p.say("connected to %s again", worker.Address())
			p.current, p.terms, p.since = worker, t, time.Now()
			return worker, t
		}
	}
}

// connect dials, learns the server's terms and offers the function.
func (p *workers) connect(ctx context.Context) (*client.Worker, terms, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	worker, err := client.DialWorker(ctx, p.host, p.options)
	if err != nil {
		return nil, terms{}, err
	}
	t, err := p.learn(ctx, worker)
	switch {
	case err != nil:
	case p.Broadcast:
		err = worker.Broadcast(ctx, p.Func)
	default:
		err = worker.CanDo(ctx, p.Func)
	}
	if err != nil {
		worker.Close()
		return nil, terms{}, err
	}
	return worker, t, nil
}

// do runs the command for a job and reports the end to the server; false: the command failed.
func (p *workers) do(kill context.Context, worker *client.Worker, t terms, a *client.Assignment) bool {
	began := time.Now()
	limit, given := p.runLimit(t, &a.Job)
	if p.LockName != "" && !p.acquire(worker, a) {
		return true // the server has the job again
	}
	c := &child{
		command: p.Command, function: p.Func, name: a.Job.Name, noName: p.NoName, input: a.Job.Workload,
		timeout: limit, jobs: p.Timeout == ownTimeout, began: began, maxResult: t.maxResult, con: p.con, lines: p.lines, keep: p.Data && !p.WorkData,
	}
	var lines *workData
	switch {
	case p.Stream:
		c.publish = p.publisher(worker, a)
	case p.WorkData:
		lines = &workData{publish: p.publisher(worker, a), most: t.maxResult}
		c.publish = lines.take
	}
	result := c.run(kill)
	if lines != nil {
		lines.end(kill)
		result.data, result.err = lines.result, cmp.Or(result.err, lines.err)
	}
	if kill.Err() != nil {
		return true // the end of the connection gives the job back
	}
	took := time.Since(began)
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	var err error
	if p.LockName != "" {
		err = worker.Release(ctx, a, p.LockName)
	}
	done := result.err == nil || p.SkipFail
	switch {
	case err != nil:
	case !done:
		err = p.failed(ctx, worker, a, result.err, result.said)
	case result.err == nil && p.LaterLine && result.later >= 0:
		p.tell(a, "is put off by %d s", result.later)
		err = worker.Later(ctx, a, result.later, laterStep)
	default:
		p.tell(a, "is done in %v", took.Round(time.Millisecond))
		err = worker.Done(ctx, a, result.data)
	}
	if given > 0 && took > given+loop.Defaults().Periodic.Grace && limit != given && !p.Broadcast {
		p.say("%q %q took %v, longer than its time-out of %v: it has been handed out again meanwhile, and this result does not count", a.Job.Func, a.Job.Name, took.Round(time.Millisecond), setting.Spell(given))
	}
	p.unreported(err)
	return done
}

// tell prints a line of -v about a job.
func (p *workers) tell(a *client.Assignment, format string, args ...any) {
	if p.Verbose {
		p.say("%q %q "+format, append([]any{a.Job.Func, a.Job.Name}, args...)...)
	}
}

// failed gives a failed job back: to fail, or to be delayed with --retry-secs.
func (p *workers) failed(ctx context.Context, worker *client.Worker, a *client.Assignment, why error, said []byte) error {
	p.say("%q %q failed: %v", a.Job.Func, a.Job.Name, why)
	if p.RetryAfter > 0 {
		return worker.Later(ctx, a, int64(p.RetryAfter/time.Second), laterStep)
	}
	return worker.FailWith(ctx, a, bytes.TrimSpace(append([]byte(why.Error()+"\n"), said...)))
}

func (p *workers) unreported(err error) {
	if err != nil {
		p.say("%v; another worker will be given the job", err)
	}
}

// acquire asks for the lock. Without it the job waits at the server; after an error the job has failed.
func (p *workers) acquire(worker *client.Worker, a *client.Assignment) bool {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	got, err := worker.Acquire(ctx, a, p.LockName, p.LockCount)
	if err != nil {
		p.unreported(p.failed(ctx, worker, a, err, nil))
	}
	return got
}

// publisher returns a function that sends a running job's output. After the first error it says so and drops the rest.
func (p *workers) publisher(worker *client.Worker, a *client.Assignment) func(context.Context, []byte) {
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
