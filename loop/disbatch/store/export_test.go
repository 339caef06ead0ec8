package store

import "context"

// ClientOptions and ConnectTimeout are for the tests of this package.
var ClientOptions = clientOptions

const ConnectTimeout = connectTimeout

// Ping sends a ping to the database.
func (s *Store) Ping(ctx context.Context) error { return s.client.Ping(ctx, nil) }
