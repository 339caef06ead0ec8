package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"treadle/loop"
	"treadle/loop/client"
)

// queueCmd are the commands that show queues, and say how they are to be treated.
type queueCmd struct {
	List   queueListCmd   `cmd:"" help:"Show the queues, their workers and jobs."`
	Show   queueShowCmd   `cmd:"" help:"Show one queue, its policy, and where each value comes from."`
	Rules  queueRulesCmd  `cmd:"" help:"Show the rules for queues."`
	Set    queueSetCmd    `cmd:"" help:"Change the policy of the queues that a pattern matches."`
	Unset  queueUnsetCmd  `cmd:"" help:"Take back what set has changed."`
	Pause  queuePauseCmd  `cmd:"" help:"Stop handing out the jobs of a queue, or taking some in."`
	Resume queueResumeCmd `cmd:"" help:"End a pause."`
	Drain  queueDrainCmd  `cmd:"" help:"Refuse new jobs; with --wait, return when a queue has none left."`
	Empty  queueEmptyCmd  `cmd:"" help:"Remove the jobs of a queue that do not run."`
}

// Help implements kong.HelpProvider.
func (queueCmd) Help() string {
	return `A policy says how the jobs of a queue are treated: how often a failing job is tried again and after what delay, what the queue takes and starts, whether it is paused. A rule is for the queues that a name or a pattern matches. treadle help policies explains all of it.

	treadle queue list --watch
	treadle queue set 'mail.*' retries=3 backoff='1s..1h x2 ~20%'
	treadle queue show mail.news
	treadle queue pause mail.news --why 'the mail server moves'
	treadle queue resume mail.news

` + adminHelp
}

// changeCause is who changes something, and why, for others who ask and for treadle audit.
type changeCause struct {
	Why string `placeholder:"TEXT" help:"The reason, for others who ask (default: none)."`
	By  string `placeholder:"NAME" help:"The person or program that others are told of (default: the name of the user)."`
}

// adminTimeout is the time for an answer of the API.
const adminTimeout = time.Minute

// withAdmin calls f with a client of the operators' interface and a context that ends with a signal or after the time
// for an answer.
func (c *cli) withAdmin(f func(context.Context, *client.Admin) error) error {
	return c.withAdminFor(adminTimeout, f)
}

// withAdminFor is withAdmin with another time for all answers together; 0: none.
func (c *cli) withAdminFor(limit time.Duration, f func(context.Context, *client.Admin) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	a := client.NewAdmin(cmp.Or(c.Host, os.Getenv("TREADLE_ADMIN"), filepath.Join(loop.Defaults().Data, loop.AdminSocket)))
	a.By = cmp.Or(c.by, userName())
	defer a.Close()
	return f(ctx, a)
}

// list shows a list of the operators' interface.
func (c *cli) list(con *console, l *listFlags, list func(context.Context, *client.Admin, io.Writer) error) error {
	return l.show(con, func(w io.Writer) error {
		return c.withAdmin(func(ctx context.Context, a *client.Admin) error { return list(ctx, a, w) })
	})
}

type queueRulesCmd struct {
	tableFlags
	Keys bool `help:"Show what a rule may say."`
}

// Run prints the rules, the weaker first, or the keys.
func (q *queueRulesCmd) Run(c *cli, con *console) error {
	return c.list(con, &q.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		t, err := a.Policies(ctx)
		switch {
		case err != nil:
			return err
		case q.JSON && q.Keys:
			return writeLines(w, t.Keys)
		case q.JSON:
			return writeLines(w, t.Rules)
		case q.Keys:
			var rows [][]string
			for _, k := range t.Keys {
				rows = append(rows, []string{k.Name, k.Example, k.Meaning})
			}
			return q.table(w, "KEY EXAMPLE MEANING", rows)
		}
		var rows [][]string
		for _, r := range t.Rules {
			for _, k := range t.Keys { // in their order
				if v, ok := r.Values[k.Name]; ok {
					rows = append(rows, []string{printable(r.Pattern), r.Source, k.Name, printable(v), k.Meaning})
				}
			}
		}
		return q.table(w, "QUEUES SOURCE KEY VALUE +MEANING", rows)
	})
}

type queueSetCmd struct {
	Queue  string   `arg:"" help:"Name of a queue, or a pattern as mail.* in which * is any text and ? any byte."`
	Values []string `arg:"" name:"key=value" help:"What to change, as retries=3 backoff='1s..1h x2 ~20%'; treadle queue rules --keys shows all keys."`
}

// Run changes a rule.
func (q *queueSetCmd) Run(c *cli, con *console) error {
	values := make(map[string]*string)
	for _, v := range q.Values {
		key, value, found := strings.Cut(v, "=")
		if !found {
			return badUsage("%q is no KEY=VALUE, as retries=3", v)
		}
		values[key] = &value
	}
	return c.setPolicy(con, q.Queue, values)
}

// setPolicy changes the run-time rule of a pattern and prints what it says now.
func (c *cli) setPolicy(con *console, pattern string, values map[string]*string) error {
	if err := checkUTF8(pattern); err != nil {
		return err
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		r, err := a.SetPolicy(ctx, pattern, values)
		if err == nil {
			return writeRule(con, r)
		}
		if code, _ := exitOf(err); code == exitUsage {
			err = withNearestKey(err, sortedKeys(values)...)
		}
		return err
	})
}

// checkUTF8 returns an error about the name of a queue that no rule and no filter can have.
func checkUTF8(pattern string) error {
	if !utf8.ValidString(pattern) {
		return badUsage("the name %q is not UTF-8, as it must be here: a pattern such as q? matches it, with a ? for each such byte", pattern)
	}
	return nil
}

// writeRule prints the values of a rule in one line, or that there is none, and notes when it was so before.
func writeRule(con *console, r client.PolicyRule) error {
	name := printable(r.Pattern)
	if !r.Changed {
		con.say("nothing has changed")
	}
	sayExceptions(con, r)
	if len(r.Values) == 0 {
		text := "at run time there is no rule for %s any more\n"
		if !r.Changed {
			text = "at run time there is no rule for %s\n"
		}
		_, err := fmt.Fprintf(con.out, text, name)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", name)
	for _, key := range sortedKeys(r.Values) {
		fmt.Fprintf(&b, " %s=%q", key, r.Values[key])
	}
	_, err := fmt.Fprintln(con.out, b.String())
	return err
}

// sayExceptions notes the queues that a pause of their pattern does not concern.
func sayExceptions(con *console, r client.PolicyRule) {
	for _, v := range r.Exceptions {
		queue := printable(v.Pattern)
		does := "goes on"
		if v.Value != "no" {
			does = "is paused less"
		}
		end := "end that with treadle queue unset " + queue + " paused"
		if v.Source == "file" {
			end = "end that in the configuration file"
		}
		con.say("%s %s: its own rule says paused=%s; %s", queue, does, v.Value, end)
	}
	if n := r.ExceptionsOf - len(r.Exceptions); n > 0 {
		con.say("so do %s more; see treadle queue rules", counted(n, "rule"))
	}
}

type queueUnsetCmd struct {
	Queue string   `arg:"" help:"The name or pattern that was given to set."`
	Keys  []string `arg:"" name:"key" help:"What to take back, as retries."`
}

// Run takes keys out of a rule.
func (q *queueUnsetCmd) Run(c *cli, con *console) error {
	values := make(map[string]*string)
	for _, key := range q.Keys {
		values[key] = nil
	}
	return c.setPolicy(con, q.Queue, values)
}

type queuePauseCmd struct {
	changeCause
	Queue   string `arg:"" help:"Name of a queue, or a pattern as mail.*."`
	Submits bool   `help:"Refuse new jobs, and go on handing out."`
	Both    bool   `help:"Do neither."`
}

// Run pauses queues in the name of the user, or of another.
func (q *queuePauseCmd) Run(c *cli, con *console) error {
	how := "hand-out"
	switch {
	case q.Submits && q.Both:
		return badUsage("--submits and --both exclude each other")
	case q.Submits:
		how = "submits"
	case q.Both:
		how = "both"
	}
	c.by = q.By
	return c.pausing(con, q.Queue, func(ctx context.Context, a *client.Admin) (client.PolicyRule, error) {
		return a.PauseQueue(ctx, q.Queue, how, q.Why)
	})
}

// pausing changes the pause of a pattern and prints what its rule says now. It notes when there is no queue of the
// name, which may be mistyped.
func (c *cli) pausing(con *console, pattern string, change func(context.Context, *client.Admin) (client.PolicyRule, error)) error {
	if err := checkUTF8(pattern); err != nil {
		return err
	}
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		r, err := change(ctx, a)
		if err != nil {
			return err
		}
		if r.Changed && len(r.Values) > 0 && !strings.ContainsAny(pattern, "*?") {
			_, err := a.Queue(ctx, pattern)
			if code, _ := exitOf(err); err != nil && code == exitNotFound {
				con.say("there is no queue %s yet: the rule waits for it", printable(pattern))
			}
		}
		return writeRule(con, r)
	})
}

type queueResumeCmd struct {
	Queue string `arg:"" help:"The name or pattern that was given to pause."`
}

// Run takes a pause back. A queue that the rule of a pattern pauses, too, is said not to be.
func (q *queueResumeCmd) Run(c *cli, con *console) error {
	return c.pausing(con, q.Queue, func(ctx context.Context, a *client.Admin) (client.PolicyRule, error) {
		r, err := a.ResumeQueue(ctx, q.Queue)
		if r.Values["paused"] == "no" {
			con.say("another rule pauses it, too: this queue alone goes on")
		}
		return r, err
	})
}
