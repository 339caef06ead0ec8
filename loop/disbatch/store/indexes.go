package store

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// EnsureIndexes creates the missing indexes. It returns an error for each index that it cannot create; a site runs
// without them.
func (s *Store) EnsureIndexes(ctx context.Context) (faults []error) {
	asc := func(names ...string) (keys bson.D) {
		for _, n := range names {
			keys = append(keys, bson.E{Key: n, Value: 1})
		}
		return keys
	}
	// Every index needs its own options: the driver adds the name of the index to them.
	unique := func(names ...string) mongo.IndexModel {
		return mongo.IndexModel{Keys: asc(names...), Options: options.Index().SetUnique(true)}
	}
	name := mongo.IndexModel{Keys: asc("name")}
	if s.schema == Schema2018 {
		name = unique("name")
	}
	for _, want := range []struct {
		in    *mongo.Collection
		index mongo.IndexModel
	}{
		{s.tasks, mongo.IndexModel{Keys: asc("node", "status", "queue")}},
		{s.tasks, mongo.IndexModel{Keys: asc("node", "status", "queue", "_id")}},
		{s.tasks, mongo.IndexModel{Keys: append(asc("node", "status", "queue"), bson.E{Key: "_id", Value: -1})}},
		{s.tasks, mongo.IndexModel{Keys: asc("queue", "status")}},
		{s.queues, name},
		{s.nodes, unique("node")},
		{s.chunks, unique("files_id", "n")},
		{s.files, mongo.IndexModel{Keys: asc("filename", "metadata.task_id")}},
	} {
		if _, err := want.in.Indexes().CreateOne(ctx, want.index); err != nil {
			faults = append(faults, fmt.Errorf("cannot create an index of %s: %w", want.in.Name(), err))
		}
	}
	return faults
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
