package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"treadle/loop"
	"treadle/loop/client"
)

type kts46Cmd struct {
	Server string `short:"s" hidden:"" help:"As -H."`

	AddProject kts46AddProjectCmd `cmd:"" help:"Make a project."`
	AddJob     kts46AddJobCmd     `cmd:"" help:"Add a job to a project."`
	Run        kts46RunCmd        `cmd:"" help:"Queue jobs."`
	Tasks      kts46TasksCmd      `cmd:"" help:"Show what workers hold."`
	Restart    kts46RestartCmd    `cmd:"" help:"Queue the tasks of workers again."`
	Status     kts46StatusCmd     `cmd:"" help:"Show how far jobs are."`
}

// Help implements kong.HelpProvider.
func (kts46Cmd) Help() string {
	return `Workers simulate a job of a project batch by batch; its statistics come last.

	treadle kts46 add-project traffic
	treadle kts46 add-job traffic north @north.yaml
	treadle kts46 run traffic north
	treadle kts46 status
	treadle kts46 tasks`
}

// AfterApply is called by kong.
func (k *kts46Cmd) AfterApply(c *cli) error {
	return c.setServer(&k.Server, "TREADLE_KTS46", loop.DefaultKts46)
}

// with calls f with a client. The context ends with a signal or after replyTimeout.
func (k *kts46Cmd) with(f func(context.Context, *client.Kts46) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	scheduler := client.NewKts46(k.Server)
	defer scheduler.Close()
	return f(ctx, scheduler)
}

type kts46AddProjectCmd struct {
	Project string `arg:"" help:"Name of the project."`
}

// Run makes the project.
func (k *kts46AddProjectCmd) Run(c *cli) error {
	return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error { return s.CreateProject(ctx, k.Project) })
}

type kts46AddJobCmd struct {
	Project    string `arg:"" help:"Name of the project."`
	Job        string `arg:"" help:"Name of the job."`
	Definition string `arg:"" help:"Its YAML, or @FILE, or @- for standard input."`
}

// Help implements kong.HelpProvider.
func (kts46AddJobCmd) Help() string {
	return `The definition is YAML; the scheduler reads simulationParameters and leaves the rest to the workers. duration and stepDuration are simulated time in one unit, batchLength is how many steps are one task.

	treadle kts46 add-job traffic north @north.yaml
	treadle kts46 add-job traffic north '{simulationParameters: {duration: 600, stepDuration: 0.5, batchLength: 100}}'`
}

// Run adds the job.
func (k *kts46AddJobCmd) Run(c *cli, con *console) error {
	definition, err := readWorkload(k.Definition, con.in)
	if err != nil {
		return err
	}
	return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error {
		return s.AddJob(ctx, k.Project, k.Job, string(definition))
	})
}

type kts46RunCmd struct {
	Project string   `arg:"" help:"Name of the project."`
	Job     []string `arg:"" help:"Names of its jobs."`
}

// Help implements kong.HelpProvider.
func (kts46RunCmd) Help() string {
	return `Returns when the jobs are queued. A job that is queued, running or done is left alone; when a job does not exist, the jobs behind it are not queued.

	treadle kts46 run traffic north south`
}

// Run queues the jobs.
func (k *kts46RunCmd) Run(c *cli) error {
	return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error {
		for _, job := range k.Job {
			if err := s.RunJob(ctx, k.Project, job); err != nil {
				return err
			}
		}
		return nil
	})
}

type kts46TasksCmd struct{ listFlags }

// Run shows the tasks.
func (k *kts46TasksCmd) Run(c *cli, con *console) error {
	return k.show(con, func(out io.Writer) error {
		return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error {
			tasks, err := s.Tasks(ctx)
			switch {
			case err != nil:
				return err
			case k.JSON:
				return writeLines(out, tasks)
			}
			return writeColumns(out, "WORKER\tPROJECT\tJOB\tLAST UPDATE", func(w io.Writer) {
				for _, t := range tasks {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(t.Worker), printable(t.Project), printable(t.Job), t.LastUpdate.Format(time.RFC3339))
				}
			})
		})
	})
}

type kts46RestartCmd struct {
	Worker []string      `arg:"" optional:"" help:"Ids of the workers (default: all whose last update is older than --older)."`
	Older  time.Duration `default:"0s" placeholder:"TIME" help:"Least age of the last update (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (kts46RestartCmd) Help() string {
	return `Prints a line for each task that is queued again. A worker that reports meanwhile keeps its task; the reply to its next report tells a worker that it has lost its task. treadle serve --kts46-restart-after restarts tasks by itself.

	treadle kts46 restart worker-7
	treadle kts46 restart --older 45s`
}

// Run restarts, and prints a line for each task.
func (k *kts46RestartCmd) Run(c *cli, con *console) error {
	if len(k.Worker) == 0 && k.Older <= 0 {
		return badUsage("name workers, or an age with --older")
	}
	return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error {
		tasks, err := s.Tasks(ctx)
		if err != nil {
			return err
		}
		wanted := make(map[string]bool)
		for _, w := range k.Worker {
			wanted[w] = true
		}
		for _, t := range tasks {
			if len(k.Worker) > 0 && !wanted[t.Worker] || time.Since(t.LastUpdate) < k.Older {
				continue
			}
			done, err := s.Restart(ctx, t.Worker, t.LastUpdate)
			if err != nil {
				return err
			}
			if done {
				delete(wanted, t.Worker)
				fmt.Fprintf(con.out, "%s %s %s\n", printable(t.Worker), printable(t.Project), printable(t.Job))
			}
		}
		for _, w := range k.Worker {
			if wanted[w] {
				return fmt.Errorf("worker %q has no task to restart", w)
			}
		}
		return nil
	})
}

type kts46StatusCmd struct {
	listFlags
	Project string `arg:"" optional:"" help:"Name of one project (default: all)."`
}

// Run shows the jobs.
func (k *kts46StatusCmd) Run(c *cli, con *console) error {
	return k.show(con, func(out io.Writer) error {
		return c.Kts46.with(func(ctx context.Context, s *client.Kts46) error {
			jobs, err := s.Status(ctx, k.Project)
			switch {
			case err != nil:
				return err
			case k.JSON:
				return writeLines(out, jobs)
			}
			return writeColumns(out, "PROJECT\tJOB\tDONE\tTOTAL", func(w io.Writer) {
				for _, j := range jobs {
					if j.Name == "" {
						fmt.Fprintf(w, "%s\t-\t-\t-\n", printable(j.Project))
					} else {
						fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", printable(j.Project), printable(j.Name), j.Done, j.Total)
					}
				}
			})
		})
	})
}

// writeColumns writes a table of tab-separated lines.
func writeColumns(out io.Writer, head string, lines func(io.Writer)) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, head)
	lines(w)
	return w.Flush()
}
