package disbatch

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Balance is the document of queue balance, ErrNotFound without one.
func (s *Store) Balance(ctx context.Context) (bson.Raw, error) {
	raw, err := s.db.Collection("balance").FindOne(ctx, bson.D{}).Raw()
	return raw, found(err)
}

// SetBalance changes fields of that document, which comes to be by it.
func (s *Store) SetBalance(ctx context.Context, fields bson.D) (*mongo.UpdateResult, error) {
	return s.db.Collection("balance").UpdateOne(ctx, bson.D{}, set(fields), options.Update().SetUpsert(true))
}
