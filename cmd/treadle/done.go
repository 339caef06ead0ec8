package main

import (
	"context"
	"io"
	"strconv"
	"time"

	"treadle/loop/client"
)

// doneCmd are the commands for jobs that are done or have expired, and are kept.
type doneCmd struct {
	List   doneListCmd   `cmd:"" help:"Show the queues that keep finished jobs, or the finished jobs of one."`
	Result doneResultCmd `cmd:"" help:"Print the kept result of a job."`
	Remove doneRemoveCmd `cmd:"" help:"Remove finished jobs that are kept."`
}

// Help is printed by treadle done --help.
func (doneCmd) Help() string {
	return `A queue with keep-done or keep-results (treadle queue set QUEUE keep-results='1000, 7d') keeps the jobs that are done, and those that expired before they started (job-ttl): when, which worker, after how many attempts, and with keep-results what the worker returned. treadle help policies explains it.

	treadle done list
	treadle done list thumbs
	treadle done result thumbs 17
	treadle done remove thumbs --all

` + adminHelp
}

type doneListCmd struct {
	Queue string `arg:"" optional:"" help:"Name of the queue (default: show which queues keep finished jobs)."`
	Limit int    `default:"100" placeholder:"N" help:"Show so many jobs at most, the oldest first (default: ${default})."`
	JSON  bool   `name:"json" help:"Print JSON, one object a line."`
}

// Run prints the finished jobs.
func (d *doneListCmd) Run(c *cli, con *console) error {
	if d.Limit < 1 {
		return badUsage("--limit is at least 1")
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		if d.Queue == "" {
			return d.queues(ctx, a, con.out)
		}
		jobs, _, err := readPages(d.Limit, func(after string, n int) ([]client.DoneJob, string, error) {
			p, err := a.Done(ctx, d.Queue, after, n)
			return p.Jobs, p.Next, err
		})
		switch {
		case err != nil:
			return err
		case d.JSON:
			return writeLines(con.out, jobs)
		}
		return d.table(con.out, jobs)
	})
}

func (d *doneListCmd) queues(ctx context.Context, a *client.Admin, w io.Writer) error {
	all, err := a.DoneQueues(ctx)
	if err != nil {
		return err
	}
	if d.JSON {
		return writeLines(w, all)
	}
	lines := [][]string{{"QUEUE", "DONE"}}
	for _, q := range all {
		lines = append(lines, []string{printable(q.Queue + string(q.QueueBytes)), strconv.Itoa(q.Done)})
	}
	return align(w, lines, 1)
}

func (d *doneListCmd) table(w io.Writer, jobs []client.DoneJob) error {
	lines := [][]string{{"ID", "NAME", "DONE", "OUTCOME", "WORKER", "ATTEMPTS", "RESULT"}}
	for i := range jobs {
		j := &jobs[i]
		result := ""
		if j.Result != nil {
			result = strconv.Itoa(*j.Result)
		}
		lines = append(lines, []string{
			strconv.FormatUint(j.ID, 10), printable(j.Name + string(j.NameBytes)), time.UnixMilli(j.DoneAt).Format(time.DateTime), j.Outcome,
			printable(j.Worker), strconv.FormatUint(j.Tries, 10), result,
		})
	}
	return align(w, lines, 5)
}

type doneResultCmd struct {
	Queue string `arg:"" help:"Name of the queue."`
	ID    uint64 `arg:"" help:"Id of the job, as treadle done list shows it."`
}

// Run prints the bytes of a result as they are.
func (d *doneResultCmd) Run(c *cli, con *console) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		data, err := a.Result(ctx, d.Queue, d.ID)
		if err != nil {
			return err
		}
		_, err = con.out.Write(data)
		return err
	})
}

type doneRemoveCmd struct {
	Queue string   `arg:"" help:"Name of the queue."`
	ID    []uint64 `arg:"" optional:"" help:"Ids of its finished jobs, as treadle done list shows them."`
	All   bool     `help:"All finished jobs of the queue."`
}

// Run removes finished jobs.
func (d *doneRemoveCmd) Run(c *cli, con *console) error {
	return applyChoice(c, con, "finished", client.KeptChoice{Queue: d.Queue, Jobs: d.ID, All: d.All}, "removed", (*client.Admin).RemoveDone)
}
