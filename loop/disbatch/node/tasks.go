package node

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// claim claims the next task of a queue for a node. It returns store.ErrNotFound if there is none. No two nodes claim the same
// task, since the database finds and changes a document in one step.
func (d *database) claim(ctx context.Context, q *store.Queue, node string, now time.Time) (store.Task, error) {
	return d.TakeTask(ctx, unclaimed(q), order(q), store.Set(bson.D{
		{Key: "node", Value: node}, {Key: "status", Value: int32(store.StatusClaimed)}, {Key: "mtime", Value: primitive.NewDateTimeFromTime(now)},
	}))
}

// unclaimed returns a filter for the queued tasks of a queue.
func unclaimed(q *store.Queue) bson.D {
	return bson.D{{Key: "node", Value: store.In(bson.A{nil, int32(-1)})}, {Key: "status", Value: store.StatusQueued}, {Key: "queue", Value: q.ID}}
}

// order returns the order in which nodes claim the tasks of a queue. It is explicit for the default too: without a sort the database
// may return the newest task first under load.
func order(q *store.Queue) bson.D {
	if q.LIFO() {
		return bson.D{{Key: "_id", Value: -1}}
	}
	return bson.D{{Key: "_id", Value: 1}}
}

// fullDocument is the size from which a document has no room for a claim: the limit of the database less a node's name and a time.
const fullDocument = 16<<20 - 1024

// nextFull returns the next task of a queue if its document has no room for a claim, and store.ErrNotFound otherwise.
func (d *database) nextFull(ctx context.Context, q *store.Queue) (store.Task, error) {
	next, err := d.Search(ctx, unclaimed(q), store.SearchOptions{Limit: 1, Sort: order(q)})
	switch {
	case err != nil:
		return store.Task{}, err
	case len(next) == 0 || len(next[0].Raw) < fullDocument:
		return store.Task{}, store.ErrNotFound
	}
	return next[0], nil
}

// failWithoutOutput fails a task whose document has no room for output. It writes the status alone if no more fits. It returns false
// for a task that has changed since the caller read it.
func (d *database) failWithoutOutput(ctx context.Context, t *store.Task, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: t.Status}, {Key: "node", Value: t.Raw.Lookup("node")}}
	o := outcome{status: store.StatusFailed, stdout: "", stderr: ""}
	ended, err := d.UpdateTask(ctx, filter, o.update(mtime))
	if store.TooLarge(err) {
		return d.UpdateTask(ctx, filter, store.Set(bson.D{{Key: "status", Value: int32(store.StatusFailed)}}))
	}
	return ended, err
}

// active is a condition for the statuses that count against a queue's limit.
var active = store.In([]int{store.StatusClaimed, store.StatusRunning})

// occupying counts the claimed and running tasks of a queue at all nodes.
func (d *database) occupying(ctx context.Context, q *store.Queue) (int64, error) {
	return d.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: active}})
}

// ahead counts the tasks of a queue before a claimed one: the running tasks, and the claimed tasks that are first by the queue's
// sort.
func (d *database) ahead(ctx context.Context, q *store.Queue, t *store.Task) (int64, error) {
	first := "$lt"
	if q.LIFO() {
		first = "$gt"
	}
	return d.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: active}, {Key: "$or", Value: bson.A{
		bson.D{{Key: "status", Value: store.StatusRunning}}, bson.D{{Key: "_id", Value: bson.D{{Key: first, Value: t.ID}}}},
	}}})
}

// runField is the field with the id of a run while a task runs. After a lost reply it shows which runner has begun the task.
const runField = "treadle_run"

// begin changes a claimed task to running for one run. It returns false if the task is not claimed by the node. A second call with
// the same run has the same result.
func (d *database) begin(ctx context.Context, t *store.Task, run primitive.ObjectID) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: store.StatusClaimed}, {Key: "node", Value: t.Node}}
	begun, err := d.UpdateTask(ctx, filter, store.Set(bson.D{{Key: "status", Value: int32(store.StatusRunning)}, {Key: runField, Value: run}}))
	if begun || err != nil {
		return begun, err
	}
	now, err := d.Task(ctx, t.ID)
	if err == store.ErrNotFound {
		return false, nil
	}
	mine, _ := now.Raw.Lookup(runField).ObjectIDOK()
	return err == nil && mine == run && now.Status == store.StatusRunning, err
}

// outcome is the end of a task.
type outcome struct {
	status         int
	stdout, stderr any // string, or id of a file
}

// finish writes the end of a running task in one update. It returns true if this or an earlier call of the run has done so.
func (d *database) finish(ctx context.Context, t *store.Task, run primitive.ObjectID, o outcome, mtime time.Time) (bool, error) {
	ended, err := d.UpdateTask(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}, o.update(mtime))
	if ended || err != nil {
		return ended, err
	}
	now, err := d.Task(ctx, t.ID)
	if err == store.ErrNotFound {
		return false, nil
	}
	return err == nil && now.Status == o.status, err
}

// endAbandoned writes the end of a task that its runner has left unfinished. It returns false unless the task is claimed or running
// at its node.
func (d *database) endAbandoned(ctx context.Context, t *store.Task, o outcome, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "node", Value: t.Node}, {Key: "status", Value: active}}
	return d.UpdateTask(ctx, filter, o.update(mtime))
}

// update returns the update that writes an outcome. A zero time keeps mtime.
func (o *outcome) update(mtime time.Time) bson.D {
	fields := bson.D{
		{Key: "status", Value: int32(o.status)}, {Key: "stdout", Value: o.stdout}, {Key: "stderr", Value: o.stderr}, {Key: "complete", Value: true},
	}
	if !mtime.IsZero() {
		fields = append(fields, bson.E{Key: "mtime", Value: primitive.NewDateTimeFromTime(mtime)})
	}
	return append(store.Set(fields), bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}})
}

// requeue queues a running task of a run again. No worker has begun it.
func (d *database) requeue(ctx context.Context, t *store.Task, run primitive.ObjectID, schema store.Schema) error {
	_, err := d.UpdateTask(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}, append(
		store.Set(bson.D{{Key: "node", Value: schema.Unclaimed()}, {Key: "status", Value: int32(store.StatusQueued)}}),
		bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}}))
	return err
}

// release queues the claimed tasks of a node again: the given ones, or all. It writes each task in the dialect of its queue; a queue
// that is not among queues counts as one of 2018. It returns the number of tasks.
func (d *database) release(ctx context.Context, node string, queues []store.Queue, only ...primitive.ObjectID) (int64, error) {
	var of2016 []primitive.ObjectID
	for _, q := range queues {
		if q.Schema == store.Schema2016 {
			of2016 = append(of2016, q.ID)
		}
	}
	total := int64(0)
	for _, schema := range []store.Schema{store.Schema2016, store.Schema2018} {
		filter := bson.D{{Key: "node", Value: node}, {Key: "status", Value: store.StatusClaimed}}
		switch {
		case schema == store.Schema2016 && len(of2016) == 0:
			continue
		case schema == store.Schema2016:
			filter = append(filter, bson.E{Key: "queue", Value: store.In(of2016)})
		case len(of2016) > 0: // a late claim may have arrived since
			filter = append(filter, bson.E{Key: "queue", Value: bson.D{{Key: "$nin", Value: of2016}}})
		}
		if len(only) > 0 {
			filter = append(filter, bson.E{Key: "_id", Value: store.In(only)})
		}
		n, err := d.UpdateTasks(ctx, filter, store.Set(bson.D{{Key: "node", Value: schema.Unclaimed()}, {Key: "status", Value: int32(store.StatusQueued)}}))
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// heldBy returns the claimed and running tasks of a node without their payload.
func (d *database) heldBy(ctx context.Context, node string) ([]store.Task, error) {
	return d.Search(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: active}},
		store.SearchOptions{Projection: bson.D{{Key: "queue", Value: 1}, {Key: "status", Value: 1}, {Key: "node", Value: 1}}})
}

// orphanClaimed orphans the tasks that a node has claimed before a time and not begun, except the given ones. It returns their
// number. mtime is a date or, in old data, seconds since 1970.
func (d *database) orphanClaimed(ctx context.Context, node string, before time.Time, except []primitive.ObjectID) (int64, error) {
	filter := bson.D{
		{Key: "node", Value: node}, {Key: "status", Value: store.StatusClaimed},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "mtime", Value: bson.D{{Key: "$lt", Value: primitive.NewDateTimeFromTime(before)}}}},
			bson.D{{Key: "mtime", Value: bson.D{{Key: "$lt", Value: before.Unix()}}}},
		}},
	}
	if len(except) > 0 {
		filter = append(filter, bson.E{Key: "_id", Value: bson.D{{Key: "$nin", Value: except}}})
	}
	return d.orphan(ctx, filter)
}

// orphanRunning orphans the running tasks of a node and returns their number. A runner that is still alive may finish them later.
func (d *database) orphanRunning(ctx context.Context, node string) (int64, error) {
	return d.orphan(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: store.StatusRunning}})
}

// orphanTask orphans one task. It returns false unless the task is running at its node.
func (d *database) orphanTask(ctx context.Context, t *store.Task) (bool, error) {
	n, err := d.orphan(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: "node", Value: t.Node}, {Key: "status", Value: store.StatusRunning}})
	return n > 0, err
}

// orphan sets the status of tasks to orphaned and returns their number.
func (d *database) orphan(ctx context.Context, filter bson.D) (int64, error) {
	return d.UpdateTasks(ctx, filter, store.Set(bson.D{{Key: "status", Value: int32(store.StatusOrphaned)}}))
}
