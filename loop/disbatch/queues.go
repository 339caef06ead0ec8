package disbatch

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

var idAscending = bson.D{{Key: "_id", Value: 1}}

// Queues returns all queues by ascending id.
func (s *Store) Queues(ctx context.Context) ([]Queue, error) {
	return all(ctx, s.queues, bson.D{}, DecodeQueue, options.Find().SetSort(idAscending))
}

// Queue returns the queue of an id or a name; the oldest, if several have the name.
func (s *Store) Queue(ctx context.Context, idOrName string) (Queue, error) {
	raw, err := s.queues.FindOne(ctx, byIDOrName("name", idOrName), options.FindOne().SetSort(idAscending)).Raw()
	if err != nil {
		return Queue{}, found(err)
	}
	return DecodeQueue(raw), nil
}

// InsertQueue creates a queue in the configured dialect. Nothing runs in it until it has
// a limit.
func (s *Store) InsertQueue(ctx context.Context, name, plugin string) (*mongo.InsertOneResult, error) {
	doc := bson.D{{Key: "name", Value: name}, {Key: s.schema.PluginField(), Value: plugin}}
	if s.schema == Schema2016 {
		doc = append(doc, bson.E{Key: "count_todo", Value: int64(0)}, bson.E{Key: "count_total", Value: int64(0)})
	}
	return s.queues.InsertOne(ctx, doc)
}

// QueueChange is a change of a queue; what is nil stays.
type QueueChange struct {
	Name, Plugin, Sort *string
	Limit              *int
}

// UpdateQueue changes a queue in its own dialect.
func (s *Store) UpdateQueue(ctx context.Context, q *Queue, c QueueChange) (*mongo.UpdateResult, error) {
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
		return nil, fmt.Errorf("nothing to change")
	}
	return s.queues.UpdateOne(ctx, byID(q.ID), set(fields))
}

// DeleteQueue deletes the document of a queue; its tasks stay, as in the original.
func (s *Store) DeleteQueue(ctx context.Context, id primitive.ObjectID) (*mongo.DeleteResult, error) {
	return s.queues.DeleteOne(ctx, byID(id))
}

// Counts are how many tasks of a queue stand where.
type Counts struct {
	Queued    int64 // status -2 and below
	Running   int64 // claimed and running, at all nodes
	Completed int64 // status 1 and above
}

// Counts returns the counts of every queue that has tasks, by one aggregate. With an id it
// counts that queue only.
func (s *Store) Counts(ctx context.Context, only ...primitive.ObjectID) (map[primitive.ObjectID]Counts, error) {
	pipeline := bson.A{group(bson.D{{Key: "queue", Value: "$queue"}, {Key: "status", Value: "$status"}})}
	if len(only) > 0 {
		pipeline = append(bson.A{match(bson.D{{Key: "queue", Value: in(only)}})}, pipeline...)
	}
	cursor, err := s.tasks.Aggregate(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	out := make(map[primitive.ObjectID]Counts)
	_, err = drain(ctx, cursor, func(raw bson.Raw) struct{} {
		queue, _ := raw.Lookup("_id", "queue").ObjectIDOK()
		status, _ := integer(raw.Lookup("_id", "status"))
		n, _ := integer(raw.Lookup("n"))
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
		return struct{}{}
	})
	return out, err
}

// occupied is how many tasks of a queue are claimed or running at a node.
type occupied struct {
	queue primitive.ObjectID
	node  string
	tasks int
}

// occupation counts the tasks that are claimed or running.
func (s *Store) occupation(ctx context.Context) ([]occupied, error) {
	cursor, err := s.tasks.Aggregate(ctx, bson.A{
		match(bson.D{{Key: "status", Value: active}}),
		group(bson.D{{Key: "queue", Value: "$queue"}, {Key: "node", Value: "$node"}}),
	})
	if err != nil {
		return nil, err
	}
	return drain(ctx, cursor, func(raw bson.Raw) occupied {
		queue, _ := raw.Lookup("_id", "queue").ObjectIDOK()
		n, _ := integer(raw.Lookup("n"))
		return occupied{queue: queue, node: text(raw.Lookup("_id", "node")), tasks: int(n)}
	})
}

func match(filter bson.D) bson.D { return bson.D{{Key: "$match", Value: filter}} }

func group(by bson.D) bson.D {
	return bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: by}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}}
}

func in[T any](values []T) bson.D { return bson.D{{Key: "$in", Value: values}} }

// count adds to the counters of a 2016 queue; those that are null, missing or negative
// stay and are recounted by the node.
func (s *Store) count(ctx context.Context, queue primitive.ObjectID, todo, total int64) error {
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

// recount counts the tasks of a 2016 queue and writes its counters if they are others,
// unless they were changed meanwhile.
func (s *Store) recount(ctx context.Context, q *Queue) error {
	todo, err := s.tasks.CountDocuments(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: bson.D{{Key: "$lte", Value: 0}}}})
	if err != nil {
		return err
	}
	total, err := s.tasks.CountDocuments(ctx, bson.D{{Key: "queue", Value: q.ID}})
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

// uncount has the node recount a queue of 2016.
func (s *Store) uncount(ctx context.Context, queue primitive.ObjectID) error {
	_, err := s.queues.UpdateOne(ctx, byID(queue), set(bson.D{{Key: "count_todo", Value: nil}}))
	return err
}
