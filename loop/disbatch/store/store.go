package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"

	"treadle/loop/disbatch/config"
)

// ErrNotFound reports that the queue, node, task or file does not exist.
var ErrNotFound = errors.New("not found")

// Store is the database of a Disbatch site. Its methods are safe for concurrent use. Each returns within the time-out of a call.
type Store struct {
	client *mongo.Client
	db     *mongo.Database
	schema Schema // of new queues
	login  string // name of the setting with the user and password, for errors
	dialed *options.ClientOptions

	queues, tasks, nodes, config, balance, files, chunks *mongo.Collection

	journaled *mongo.Collection // tasks, see journaledTasks
	noJournal *atomic.Bool      // the database has answered that it has no journal
}

// Open prepares the store. It does not wait for a connection: Retrier repeats calls until the database answers.
func Open(c config.Connection) (*Store, error) {
	o, err := clientOptions(c)
	if err != nil {
		return nil, &config.SettingError{Err: fmt.Errorf("%s: %w", c.Path, err)}
	}
	client, err := mongo.Connect(context.Background(), o)
	if err != nil {
		return nil, fmt.Errorf("cannot use the database: %w", err)
	}
	db := client.Database(c.Database)
	return &Store{
		client: client, db: db, schema: Schema(c.Schema), login: login(c, o), dialed: o,
		queues: db.Collection("queues"), tasks: db.Collection("tasks"), nodes: db.Collection("nodes"),
		config: db.Collection("config"), balance: db.Collection("balance"),
		files: db.Collection("tasks.files"), chunks: db.Collection("tasks.chunks"),
		journaled: journaledTasks(db), noJournal: new(atomic.Bool),
	}, nil
}

// Close closes the connections. It passes the driver a context without a deadline: with one the driver spins until cancelled calls
// have ended.
func (s *Store) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(connectTimeout, cancel).Stop()
	_ = s.client.Disconnect(ctx) // an error means that calls have not ended in time
}

// Explain adds the name of the setting that causes an error. It returns other errors as they are, and nil for nil.
func (s *Store) Explain(err error) error {
	if err == nil {
		return nil
	}
	switch text := err.Error(); {
	case strings.Contains(text, "auth error"), strings.Contains(text, "requires authentication"):
		return fmt.Errorf("the database does not take the user or the password, see %s in the configuration: %w", s.login, err)
	case strings.Contains(text, "wire version"):
		return fmt.Errorf("the database cannot be used, it must be MongoDB 3.6 or later: %w", err)
	case strings.Contains(text, "x509:"), strings.Contains(text, "tls:"):
		return fmt.Errorf("the database and its TLS certificate do not fit, see mongohost or ssl of attributes in the configuration: %w", err)
	case strings.Contains(text, "server selection error"):
		return fmt.Errorf("no server of the database answers, see mongohost in the configuration: %w", err)
	}
	return err
}

// unusable returns a SettingError for an error that a retry does not end: a release that is too old, a refused user or password,
// a certificate that does not fit, or another replica set. It returns nil for all others.
func (s *Store) unusable(ctx context.Context, err error) error {
	text := err.Error()
	for _, refusal := range []string{"wire version", "Authentication failed", "MechanismUnavailable", "requires authentication", "x509:"} {
		if strings.Contains(text, refusal) {
			return &config.SettingError{Err: s.Explain(err)}
		}
	}
	if strings.Contains(text, "server selection error") {
		return s.otherSet(ctx)
	}
	return nil
}

// otherSet returns a SettingError if a configured server answers and belongs to another replica set. The driver ignores such a
// server without an error.
func (s *Store) otherSet(ctx context.Context) error {
	if s.dialed.ReplicaSet == nil {
		return nil
	}
	for _, host := range s.dialed.Hosts {
		o := options.Client().SetHosts([]string{host}).SetDirect(true).SetTLSConfig(s.dialed.TLSConfig).SetTimeout(connectTimeout)
		client, err := mongo.Connect(ctx, o)
		if err != nil {
			continue
		}
		reply, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		_ = client.Disconnect(ctx) // the answer has been read
		name := Text(reply.Lookup("setName"))
		switch {
		case err != nil || name == *s.dialed.ReplicaSet:
		case name == "":
			return &config.SettingError{Err: fmt.Errorf("%s is no member of a replica set: remove replica_set_name from attributes, or replicaSet from mongohost", host)}
		default:
			return &config.SettingError{Err: fmt.Errorf("the replica set of %s is %q and not %q: correct replica_set_name of attributes, or replicaSet of mongohost", host, name, *s.dialed.ReplicaSet)}
		}
	}
	return nil
}

// EnsureIndexes creates the missing indexes. It returns an error for each index that it cannot create; a site runs without them.
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
