package node

import (
	"context"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// database is the store of a site with the queries that only a node and its task runner make.
type database struct{ *store.Store }

// journalWarning returns a warning about a database without a journal, or an empty text.
func (d *database) journalWarning() string {
	if !d.NoJournal() {
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
