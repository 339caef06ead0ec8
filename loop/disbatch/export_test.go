package disbatch

import "context"

// What the tests of this room see of its inside.
var (
	ClientOptions = clientOptions
	Strict        = strict
	PluginName    = pluginName
)

const ConnectTimeout = connectTimeout

// Ping asks the database for a sign.
func (s *Store) Ping(ctx context.Context) error { return s.client.Ping(ctx, nil) }
