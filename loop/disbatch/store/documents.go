package store

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Documents returns the documents of any collection of the database that match a filter. The caller closes the cursor.
func (s *Store) Documents(ctx context.Context, collection string, filter bson.D) (*mongo.Cursor, error) {
	return s.db.Collection(collection).Find(ctx, filter)
}

// Balance returns the document of queuebalanced, a program of the original, or ErrNotFound.
func (s *Store) Balance(ctx context.Context) (bson.Raw, error) {
	raw, err := s.balance.FindOne(ctx, bson.D{}).Raw()
	return raw, found(err)
}

// SetBalance sets fields of the document of queuebalanced and creates it if needed.
func (s *Store) SetBalance(ctx context.Context, fields bson.D) error {
	_, err := s.balance.UpdateOne(ctx, bson.D{}, Set(fields), options.Update().SetUpsert(true))
	return err
}
