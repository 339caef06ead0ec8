package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/mongo/options"
	"go.mongodb.org/mongo-driver/x/mongo/driver"

	"treadle/loop/disbatch/config"
)

// The errors of the database that a caller can tell apart. Explain adds to all others which setting to change.

// ErrNotFound reports that the queue, node, task or file does not exist.
var ErrNotFound = errors.New("not found")

// DuplicateError reports that a unique index has refused a write.
type DuplicateError struct {
	error
	Message string // of the database
	Code    int    // of the database
}

// Codes of MongoDB's errors: a unique index refuses a write; a document exceeds the size limit before or after an
// update.
const (
	codeDuplicate     = 11000
	codeTooLarge      = 10334
	codeTooLargeAfter = 17419
)

// unreachable is a part of the driver's error for a call that found no server. It contains the last error of each
// server.
const unreachable = "server selection error"

// databaseAdvice holds the errors of the database that a setting causes, by what to change: %s is the setting with the
// user and password. The driver has no codes for them, so each is known by a part of its text. A final one stays until
// the setting changes. The first row counts for an error with parts of several.
var databaseAdvice = []struct {
	advice         string
	passing, final []string
}{
	{"the database does not take the user or the password, see %s in the configuration",
		[]string{"auth error"}, []string{"Authentication failed", "MechanismUnavailable", "requires authentication"}},
	{"the database cannot be used, it must be MongoDB 3.6 or later", nil, []string{"wire version"}},
	{"the database and its TLS certificate do not fit, see mongohost or ssl of attributes in the configuration", []string{"tls:"}, []string{"x509:"}},
	{"no server of the database answers, see mongohost in the configuration", []string{unreachable}, nil},
}

// has reports whether the text of an error contains any of the parts.
func has(err error, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(err.Error(), part) })
}

// Explain adds the name of the setting that causes an error. It returns other errors as they are, and nil for nil.
func (s *Store) Explain(err error) error {
	if err == nil {
		return nil
	}
	for _, row := range databaseAdvice {
		if has(err, row.passing) || has(err, row.final) {
			return fmt.Errorf("%s: %w", strings.Replace(row.advice, "%s", s.credentials, 1), err)
		}
	}
	return err
}

// unusable returns a SettingError for an error that a retry does not end: a final one, or that of another replica set.
// It returns nil for all others.
func (s *Store) unusable(ctx context.Context, err error) error {
	for _, row := range databaseAdvice {
		if has(err, row.final) {
			return &config.SettingError{Err: s.Explain(err)}
		}
	}
	if strings.Contains(err.Error(), unreachable) {
		return s.otherSet(ctx)
	}
	return nil
}

// otherSet returns a SettingError if a configured server answers and belongs to another replica set. The driver ignores
// such a server without an error.
func (s *Store) otherSet(ctx context.Context) error {
	if s.options.ReplicaSet == nil {
		return nil
	}
	for _, host := range s.options.Hosts {
		o := options.Client().SetHosts([]string{host}).SetDirect(true).SetTLSConfig(s.options.TLSConfig).SetTimeout(connectTimeout)
		client, err := mongo.Connect(ctx, o)
		if err != nil {
			continue
		}
		reply, err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Raw()
		_ = client.Disconnect(ctx) // the answer has been read
		name := Text(reply.Lookup("setName"))
		switch {
		case err != nil || name == *s.options.ReplicaSet:
		case name == "":
			return &config.SettingError{Err: fmt.Errorf("%s is no member of a replica set: remove replica_set_name from attributes, or replicaSet from mongohost", host)}
		default:
			return &config.SettingError{Err: fmt.Errorf("the replica set of %s is %q and not %q: correct replica_set_name of attributes, or replicaSet of mongohost", host, name, *s.options.ReplicaSet)}
		}
	}
	return nil
}

// TooLarge reports whether an error is about a document that exceeds the size limit of the database. A retry does not
// help.
func TooLarge(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, driver.ErrDocumentTooLarge) || errors.As(err, &server) && (server.HasErrorCode(codeTooLarge) || server.HasErrorCode(codeTooLargeAfter))
}

// duplicate returns a DuplicateError in place of the driver's error of a unique index, and other errors as they are.
func duplicate(err error) error {
	if !mongo.IsDuplicateKeyError(err) {
		return err
	}
	e := &DuplicateError{error: err, Message: err.Error(), Code: codeDuplicate}
	var refused mongo.WriteException
	if errors.As(err, &refused) && len(refused.WriteErrors) > 0 {
		e.Message, e.Code = refused.WriteErrors[0].Message, refused.WriteErrors[0].Code
	}
	return e
}

// notFound returns ErrNotFound in place of the driver's error for no document, and other errors as they are.
func notFound(err error) error {
	if errors.Is(err, mongo.ErrNoDocuments) {
		return ErrNotFound
	}
	return err
}
