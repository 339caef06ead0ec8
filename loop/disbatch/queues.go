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
	cursor, err := s.queues.Find(ctx, bson.D{}, options.Find().SetSort(idAscending))
	if err != nil {
		return nil, err
	}
	return All(ctx, cursor, DecodeQueue)
}

// Queue returns the queue of an id or a name; the oldest, if several have the name.
func (s *Store) Queue(ctx context.Context, idOrName string) (Queue, error) {
	raw, err := s.queues.FindOne(ctx, byIDOrName("name", idOrName), options.FindOne().SetSort(idAscending)).Raw()
	if err != nil {
		return Queue{}, Found(err)
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
	return s.queues.UpdateOne(ctx, ByID(q.ID), Set(fields))
}

// DeleteQueue deletes the document of a queue; its tasks stay, as in the original.
func (s *Store) DeleteQueue(ctx context.Context, id primitive.ObjectID) (*mongo.DeleteResult, error) {
	return s.queues.DeleteOne(ctx, ByID(id))
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
	var filter bson.D
	if len(only) > 0 {
		filter = bson.D{{Key: "queue", Value: In(only)}}
	}
	cursor, err := s.tasks.Aggregate(ctx, Group(filter, bson.D{{Key: "queue", Value: "$queue"}, {Key: "status", Value: "$status"}}))
	if err != nil {
		return nil, err
	}
	out := make(map[primitive.ObjectID]Counts)
	_, err = All(ctx, cursor, func(raw bson.Raw) struct{} {
		queue, _ := raw.Lookup("_id", "queue").ObjectIDOK()
		status, _ := Integer(raw.Lookup("_id", "status"))
		n, _ := Integer(raw.Lookup("n"))
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

// AddCounts adds to the counters of a 2016 queue; those that are null, missing or negative
// stay as they are.
func (s *Store) AddCounts(ctx context.Context, queue primitive.ObjectID, todo, total int64) error {
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
