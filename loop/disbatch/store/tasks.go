package store

import (
	"context"
	"slices"
	"sort"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// InsertTasks creates queued tasks with the payloads, in the dialect of the queue, and adds them to the counters of a
// 2016 queue. It returns their ids. After an error these are the ids of the tasks that are inserted, or nil if that is
// unknown.
func (s *Store) InsertTasks(ctx context.Context, q *Queue, params []any) ([]primitive.ObjectID, error) {
	now := primitive.NewDateTimeFromTime(time.Now())
	ids, docs := make([]primitive.ObjectID, len(params)), make([]any, len(params))
	for i, p := range params {
		ids[i] = primitive.NewObjectID()
		docs[i] = bson.D{
			{Key: "_id", Value: ids[i]},
			{Key: "queue", Value: q.ID}, {Key: "status", Value: int32(StatusQueued)}, {Key: "node", Value: q.Schema.Unclaimed()},
			{Key: "stdout", Value: nil}, {Key: "stderr", Value: nil}, {Key: "ctime", Value: now}, {Key: "mtime", Value: now},
			{Key: q.Schema.paramsField(), Value: p},
		}
	}
	result, err := s.tasks.InsertMany(ctx, docs)
	if result == nil {
		ids = s.arrived(ctx, ids)
	} else {
		ids = ids[:0]
		for _, id := range result.InsertedIDs {
			ids = append(ids, id.(primitive.ObjectID))
		}
	}
	if n := int64(len(ids)); q.Schema == Schema2016 && n > 0 {
		if cerr := s.addCounts(ctx, q.ID, n, n); err == nil {
			err = cerr
		}
	}
	return ids, err
}

// arrived returns the ids of the tasks that an insert that failed has created, or nil if it cannot read them. The
// driver sends the tasks in order, in several messages, and does not report the messages that succeeded.
func (s *Store) arrived(ctx context.Context, ids []primitive.ObjectID) []primitive.ObjectID {
	var fault error
	n := sort.Search(len(ids), func(i int) bool {
		if fault != nil {
			return false // n is not used after a fault
		}
		_, err := s.tasks.FindOne(ctx, byID(ids[i]), options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
		if err = notFound(err); err != nil && err != ErrNotFound {
			fault = err
		}
		return err != nil
	})
	if fault != nil {
		return nil
	}
	return ids[:n]
}

// Task returns the task of an id.
func (s *Store) Task(ctx context.Context, id primitive.ObjectID) (Task, error) {
	raw, err := s.tasks.FindOne(ctx, byID(id)).Raw()
	if err != nil {
		return Task{}, notFound(err)
	}
	return DecodeTask(raw), nil
}

// SearchOptions bounds and orders a search. The zero value finds all tasks in any order.
type SearchOptions struct {
	Limit, Skip int64
	Sort        bson.D // empty: any order
	Projection  bson.D // empty: all fields
	// Each, unless nil, receives every document as it arrives and returns the document to keep. An error ends the
	// search. The document that it receives is valid until it returns.
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
	var out []Task
	for raw, err := range stream(ctx, cursor) {
		if err == nil && o.Each != nil {
			raw, err = o.Each(raw)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, DecodeTask(slices.Clone(raw)))
	}
	return out, nil
}

// CountTasks counts the tasks that match a filter.
func (s *Store) CountTasks(ctx context.Context, filter any) (int64, error) {
	return s.tasks.CountDocuments(ctx, filter)
}
