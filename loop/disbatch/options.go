package disbatch

import "time"

// Options are the settings of the node. New checks them.
type Options struct {
	Config string   // path of the original's config.json; empty: there is no node
	Node   string   // name, default the host's
	Runner []string // command that runs the tasks that are no functions; empty: other nodes do them

	// The server's setting, which it sets itself.
	Drain time.Duration // how long a stopping node waits for its tasks
}
