package disbatch

import (
	"context"
	"slices"
	"sort"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// InsertTasks creates queued tasks with these payloads, in the dialect of the queue, and
// counts them. What was inserted before an error is in the result.
func (s *Store) InsertTasks(ctx context.Context, q *Queue, params []any) (*mongo.InsertManyResult, error) {
	now := primitive.NewDateTimeFromTime(time.Now())
	docs := make([]any, len(params))
	for i, p := range params {
		docs[i] = bson.D{
			{Key: "_id", Value: primitive.NewObjectID()},
			{Key: "queue", Value: q.ID}, {Key: "status", Value: int32(StatusQueued)}, {Key: "node", Value: q.Schema.Nobody()},
			{Key: "stdout", Value: nil}, {Key: "stderr", Value: nil}, {Key: "ctime", Value: now}, {Key: "mtime", Value: now},
			{Key: q.Schema.ParamsField(), Value: p},
		}
	}
	result, err := s.tasks.InsertMany(ctx, docs)
	if err != nil && result == nil {
		result = s.arrived(ctx, docs)
	}
	if result != nil && q.Schema == Schema2016 && len(result.InsertedIDs) > 0 {
		n := int64(len(result.InsertedIDs))
		if cerr := s.count(ctx, q.ID, n, n); err == nil {
			err = cerr
		}
	}
	return result, err
}

// arrived looks how many of these tasks, which are inserted in their order, are there; nil says that this cannot be seen. The
// driver sends them in several messages and does not say which of them came before the one that failed.
func (s *Store) arrived(ctx context.Context, docs []any) *mongo.InsertManyResult {
	id := func(i int) any { return docs[i].(bson.D)[0].Value }
	var fault error
	n := sort.Search(len(docs), func(i int) bool {
		if fault != nil {
			return false // it does not matter any more
		}
		_, err := s.tasks.FindOne(ctx, bson.D{{Key: "_id", Value: id(i)}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
		if err = found(err); err != nil && err != ErrNotFound {
			fault = err
		}
		return err != nil
	})
	if fault != nil {
		return nil
	}
	result := new(mongo.InsertManyResult)
	for i := range n {
		result.InsertedIDs = append(result.InsertedIDs, id(i))
	}
	return result
}

// Task returns one task.
func (s *Store) Task(ctx context.Context, id primitive.ObjectID) (Task, error) {
	raw, err := s.tasks.FindOne(ctx, byID(id)).Raw()
	if err != nil {
		return Task{}, found(err)
	}
	return DecodeTask(raw), nil
}

// SearchOptions bound and order a search.
type SearchOptions struct {
	Limit, Skip int64
	Sort        bson.D // none, if empty
	Projection  bson.D // all fields, if empty
	// Each, unless it is nil, is called for each document as it comes and returns what is kept of it, or an error, which ends
	// the search. The document is the callback's until it returns.
	Each func(doc bson.Raw) (bson.Raw, error)
}

// Search returns the tasks that a filter finds.
func (s *Store) Search(ctx context.Context, filter any, o SearchOptions) ([]Task, error) {
	find := options.Find().SetLimit(o.Limit).SetSkip(o.Skip)
	if len(o.Sort) > 0 {
		find.SetSort(o.Sort)
	}
	if len(o.Projection) > 0 {
		find.SetProjection(o.Projection)
	}
	cursor, err := s.tasks.Find(ctx, filter, find)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(ctx) }() // it was only read
	var out []Task
	for cursor.Next(ctx) {
		raw := cursor.Current
		if o.Each != nil {
			if raw, err = o.Each(raw); err != nil {
				return nil, err
			}
		}
		out = append(out, DecodeTask(slices.Clone(raw)))
	}
	return out, cursor.Err()
}

// CountTasks counts the tasks that a filter finds.
func (s *Store) CountTasks(ctx context.Context, filter any) (int64, error) {
	return s.tasks.CountDocuments(ctx, filter)
}

// claim takes the next task of a queue for a node, ErrNotFound if there is none. No task
// is claimed twice, because the database changes a document in one step.
func (s *Store) claim(ctx context.Context, q *Queue, node string, now time.Time) (Task, error) {
	o := options.FindOneAndUpdate().SetReturnDocument(options.After).SetSort(q.order())
	var raw bson.Raw
	err := s.durably(func(tasks *mongo.Collection) (err error) {
		raw, err = tasks.FindOneAndUpdate(ctx, q.unclaimed(), set(bson.D{
			{Key: "node", Value: node}, {Key: "status", Value: int32(StatusClaimed)}, {Key: "mtime", Value: primitive.NewDateTimeFromTime(now)},
		}), o).Raw()
		return err
	})
	if err != nil {
		return Task{}, found(err)
	}
	return DecodeTask(raw), nil
}

// unclaimed finds the tasks of the queue that may be claimed.
func (q *Queue) unclaimed() bson.D {
	return bson.D{{Key: "node", Value: in(bson.A{nil, int32(-1)})}, {Key: "status", Value: StatusQueued}, {Key: "queue", Value: q.ID}}
}

// order is the order in which they are. Without a sort it is that of their ids, too: the database's
// own is any, and the newest first under load.
func (q *Queue) order() bson.D {
	if q.Sort == SortLIFO {
		return bson.D{{Key: "_id", Value: -1}}
	}
	return idAscending
}

// fullDocument is the size from which on a document has no room for a claim: the limit of
// the database less a node's name and a time.
const fullDocument = 16<<20 - 1024

// full returns the next task of a queue if its document is too full to be claimed, else
// ErrNotFound.
func (s *Store) full(ctx context.Context, q *Queue) (Task, error) {
	raw, err := s.tasks.FindOne(ctx, q.unclaimed(), options.FindOne().SetSort(q.order())).Raw()
	switch {
	case err != nil:
		return Task{}, found(err)
	case len(raw) < fullDocument:
		return Task{}, ErrNotFound
	}
	return DecodeTask(raw), nil
}

// failBare fails a task, of which nothing has changed since it was read, without output,
// and by its status alone where no more has room; that takes none. It says whether it did.
func (s *Store) failBare(ctx context.Context, t *Task, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: t.Status}, {Key: "node", Value: t.Raw.Lookup("node")}}
	o := outcome{status: StatusFailed, stdout: "", stderr: ""}
	result, err := s.change(ctx, filter, o.update(mtime))
	if TooLarge(err) {
		result, err = s.change(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusFailed)}}))
	}
	return err == nil && result.MatchedCount == 1, err
}

// change updates a task durably.
func (s *Store) change(ctx context.Context, filter, update bson.D) (result *mongo.UpdateResult, err error) {
	err = s.durably(func(tasks *mongo.Collection) (err error) {
		result, err = tasks.UpdateOne(ctx, filter, update)
		return err
	})
	return result, err
}

// active are the statuses that count against a queue's limit.
var active = in([]int{StatusClaimed, StatusRunning})

// occupying counts the tasks of a queue that are claimed or running, at all nodes.
func (s *Store) occupying(ctx context.Context, q *Queue) (int64, error) {
	return s.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: active}})
}

// before counts the tasks of a queue that go before a claimed one: those that run, and
// those claimed that the queue's sort puts first.
func (s *Store) before(ctx context.Context, q *Queue, t *Task) (int64, error) {
	first := "$lt"
	if q.Sort == SortLIFO {
		first = "$gt"
	}
	return s.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: active}, {Key: "$or", Value: bson.A{
		bson.D{{Key: "status", Value: StatusRunning}}, bson.D{{Key: "_id", Value: bson.D{{Key: first, Value: t.ID}}}},
	}}})
}

// runField holds, while a task runs, who began it: the proof, after a lost reply, that it
// was this runner and no other.
const runField = "treadle_run"

// begin turns a claimed task into a running one, for one runner. It says whether it did;
// asked again with the same run it answers the same.
func (s *Store) begin(ctx context.Context, t *Task, run primitive.ObjectID) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "status", Value: StatusClaimed}, {Key: "node", Value: t.Node}}
	result, err := s.change(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusRunning)}, {Key: runField, Value: run}}))
	if err != nil {
		return false, err
	}
	if result.MatchedCount == 1 {
		return true, nil
	}
	now, err := s.Task(ctx, t.ID)
	if err == ErrNotFound {
		return false, nil
	}
	mine, _ := now.Raw.Lookup(runField).ObjectIDOK()
	return err == nil && mine == run && now.Status == StatusRunning, err
}

// outcome is how a task ended.
type outcome struct {
	status         int
	stdout, stderr any // a string, or the id of a file
}

// finish writes the end of a running task in one update and says whether this or an
// earlier call of this run did.
func (s *Store) finish(ctx context.Context, t *Task, run primitive.ObjectID, o outcome, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}
	result, err := s.change(ctx, filter, o.update(mtime))
	if err != nil {
		return false, err
	}
	if result.MatchedCount == 1 {
		return true, nil
	}
	now, err := s.Task(ctx, t.ID)
	if err == ErrNotFound {
		return false, nil
	}
	return err == nil && now.Status == o.status, err
}

// crash writes the end of a node's task if it is still claimed or running, and says
// whether it was.
func (s *Store) crash(ctx context.Context, t *Task, o outcome, mtime time.Time) (bool, error) {
	filter := bson.D{{Key: "_id", Value: t.ID}, {Key: "node", Value: t.Node}, {Key: "status", Value: active}}
	result, err := s.change(ctx, filter, o.update(mtime))
	if err != nil {
		return false, err
	}
	return result.MatchedCount == 1, nil
}

// update is what an end changes. Without a time mtime stays.
func (o *outcome) update(mtime time.Time) bson.D {
	fields := bson.D{
		{Key: "status", Value: int32(o.status)}, {Key: "stdout", Value: o.stdout}, {Key: "stderr", Value: o.stderr}, {Key: "complete", Value: true},
	}
	if !mtime.IsZero() {
		fields = append(fields, bson.E{Key: "mtime", Value: primitive.NewDateTimeFromTime(mtime)})
	}
	return append(set(fields), bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}})
}

// requeue gives a running task back that no worker has seen.
func (s *Store) requeue(ctx context.Context, t *Task, run primitive.ObjectID, schema Schema) error {
	_, err := s.change(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: runField, Value: run}}, append(
		set(bson.D{{Key: "node", Value: schema.Nobody()}, {Key: "status", Value: int32(StatusQueued)}}),
		bson.E{Key: "$unset", Value: bson.D{{Key: runField, Value: ""}}}))
	return err
}

// giveBack queues the claimed tasks of a node again: one by id, or all that have not begun.
func (s *Store) giveBack(ctx context.Context, node string, queues []Queue, only ...primitive.ObjectID) (int64, error) {
	var of2016 []primitive.ObjectID
	for _, q := range queues {
		if q.Schema == Schema2016 {
			of2016 = append(of2016, q.ID)
		}
	}
	total := int64(0)
	for _, schema := range []Schema{Schema2016, Schema2018} {
		filter := bson.D{{Key: "node", Value: node}, {Key: "status", Value: StatusClaimed}}
		switch {
		case schema == Schema2016 && len(of2016) == 0:
			continue
		case schema == Schema2016:
			filter = append(filter, bson.E{Key: "queue", Value: in(of2016)})
		case len(of2016) > 0: // a claim that arrives late may have come since
			filter = append(filter, bson.E{Key: "queue", Value: bson.D{{Key: "$nin", Value: of2016}}})
		}
		if len(only) > 0 {
			filter = append(filter, bson.E{Key: "_id", Value: in(only)})
		}
		result, err := s.tasks.UpdateMany(ctx, filter, set(bson.D{{Key: "node", Value: schema.Nobody()}, {Key: "status", Value: int32(StatusQueued)}}))
		if err != nil {
			return total, err
		}
		total += result.ModifiedCount
	}
	return total, nil
}

// mine returns the tasks that are claimed by a node or run there, without their payload.
func (s *Store) mine(ctx context.Context, node string) ([]Task, error) {
	return all(ctx, s.tasks, bson.D{{Key: "node", Value: node}, {Key: "status", Value: active}}, DecodeTask,
		options.Find().SetProjection(bson.D{{Key: "queue", Value: 1}, {Key: "status", Value: 1}, {Key: "node", Value: 1}}))
}

// orphan marks a node's tasks that were claimed before a time and have not begun, except
// these. Times are dates or, in old data, epochs.
func (s *Store) orphan(ctx context.Context, node string, before time.Time, except []primitive.ObjectID) (int64, error) {
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
	return s.mark(ctx, filter)
}

// abandon marks the running tasks of a node as orphaned. A runner that still lives may
// finish them all the same.
func (s *Store) abandon(ctx context.Context, node string) (int64, error) {
	return s.mark(ctx, bson.D{{Key: "node", Value: node}, {Key: "status", Value: StatusRunning}})
}

// abandonTask is abandon for one task. It says whether it marked it.
func (s *Store) abandonTask(ctx context.Context, t *Task) (bool, error) {
	marked, err := s.mark(ctx, bson.D{{Key: "_id", Value: t.ID}, {Key: "node", Value: t.Node}, {Key: "status", Value: StatusRunning}})
	return marked > 0, err
}

func (s *Store) mark(ctx context.Context, filter bson.D) (int64, error) {
	result, err := s.tasks.UpdateMany(ctx, filter, set(bson.D{{Key: "status", Value: int32(StatusOrphaned)}}))
	if err != nil {
		return 0, err
	}
	return result.ModifiedCount, nil
}
