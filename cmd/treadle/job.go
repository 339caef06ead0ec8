package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"treadle/loop/client"
	"treadle/loop/journal"
)

// jobCmd are the commands for jobs in any state.
type jobCmd struct {
	List    jobListCmd    `cmd:"" help:"Show the jobs that a filter means."`
	Show    jobShowCmd    `cmd:"" help:"Show one job, its attempts, and why it does not run."`
	Payload jobPayloadCmd `cmd:"" help:"Print the workload of a job."`
	Result  jobResultCmd  `cmd:"" help:"Print the kept result of a job."`

	Retry      jobRetryCmd      `cmd:"" help:"Have failed jobs tried again, with all their retries before them."`
	Run        jobRunCmd        `cmd:"" help:"Have delayed or failed jobs run now."`
	Remove     jobRemoveCmd     `cmd:"" help:"Remove jobs in any state."`
	Move       jobMoveCmd       `cmd:"" help:"Move pending or failed jobs to another queue."`
	Priority   jobPriorityCmd   `cmd:"" help:"Change the priority of pending jobs."`
	Due        jobDueCmd        `cmd:"" help:"Change when pending jobs are due."`
	Operations jobOperationsCmd `cmd:"" help:"Show the last changes of all jobs that a filter means, or cancel one."`
}

// Help implements kong.HelpProvider.
func (jobCmd) Help() string {
	return `A job is named by its id, as treadle job list shows it, or by its queue and name. A name means the job that has not ended, or else the one of those kept that ended last. An id is valid until the server stops. That of a failed or done job stays valid.

	treadle job list 'state:failed queue:mail.*'
	treadle job show mail.news monday
	treadle job payload 5.17.100 > monday.json
	treadle job retry mail.news monday
	treadle job run 5.17.100 5.17.101
	treadle job remove --filter 'queue:mail.* state:failed age:>30d' --dry-run

A filter has terms with blanks between them, all of which must hold: queue:, name: (names, or patterns as mail.*), state: (ready, delayed, running, locked, waiting, failed, done, expired; several with commas), id:, priority:>5, age:>10m, worker:, protocol:, text:"two words". A word without a key is a text: a part of the workload, of an error or of the result.

With --filter a change is made to all jobs that the filter means. The command counts them first and asks; more than 1000 are to be confirmed by typing their number. Off a terminal it needs --yes. The server changes the jobs a few at a time; an interrupt cancels it, and what is changed stays so.

` + adminHelp
}

// jobFilter is a filter on the command line: its terms may be several arguments.
type jobFilter struct {
	Filter []string `arg:"" optional:"" help:"Terms as queue:mail.* or state:failed, see treadle job --help (default: all jobs)."`
}

// text returns the filter as the server takes it.
func (f *jobFilter) text() (string, error) {
	text := strings.Join(f.Filter, " ")
	if err := client.CheckFilter(text); err != nil {
		return "", badUsage("the filter: %w", err)
	}
	return text, nil
}

type jobListCmd struct {
	tableFlags
	jobFilter
	Limit int `default:"50" placeholder:"N" help:"Show so many jobs at most (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (jobListCmd) Help() string {
	return `With the name of one queue the jobs come in its order: running ones, ready ones in the order of hand-out, delayed ones by due time, and then those that wait, have failed or are done. TIME is when a running job was handed out, when a failed or done one ended, and when another is due.

	treadle job list queue:mail.news
	treadle job list 'state:running age:>10m' --watch
	treadle job list 'text:"no such host"' --json | jq -r .id`
}

// Run prints the jobs.
func (j *jobListCmd) Run(c *cli, con *console) error {
	filter, err := j.text()
	switch {
	case err != nil:
		return err
	case j.Limit < 1:
		return badUsage("--limit is at least 1")
	}
	return j.show(con, func(w io.Writer) error {
		return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error { // a search may take long
			all, more, err := readPages(j.Limit, func(after string, n int) ([]client.ListedJob, string, error) {
				p, err := a.Jobs(ctx, filter, after, n)
				return p.Jobs, p.Next, err
			})
			switch {
			case err != nil:
				return err
			case more:
				con.say("there are more than %d such jobs, perhaps: --limit shows more", j.Limit)
			}
			if j.JSON {
				return writeLines(w, all)
			}
			var rows [][]string
			for i := range all {
				one := &all[i]
				rows = append(rows, []string{
					one.ID, printable(one.Queue + string(one.QueueBytes)), printable(one.Name + string(one.NameBytes)), one.State, number(one.Priority),
					timeOf(one), one.Protocol, number(int64(one.Size)), number(int64(one.Tries)), printed(one.Worker), printed(endOf(one.Error)),
				})
			}
			return j.table(w, "ID QUEUE NAME STATE >PRIORITY TIME +PROTOCOL +>SIZE +>TRIES WORKER ~ERROR", rows)
		})
	})
}

// timeOf returns when a job was handed out or has ended, else when it is due.
func timeOf(j *client.ListedJob) string {
	switch {
	case j.Since != 0:
		return time.UnixMilli(j.Since).Format(time.DateTime)
	case j.Due != 0:
		return time.UnixMilli(j.Due).Format(time.DateTime)
	}
	return "-"
}

// printed returns a name, or a dash for none.
func printed(name string) string {
	if name == "" {
		return "-"
	}
	return printable(name)
}

// endOf returns the last line of a text that is not empty: an error stands at the end of what a program prints. Lines
// that are indented are the frames of a trace, and count when there are no others.
func endOf(text string) (end string) {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		trimmed := strings.TrimSpace(line)
		if trimmed != "" && line[0] != ' ' && line[0] != '\t' {
			return printable(trimmed)
		}
		end = cmp.Or(end, trimmed)
	}
	if end != "" {
		end = printable(end)
	}
	return end
}

// oneJob are the arguments that name a job.
type oneJob struct {
	Job      string `arg:"" help:"Id of the job, as treadle job list shows it, or its queue."`
	Name     string `arg:"" optional:"" help:"Name of the job, when its queue is given (default: the id names it)."`
	Protocol string `placeholder:"NAME" help:"Protocol of the job, when jobs of several protocols have its queue and name (default: any)."`
}

// jobID is the form of the id of a job.
var jobID = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// isJobID reports whether an argument is the id of a job: else it is the name of a queue.
func isJobID(text string) bool { return jobID.MatchString(text) }

func noJobID(text string) error {
	return badUsage("%q is no id, as 5.17.100 is one: name a job by its id, or by its queue and name", text)
}

// check returns an error when the arguments name no job.
func (j *oneJob) check() error {
	switch {
	case j.Name == "" && !isJobID(j.Job):
		return noJobID(j.Job)
	case j.Name == "" && j.Protocol != "":
		return badUsage("--protocol is for a job that is named by its queue and name")
	}
	return nil
}

// details asks for the job.
func (j *oneJob) details(ctx context.Context, a *client.Admin) (client.JobDetails, error) {
	if j.Name == "" {
		return a.JobByID(ctx, j.Job)
	}
	return a.JobByName(ctx, j.Job, j.Name, j.Protocol)
}

// print writes bytes of the job, as they are.
func (j *oneJob) print(c *cli, con *console, part func(a *client.Admin, ctx context.Context, id string, to io.Writer) error) error {
	if err := j.check(); err != nil {
		return err
	}
	return c.withAdminFor(0, func(ctx context.Context, a *client.Admin) error {
		id := j.Job
		if j.Name != "" {
			d, err := j.details(ctx, a)
			if err != nil {
				return err
			}
			id = d.ID
		}
		return part(a, ctx, id, con.out)
	})
}

type jobShowCmd struct {
	oneJob
	JSON bool `name:"json" help:"Print JSON, an object on one line."`
}

// Help implements kong.HelpProvider.
func (jobShowCmd) Help() string {
	return `The lines "why" say why the job does not run: that its queue is paused, by whom; that no worker serves it; which job holds the lock that it waits for. Of a workload and a result the first 4KiB are shown; treadle job payload and treadle job result print all bytes. Attempts and their errors are kept for queues with a rule of retries or backoff alone: treadle queue set mail.news retries=3 sets one.

	treadle job show 5.17.100
	treadle job show mail.news monday --json | jq -r '.why[].reason'`
}

// Run prints the job.
func (j *jobShowCmd) Run(c *cli, con *console) error {
	if err := j.check(); err != nil {
		return err
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		d, err := j.details(ctx, a)
		switch {
		case err != nil:
			return err
		case j.JSON:
			return writeLines(con.out, []client.JobDetails{d})
		}
		return showJob(con.out, &d)
	})
}

// showJob writes what is known of a job.
func showJob(w io.Writer, d *client.JobDetails) error {
	lines := [][]string{
		{"id", d.ID}, {"queue", printable(d.Queue + string(d.QueueBytes))}, {"name", printable(d.Name + string(d.NameBytes))},
		{"protocol", d.Protocol}, {"state", d.State}, {"priority", number(d.Priority)},
	}
	add := func(name, text string) { lines = append(lines, []string{name, text}) }
	for _, moment := range []struct {
		name string
		at   int64
	}{{"due", d.Due}, {"since", d.Since}, {"until", d.Until}} {
		if moment.at != 0 {
			add(moment.name, time.UnixMilli(moment.at).Format(time.DateTime))
		}
	}
	if d.Timeout != 0 {
		add("timeout", (time.Duration(d.Timeout) * time.Second).String())
	}
	if d.Worker != "" {
		add("worker", printable(d.Worker))
	}
	for _, lock := range d.Locks {
		add("lock", printable(lock))
	}
	for _, why := range d.Why {
		add("why", oneLine(strings.ReplaceAll(why.Text, "\t", " ")))
	}
	add("workload", content(d.Workload, d.WorkloadBytes, d.WorkloadSize))
	if d.Result != nil || d.ResultBytes != nil {
		add("result", content(d.Result, d.ResultBytes, d.ResultSize))
	}
	if err := align(w, lines, 2); err != nil || len(d.Attempts) == 0 {
		return err
	}
	lines = [][]string{{"ATTEMPT", "OUTCOME", "WORKER", "ERROR"}}
	for _, a := range d.Attempts {
		lines = append(lines, []string{time.UnixMilli(a.At).Format(time.DateTime), a.Outcome, printed(a.Worker), endOf(a.Text)})
	}
	_, err := io.WriteString(w, "\n")
	return errors.Join(err, align(w, lines, 4), showTexts(w, d.Attempts))
}

// showTexts writes the error texts of several lines, such as those with a backtrace.
func showTexts(w io.Writer, attempts []client.JobAttempt) error {
	for _, a := range attempts {
		text := strings.Split(strings.TrimSpace(a.Text), "\n")
		if len(text) == 1 {
			continue
		}
		all := fmt.Appendf(nil, "\n%s %s:\n", time.UnixMilli(a.At).Format(time.DateTime), a.Outcome)
		for _, line := range text {
			if line = strings.ReplaceAll(strings.TrimSpace(line), "\t", " "); line != "" {
				all = fmt.Appendf(all, "    %s\n", printable(line))
			}
		}
		if _, err := w.Write(all); err != nil {
			return err
		}
	}
	return nil
}

// maxShown is how many characters of a workload or result a line shows.
const maxShown = 100

// content returns the beginning of a workload or result, and its size when that is not all.
func content(text *string, bytes []byte, size int) string {
	all := string(bytes)
	if text != nil {
		all = *text
	}
	switch {
	case size == 0:
		return "-"
	case utf8.RuneCountInString(all) > maxShown:
		all = string([]rune(all)[:maxShown])
	case len(all) == size:
		return printable(all)
	}
	return fmt.Sprintf("%s... (%v)", printable(all), journal.Size(size))
}

type jobPayloadCmd struct{ oneJob }

// Run prints the bytes of a workload as they are.
func (j *jobPayloadCmd) Run(c *cli, con *console) error {
	return j.print(c, con, (*client.Admin).JobWorkload)
}

type jobResultCmd struct{ oneJob }

// Run prints the bytes of a result as they are.
func (j *jobResultCmd) Run(c *cli, con *console) error {
	return j.print(c, con, (*client.Admin).JobResult)
}
