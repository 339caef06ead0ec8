package disbatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Nodes returns all nodes by name.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	return all(ctx, s.nodes, bson.D{}, DecodeNode, options.Find().SetSort(bson.D{{Key: "node", Value: 1}}))
}

// Node returns the node of an id or a name.
func (s *Store) Node(ctx context.Context, idOrName string) (Node, error) {
	raw, err := s.nodes.FindOne(ctx, byIDOrName("node", idOrName)).Raw()
	if err != nil {
		return Node{}, found(err)
	}
	return DecodeNode(raw), nil
}

// SetNodeLimit sets how many tasks a node runs at once; NoLimit writes null.
func (s *Store) SetNodeLimit(ctx context.Context, id primitive.ObjectID, limit int) (*mongo.UpdateResult, error) {
	var value any
	if limit != NoLimit {
		value = int32(limit)
	}
	return s.nodes.UpdateOne(ctx, byID(id), set(bson.D{{Key: "maxthreads", Value: value}}))
}

// report writes a node's entry: its time and what it knows of the 2016 queues. Without any
// the entry has no queues, as in 2018.
func (s *Store) report(ctx context.Context, node string, now time.Time, queues bson.A) error {
	stamp := bson.E{Key: "timestamp", Value: primitive.NewDateTimeFromTime(now)}
	change := append(set(bson.D{stamp}), bson.E{Key: "$unset", Value: bson.D{{Key: "queues", Value: ""}}})
	if queues != nil {
		change = set(bson.D{stamp, {Key: "queues", Value: queues}})
	}
	_, err := s.nodes.UpdateOne(ctx, bson.D{{Key: "node", Value: node}}, change, options.Update().SetUpsert(true))
	return err
}

// overlay returns the configuration with what the active document of the collection config
// says about keys that the file does not name. The document's fields stand at its top or
// below active.
func (s *Store) overlay(ctx context.Context, file *Config) (*Config, error) {
	docs, err := all(ctx, s.config, bson.D{{Key: "active", Value: bson.D{{Key: "$exists", Value: true}}}},
		func(raw bson.Raw) bson.Raw { return raw }, options.Find().SetSort(idAscending))
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		active := doc.Lookup("active")
		inner, nested := active.DocumentOK()
		on, isBool := active.BooleanOK()
		n, isNumber := integer(active)
		if !nested && (!isBool || !on) && (!isNumber || n == 0) {
			continue
		}
		c := *file
		var faults []error
		for _, key := range []struct {
			name string
			into any
		}{
			{"plugins", &c.Plugins}, {"web_root", &c.WebRoot}, {"activequeues", &c.ActiveQueues},
			{"ignorequeues", &c.IgnoreQueues}, {"task_runner", &c.TaskRunner}, {"log", &c.Log},
		} {
			value := doc.Lookup(key.name)
			if nested && !missing(inner.Lookup(key.name)) {
				value = inner.Lookup(key.name)
			}
			if missing(value) || file.named[key.name] {
				continue
			}
			if err := json.Unmarshal([]byte(value.String()), key.into); err != nil {
				faults = append(faults, fmt.Errorf("collection config: %s: %w", key.name, err))
			}
		}
		return &c, errors.Join(faults...)
	}
	return file, nil
}
