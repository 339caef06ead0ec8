package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// ErrTaskID reports a text that is no task id.
var ErrTaskID = errors.New("not the 24 hexadecimal digits of a task's id")

// TaskOptions holds the arguments of a task runner.
type TaskOptions struct {
	Task   string // id
	GFS    config.GFS
	Plugin string // used if the plugin of the queue is unknown here
}

// RunTask begins a claimed task, runs its plugin and writes its end, as the original's task runner does.
func RunTask(ctx context.Context, c *config.File, o TaskOptions, log *slog.Logger) error {
	id, err := primitive.ObjectIDFromHex(strings.TrimSpace(o.Task))
	if err != nil {
		return fmt.Errorf("--task %s: %w", o.Task, ErrTaskID)
	}
	site, err := store.Open(c.Connection(config.ComponentRunner))
	if err != nil {
		return err
	}
	defer site.Close()
	p := newPerformer(site, c, log)
	var t store.Task
	var q store.Queue
	err = p.retry.Connect(ctx, "reading task "+id.Hex(), func() (err error) {
		if t, err = site.Task(ctx, id); err == nil {
			q, err = site.Queue(ctx, t.Queue.Hex())
		}
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case t.ID.IsZero():
		return fmt.Errorf("task %s: %w", id.Hex(), store.ErrNotFound)
	case q.ID.IsZero():
		return fmt.Errorf("queue %s of task %s: %w", t.Queue.Hex(), id.Hex(), store.ErrNotFound)
	case t.Status != store.StatusClaimed:
		return fmt.Errorf("task %s has status %d: only a claimed one, -1, can be run", id.Hex(), t.Status)
	}
	own := *c
	own.TaskRunner = "" // it may be this program
	plugin, err := pluginOf(&own, q.Plugin, q.Schema, nil)
	if err != nil && o.Plugin != "" {
		plugin, err = pluginOf(&own, o.Plugin, q.Schema, nil)
	}
	a := &assignment{Task: t.Raw, Plugin: plugin, Schema: q.Schema, GFS: o.GFS}
	if err != nil {
		run := primitive.NewObjectID()
		if berr := p.begin(ctx, a, &t, run); berr != nil {
			return berr
		}
		return p.finish(ctx, a, &t, run, failedOutcome(unableToStart, err))
	}
	return p.perform(ctx, a)
}
