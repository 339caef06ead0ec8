package store

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

// InsertTasks creates queued tasks with the payloads, in the dialect of the queue, and adds them to the counters of a 2016 queue.
// After an error the result holds the tasks that are inserted, or is nil if that is unknown.
func (s *Store) InsertTasks(ctx context.Context, q *Queue, params []any) (*mongo.InsertManyResult, error) {
	now := primitive.NewDateTimeFromTime(time.Now())
	docs := make([]any, len(params))
	for i, p := range params {
		docs[i] = bson.D{
			{Key: "_id", Value: primitive.NewObjectID()},
			{Key: "queue", Value: q.ID}, {Key: "status", Value: int32(StatusQueued)}, {Key: "node", Value: q.Schema.Unclaimed()},
			{Key: "stdout", Value: nil}, {Key: "stderr", Value: nil}, {Key: "ctime", Value: now}, {Key: "mtime", Value: now},
			{Key: q.Schema.paramsField(), Value: p},
		}
	}
	result, err := s.tasks.InsertMany(ctx, docs)
	if err != nil && result == nil {
		result = s.arrived(ctx, docs)
	}
	if result != nil && q.Schema == Schema2016 && len(result.InsertedIDs) > 0 {
		n := int64(len(result.InsertedIDs))
		if cerr := s.AddCounts(ctx, q.ID, n, n); err == nil {
			err = cerr
		}
	}
	return result, err
}

// arrived searches the database for the tasks of an insert that failed. It returns nil if it cannot read them. The driver sends
// the tasks in order, in several messages, and does not report the messages that succeeded.
func (s *Store) arrived(ctx context.Context, docs []any) *mongo.InsertManyResult {
	id := func(i int) any { return docs[i].(bson.D)[0].Value }
	var fault error
	n := sort.Search(len(docs), func(i int) bool {
		if fault != nil {
			return false // n is not used after a fault
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

// Task returns the task of an id.
func (s *Store) Task(ctx context.Context, id primitive.ObjectID) (Task, error) {
	raw, err := s.tasks.FindOne(ctx, byID(id)).Raw()
	if err != nil {
		return Task{}, found(err)
	}
	return DecodeTask(raw), nil
}

// SearchOptions bounds and orders a search. The zero value finds all tasks in any order.
type SearchOptions struct {
	Limit, Skip int64
	Sort        bson.D // empty: any order
	Projection  bson.D // empty: all fields
	// Each, unless nil, receives every document as it arrives and returns the document to keep. An error ends the search. The
	// document that it receives is valid until it returns.
	Each func(doc bson.Raw) (bson.Raw, error)
}

// Search returns the tasks that match a filter.
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
	defer func() { _ = cursor.Close(ctx) }() // only read
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

// CountTasks counts the tasks that match a filter.
func (s *Store) CountTasks(ctx context.Context, filter any) (int64, error) {
	return s.tasks.CountDocuments(ctx, filter)
}

// TaskIndexes returns the fields of each index of the tasks.
func (s *Store) TaskIndexes(ctx context.Context) (all [][]string, err error) {
	specs, err := s.tasks.Indexes().ListSpecifications(ctx)
	for _, spec := range specs {
		var fields []string
		elements, _ := spec.KeysDocument.Elements() // elements before damage
		for _, e := range elements {
			fields = append(fields, e.Key())
		}
		all = append(all, fields)
	}
	return all, err
}
