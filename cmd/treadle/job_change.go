package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	osuser "os/user"
	"time"

	"treadle/loop/client"
)

// jobChoice are the arguments of a command that changes jobs: their ids, or a filter.
type jobChoice struct {
	bulkFlags
	changeCause
	Job      []string `arg:"" optional:"" help:"Ids of the jobs, as treadle job list shows them, or the queue and the name of one."`
	Protocol string   `placeholder:"NAME" help:"Protocol of the job, when jobs of several protocols have its queue and name (default: any)."`
	Filter   string   `placeholder:"FILTER" help:"All jobs that a filter means, as in treadle job list (default: those of the arguments)."`
}

// maxChoice is the most ids that a request may have.
const maxChoice = 1000

// change changes the jobs of the choice. done says of a number of jobs what became of them.
func (j *jobChoice) change(c *cli, con *console, change client.JobsChange, done string) error {
	change.Why, c.by = j.Why, j.By
	named := len(j.Job) == 2 && !isJobID(j.Job[0])
	switch {
	case (j.Filter != "") == (len(j.Job) > 0):
		return badUsage("name the jobs by their ids, one by its queue and name, or all of a --filter")
	case j.Protocol != "" && !named:
		return badUsage("--protocol is for a job that is named by its queue and name")
	case j.Filter == "" && j.DryRun:
		return badUsage("--dry-run counts the jobs of a --filter")
	case named:
		change.Queue, change.Name, change.Protocol = j.Job[0], j.Job[1], j.Protocol
		return c.withAdmin(func(ctx context.Context, a *client.Admin) error { return j.each(ctx, a, con, nil, change, done) })
	case j.Filter == "":
		for _, id := range j.Job {
			if !isJobID(id) {
				return noJobID(id)
			}
		}
		return c.withAdmin(func(ctx context.Context, a *client.Admin) error { return j.each(ctx, a, con, j.Job, change, done) })
	}
	if err := client.CheckFilter(j.Filter); err != nil {
		return badUsage("--filter: %w", err)
	}
	if err := checkUTF8(j.Filter); err != nil {
		return err
	}
	change.Filter = j.Filter
	return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error {
		return j.run(ctx, a, con, operation{
			verb: change.Verb, done: done,
			count: func() (client.JobsMatched, error) { return a.CountJobs(ctx, change) },
			start: func() (string, error) { return a.StartChange(ctx, &change) },
		})
	})
}

// each changes jobs by their ids, or the one that change names.
func (j *jobChoice) each(ctx context.Context, a *client.Admin, con *console, ids []string, change client.JobsChange, done string) error {
	changed, left, gone := 0, 0, 0
	for more := true; more; more = len(ids) > 0 {
		n := min(len(ids), maxChoice)
		change.IDs, ids = ids[:n], ids[n:]
		d, err := a.ChangeJobs(ctx, &change)
		if err != nil {
			return err
		}
		changed += d.Changed
		for _, l := range d.Left {
			con.fail(errLeft(&l))
			if left++; l.Status == http.StatusNotFound {
				gone++
			}
		}
	}
	if err := j.tell(con, client.Operation{Verb: change.Verb, State: "done", Matched: changed + left, Changed: changed, Left: left}, done); err != nil {
		return err
	}
	switch left {
	case 0:
		return nil
	case gone:
		return noSuch("jobs that are not there: %d", gone)
	}
	return fmt.Errorf("jobs that stay as they are: %d", left)
}

// userName returns the name of the user, for the audit.
func userName() string {
	if u, err := osuser.Current(); err == nil {
		return u.Username
	}
	return ""
}

type jobRetryCmd struct{ jobChoice }

// Run makes failed jobs ready.
func (j *jobRetryCmd) Run(c *cli, con *console) error {
	return j.change(c, con, client.JobsChange{Verb: "retry"}, "ready again")
}

type jobRunCmd struct{ jobChoice }

// Run makes delayed and failed jobs ready.
func (j *jobRunCmd) Run(c *cli, con *console) error {
	return j.change(c, con, client.JobsChange{Verb: "run"}, "ready")
}

type jobRemoveCmd struct{ jobChoice }

// Run removes jobs.
func (j *jobRemoveCmd) Run(c *cli, con *console) error {
	return j.change(c, con, client.JobsChange{Verb: "remove"}, "removed")
}

type jobMoveCmd struct {
	To string `arg:"" help:"Queue that gets the jobs."`
	jobChoice
}

// Run moves jobs to another queue.
func (j *jobMoveCmd) Run(c *cli, con *console) error {
	return j.change(c, con, client.JobsChange{Verb: "move", To: j.To}, "moved")
}

type jobPriorityCmd struct {
	Priority int64 `arg:"" help:"Their new priority; those with more come first. One below 0 follows --."`
	jobChoice
}

// Run changes the priority of jobs.
func (j *jobPriorityCmd) Run(c *cli, con *console) error {
	return j.change(c, con, client.JobsChange{Verb: "priority", Priority: &j.Priority}, "changed")
}

type jobDueCmd struct {
	Due string `arg:"" help:"When they are due: now, a time from now as 90s or 1h30m, or a moment as 2030-01-31T09:00:00Z."`
	jobChoice
}

// Run changes the due time of jobs.
func (j *jobDueCmd) Run(c *cli, con *console) error {
	change := client.JobsChange{Verb: "due"}
	if at, err := time.Parse(time.RFC3339, j.Due); err == nil {
		change.At = client.Moment{Time: at}
	} else {
		delay := time.Duration(0)
		if j.Due != "now" {
			if delay, err = parseDuration(j.Due); err != nil {
				return badUsage("%w, or a moment as in 2030-01-31T09:00:00Z", err)
			}
		}
		if delay < 0 {
			return badUsage("%s is negative", j.Due)
		}
		change.Delay = (*client.Duration)(&delay)
	}
	return j.change(c, con, change, "changed")
}

type jobOperationsCmd struct {
	tableFlags
	Cancel string `placeholder:"ID" help:"Have an operation end early; what it has changed stays changed (default: none)."`
}

// Run prints the operations, or cancels one.
func (j *jobOperationsCmd) Run(c *cli, con *console) error {
	if j.Cancel != "" {
		return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
			if err := a.CancelOperation(ctx, j.Cancel); err != nil {
				return err
			}
			_, err := fmt.Fprintf(con.out, "%s is cancelled\n", printable(j.Cancel))
			return err
		})
	}
	return c.list(con, &j.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		all, err := a.Operations(ctx)
		switch {
		case err != nil:
			return err
		case j.JSON:
			return writeLines(w, all)
		}
		var rows [][]string
		for i := range all {
			o := &all[i]
			ended := "-"
			if o.Ended != 0 {
				ended = time.UnixMilli(o.Ended).Format(time.DateTime)
			}
			rows = append(rows, []string{
				o.Operation, o.Verb, o.State, number(o.Looked), number(int64(o.Of)), number(int64(o.Matched)), number(int64(o.Changed)), number(int64(o.Left)),
				time.UnixMilli(o.Started).Format(time.DateTime), ended, printed(o.By), printed(o.Filter),
			})
		}
		return j.table(w, "ID VERB STATE +>LOOKED +>OF >MATCHED >CHANGED >LEFT STARTED +ENDED BY ~FILTER", rows)
	})
}
