package disbatch

// Options are the settings of the node, as of package setting. New checks them.
type Options struct {
	Config   string   `name:"disbatch" placeholder:"FILE" help:"The config.json of a Disbatch site; the server is an execution node of it, and its workers do tasks (default: none)."`
	Node     string   `name:"disbatch-node" placeholder:"NAME" help:"Name of that node (default: the host's)."`
	Executor []string `kong:"-"` // command that runs the tasks that are no functions; empty: other nodes do them
}
