package store

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"
)

// journaledTasks returns the collection tasks with a write concern of j: the database acknowledges a write after it is
// in its journal. It returns nil if the configuration has a write concern of its own.
func journaledTasks(db *mongo.Database) *mongo.Collection {
	concern := db.WriteConcern()
	if concern != nil && concern.Journal != nil {
		return nil
	}
	durable := writeconcern.WriteConcern{Journal: new(true)}
	if concern != nil {
		durable.W = concern.W
	}
	return db.Collection("tasks", options.Collection().SetWriteConcern(&durable))
}

// durably writes to tasks so that a loss of power cannot undo it, unless the configuration has a write concern of its
// own or the database has no journal.
func (s *Store) durably(write func(tasks *mongo.Collection) error) error {
	if s.journaled == nil || s.noJournal.Load() {
		return write(s.tasks)
	}
	err := write(s.journaled)
	if err == nil || !strings.Contains(err.Error(), "does not have journaling enabled") {
		return err
	}
	s.noJournal.Store(true)
	return write(s.tasks)
}

// NoJournal reports whether a durable write has found that the database keeps no journal.
func (s *Store) NoJournal() bool { return s.noJournal.Load() }

// updateTask updates a task that matches a filter, durably. It returns false if no task matches.
func (s *Store) updateTask(ctx context.Context, filter, update bson.D) (matched bool, err error) {
	err = s.durably(func(tasks *mongo.Collection) error {
		result, err := tasks.UpdateOne(ctx, filter, update)
		matched = err == nil && result.MatchedCount == 1
		return err
	})
	return matched, err
}

// updateTasks updates all tasks that match a filter and returns how many it has changed.
func (s *Store) updateTasks(ctx context.Context, filter, update bson.D) (int64, error) {
	result, err := s.tasks.UpdateMany(ctx, filter, update)
	if err != nil {
		return 0, err
	}
	return result.ModifiedCount, nil
}
