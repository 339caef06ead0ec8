package store

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Balance returns the document of queuebalanced, a program of the original, or ErrNotFound.
func (s *Store) Balance(ctx context.Context) (bson.Raw, error) {
	raw, err := s.balance.FindOne(ctx, bson.D{}).Raw()
	return raw, notFound(err)
}

// SetBalance sets fields of the document of queuebalanced and creates it if needed.
func (s *Store) SetBalance(ctx context.Context, fields bson.D) error {
	_, err := s.balance.UpdateOne(ctx, bson.D{}, set(fields), options.Update().SetUpsert(true))
	return err
}
