package client

import (
	"context"

	"treadle/codec/kts46"
)

// KtsHeld is a task that a worker has taken. Type is simulation or statistics.
type KtsHeld struct {
	Project, Job, Type string
	worker             string
	last               any // the time that the next report names
}

// Take takes a task for a worker of version 1; nil: there is none.
func (k *Kts46) Take(ctx context.Context, worker string) (*KtsHeld, error) {
	v, err := k.call(ctx, "getJob", worker)
	task, ok := v.(kts46.Struct)
	if err != nil || !ok {
		return nil, err
	}
	h := &KtsHeld{worker: worker, last: task.Get("lastUpdate")}
	h.Project, _ = task.Get("project").(string)
	h.Job, _ = task.Get("job").(string)
	h.Type, _ = task.Get("type").(string)
	return h, nil
}

// Finish ends a task as done.
func (k *Kts46) Finish(ctx context.Context, h *KtsHeld) error {
	_, err := k.call(ctx, "reportStatus", h.worker, "finished", h.last)
	return err
}
