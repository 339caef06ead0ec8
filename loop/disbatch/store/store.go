package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/mongo/writeconcern"

	"treadle/loop/disbatch/config"
)

// Bounds of calls. Every call ends with one of them.
const (
	// callTimeout bounds one call with the driver's own retries, unless its context has a deadline, which may be later.
	callTimeout = 10 * time.Second
	// connectTimeout bounds the selection of a server and the connection to it. No call waits longer for a database
	// that does not answer.
	connectTimeout = 5 * time.Second
	// maxConnections bounds the driver's pool. It exceeds the concurrent calls of any program of a site.
	maxConnections = 64
)

// Store is the database of a Disbatch site. Its methods are safe for concurrent use. Each returns within the time-out
// of a call.
type Store struct {
	client      *mongo.Client
	db          *mongo.Database
	schema      Schema // of new queues
	credentials string // name of the setting with the user and password, for errors
	options     *options.ClientOptions

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
		client: client, db: db, schema: Schema(c.Schema), credentials: credentialsSetting(c, o), options: o,
		queues: db.Collection("queues"), tasks: db.Collection("tasks"), nodes: db.Collection("nodes"),
		config: db.Collection("config"), balance: db.Collection("balance"),
		files: db.Collection("tasks.files"), chunks: db.Collection("tasks.chunks"),
		journaled: journaledTasks(db), noJournal: new(atomic.Bool),
	}, nil
}

// Close closes the connections. It passes the driver a context without a deadline: with one the driver spins until
// cancelled calls have ended.
func (s *Store) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(connectTimeout, cancel).Stop()
	_ = s.client.Disconnect(ctx) // an error means that calls have not ended in time
}

// clientOptions returns the driver's options of a connection.
func clientOptions(c config.Connection) (*options.ClientOptions, error) {
	address := c.MongoHost
	if !strings.Contains(address, "://") {
		address = "mongodb://" + address + "/"
	}
	o := options.Client().ApplyURI(address).SetAppName("treadle " + c.Component)
	if o.WriteConcern != nil && journalOff(address) { // nil if the address has a fault
		o.SetWriteConcern(&writeconcern.WriteConcern{W: o.WriteConcern.W, Journal: new(false)})
	}
	o.SocketTimeout = nil // its effect beside the time-out of a call is undefined
	if o.Timeout == nil {
		o.SetTimeout(callTimeout)
	}
	if o.ConnectTimeout == nil {
		o.SetConnectTimeout(connectTimeout)
	}
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(connectTimeout)
	}
	if o.MaxPoolSize == nil {
		o.SetMaxPoolSize(maxConnections)
	}
	if c.Dial != nil {
		o.SetDialer(c.Dial)
	}
	if err := applyAttributes(o, c.Attributes); err != nil {
		return nil, fmt.Errorf("attributes: %w", err)
	}
	if c.Password != nil {
		o.SetAuth(options.Credential{Username: c.Component, Password: *c.Password, AuthSource: c.Database})
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mongohost: %w", err)
	}
	return o, nil
}

// journalOff reports whether an address has journal=false, which the driver treats as unset.
func journalOff(address string) bool {
	_, query, _ := strings.Cut(address, "?")
	parameters := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	return slices.ContainsFunc(parameters, func(option string) bool { return strings.EqualFold(option, "journal=false") })
}

// credentialsSetting returns the name of the setting with the user.
func credentialsSetting(c config.Connection, o *options.ClientOptions) string {
	var a credentials
	_ = json.Unmarshal(c.Attributes, &a) // clientOptions has checked them
	switch {
	case c.Password != nil || o.Auth == nil:
		return c.Component + " of auth"
	case a.Username != "":
		return "username and password of attributes"
	}
	return "mongohost"
}
