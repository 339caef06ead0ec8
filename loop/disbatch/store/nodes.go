package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Nodes returns all nodes in the order of their names.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	cursor, err := s.nodes.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "node", Value: 1}}))
	if err != nil {
		return nil, err
	}
	return all(ctx, cursor, DecodeNode)
}

// Node returns the node of an id or a name.
func (s *Store) Node(ctx context.Context, idOrName string) (Node, error) {
	raw, err := s.nodes.FindOne(ctx, byIDOrName("node", idOrName)).Raw()
	if err != nil {
		return Node{}, notFound(err)
	}
	return DecodeNode(raw), nil
}

// SetNodeLimit sets the number of tasks that a node runs at once. NoLimit writes null.
func (s *Store) SetNodeLimit(ctx context.Context, id primitive.ObjectID, limit int) (Updated, error) {
	var value any
	if limit != NoLimit {
		value = int32(limit)
	}
	return updated(s.nodes.UpdateOne(ctx, byID(id), set(bson.D{{Key: "maxthreads", Value: value}})))
}

// ReportNode writes the entry of a node: a timestamp and the 2016 queues. nil removes the field queues, as in 2018.
func (s *Store) ReportNode(ctx context.Context, name string, now time.Time, queues bson.A) error {
	stamp := bson.E{Key: "timestamp", Value: primitive.NewDateTimeFromTime(now)}
	change := append(set(bson.D{stamp}), bson.E{Key: "$unset", Value: bson.D{{Key: "queues", Value: ""}}})
	if queues != nil {
		change = set(bson.D{stamp, {Key: "queues", Value: queues}})
	}
	_, err := s.nodes.UpdateOne(ctx, bson.D{{Key: "node", Value: name}}, change, options.Update().SetUpsert(true))
	return err
}
