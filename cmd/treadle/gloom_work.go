package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop"
	"treadle/loop/client"
	"treadle/loop/journal"
	"treadle/loop/setting"
)

type gloomWorkCmd struct {
	Type     string        `arg:"" help:"Type whose jobs to do."`
	Command  []string      `arg:"" name:"cmd" passthrough:"" help:"Command and arguments, after --; the job's id is added as the last."`
	Thread   int           `default:"1" placeholder:"N" help:"Jobs done at a time, each over a connection of its own (default: ${default})."`
	Timeout  time.Duration `default:"0s" placeholder:"TIME" help:"Time after which the command and its children are killed and the job has failed; 0s: none (default: ${default})."`
	NoName   bool          `help:"Do not add the job's id to the command; TREADLE_NAME has it."`
	Verbose  bool          `short:"v" help:"Print a line for each job."`
	SkipFail bool          `help:"Respond to a failed job with what the command has printed."`
	Slaves   string        `hidden:"" help:"As -H."`
}

// Help implements kong.HelpProvider.
func (gloomWorkCmd) Help() string {
	return `Runs CMD once a job, with the job's id as the last argument (the characters of a string, the JSON of any other id) and its body, JSON, on standard input. What CMD prints is the response if it is JSON, else it is sent as a JSON string.

	treadle gloom work add -- sh -c 'jq add'
	treadle gloom work resize --thread 4 --timeout 60 -- ./resize.sh
	treadle gloom work count --skip-fail -- sh -c 'grep -c error'

The environment has TREADLE_FUNC, the type, and TREADLE_NAME, the id. An id that begins with - fails unless CMD ends with --, or --no-name leaves it to TREADLE_NAME: CMD may take it for an option.

CMD has failed when its exit code is not 0. The protocol has no message for a failure, so the worker closes the connection and connects again: the server sees a slave leave. It gives the job to the next slave, ahead of jobs of the same priority, and after the fourth time sends the master job_failed. With --skip-fail the output of a failed CMD is the response.

SIGTERM and SIGINT: no more jobs are taken, running commands finish; a second signal kills them, and the server sees the slaves leave. When the server goes away the worker reconnects.`
}

// AfterApply is called by kong.
func (g *gloomWorkCmd) AfterApply(c *cli) error {
	return c.setServer(&g.Slaves, "TREADLE_GLOOM_SLAVES", loop.DefaultGloomSlaves)
}

// Validate is called by kong.
func (g *gloomWorkCmd) Validate(ctx *kong.Context) (err error) {
	if g.Command, err = checkCommand(ctx, g.Command, "treadle gloom work echo -- sh -c cat"); err != nil {
		return err
	}
	switch {
	case g.Thread < 1:
		return fmt.Errorf("--thread: %d is below 1", g.Thread)
	}
	if g.Timeout < 0 {
		return fmt.Errorf("--timeout: %s is negative", setting.FormatDuration(g.Timeout))
	}
	return refuseEmpty("TYPE", g.Type)
}

// Run works until a signal.
func (g *gloomWorkCmd) Run(con *console) error {
	if _, err := exec.LookPath(g.Command[0]); err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	stop, kill, end := signals()
	defer end()
	w := &gloomWorkers{gloomWorkCmd: g, con: con, lines: newLines(con, g.Thread)}
	err := w.run(stop, kill)
	if err == nil && kill.Err() != nil {
		return killed{}
	}
	return err
}

// gloomWorkers are the slaves of one treadle gloom work.
type gloomWorkers struct {
	*gloomWorkCmd
	con     *console
	lines   *lines
	running atomic.Int64
	lost    atomic.Bool // the server is gone, and one slave has said so
}

func (c *gloomWorkers) say(format string, args ...any) { c.con.say(format, args...) }

// run works until stop ends, then lets running commands finish unless kill ends.
func (c *gloomWorkers) run(stop, kill context.Context) error {
	first, err := c.join(stop)
	if err != nil {
		return err
	}
	c.say("waiting for jobs of %q at %s", c.Type, first.Address())
	stop, fail := context.WithCancelCause(stop)
	defer fail(nil)
	context.AfterFunc(stop, func() { sayFinishing(c.con, c.running.Load(), "job") })
	var slaves sync.WaitGroup
	for i := range c.Thread {
		slave := first
		if i > 0 {
			slave = nil
		}
		slaves.Go(func() {
			if err := c.slave(stop, kill, slave); err != nil {
				fail(err)
			}
		})
	}
	slaves.Wait()
	if err := context.Cause(stop); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// join connects a slave and joins the type.
func (c *gloomWorkers) join(ctx context.Context) (*client.Slave, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	slave, err := client.DialSlave(ctx, c.Slaves)
	if err != nil {
		return nil, err
	}
	if err := slave.Join(ctx, client.GloomText(c.Type)); err != nil {
		slave.Close()
		return nil, err
	}
	return slave, nil
}

// slave does one job after the other, and connects again when the connection ends. It begins with given unless that is
// nil.
func (c *gloomWorkers) slave(stop, kill context.Context, given *client.Slave) error {
	pause := firstPause
	var rest backoff
	for stop.Err() == nil {
		slave, err := given, error(nil)
		if given = nil; slave == nil {
			slave, err = c.join(stop)
		}
		if err == nil {
			if c.lost.CompareAndSwap(true, false) {
				c.say("connected to %s again", slave.Address())
			}
			since := time.Now()
			var jobs int
			jobs, err = c.serve(stop, kill, slave)
			slave.Close()
			if err == nil {
				rest.restAfter(stop, jobs > 0)
			}
			if time.Since(since) > lastPause {
				pause = firstPause
			}
		}
		var refused *client.GloomError
		switch {
		case err == nil || stop.Err() != nil:
			continue
		case errors.As(err, &refused):
			return err // not a lost connection: trying again would not help
		case c.lost.CompareAndSwap(false, true):
			c.say("%v; trying again until the server is back", err)
		}
		select {
		case <-stop.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
	return nil
}

// serve does jobs until stop ends, a command fails or the connection is lost; only the last is an error. It returns the
// number of jobs done.
func (c *gloomWorkers) serve(stop, kill context.Context, slave *client.Slave) (jobs int, err error) {
	for ; stop.Err() == nil; jobs++ {
		job, err := slave.Next(stop)
		if stop.Err() != nil && err != nil {
			break
		}
		if err != nil {
			return jobs, err
		}
		if done, err := c.do(kill, slave, job); !done {
			return jobs, err
		}
	}
	ctx, cancel := context.WithTimeout(kill, replyTimeout)
	defer cancel()
	// On failure closing the connection has the same effect, at the cost of a job
	// that is on its way.
	if job, err := slave.Leave(ctx); err == nil && job != nil {
		_, err = c.do(kill, slave, job)
		return jobs, err
	}
	return jobs, nil
}

// do runs the command for a job and responds. When done is false the caller closes the connection: in this protocol a
// slave fails a job by leaving.
func (c *gloomWorkers) do(kill context.Context, slave *client.Slave, job *client.GloomJob) (done bool, err error) {
	id := client.GloomCharacters(job.ID)
	began := time.Now()
	run := &child{command: c.Command, function: c.Type, name: id, noName: c.NoName, input: job.Body, timeout: c.Timeout, con: c.con, lines: c.lines, keep: true}
	c.running.Add(1)
	result := run.run(kill)
	c.running.Add(-1)
	if kill.Err() != nil {
		return false, nil
	}
	body := client.GloomValue(result.data)
	if len(body) > maxResult && result.err == nil {
		result.err = fmt.Errorf("its response is larger than %v", journal.Size(maxResult))
	}
	if result.err != nil {
		c.say("%q %q failed: %v", c.Type, id, result.err)
		if !c.SkipFail || len(body) > maxResult {
			return false, nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	if err := slave.Respond(ctx, body); err != nil {
		c.say("%v; another slave will be given the job", err)
		return false, err
	}
	if c.Verbose {
		c.say("%q %q is done in %v", c.Type, id, time.Since(began).Round(time.Millisecond))
	}
	return true, nil
}
