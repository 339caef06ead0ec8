package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Claim claims the next task of a queue for a node. It returns ErrNotFound if the queue has no task to claim. No two
// nodes claim the same task, since the database finds and changes a document in one step.
func (s *Store) Claim(ctx context.Context, q *Queue, node string, now time.Time) (Task, error) {
	o := options.FindOneAndUpdate().SetReturnDocument(options.After).SetSort(order(q))
	claim := set(bson.D{
		{Key: "node", Value: node}, {Key: "status", Value: int32(StatusClaimed)}, {Key: "mtime", Value: primitive.NewDateTimeFromTime(now)},
	})
	var raw bson.Raw
	err := s.durably(func(tasks *mongo.Collection) (err error) {
		raw, err = tasks.FindOneAndUpdate(ctx, unclaimed(q), claim, o).Raw()
		return err
	})
	if err != nil {
		return Task{}, notFound(err)
	}
	return DecodeTask(raw), nil
}

// unclaimed returns a filter for the queued tasks of a queue.
func unclaimed(q *Queue) bson.D {
	return bson.D{{Key: "node", Value: in(bson.A{nil, int32(-1)})}, {Key: "status", Value: StatusQueued}, {Key: "queue", Value: q.ID}}
}

// order returns the order in which nodes claim the tasks of a queue. It is explicit for the default too: without a sort
// the database may return the newest task first under load.
func order(q *Queue) bson.D {
	if q.lifo() {
		return bson.D{{Key: "_id", Value: -1}}
	}
	return bson.D{{Key: "_id", Value: 1}}
}

// documentWithoutRoom is the size from which a document has no room for a claim: the limit of the database less a
// node's name and a time.
const documentWithoutRoom = 16<<20 - 1024

// NextWithoutRoom returns the next task of a queue if its document has no room for a claim, and ErrNotFound otherwise.
func (s *Store) NextWithoutRoom(ctx context.Context, q *Queue) (Task, error) {
	next, err := s.Search(ctx, unclaimed(q), SearchOptions{Limit: 1, Sort: order(q)})
	switch {
	case err != nil:
		return Task{}, err
	case len(next) == 0 || len(next[0].Raw) < documentWithoutRoom:
		return Task{}, ErrNotFound
	}
	return next[0], nil
}

// FailWithoutOutput fails a task whose document has no room for output. It writes the status alone if no more fits. It
// returns false for a task that has changed since the caller read it.
func (s *Store) FailWithoutOutput(ctx context.Context, t *Task, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: t.Status}, {Key: "node", Value: t.Raw.Lookup("node")}}
	o := Outcome{Status: StatusFailed, Stdout: "", Stderr: ""}
	ended, err := s.updateTask(ctx, filter, o.update(mtime))
	if TooLarge(err) {
		return s.updateTask(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusFailed)}}))
	}
	return ended, err
}

// active is a condition for the statuses that count against a queue's limit.
var active = in([]int{StatusClaimed, StatusRunning})

// Placement is whether a claimed task is within the limit of its queue over all nodes.
type Placement int

const (
	// Undecided means that more tasks than the limit are claimed or running. The task fits if enough later claims are
	// released.
	Undecided Placement = iota
	// Within means that all claimed and running tasks fit the limit.
	Within
	// Beyond means that the tasks before this one fill the limit.
	Beyond
)

// Place returns the placement of a claimed task among the claimed and running tasks of its queue at all nodes. The
// tasks before it are the running ones, and the claimed ones that are first by the queue's sort.
func (s *Store) Place(ctx context.Context, q *Queue, t *Task) (Placement, error) {
	filter := bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: active}}
	count, err := s.CountTasks(ctx, filter)
	switch {
	case err != nil:
		return Undecided, err
	case count <= int64(q.Limit):
		return Within, nil
	}
	first := "$lt"
	if q.lifo() {
		first = "$gt"
	}
	before, err := s.CountTasks(ctx, append(filter, bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "status", Value: StatusRunning}}, bson.D{{Key: "_id", Value: bson.D{{Key: first, Value: t.ID}}}},
	}}))
	if err == nil && before >= int64(q.Limit) {
		return Beyond, nil
	}
	return Undecided, err
}

// runField is the field with the id of a run while a task runs. After a lost reply it shows which runner has begun the
// task.
const runField = "treadle_run"

// Begin changes a claimed task to running for one run. It returns false if the task is not claimed by the node. A
// second call with the same run has the same result.
func (s *Store) Begin(ctx context.Context, t *Task, run primitive.ObjectID) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: StatusClaimed}, {Key: "node", Value: t.Node}}
	begun, err := s.updateTask(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusRunning)}, {Key: runField, Value: run}}))
	if begun || err != nil {
		return begun, err
	}
	now, err := s.Task(ctx, t.ID)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	mine, _ := now.Raw.Lookup(runField).ObjectIDOK()
	return err == nil && mine == run && now.Status == StatusRunning, err
}

// Outcome is the end of a task.
type Outcome struct {
	Status         int
	Stdout, Stderr any // string, or id of a file
}

// Finish writes the end of a running task in one update. It returns true if this or an earlier call of the run with the
// same outcome and mtime has done so. It cannot compare the run: the document of an ended task has none, since clients
// of the original would see it. It compares the outcome and mtime, which differs from that of another run.
func (s *Store) Finish(ctx context.Context, t *Task, run primitive.ObjectID, o Outcome, mtime time.Time) (bool, error) {
	ended, err := s.updateTask(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}, o.update(mtime))
	if ended || err != nil {
		return ended, err
	}
	now, err := s.Task(ctx, t.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case mtime.IsZero():
		mtime = t.MTime // that of the claim, which differs from that of a later claim
	}
	return o.isEndOf(&now, mtime)
}

// isEndOf reports whether a task's document has the outcome and the mtime.
func (o *Outcome) isEndOf(t *Task, mtime time.Time) (bool, error) {
	written, err := bson.Marshal(o.fields(mtime))
	if err != nil {
		return false, err
	}
	elements, err := bson.Raw(written).Elements()
	differs := func(e bson.RawElement) bool { return !t.Raw.Lookup(e.Key()).Equal(e.Value()) }
	return err == nil && !slices.ContainsFunc(elements, differs), err
}

// EndAbandoned writes the end of a task that its runner has left unfinished. It returns false unless the task is
// claimed or running at its node.
func (s *Store) EndAbandoned(ctx context.Context, t *Task, o Outcome, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "node", Value: t.Node}, {Key: "status", Value: active}}
	return s.updateTask(ctx, filter, o.update(mtime))
}

// update returns the update that writes an outcome. A zero time keeps mtime.
func (o *Outcome) update(mtime time.Time) bson.D {
	return append(set(o.fields(mtime)), bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}})
}

// fields returns the fields of an ended task, without mtime if it is zero.
func (o *Outcome) fields(mtime time.Time) bson.D {
	fields := bson.D{
		{Key: "status", Value: int32(o.Status)}, {Key: "stdout", Value: o.Stdout}, {Key: "stderr", Value: o.Stderr}, {Key: "complete", Value: true},
	}
	if !mtime.IsZero() {
		fields = append(fields, bson.E{Key: "mtime", Value: primitive.NewDateTimeFromTime(mtime)})
	}
	return fields
}

// Requeue queues a running task of a run again. No worker has begun it.
func (s *Store) Requeue(ctx context.Context, t *Task, run primitive.ObjectID, schema Schema) error {
	_, err := s.updateTask(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}, append(
		set(bson.D{{Key: "node", Value: schema.Unclaimed()}, {Key: "status", Value: int32(StatusQueued)}}),
		bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}}))
	return err
}

// ReleaseAll queues all claimed tasks of a node again and returns their number. It writes each task in the dialect of
// its queue; a queue that is not among queues counts as one of 2018.
func (s *Store) ReleaseAll(ctx context.Context, node string, queues []Queue) (int64, error) {
	return s.release(ctx, queues, bson.D{{Key: "node", Value: node}})
}

// ReleaseTask is ReleaseAll for one task. It returns 0 if the task is not claimed by the node.
func (s *Store) ReleaseTask(ctx context.Context, node string, queues []Queue, id primitive.ObjectID) (int64, error) {
	return s.release(ctx, queues, bson.D{{Key: "node", Value: node}, {Key: "_id", Value: id}})
}

// release queues the claimed tasks of a filter again.
func (s *Store) release(ctx context.Context, queues []Queue, tasks bson.D) (int64, error) {
	var of2016 []primitive.ObjectID
	for _, q := range queues {
		if q.Schema == Schema2016 {
			of2016 = append(of2016, q.ID)
		}
	}
	total := int64(0)
	for _, schema := range []Schema{Schema2016, Schema2018} {
		filter := append(slices.Clone(tasks), bson.E{Key: "status", Value: StatusClaimed})
		switch {
		case schema == Schema2016 && len(of2016) == 0:
			continue
		case schema == Schema2016:
			filter = append(filter, bson.E{Key: "queue", Value: in(of2016)})
		case len(of2016) > 0: // a late claim may have arrived since
			filter = append(filter, bson.E{Key: "queue", Value: bson.D{{Key: "$nin", Value: of2016}}})
		}
		n, err := s.updateTasks(ctx, filter, set(bson.D{{Key: "node", Value: schema.Unclaimed()}, {Key: "status", Value: int32(StatusQueued)}}))
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// Occupation counts the claimed and running tasks by queue and node.
func (s *Store) Occupation(ctx context.Context) (map[primitive.ObjectID]map[string]int, error) {
	all := make(map[primitive.ObjectID]map[string]int)
	err := s.countByQueue(ctx, bson.D{{Key: "status", Value: active}}, "node", func(queue primitive.ObjectID, node bson.RawValue, n int64) {
		if all[queue] == nil {
			all[queue] = make(map[string]int)
		}
		all[queue][Text(node)] += int(n)
	})
	return all, err
}

// HeldBy returns the claimed and running tasks of a node without their payload.
func (s *Store) HeldBy(ctx context.Context, node string) ([]Task, error) {
	return s.Search(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: active}},
		SearchOptions{Projection: bson.D{{Key: "queue", Value: 1}, {Key: "status", Value: 1}, {Key: "node", Value: 1}}})
}

// OrphanClaimed orphans the tasks that a node has claimed before a time and not begun, except the given ones. It
// returns their number. mtime is a date or, in old data, seconds since 1970.
func (s *Store) OrphanClaimed(ctx context.Context, node string, before time.Time, except []primitive.ObjectID) (int64, error) {
	filter := bson.D{
		{Key: "node", Value: node}, {Key: "status", Value: StatusClaimed},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "mtime", Value: bson.D{{Key: "$lt", Value: primitive.NewDateTimeFromTime(before)}}}},
			bson.D{{Key: "mtime", Value: bson.D{{Key: "$lt", Value: before.Unix()}}}},
		}},
	}
	if len(except) > 0 {
		filter = append(filter, bson.E{Key: "_id", Value: bson.D{{Key: "$nin", Value: except}}})
	}
	return s.orphan(ctx, filter)
}

// OrphanAllRunning orphans all running tasks of a node and returns their number. A runner that is still alive may
// finish them later.
func (s *Store) OrphanAllRunning(ctx context.Context, node string) (int64, error) {
	return s.orphan(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: StatusRunning}})
}

// OrphanTask is OrphanAllRunning for one task. It returns false if the task does not run at the node.
func (s *Store) OrphanTask(ctx context.Context, node string, id primitive.ObjectID) (bool, error) {
	n, err := s.orphan(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: StatusRunning}, {Key: "_id", Value: id}})
	return n > 0, err
}

// orphan sets the status of tasks to orphaned and returns their number.
func (s *Store) orphan(ctx context.Context, filter bson.D) (int64, error) {
	return s.updateTasks(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusOrphaned)}}))
}
