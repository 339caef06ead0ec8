package store

import (
	"context"
	"errors"

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

// Set returns an update that sets fields.
func Set(fields bson.D) bson.D { return bson.D{{Key: "$set", Value: fields}} }

// In returns a condition that any of the values meets.
func In[T any](values []T) bson.D { return bson.D{{Key: "$in", Value: values}} }

// all decodes the documents of a cursor and closes it.
func all[T any](ctx context.Context, cursor *mongo.Cursor, decode func(bson.Raw) T) ([]T, error) {
	defer func() { _ = cursor.Close(ctx) }() // only read
	var out []T
	for cursor.Next(ctx) {
		out = append(out, decode(append(bson.Raw(nil), cursor.Current...)))
	}
	return out, cursor.Err()
}

// found returns ErrNotFound in place of the driver's error for no document, and other errors as they are.
func found(err error) error {
	if errors.Is(err, mongo.ErrNoDocuments) {
		return ErrNotFound
	}
	return err
}
