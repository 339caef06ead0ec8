package store

import "context"

// ClientOptions and the constants are for the tests of this package.
var ClientOptions = clientOptions

const (
	ConnectTimeout = connectTimeout
	RunField       = runField
)

// Ping sends a ping to the database.
func (s *Store) Ping(ctx context.Context) error { return s.client.Ping(ctx, nil) }
