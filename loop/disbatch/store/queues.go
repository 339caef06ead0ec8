package store

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

var idAscending = bson.D{{Key: "_id", Value: 1}}

// Queues returns all queues by ascending id.
func (s *Store) Queues(ctx context.Context) ([]Queue, error) {
	cursor, err := s.queues.Find(ctx, bson.D{}, options.Find().SetSort(idAscending))
	if err != nil {
		return nil, err
	}
	return all(ctx, cursor, DecodeQueue)
}

// Queue returns the queue of an id or a name. It returns the oldest of several queues of the name.
func (s *Store) Queue(ctx context.Context, idOrName string) (Queue, error) {
	raw, err := s.queues.FindOne(ctx, byIDOrName("name", idOrName), options.FindOne().SetSort(idAscending)).Raw()
	if err != nil {
		return Queue{}, notFound(err)
	}
	return DecodeQueue(raw), nil
}

// InsertQueue creates a queue in the configured dialect and returns its id. Nodes claim none of its tasks until it has
// a limit.
func (s *Store) InsertQueue(ctx context.Context, name, plugin string) (primitive.ObjectID, error) {
	id := primitive.NewObjectID()
	doc := bson.D{{Key: "_id", Value: id}, {Key: "name", Value: name}, {Key: s.schema.PluginField(), Value: plugin}}
	if s.schema == Schema2016 {
		doc = append(doc, bson.E{Key: "count_todo", Value: int64(0)}, bson.E{Key: "count_total", Value: int64(0)})
	}
	_, err := s.queues.InsertOne(ctx, doc)
	return id, duplicate(err)
}

// QueueChange is a change of a queue. A nil field keeps its value.
type QueueChange struct {
	Name, Plugin, Sort *string
	Limit              *int
}

// SetSort changes the order of the tasks. It returns false for a text other than fifo, lifo or default.
func (c *QueueChange) SetSort(text string) bool {
	c.Sort = &text
	return isSort(text)
}

// Updated is the result of an update: the numbers of documents that matched and that it changed.
type Updated struct{ Matched, Modified int64 }

// updated converts a result of the driver.
func updated(r *mongo.UpdateResult, err error) (Updated, error) {
	if err != nil {
		return Updated{}, duplicate(err)
	}
	return Updated{r.MatchedCount, r.ModifiedCount}, nil
}

// UpdateQueue changes a queue in its own dialect.
func (s *Store) UpdateQueue(ctx context.Context, q *Queue, c QueueChange) (Updated, error) {
	var fields bson.D
	add := func(key string, value any) { fields = append(fields, bson.E{Key: key, Value: value}) }
	if c.Name != nil {
		add("name", *c.Name)
	}
	if c.Plugin != nil {
		add(q.Schema.PluginField(), *c.Plugin)
	}
	if c.Sort != nil {
		add("sort", *c.Sort)
	}
	if c.Limit != nil {
		add(q.Schema.LimitField(), int32(*c.Limit))
	}
	if fields == nil {
		return Updated{}, errors.New("nothing to change")
	}
	return updated(s.queues.UpdateOne(ctx, byID(q.ID), set(fields)))
}

// DeleteQueue deletes the document of a queue and returns the number of deleted documents. Its tasks stay, as with the
// original.
func (s *Store) DeleteQueue(ctx context.Context, id primitive.ObjectID) (int64, error) {
	r, err := s.queues.DeleteOne(ctx, byID(id))
	if err != nil {
		return 0, err
	}
	return r.DeletedCount, nil
}

// Counts holds the numbers of tasks of a queue by status.
type Counts struct {
	Queued    int64 // status -2 and below
	Running   int64 // status -1, claimed, and 0, running, at all nodes
	Completed int64 // status 1 and above
}

// Counts returns the counts of all queues that have tasks, or of the given ones, with one aggregate.
func (s *Store) Counts(ctx context.Context, only ...primitive.ObjectID) (map[primitive.ObjectID]Counts, error) {
	var filter bson.D
	if len(only) > 0 {
		filter = bson.D{{Key: "queue", Value: in(only)}}
	}
	out := make(map[primitive.ObjectID]Counts)
	err := s.countByQueue(ctx, filter, "status", func(queue primitive.ObjectID, of bson.RawValue, n int64) {
		status, _ := Integer(of)
		c := out[queue]
		switch {
		case status <= StatusQueued:
			c.Queued += n
		case status <= StatusRunning:
			c.Running += n
		default:
			c.Completed += n
		}
		out[queue] = c
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// countByQueue counts the tasks that match a filter by queue and one more field, with one aggregate. It calls each with
// every combination of the two and the number of its tasks. A nil filter matches all tasks.
func (s *Store) countByQueue(ctx context.Context, filter bson.D, field string, each func(queue primitive.ObjectID, value bson.RawValue, n int64)) error {
	var stages bson.A
	if filter != nil {
		stages = bson.A{bson.D{{Key: "$match", Value: filter}}}
	}
	by := bson.D{{Key: "queue", Value: "$queue"}, {Key: field, Value: "$" + field}}
	cursor, err := s.tasks.Aggregate(ctx,
		append(stages, bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: by}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}}))
	if err != nil {
		return err
	}
	_, err = all(ctx, cursor, func(raw bson.Raw) struct{} {
		queue, _ := raw.Lookup("_id", "queue").ObjectIDOK()
		n, _ := Integer(raw.Lookup("n"))
		each(queue, raw.Lookup("_id", field), n)
		return struct{}{}
	})
	return err
}

// addCounts adds to the counters of a 2016 queue. A queue without two numeric counters stays as it is.
func (s *Store) addCounts(ctx context.Context, queue primitive.ObjectID, todo, total int64) error {
	change := bson.D{{Key: "count_todo", Value: todo}}
	if total != 0 {
		change = append(change, bson.E{Key: "count_total", Value: total})
	}
	_, err := s.queues.UpdateOne(ctx, bson.D{
		{Key: "_id", Value: queue},
		{Key: "count_todo", Value: bson.D{{Key: "$type", Value: "number"}}},
		{Key: "count_total", Value: bson.D{{Key: "$type", Value: "number"}}},
	}, bson.D{{Key: "$inc", Value: change}})
	return err
}

// Recount counts the tasks of a 2016 queue and writes wrong counters. It does not write counters that have changed
// since the caller read the queue.
func (s *Store) Recount(ctx context.Context, q *Queue) error {
	todo, err := s.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: bson.D{{Key: "$lte", Value: 0}}}})
	if err != nil {
		return err
	}
	total, err := s.CountTasks(ctx, bson.D{{Key: "queue", Value: q.ID}})
	if err != nil || todo == q.Todo && total == q.Total {
		return err
	}
	filter := byID(q.ID)
	for _, name := range []string{"count_todo", "count_total"} {
		if was := q.Raw.Lookup(name); was.Type != 0 {
			filter = append(filter, bson.E{Key: name, Value: was})
		}
	}
	_, err = s.queues.UpdateOne(ctx, filter, set(bson.D{{Key: "count_todo", Value: todo}, {Key: "count_total", Value: total}}))
	return err
}

// CountEnd counts the end of a task in its 2016 queue. It marks the counters as unknown, so that the nodes recount the
// queue, if the update may or may not have happened.
func (s *Store) CountEnd(ctx context.Context, queue primitive.ObjectID, retry *Retrier) error {
	if s.addCounts(ctx, queue, -1, 0) == nil {
		return nil
	}
	return retry.Do(ctx, "counting anew", func() error {
		_, err := s.queues.UpdateOne(ctx, byID(queue), set(bson.D{{Key: "count_todo", Value: nil}}))
		return err
	})
}
