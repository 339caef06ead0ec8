package disbatch

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
)

// What every query of the database is made of.

// byIDOrName is a filter for the document with this id, as 24 hexadecimal digits, or
// else with this name.
func byIDOrName(field, idOrName string) bson.D {
	if id, err := primitive.ObjectIDFromHex(idOrName); err == nil {
		return bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "_id", Value: id}}, bson.D{{Key: field, Value: idOrName}}}}}
	}
	return bson.D{{Key: field, Value: idOrName}}
}

// ByID is a filter for the document of this id.
func ByID(id primitive.ObjectID) bson.D { return bson.D{{Key: "_id", Value: id}} }

// Set is an update of these fields.
func Set(fields bson.D) bson.D { return bson.D{{Key: "$set", Value: fields}} }

// In is a condition for any of these values.
func In[T any](values []T) bson.D { return bson.D{{Key: "$in", Value: values}} }

// Group returns the stages of an aggregate that counts documents by these fields, as n, of those that a filter finds; nil is
// all of them.
func Group(filter, by bson.D) bson.A {
	count := bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: by}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}}
	if filter == nil {
		return bson.A{count}
	}
	return bson.A{bson.D{{Key: "$match", Value: filter}}, count}
}

// All decodes every document of a cursor, and closes it.
func All[T any](ctx context.Context, cursor *mongo.Cursor, decode func(bson.Raw) T) ([]T, error) {
	defer func() { _ = cursor.Close(ctx) }() // it was only read
	var out []T
	for cursor.Next(ctx) {
		out = append(out, decode(append(bson.Raw(nil), cursor.Current...)))
	}
	return out, cursor.Err()
}

// Found translates the driver's word for no document into ErrNotFound.
func Found(err error) error {
	if errors.Is(err, mongo.ErrNoDocuments) {
		return ErrNotFound
	}
	return err
}
