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

	"treadle/loop/disbatch"
)

// database is a site's store with the queries that a node and its task runner alone make.
type database struct {
	*disbatch.Store

	queues, nodes, tasks *mongo.Collection

	// journaled is tasks with writes that are on disk before they are acknowledged; volatile says
	// that the database has no journal for them.
	journaled *mongo.Collection
	volatile  *atomic.Bool
}

func newDatabase(store *disbatch.Store) *database {
	db := store.Database()
	d := &database{Store: store, queues: db.Collection("queues"), nodes: db.Collection("nodes"), tasks: db.Collection("tasks"), volatile: new(atomic.Bool)}
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

// durably writes with a journal, unless the configuration says otherwise or the database has
// none: a loss of power must not take back that a task has begun or ended.
func (d *database) durably(write func(tasks *mongo.Collection) error) error {
	if d.volatile.Load() {
		return write(d.tasks)
	}
	err := write(d.journaled)
	if err == nil || d.journaled == d.tasks || !strings.Contains(err.Error(), "does not have journaling enabled") {
		return err
	}
	d.volatile.Store(true)
	return write(d.tasks)
}

// risk is what is to be said about a database without a journal, if it has none.
func (d *database) risk() string {
	if !d.volatile.Load() {
		return ""
	}
	return "the database keeps no journal: a loss of power may leave tasks running (0) that have ended"
}

// occupied is how many tasks of a queue are claimed or running at a node.
type occupied struct {
	queue primitive.ObjectID
	node  string
	tasks int
}

// occupation counts the tasks that are claimed or running, by queue and node.
func (d *database) occupation(ctx context.Context) ([]occupied, error) {
	var all []occupied
	err := d.CountByQueue(ctx, bson.D{{Key: "status", Value: active}}, "node", func(queue primitive.ObjectID, node bson.RawValue, n int64) {
		all = append(all, occupied{queue: queue, node: disbatch.Text(node), tasks: int(n)})
	})
	return all, err
}

// recount counts the tasks of a 2016 queue and writes its counters if they differ, unless they have changed since the queue
// was read.
func (d *database) recount(ctx context.Context, q *disbatch.Queue) error {
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
	_, err = d.queues.UpdateOne(ctx, filter, disbatch.Set(bson.D{{Key: "count_todo", Value: todo}, {Key: "count_total", Value: total}}))
	return err
}

// forgetCounts marks the counters of a 2016 queue as unknown: whoever serves the queue recounts them.
func (d *database) forgetCounts(ctx context.Context, queue primitive.ObjectID) error {
	_, err := d.queues.UpdateOne(ctx, bson.D{{Key: "_id", Value: queue}}, disbatch.Set(bson.D{{Key: "count_todo", Value: nil}}))
	return err
}

// report writes a node's entry: its time and what it knows of the 2016 queues. Without any
// the entry has no queues, as in 2018.
func (d *database) report(ctx context.Context, node string, now time.Time, queues bson.A) error {
	stamp := bson.E{Key: "timestamp", Value: primitive.NewDateTimeFromTime(now)}
	change := append(disbatch.Set(bson.D{stamp}), bson.E{Key: "$unset", Value: bson.D{{Key: "queues", Value: ""}}})
	if queues != nil {
		change = disbatch.Set(bson.D{stamp, {Key: "queues", Value: queues}})
	}
	_, err := d.nodes.UpdateOne(ctx, bson.D{{Key: "node", Value: node}}, change, options.Update().SetUpsert(true))
	return err
}
