package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
)

// Limits of calls.
const (
	// callTime is for one call with the driver's own retries: clients wait meanwhile.
	callTime = 10 * time.Second
	// connectTime is for finding the server and connecting to it. A call waits no longer for an unreachable one.
	connectTime = 5 * time.Second
	// listTime is for all calls of a list of all projects, two for each.
	listTime = time.Minute
	// deleteTime is for the documents of a job or project, one for each car and step. Another call continues a deletion
	// that takes longer.
	deleteTime = 2 * time.Minute
	// maxConnections bounds the driver's pool: further calls wait.
	maxConnections = 16
)

// Errors of calls about a job or project.
var (
	ErrNoProject = errors.New("there is no such project")
	ErrNoJob     = errors.New("there is no such job")
	ErrTaken     = errors.New("there is a project or job of that name")
	ErrMany      = errors.New("there are more jobs than can be listed")
)

// DataError describes an unusable document. MongoDB itself works.
type DataError struct{ text string }

func (e *DataError) Error() string { return e.text }

func badData(format string, args ...any) error { return &DataError{fmt.Sprintf(format, args...)} }

// remedies are the remedies for errors of the driver that waiting does not solve, by a part of the error's text.
var remedies = []struct{ part, remedy string }{
	{"wire version", "this release of MongoDB cannot be used; use 3.6 to 5.0"},
	{"Authentication failed", "MongoDB refuses the user or the password; correct user, password or authSource in the URI"},
	{"MechanismUnavailable", "MongoDB refuses the user's way to log in; correct authMechanism in the URI"},
	{"requires authentication", "MongoDB wants a login; put user and password into the URI"},
	{"x509:", "the TLS certificate of MongoDB does not fit; use the host name that it is for, or name its authority by tlsCAFile=FILE in the URI"},
}

// PermanentError returns an error that waiting does not solve, with its remedy. It returns nil for all others.
func PermanentError(err error) error {
	for _, r := range remedies {
		if err != nil && strings.Contains(err.Error(), r.part) {
			return fmt.Errorf("%s: %w", r.remedy, err)
		}
	}
	return nil
}

// Store is a site's MongoDB. It is safe for concurrent use. Every call ends within its own time, or with its context.
type Store struct {
	client *mongo.Client
	hosts  []string
}

// Open returns the store of a URI, of the form mongodb://[USER:PASSWORD@]HOST[:PORT],.../?OPTIONS. It validates the URI
// and does not wait for the server.
func Open(uri string) (*Store, error) {
	o, err := clientOptions(uri)
	if err != nil {
		return nil, err
	}
	client, err := mongo.Connect(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return &Store{client: client, hosts: o.Hosts}, nil
}

// Hosts returns the servers of a URI, as host:port or host.
func Hosts(uri string) ([]string, error) {
	o, err := clientOptions(uri)
	if err != nil {
		return nil, err
	}
	return o.Hosts, nil
}

// clientOptions returns the driver's options of an address, with this package's time-outs where the address has none.
func clientOptions(uri string) (*options.ClientOptions, error) {
	o := options.Client().ApplyURI(uri).SetAppName("treadle kts46")
	if o.ConnectTimeout == nil {
		o.SetConnectTimeout(connectTime)
	}
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(connectTime)
	}
	if o.MaxPoolSize == nil {
		o.SetMaxPoolSize(maxConnections)
	}
	o.SocketTimeout = nil // calls have their own time-outs
	return o, o.Validate()
}

// Close ends the connections. Calls in progress fail.
func (s *Store) Close() {
	// With a deadline instead, the driver polls for the end of calls without a pause.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(connectTime, cancel).Stop()
	_ = s.client.Disconnect(ctx) // nothing depends on its success
}

// find reads one document by its id. found is false if no document has the id.
func (s *Store) find(ctx context.Context, project, collection string, filter any, fields bson.D) (doc bson.Raw, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	o := options.FindOne()
	if fields != nil {
		o.SetProjection(fields)
	}
	doc, err = s.client.Database(project).Collection(collection).FindOne(ctx, filter, o).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, false, nil
	}
	return doc, err == nil, err
}

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// number reads a number of any BSON type; ok is false for any other value.
func number(v bson.RawValue) (n float64, ok bool) {
	switch v.Type {
	case bson.TypeInt32:
		return float64(v.Int32()), true
	case bson.TypeInt64:
		return float64(v.Int64()), true
	case bson.TypeDouble:
		return v.Double(), true
	}
	return 0, false
}

// maxSteps is the largest exact integer of a double.
const maxSteps = 1 << 53

// steps reads a number of steps.
func steps(doc bson.Raw, name string) (int64, error) {
	n, ok := number(doc.Lookup(name))
	if !ok || !(n >= 0 && n <= maxSteps) {
		return 0, badData("%s in its progresses document is no number of steps", name)
	}
	return int64(n), nil
}

func flag(doc bson.Raw, name string) bool {
	b, ok := doc.Lookup(name).BooleanOK()
	return ok && b
}
