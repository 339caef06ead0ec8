package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"treadle/loop"
	"treadle/loop/client"
)

type dworkCmd struct {
	Server string `short:"s" hidden:"" help:"As -H."`

	Create   dworkCreateCmd   `cmd:"" help:"Add a task, or dependencies to one."`
	Addfile  dworkAddfileCmd  `cmd:"" help:"Add the tasks of a file."`
	Import   dworkImportCmd   `cmd:"" help:"Add the tasks that the original hub has saved."`
	Steal    dworkStealCmd    `cmd:"" help:"Take ready tasks."`
	Complete dworkCompleteCmd `cmd:"" help:"Say that tasks are done."`
	Exit     dworkExitCmd     `cmd:"" help:"Have a worker's tasks ready again."`
	Release  dworkReleaseCmd  `cmd:"" help:"Have the tasks of workers that are gone for good ready again."`
	Transfer dworkTransferCmd `cmd:"" help:"Give a task back, with more dependencies."`
	Lookup   dworkLookupCmd   `cmd:"" help:"Show a task."`
	Status   dworkStatusCmd   `cmd:"" help:"Show how many tasks there are."`
	Work     dworkWorkCmd     `cmd:"" help:"Do tasks by running a command for each."`
	Graph    dworkGraphCmd    `cmd:"" help:"Write the live graph for Graphviz."`
}

// Help implements kong.HelpProvider.
func (dworkCmd) Help() string {
	return `A hub keeps a graph of tasks; a task is ready when all its predecessors are complete. Workers steal ready tasks, do them, and complete them. The hub knows a worker by its name, not by its connection: the worker keeps its tasks, also over a restart of the server, until it completes or transfers them or exits.

	treadle dwork create chop
	treadle dwork create soup chop
	treadle dwork work -j 4 -- echo
	treadle dwork status

Exit code 1 when the hub answers Error or finds nothing, 3 when it does not answer in 30s.`
}

// AfterApply is called by kong.
func (d *dworkCmd) AfterApply(c *cli) error {
	return c.setServer(&d.Server, "TREADLE_DWORK", loop.DefaultDwork)
}

// with calls f with a connection to the hub. The context ends with a signal or after replyTimeout.
func (d *dworkCmd) with(f func(context.Context, *client.HubClient) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	hub, err := client.DialHub(ctx, d.Server)
	if err != nil {
		return err
	}
	defer hub.Close()
	return f(ctx, hub)
}

// location returns a worker's name on the hub: the given one, else the host's, as with the reference.
func location(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host has no name, give one: %w", err)
	}
	return host, nil
}

func newTask(name string, after []string) (client.DworkTask, error) {
	origin, err := location("")
	return client.DworkTask{Name: name, Origin: origin, After: after}, err
}

type dworkCreateCmd struct {
	Task string   `arg:"" help:"Name of the task."`
	Dep  []string `arg:"" optional:"" help:"Tasks that must be complete first; one that is not there counts as complete."`
}

// Run creates the task.
func (d *dworkCreateCmd) Run(c *cli) error {
	if err := refuseEmpty("TASK", d.Task); err != nil {
		return err
	}
	task, err := newTask(d.Task, d.Dep)
	if err != nil {
		return err
	}
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error { return hub.Create(ctx, task) })
}

type dworkStealCmd struct {
	N     int32  `short:"n" name:"n" default:"1" placeholder:"N" help:"Most tasks to take (default: ${default})."`
	Quiet bool   `short:"q" help:"Print nothing but the names, also when there is no task."`
	Host  string `arg:"" optional:"" help:"Name of the worker (default: the host's)."`
}

// Run steals tasks and prints their names. Without a task the exit code is 1, as with dquery.
func (d *dworkStealCmd) Run(c *cli, con *console) error {
	if d.N < 1 {
		return badUsage("-n: %d is below 1", d.N)
	}
	host, err := location(d.Host)
	if err != nil {
		return err
	}
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		tasks, err := hub.Steal(ctx, host, d.N)
		switch {
		case d.Quiet && (errors.Is(err, client.ErrNoTask) || errors.Is(err, client.ErrAllDone)):
			return silent{err}
		case errors.Is(err, client.ErrNoTask):
			return errors.New("no task is ready")
		case errors.Is(err, client.ErrAllDone):
			return errors.New("no task is left")
		}
		for _, t := range tasks {
			fmt.Fprintln(con.out, printable(t.Name))
		}
		return err
	})
}

type dworkCompleteCmd struct {
	Task []string `arg:"" help:"Names of the tasks."`
	Host string   `name:"worker" placeholder:"NAME" help:"Name of the worker that holds them (default: the host's)."`
}

// Run completes the tasks.
func (d *dworkCompleteCmd) Run(c *cli) error {
	host, err := location(d.Host)
	if err != nil {
		return err
	}
	tasks := make([]client.DworkTask, 0, len(d.Task))
	for _, name := range d.Task {
		tasks = append(tasks, client.DworkTask{Name: name, Origin: host})
	}
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		missing, err := hub.Complete(ctx, host, tasks...)
		if errors.Is(err, client.ErrNoTask) {
			return fmt.Errorf("not complete: %s: the hub has no such task assigned, or not to %s", names(missing), host)
		}
		return err
	})
}

func names(tasks []client.DworkTask) string {
	var all []string
	for _, t := range tasks {
		all = append(all, fmt.Sprintf("%q", t.Name))
	}
	return strings.Join(all, ", ")
}

type dworkExitCmd struct {
	Host string `arg:"" optional:"" help:"Name of the worker (default: the host's)."`
}

// Run makes the worker's tasks ready again.
func (d *dworkExitCmd) Run(c *cli) error {
	host, err := location(d.Host)
	if err != nil {
		return err
	}
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		err := hub.Exit(ctx, host)
		if errors.Is(err, client.ErrNoTask) {
			return fmt.Errorf("no worker is known as %s", host)
		}
		return err
	})
}

type dworkReleaseCmd struct {
	Location []string `arg:"" help:"Names of the workers, as treadle dwork lookup shows them. Tasks of one that is alive are done twice."`
}

// Run makes the tasks of all the workers ready again, and fails when the hub does not know one of them.
func (d *dworkReleaseCmd) Run(c *cli) error {
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		var unknown []string
		for _, location := range d.Location {
			switch err := hub.Exit(ctx, location); {
			case errors.Is(err, client.ErrNoTask):
				unknown = append(unknown, printable(location))
			case err != nil:
				return err
			}
		}
		if len(unknown) > 0 {
			return fmt.Errorf("no worker is known as %s", strings.Join(unknown, ", "))
		}
		return nil
	})
}

type dworkTransferCmd struct {
	Task string   `arg:"" help:"Name of the task."`
	Dep  []string `arg:"" optional:"" help:"Tasks that must be complete before it is handed out again."`
	Host string   `name:"worker" placeholder:"NAME" help:"Name of the worker that holds it (default: the host's)."`
}

// Run gives the task back with more dependencies.
func (d *dworkTransferCmd) Run(c *cli) error {
	host, err := location(d.Host)
	if err != nil {
		return err
	}
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		err := hub.Transfer(ctx, host, client.DworkTask{Name: d.Task, Origin: host, After: d.Dep})
		if errors.Is(err, client.ErrNoTask) {
			return fmt.Errorf("%s does not hold %q", host, d.Task)
		}
		return err
	})
}

type dworkLookupCmd struct {
	Task string `arg:"" help:"Name of the task."`
}

// Run prints the task.
func (d *dworkLookupCmd) Run(c *cli, con *console) error {
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		t, err := hub.Lookup(ctx, d.Task)
		switch {
		case errors.Is(err, client.ErrNoTask):
			return fmt.Errorf("no task %q", d.Task)
		case err != nil:
			return err
		}
		fmt.Fprintf(con.out, "task      %s\norigin    %s\n", printable(t.Name), printable(t.Origin))
		if t.Location != "" {
			fmt.Fprintf(con.out, "worker    %s\n", printable(t.Location))
		}
		for _, name := range t.After {
			fmt.Fprintf(con.out, "after     %s\n", printable(name))
		}
		for _, name := range t.Before {
			fmt.Fprintf(con.out, "before    %s\n", printable(name))
		}
		for _, e := range t.Log {
			fmt.Fprintf(con.out, "%-9s %s\n", strings.ToLower(e.State.String()), time.UnixMicro(e.Time).Format("2006-01-02 15:04:05.000000"))
		}
		return nil
	})
}

type dworkStatusCmd struct{}

// Run prints the text of the hub's reply.
func (dworkStatusCmd) Run(c *cli, con *console) error {
	return c.Dwork.with(func(ctx context.Context, hub *client.HubClient) error {
		text, _, err := hub.Status(ctx)
		if err == nil {
			fmt.Fprintln(con.out, oneLine(text))
		}
		return err
	})
}
