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

// workerPool are the threads of one treadle work and the connection that they share.
type workerPool struct {
	*workCmd
	con     *console
	host    string
	options client.Options
	lines   *lines
	running atomic.Int64

	mu      sync.Mutex // held while connecting
	current *client.Worker
	limits  serverLimits // of the current connection's server
	since   time.Time    // of the connection
	pause   time.Duration
}

func (w *workerPool) say(format string, args ...any) { w.con.say(format, args...) }

// run works until stop ends, then lets running commands finish unless kill ends.
func (w *workerPool) run(stop, kill context.Context) error {
	worker, t, err := w.connect(stop)
	if err != nil {
		return err
	}
	w.current, w.limits, w.since = worker, t, time.Now()
	w.announce(t)
	stop, fail := context.WithCancelCause(stop)
	defer fail(nil)
	grabbing, endGrabbing := context.WithCancel(context.Background())
	defer endGrabbing()
	context.AfterFunc(stop, func() {
		sayFinishing(w.con, w.running.Load(), "job")
		w.withdraw()
		endGrabbing()
	})
	var threads sync.WaitGroup
	for range w.Thread {
		threads.Go(func() {
			if err := w.thread(stop, grabbing, kill); err != nil {
				fail(err)
			}
		})
	}
	threads.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.current.Close()
	ctx, cancel := context.WithTimeout(kill, replyTimeout)
	defer cancel()
	// Results still on their way would be lost by closing; a server that is
	// gone has lost them anyway.
	_ = w.current.Ping(ctx)
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
func (w *workerPool) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	// On failure closing the connection has the same effect a little later.
	_ = w.current.CantDo(ctx, w.Func)
}

// thread does one job after the other. It rests after a failed job, which is ready again at once and may fail always.
func (w *workerPool) thread(stop, grabbing, kill context.Context) error {
	var rest backoff
	for stop.Err() == nil {
		worker, t := w.connection(stop)
		if worker == nil {
			return nil
		}
		a, err := worker.Grab(grabbing)
		switch {
		case err == nil:
			w.running.Add(1)
			done := w.do(kill, worker, t, a)
			w.running.Add(-1)
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
func (w *workerPool) connection(ctx context.Context) (*client.Worker, serverLimits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ended(w.current) {
		return w.current, w.limits
	}
	w.current.Close()
	w.say("lost the server at %s; trying again until it is back", w.current.Address())
	if time.Since(w.since) > lastPause {
		w.pause = firstPause
	}
	for {
		select {
		case <-ctx.Done():
			return nil, serverLimits{}
		case <-time.After(w.pause):
		}
		w.pause = min(2*w.pause, lastPause)
		worker, t, err := w.connect(ctx)
		if err == nil {
			w.say("connected to %s again", worker.Address())
			w.current, w.limits, w.since = worker, t, time.Now()
			return worker, t
		}
	}
}

// connect dials, learns the server's terms and offers the function.
func (w *workerPool) connect(ctx context.Context) (*client.Worker, serverLimits, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	worker, err := client.DialWorker(ctx, w.host, w.options)
	if err != nil {
		return nil, serverLimits{}, err
	}
	t, err := w.learn(ctx, worker)
	switch {
	case err != nil:
	case w.Broadcast:
		err = worker.Broadcast(ctx, w.Func)
	default:
		err = worker.CanDo(ctx, w.Func)
	}
	if err != nil {
		worker.Close()
		return nil, serverLimits{}, err
	}
	return worker, t, nil
}

// do runs the command for a job and reports the end to the server; false: the command failed.
func (w *workerPool) do(kill context.Context, worker *client.Worker, t serverLimits, a *client.Assignment) bool {
	began := time.Now()
	limit, given := w.runLimit(t, &a.Job)
	if w.LockName != "" && !w.acquire(worker, a) {
		return true // the server has the job again
	}
	c := &child{
		command: w.Command, function: w.Func, name: a.Job.Name, noName: w.NoName, input: a.Job.Workload,
		timeout: limit, jobs: w.Timeout == ownTimeout, began: began, maxResult: t.maxResult, con: w.con, lines: w.lines, keep: w.Data && !w.WorkData,
	}
	var lines *workData
	switch {
	case w.Stream:
		c.publish = w.publisher(worker, a)
	case w.WorkData:
		lines = &workData{publish: w.publisher(worker, a), most: t.maxResult}
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
	if w.LockName != "" {
		err = worker.Release(ctx, a, w.LockName)
	}
	done := result.err == nil || w.SkipFail
	switch {
	case err != nil:
	case !done:
		err = w.failed(ctx, worker, a, result.err, result.said)
	case result.err == nil && w.LaterLine && result.later >= 0:
		w.tell(a, "is put off by %d s", result.later)
		err = worker.Later(ctx, a, result.later, laterStep)
	default:
		w.tell(a, "is done in %v", took.Round(time.Millisecond))
		err = worker.Done(ctx, a, result.data)
	}
	if given > 0 && took > given+loop.Defaults().Periodic.Grace && limit != given && !w.Broadcast {
		w.say("%q %q took %v, longer than its time-out of %v: it has been handed out again meanwhile, and this result does not count", a.Job.Func, a.Job.Name, took.Round(time.Millisecond), setting.FormatDuration(given))
	}
	w.unreported(err)
	return done
}

// tell prints a line of -v about a job.
func (w *workerPool) tell(a *client.Assignment, format string, args ...any) {
	if w.Verbose {
		w.say("%q %q "+format, append([]any{a.Job.Func, a.Job.Name}, args...)...)
	}
}

// failed gives a failed job back: to fail, or to be delayed with --retry-secs.
func (w *workerPool) failed(ctx context.Context, worker *client.Worker, a *client.Assignment, why error, said []byte) error {
	w.say("%q %q failed: %v", a.Job.Func, a.Job.Name, why)
	if w.RetryAfter > 0 {
		return worker.Later(ctx, a, int64(w.RetryAfter/time.Second), laterStep)
	}
	return worker.FailWith(ctx, a, bytes.TrimSpace(append([]byte(why.Error()+"\n"), said...)))
}

func (w *workerPool) unreported(err error) {
	if err != nil {
		w.say("%v; another worker will be given the job", err)
	}
}

// acquire asks for the lock. Without it the job waits at the server; after an error the job has failed.
func (w *workerPool) acquire(worker *client.Worker, a *client.Assignment) bool {
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	got, err := worker.Acquire(ctx, a, w.LockName, w.LockCount)
	if err != nil {
		w.unreported(w.failed(ctx, worker, a, err, nil))
	}
	return got
}

// publisher returns a function that sends a running job's output. After the first error it says so and drops the rest.
func (w *workerPool) publisher(worker *client.Worker, a *client.Assignment) func(context.Context, []byte) {
	broken := false
	return func(ctx context.Context, data []byte) {
		if broken || ctx.Err() != nil {
			return
		}
		if err := worker.Publish(ctx, a, data); err != nil && ctx.Err() == nil {
			broken = true
			w.say("%v; the command goes on", err)
		}
	}
}
