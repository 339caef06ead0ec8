package main

import (
	"context"
	"fmt"
	"strings"

	"treadle/loop/client"
)

type dworkImportCmd struct {
	Prefix     string `arg:"" help:"Where the original hub has saved its tasks, as it was given with -f: PREFIX_th.flat and PREFIX_tasks.flat are read."`
	LeaveStuck bool   `help:"Leave out the tasks that wait for each other in a circle, and those that wait for these; without it nothing is imported then."`
}

// maxImportAfter is how many predecessors one entry of a request names; a task with more has further entries.
const maxImportAfter = 16 << 10

// Run creates the tasks of the files.
func (d *dworkImportCmd) Run(c *cli, con *console) error {
	saved, err := client.ReadSavedHub(d.Prefix)
	if err == nil && len(saved.Stuck) > 0 && !d.LeaveStuck {
		err = fmt.Errorf("%d tasks wait for each other in a circle, or for such a task: %s; --leave-stuck imports the others",
			len(saved.Stuck), fewNames(saved.Stuck))
	}
	if err != nil {
		return fmt.Errorf("cannot import: %w", err)
	}
	edges := 0
	err = c.Dwork.adding(adder{size: int64(len(saved.Tasks)), progress: progress(con.err, "import")}, func(ctx context.Context, a *adder) error {
		for _, t := range saved.Tasks {
			edges += len(t.After)
			if err = a.task(ctx, t); err != nil {
				break
			}
		}
		if err == nil {
			err = a.send(ctx)
		}
		if err != nil {
			return fmt.Errorf("not all tasks are imported: %w (once mended, the same import adds the rest, if no worker has completed any)", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if saved.Odd > 0 {
		con.say("%d entries are left out: they are of tasks that only one of the two files knows", saved.Odd)
	}
	fmt.Fprintf(con.out, "%d tasks and %d dependencies imported\n", len(saved.Tasks), edges)
	return nil
}

// fewNames returns the first names, quoted.
func fewNames(names []string) string {
	const few = 5
	var all []string
	for _, name := range names[:min(len(names), few)] {
		all = append(all, fmt.Sprintf("%q", name))
	}
	if len(names) > few {
		all = append(all, "..")
	}
	return strings.Join(all, ", ")
}

// task adds a task, in several requests if it waits for very many others.
func (a *adder) task(ctx context.Context, t client.DworkTask) error {
	a.done++
	for rest := t.After; ; {
		part := rest[:min(len(rest), maxImportAfter)]
		a.bytes += len(t.Name)
		for _, name := range part {
			a.bytes += len(name)
		}
		a.block = append(a.block, client.DworkTask{Name: t.Name, Origin: a.origin, After: part})
		if len(a.block) == fileBlock || a.bytes > fileBlockBytes {
			if err := a.send(ctx); err != nil {
				return err
			}
		}
		if rest = rest[len(part):]; len(rest) == 0 {
			return nil
		}
	}
}
