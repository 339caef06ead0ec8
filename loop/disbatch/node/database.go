package node

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"

	"treadle/loop/disbatch/store"
)

// database is the store of a site with the queries that only a node and its task runner make.
type database struct {
	*store.Store

	queues, nodes, tasks *mongo.Collection

	// journaled is tasks with a write concern of j: the database acknowledges a write after it is in its journal. noJournal is true
	// once the database has answered that it has none.
	journaled *mongo.Collection
	noJournal *atomic.Bool
}

// newDatabase returns the database of a store.
func newDatabase(site *store.Store) *database {
	db := site.Database()
	d := &database{Store: site, queues: db.Collection("queues"), nodes: db.Collection("nodes"), tasks: db.Collection("tasks"), noJournal: new(atomic.Bool)}
	d.journaled = d.tasks
	if concern := db.WriteConcern(); concern == nil || concern.Journal == nil {
		durable := writeconcern.WriteConcern{Journal: new(true)}
		if concern != nil {
			durable.W = concern.W
		}
		d.journaled = db.Collection("tasks", options.Collection().SetWriteConcern(&durable))
	}
	return d
}

// durably writes with journaled, so that a loss of power cannot undo the begin or end of a task. It writes with tasks if the
// configuration has a write concern of its own or the database has no journal.
func (d *database) durably(write func(tasks *mongo.Collection) error) error {
	if d.noJournal.Load() {
		return write(d.tasks)
	}
	err := write(d.journaled)
	if err == nil || d.journaled == d.tasks || !strings.Contains(err.Error(), "does not have journaling enabled") {
		return err
	}
	d.noJournal.Store(true)
	return write(d.tasks)
}

// journalWarning returns a warning about a database without a journal, or an empty text.
func (d *database) journalWarning() string {
	if !d.noJournal.Load() {
		return ""
	}
	return "the database keeps no journal: a loss of power may leave tasks running (0) that have ended"
}

// occupied is the number of claimed and running tasks of a queue at a node.
type occupied struct {
	queue primitive.ObjectID
	node  string
	tasks int
}

// occupation counts the claimed and running tasks by queue and node.
func (d *database) occupation(ctx context.Context) ([]occupied, error) {
	var all []occupied
	err := d.CountByQueue(ctx, bson.D{{Key: "status", Value: active}}, "node", func(queue primitive.ObjectID, node bson.RawValue, n int64) {
		all = append(all, occupied{queue: queue, node: store.Text(node), tasks: int(n)})
	})
	return all, err
}

// recount counts the tasks of a 2016 queue and writes wrong counters. It does not write counters that have changed since the caller
// read the queue.
func (d *database) recount(ctx context.Context, q *store.Queue) error {
	todo, err := d.tasks.CountDocuments(ctx, bson.D{{Key: "queue", Value: q.ID}, {Key: "status", Value: bson.D{{Key: "$lte", Value: 0}}}})
	if err != nil {
		return err
	}
	total, err := d.tasks.CountDocuments(ctx, bson.D{{Key: "queue", Value: q.ID}})
	if err != nil || todo == q.Todo && total == q.Total {
		return err
	}
	filter := bson.D{{Key: "_id", Value: q.ID}}
	for _, name := range []string{"count_todo", "count_total"} {
		if was := q.Raw.Lookup(name); was.Type != 0 {
			filter = append(filter, bson.E{Key: name, Value: was})
		}
	}
	_, err = d.queues.UpdateOne(ctx, filter, store.Set(bson.D{{Key: "count_todo", Value: todo}, {Key: "count_total", Value: total}}))
	return err
}

// forgetCounts marks the counters of a 2016 queue as unknown. The nodes that serve the queue recount them.
func (d *database) forgetCounts(ctx context.Context, queue primitive.ObjectID) error {
	_, err := d.queues.UpdateOne(ctx, bson.D{{Key: "_id", Value: queue}}, store.Set(bson.D{{Key: "count_todo", Value: nil}}))
	return err
}

// report writes the entry of a node: a timestamp and the 2016 queues. nil removes the field queues, as in 2018.
func (d *database) report(ctx context.Context, node string, now time.Time, queues bson.A) error {
	stamp := bson.E{Key: "timestamp", Value: primitive.NewDateTimeFromTime(now)}
	change := append(store.Set(bson.D{stamp}), bson.E{Key: "$unset", Value: bson.D{{Key: "queues", Value: ""}}})
	if queues != nil {
		change = store.Set(bson.D{stamp, {Key: "queues", Value: queues}})
	}
	_, err := d.nodes.UpdateOne(ctx, bson.D{{Key: "node", Value: node}}, change, options.Update().SetUpsert(true))
	return err
}
