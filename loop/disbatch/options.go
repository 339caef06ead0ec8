package disbatch

// Options are the settings of the node. New checks them.
type Options struct {
	Config string   // path of the original's config.json; empty: there is no node
	Node   string   // name, default the host's
	Runner []string // command that runs the tasks that are no functions; empty: other nodes do them
}
