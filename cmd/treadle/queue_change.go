package main

import (
	"context"
	"fmt"
	"time"

	"treadle/loop/client"
)

type queueDrainCmd struct {
	changeCause
	Queue string `arg:"" help:"Name of the queue."`
	Wait  bool   `help:"Wait until no job is ready, delayed, running, or waits for a lock or a predecessor."`
}

// Help implements kong.HelpProvider.
func (queueDrainCmd) Help() string {
	return `Submits are refused from then on, as by treadle queue pause --submits, and jobs are handed out until none is left. An interrupt ends the wait alone; treadle queue resume ends the drain.

	treadle queue drain mail.news --wait --why 'the queue moves'`
}

// Run drains a queue.
func (q *queueDrainCmd) Run(c *cli, con *console) error {
	if err := checkUTF8(q.Queue); err != nil {
		return err
	}
	c.by = q.By
	return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error {
		state, err := a.DrainQueue(ctx, q.Queue, q.Why)
		for err == nil && q.Wait && unended(&state) > 0 {
			select {
			case <-ctx.Done():
				name := printable(q.Queue)
				return coded{error: fmt.Errorf("interrupted: %s takes no new jobs all the same; treadle queue resume %s ends that", name, name), code: exitInterrupted}
			case <-time.After(lookEvery):
			}
			state, err = a.Queue(ctx, q.Queue)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(con.out, "%s takes no new jobs, and has %s left\n", printable(q.Queue), counted(unended(&state), "job"))
		return err
	})
}

// unended returns how many jobs of a queue have not ended.
func unended(q *client.QueueState) int {
	return q.Ready + q.Delayed + q.Running + q.Locked + q.Waiting
}

type queueEmptyCmd struct {
	bulkFlags
	changeCause
	Queue string `arg:"" help:"Name of the queue."`
}

// Help implements kong.HelpProvider.
func (queueEmptyCmd) Help() string {
	return `Removes the jobs that are ready, delayed or failed, or wait for a lock. Those that run go on, and finished ones that are kept stay.

	treadle queue empty mail.news --dry-run
	treadle queue empty mail.news --yes`
}

// Run removes the jobs of a queue.
func (q *queueEmptyCmd) Run(c *cli, con *console) error {
	if err := checkUTF8(q.Queue); err != nil {
		return err
	}
	c.by = q.By
	return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error {
		return q.run(ctx, a, con, operation{
			verb: "remove", done: "removed",
			count: func() (client.JobsMatched, error) { return a.CountQueue(ctx, q.Queue) },
			start: func() (string, error) { return a.EmptyQueue(ctx, q.Queue, q.Why) },
		})
	})
}
