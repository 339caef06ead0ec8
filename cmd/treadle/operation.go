package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"treadle/loop/client"
)

// bulkFlags are the flags of a command that may change many jobs.
type bulkFlags struct {
	DryRun bool `help:"Count the jobs, and change none."`
	Yes    bool `short:"y" help:"Do not ask."`
	JSON   bool `name:"json" help:"Print JSON, an object on one line."`
}

// operation is a change of many jobs that the server makes step by step.
type operation struct {
	verb  string // as in the question before it
	done  string // what became of a job
	count func() (client.JobsMatched, error)
	start func() (id string, err error)
}

const (
	// manyJobs is the number of jobs from which their number is to be typed, so that a slip of the finger changes none.
	manyJobs = 1000
	// lookEvery is the time between two looks at an operation.
	lookEvery = 100 * time.Millisecond
)

// run counts the jobs of an operation, asks, has the server change them and says what became of them. An interrupt
// cancels it.
func (b *bulkFlags) run(ctx context.Context, a *client.Admin, con *console, o operation) error {
	m, err := o.count()
	if err != nil {
		return err
	}
	if b.DryRun {
		return b.tellCount(con, &m)
	}
	if err := b.confirm(ctx, con, o.verb, &m); err != nil {
		return err
	}
	id, err := o.start()
	if err != nil {
		return err
	}
	end, err := follow(ctx, a, con, id, o.verb)
	if err != nil {
		return fmt.Errorf("%w; the operation %s may go on, see treadle job operations", err, id)
	}
	for _, l := range end.Errors {
		con.fail(errLeft(&l))
	}
	if err := b.tell(con, end, o.done); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return coded{error: errors.New("cancelled: other jobs stay as they are"), code: exitInterrupted}
	case end.State != "done":
		return fmt.Errorf("the operation %s was %s: other jobs stay as they are", id, end.State)
	case end.Left > 0:
		return fmt.Errorf("jobs that stay as they are: %d", end.Left)
	}
	return nil
}

// errLeft returns the error of a job that stayed as it was.
func errLeft(l *client.LeftJob) error {
	code := exitFailure
	if l.Status == http.StatusNotFound {
		code = exitNotFound
	}
	return coded{error: fmt.Errorf("job %s: %s", l.ID, l.Error), code: code}
}

// many says how many jobs are meant.
func many(m *client.JobsMatched) string {
	if m.More {
		return fmt.Sprintf("at least %s (of %d, %d were looked at)", counted(m.Matched, "job"), m.Of, m.Looked)
	}
	return counted(m.Matched, "job")
}

func (b *bulkFlags) tellCount(con *console, m *client.JobsMatched) error {
	if b.JSON {
		return writeLines(con.out, []client.JobsMatched{*m})
	}
	_, err := fmt.Fprintln(con.out, many(m))
	return err
}

// tell prints what became of the jobs.
func (b *bulkFlags) tell(con *console, o client.Operation, done string) error {
	if b.JSON {
		return writeLines(con.out, []client.Operation{o})
	}
	_, err := fmt.Fprintf(con.out, "%d %s\n", o.Changed, done)
	return err
}

// errUnconfirmed is the error of a change that the user does not want.
var errUnconfirmed = errors.New("nothing is changed")

// confirm returns an error unless --yes or the user wants the change. An interrupt ends the question.
func (b *bulkFlags) confirm(ctx context.Context, con *console, verb string, m *client.JobsMatched) error {
	if b.Yes {
		return nil
	}
	in, isFile := con.in.(*os.File)
	if !isFile || !isTerminal(in) || !isTerminal(con.err) {
		return badUsage("%s: %s: --yes does it, --dry-run only counts", verb, many(m))
	}
	want, ask := "y", "y does it"
	if m.More || m.Matched > manyJobs {
		want = strconv.Itoa(m.Matched)
		ask = want + " does it"
	}
	fmt.Fprintf(con.err, "%s: %s? %s: ", verb, many(m), ask)
	answered := make(chan bool, 1)
	go func() { // a read of a terminal cannot be interrupted: after a signal it ends with the process
		answer, err := bufio.NewReader(in).ReadString('\n')
		answered <- err == nil && strings.TrimSpace(answer) == want
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(con.err)
		return coded{error: errUnconfirmed, code: exitInterrupted}
	case yes := <-answered:
		if !yes {
			return errUnconfirmed
		}
	}
	return nil
}

// follow waits for the end of an operation and shows how far it is. When ctx ends it cancels the operation.
func follow(ctx context.Context, a *client.Admin, con *console, id, verb string) (client.Operation, error) {
	var bar client.Progress
	if !con.json {
		bar = progressOf(con.err, verb, false)
	}
	asking, cancelled := ctx, false
	for {
		o, err := a.Operation(asking, id)
		if ctx.Err() != nil && !cancelled {
			cancelled = true
			late, stop := context.WithTimeout(context.Background(), replyTimeout)
			defer stop()
			asking = late
			if err := a.CancelOperation(asking, id); err != nil {
				return o, err
			}
			continue
		}
		if err != nil || o.State != "running" {
			return o, err
		}
		if bar != nil {
			bar(min(o.Looked, int64(o.Of)), int64(o.Of))
		}
		select {
		case <-asking.Done():
		case <-time.After(lookEvery):
		}
	}
}
