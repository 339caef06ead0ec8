package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"treadle/loop/client"
)

// adminTimeout is the time for an answer of the operators' interface: to retry a million jobs takes some seconds.
const adminTimeout = time.Minute

// failedCmd are the commands for jobs that were given up.
type failedCmd struct {
	List   failedListCmd   `cmd:"" help:"Show the queues that have failed jobs, or the failed jobs of one."`
	Retry  failedRetryCmd  `cmd:"" help:"Have failed jobs tried again, with all their retries before them."`
	Remove failedRemoveCmd `cmd:"" help:"Remove failed jobs."`
}

// Help is printed by treadle failed --help.
func (failedCmd) Help() string {
	return `A job of a queue with retries (treadle queue set QUEUE retries=N) that fails more often than that is kept as failed, with its attempts: when, which worker, how each ended and what the worker said. treadle help policies explains it.

	treadle failed list
	treadle failed list mail.news --history
	treadle failed retry mail.news 17 23
	treadle failed remove mail.news --all

` + adminHelp
}

type failedListCmd struct {
	Queue   string `arg:"" optional:"" help:"Name of the queue (default: show which queues have failed jobs)."`
	Limit   int    `default:"100" placeholder:"N" help:"Show so many jobs at most, the oldest first (default: ${default})."`
	History bool   `help:"Show all attempts of each job."`
	JSON    bool   `name:"json" help:"Print JSON, one object a line."`
}

// Run prints the failed jobs.
func (f *failedListCmd) Run(c *cli, con *console) error {
	if f.Limit < 1 {
		return badUsage("--limit is at least 1")
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		if f.Queue == "" {
			return f.queues(ctx, a, con.out)
		}
		jobs, _, err := readPages(f.Limit, func(after string, n int) ([]client.FailedJob, string, error) {
			p, err := a.Failed(ctx, f.Queue, after, n)
			return p.Jobs, p.Next, err
		})
		if err != nil {
			return err
		}
		if f.JSON {
			return writeLines(con.out, jobs)
		}
		return f.table(con.out, jobs)
	})
}

func (f *failedListCmd) queues(ctx context.Context, a *client.Admin, w io.Writer) error {
	all, err := a.FailedQueues(ctx)
	if err != nil {
		return err
	}
	if f.JSON {
		return writeLines(w, all)
	}
	lines := [][]string{{"QUEUE", "FAILED"}}
	for _, q := range all {
		lines = append(lines, []string{printable(q.Queue + string(q.QueueBytes)), strconv.Itoa(q.Failed)})
	}
	return align(w, lines, 1)
}

func (f *failedListCmd) table(w io.Writer, jobs []client.FailedJob) error {
	lines := [][]string{{"ID", "NAME", "FAILED", "ATTEMPT", "WORKER", "ERROR"}}
	for i := range jobs {
		j := &jobs[i]
		id, name := strconv.FormatUint(j.ID, 10), printable(j.Name+string(j.NameBytes))
		attempts := j.Attempts
		if !f.History && len(attempts) > 0 {
			attempts = attempts[len(attempts)-1:]
		}
		for _, a := range attempts {
			lines = append(lines, []string{id, name, time.UnixMilli(a.At).Format(time.DateTime), a.Outcome, printable(a.Worker), endOf(a.Text)})
			id, name = "", ""
		}
		if len(attempts) == 0 {
			lines = append(lines, []string{id, name, time.UnixMilli(j.FailedAt).Format(time.DateTime), "", "", ""})
		}
	}
	return align(w, lines, 6)
}

// endOf returns the last line of a text that is not empty: an error stands at the end of what a program prints.
func endOf(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" {
			return printable(line)
		}
	}
	return ""
}

// failedChoice are the arguments that name failed jobs.
type failedChoice struct {
	Queue string   `arg:"" help:"Name of the queue."`
	ID    []uint64 `arg:"" optional:"" help:"Ids of its failed jobs, as treadle failed list shows them."`
	All   bool     `help:"All failed jobs of the queue."`
}

// applyChoice has the server do something to the kept jobs of a choice, and prints how many it has done. kind
// says how the jobs have ended.
func applyChoice(c *cli, con *console, kind string, choice client.KeptChoice, done string, verb func(*client.Admin, context.Context, client.KeptChoice) (client.KeptDone, error)) error {
	if choice.All == (len(choice.Jobs) > 0) {
		return badUsage("name %s jobs by their ids, or --all", kind)
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		d, err := verb(a, ctx, choice)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(con.out, "%d %s\n", d.Done, done); err != nil {
			return err
		}
		for _, l := range d.Left {
			_, _ = fmt.Fprintf(con.err, "job %d: %s\n", l.ID, l.Error)
		}
		if n := len(d.Left) + d.More; n > 0 {
			return fmt.Errorf("%d %s jobs stay as they are", n, kind)
		}
		return nil
	})
}

func (f *failedChoice) choice() client.KeptChoice {
	return client.KeptChoice{Queue: f.Queue, Jobs: f.ID, All: f.All}
}

type failedRetryCmd struct{ failedChoice }

// Run makes failed jobs ready.
func (f *failedRetryCmd) Run(c *cli, con *console) error {
	return applyChoice(c, con, "failed", f.choice(), "ready again", (*client.Admin).RetryFailed)
}

type failedRemoveCmd struct{ failedChoice }

// Run removes failed jobs.
func (f *failedRemoveCmd) Run(c *cli, con *console) error {
	return applyChoice(c, con, "failed", f.choice(), "removed", (*client.Admin).RemoveFailed)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
