package store

import (
	"context"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
)

// byIDOrName returns a filter for the documents whose id, in 24 hexadecimal digits, or whose named field is the text.
func byIDOrName(field, idOrName string) bson.D {
	if id, err := primitive.ObjectIDFromHex(idOrName); err == nil {
		return bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "_id", Value: id}}, bson.D{{Key: field, Value: idOrName}}}}}
	}
	return bson.D{{Key: field, Value: idOrName}}
}

// byID returns a filter for the document of an id.
func byID(id primitive.ObjectID) bson.D { return bson.D{{Key: "_id", Value: id}} }

// set returns an update that sets fields.
func set(fields bson.D) bson.D { return bson.D{{Key: "$set", Value: fields}} }

// in returns a condition that any of the values meets.
func in[T any](values []T) bson.D { return bson.D{{Key: "$in", Value: values}} }

// stream returns the documents of a cursor, each valid until the next one, and the cursor's error at the end. It closes
// the cursor.
func stream(ctx context.Context, cursor *mongo.Cursor) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // only read
		for cursor.Next(ctx) {
			if !yield(cursor.Current, nil) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// all decodes the documents of a cursor and closes it.
func all[T any](ctx context.Context, cursor *mongo.Cursor, decode func(bson.Raw) T) (out []T, err error) {
	for doc, err := range stream(ctx, cursor) {
		if err != nil {
			return out, err
		}
		out = append(out, decode(slices.Clone(doc)))
	}
	return out, nil
}

// Documents returns the documents of any collection of the database that match a filter, for one iteration. Each is
// valid until the next one. An error ends the iteration.
func (s *Store) Documents(ctx context.Context, collection string, filter bson.D) (iter.Seq2[bson.Raw, error], error) {
	cursor, err := s.db.Collection(collection).Find(ctx, filter)
	if err != nil {
		return nil, err
	}
	return stream(ctx, cursor), nil
}
