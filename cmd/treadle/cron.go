package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"treadle/loop/client"
)

// cronCmd are the commands for jobs that are submitted at times.
type cronCmd struct {
	Add    cronAddCmd    `cmd:"" help:"Add an entry: a job that is submitted at times."`
	List   cronListCmd   `cmd:"" help:"Show the entries, their next times and their last outcomes."`
	Show   cronShowCmd   `cmd:"" help:"Show one entry, its next times and what became of the others."`
	Run    cronRunCmd    `cmd:"" help:"Submit the job of an entry now; its times stay as they are."`
	Pause  cronPauseCmd  `cmd:"" help:"Leave out the times of an entry."`
	Resume cronResumeCmd `cmd:"" help:"End a pause."`
	Remove cronRemoveCmd `cmd:"" help:"Remove an entry; its jobs stay."`
}

// Help implements kong.HelpProvider.
func (cronCmd) Help() string {
	return `An entry says at which times a job is submitted to a queue, as a line of crontab does. treadle help cron explains all of it.

	treadle cron add nightly '30 2 * * *' backup -w /srv
	treadle cron list
	treadle cron pause nightly --why 'the disk is changed'
	treadle cron resume nightly

` + adminHelp
}

type cronAddCmd struct {
	Name     string `arg:"" help:"Name of the entry and of its jobs."`
	Schedule string `arg:"" help:"Five fields in quotes, minute hour day month weekday, as in crontab; or @hourly, @daily, @weekly, @monthly, @yearly or '@every 10m'."`
	Queue    string `arg:"" help:"Queue of the jobs: the function, type or plugin."`
	Workload string `short:"w" placeholder:"DATA" help:"Workload of the jobs: the text itself, @FILE for a file's content or @- for standard input (default: empty)."`
	Zone     string `placeholder:"ZONE" help:"Time zone of the schedule, as Europe/Berlin or UTC (default: that of the server)."`
	Priority int64  `placeholder:"N" help:"Priority of the jobs; those with more come first (default: 0)."`
	Missed   string `enum:"once,skip" default:"once" help:"What becomes of times that pass while the server is down: one run makes up for all of them, or they are left out: once or skip (default: ${default})."`
	Overlap  string `enum:"skip,queue" default:"skip" help:"What becomes of a time when the job of the one before is not done: it is left out, or it has a job of its own, NAME@TIME: skip or queue (default: ${default})."`
	Replace  bool   `help:"Replace the entry of this name, also one of the configuration file."`
	JSON     bool   `name:"json" help:"Print JSON, an object on one line."`
}

// Help implements kong.HelpProvider.
func (cronAddCmd) Help() string {
	return `	treadle cron add nightly '30 2 * * *' backup -w /srv
	treadle cron add report '0 9 * * mon-fri' mail --zone Europe/Berlin
	treadle cron add invoice '0 6 1,15 * *' bill --missed skip
	treadle cron add poll '@every 10m' fetch --overlap queue

A day matches when its number or its weekday does, if both are given. A schedule that can never run is refused. treadle help cron says what becomes of times that a change of the clock skips or repeats.`
}

// Run adds an entry.
func (a *cronAddCmd) Run(c *cli, con *console) error {
	data, err := readWorkload(a.Workload, con.in)
	if err != nil {
		return err
	}
	if err := refuseEmpty("NAME", a.Name, "SCHEDULE", a.Schedule, "QUEUE", a.Queue); err != nil {
		return err
	}
	for _, text := range []string{a.Name, a.Queue} {
		if !utf8.ValidString(text) {
			return badUsage("the name %q is not UTF-8", text)
		}
	}
	e := client.CronEntry{
		Name: a.Name, Schedule: a.Schedule, Zone: a.Zone, Queue: a.Queue, Workload: string(data),
		Priority: a.Priority, Missed: a.Missed, Overlap: a.Overlap,
	}
	if !utf8.Valid(data) {
		e.Workload, e.WorkloadBytes = "", data
	}
	return c.withAdmin(func(ctx context.Context, admin *client.Admin) error {
		s, err := admin.AddCron(ctx, e, a.Replace)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return writeLines(con.out, []client.CronStatus{s})
		}
		_, err = fmt.Fprintf(con.out, "%s: the next time is %s\n", printable(s.Name), nextOf(&s))
		return err
	})
}

// nextOf returns the next time of an entry as people read it.
func nextOf(s *client.CronStatus) string {
	switch {
	case s.Paused:
		return "paused"
	case len(s.Next) == 0:
		return "never"
	}
	return localTime(s.Next[0])
}

// localTime writes a time of the server without the T of RFC 3339, with the offset of its zone.
func localTime(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return printable(text)
	}
	return t.Format("2006-01-02 15:04:05 -07:00")
}

type cronListCmd struct{ tableFlags }

// Run prints the entries.
func (l *cronListCmd) Run(c *cli, con *console) error {
	return c.list(con, &l.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		all, err := a.Cron(ctx)
		switch {
		case err != nil:
			return err
		case l.JSON:
			return writeLines(w, all)
		}
		var rows [][]string
		for i := range all {
			s := &all[i]
			var counts []string
			for _, outcome := range sortedKeys(s.Counts) {
				counts = append(counts, fmt.Sprint(outcome, "=", s.Counts[outcome]))
			}
			rows = append(rows, []string{
				printable(s.Name), printable(s.Schedule), printable(s.Zone), printable(s.Queue), s.Source, nextOf(s), s.Last, atOf(s),
				number(s.Priority), s.Missed, s.Overlap, printed(strings.Join(counts, " ")), printed(s.Text), printed(s.By), printed(s.Why),
			})
		}
		return l.table(w, "NAME SCHEDULE ZONE QUEUE SOURCE NEXT LAST AT +>PRIORITY +MISSED +OVERLAP +TIMES +TEXT +PAUSED-BY +WHY", rows)
	})
}

// atOf returns when an entry had its last outcome.
func atOf(s *client.CronStatus) string {
	if s.LastAt == 0 {
		return "-"
	}
	return time.UnixMilli(s.LastAt).Format(time.DateTime)
}

type cronShowCmd struct {
	Name string `arg:"" help:"Name of the entry."`
	Next int    `default:"5" placeholder:"N" help:"Show so many times to come (default: ${default})."`
	JSON bool   `name:"json" help:"Print JSON, an object on one line."`
}

// Run prints an entry.
func (s *cronShowCmd) Run(c *cli, con *console) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		e, err := a.CronEntry(ctx, s.Name, s.Next)
		switch {
		case err != nil:
			return err
		case s.JSON:
			return writeLines(con.out, []client.CronStatus{e})
		}
		lines := [][]string{
			{"name", printable(e.Name)}, {"schedule", printable(e.Schedule)}, {"zone", printable(e.Zone)}, {"queue", printable(e.Queue)},
			{"workload", briefly(e.Workload + string(e.WorkloadBytes))}, {"priority", number(e.Priority)},
			{"missed", e.Missed}, {"overlap", e.Overlap}, {"source", e.Source},
		}
		if e.Paused {
			lines = append(lines, []string{"paused", strings.TrimSpace(fmt.Sprintf("by %s %s", printable(e.By), e.Why))})
		}
		for i, next := range e.Next {
			lines = append(lines, []string{[]string{"next", ""}[min(i, 1)], localTime(next)})
		}
		last := e.Last
		if e.LastAt != 0 {
			last += " at " + atOf(&e)
		}
		if e.Text != "" {
			last += ": " + printable(e.Text)
		}
		lines = append(lines, []string{"last", last})
		for _, outcome := range sortedKeys(e.Counts) {
			lines = append(lines, []string{"times " + outcome, fmt.Sprint(e.Counts[outcome])})
		}
		return align(con.out, lines, 2)
	})
}

// briefly returns a workload, or its size when it is long.
func briefly(workload string) string {
	if len(workload) > 100 {
		return fmt.Sprintf("%d bytes", len(workload))
	}
	return printable(workload)
}

type cronRunCmd struct {
	Name string `arg:"" help:"Name of the entry."`
}

// Run submits a job of an entry now.
func (r *cronRunCmd) Run(c *cli, con *console) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		run, err := a.RunCron(ctx, r.Name)
		switch {
		case err != nil:
			return err
		case run.Outcome == "overlap" && run.Text == "":
			return fmt.Errorf("no job of %[1]s is submitted: its queue has a job of that name that is not done (treadle job list name:%[1]s); an entry with --overlap queue submits one all the same", printable(r.Name))
		case run.Outcome == "overlap":
			return fmt.Errorf("no job of %s is submitted: %s", printable(r.Name), run.Text)
		case run.Outcome != "ran":
			return fmt.Errorf("the job is %s: %s", run.Outcome, run.Text)
		}
		_, err = fmt.Fprintf(con.out, "%s: a job is submitted\n", printable(r.Name))
		return err
	})
}

type cronPauseCmd struct {
	changeCause
	Name string `arg:"" help:"Name of the entry."`
}

// Run pauses an entry in the name of the user, or of another.
func (p *cronPauseCmd) Run(c *cli, con *console) error {
	c.by = p.By
	return c.changeCron(con, p.Name, "is paused", func(ctx context.Context, a *client.Admin) error { return a.PauseCron(ctx, p.Name, p.Why) })
}

// changeCron changes an entry and says what became of it.
func (c *cli) changeCron(con *console, name, done string, change func(context.Context, *client.Admin) error) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		if err := change(ctx, a); err != nil {
			return err
		}
		_, err := fmt.Fprintf(con.out, "%s %s\n", printable(name), done)
		return err
	})
}

type cronResumeCmd struct {
	Name string `arg:"" help:"Name of the entry."`
}

// Run ends a pause.
func (r *cronResumeCmd) Run(c *cli, con *console) error {
	return c.changeCron(con, r.Name, "goes on", func(ctx context.Context, a *client.Admin) error { return a.ResumeCron(ctx, r.Name) })
}

type cronRemoveCmd struct {
	Name string `arg:"" help:"Name of the entry."`
}

// Run removes an entry.
func (r *cronRemoveCmd) Run(c *cli, con *console) error {
	return c.changeCron(con, r.Name, "is removed", func(ctx context.Context, a *client.Admin) error { return a.RemoveCron(ctx, r.Name) })
}
