package admin

// Overview is the answer to GET /api/v1/overview: the server and its queues at one moment, small enough to be asked for
// every second.
type Overview struct {
	At       int64  `json:"at"`      // Unix milliseconds
	Started  int64  `json:"started"` // Unix milliseconds: the counters below count from then on
	Version  string `json:"version"`
	Ready    bool   `json:"ready"`
	Health   string `json:"health"`             // what /readyz says
	Disbatch bool   `json:"disbatch,omitempty"` // the server is a node of a Disbatch site
	Cluster  string `json:"cluster,omitempty"`  // name of the cluster; a server that is alone has none

	Submitted uint64 `json:"submitted"` // jobs
	Done      uint64 `json:"done"`      // jobs
	Failed    uint64 `json:"failed"`    // runs that failed, timed out or lost their worker; most are tried again
	Rates     *Rates `json:"rates,omitempty"`

	Memory      int64                 `json:"memory"`       // in use, in bytes
	MemoryLimit int64                 `json:"memory_limit"` // --max-memory
	Journal     *OverviewJournal      `json:"journal,omitempty"`
	Connections []ProtocolConnections `json:"connections"` // of each protocol that is served

	// Attention is what needs an operator's attention, the most urgent first. AttentionMore counts what the list has no
	// room for.
	Attention     []Attention `json:"attention"`
	AttentionMore int         `json:"attention_more,omitempty"`

	// Queues are those with most jobs that are ready, running or delayed, in that order. Rest is the sum of all others.
	Queues     []Queue `json:"queues"`
	Rest       Queue   `json:"rest"`
	RestQueues int     `json:"rest_queues"` // how many Rest has
}

// OverviewJournal is the journal of a server that has one.
type OverviewJournal struct {
	Sync           string `json:"sync"`           // --sync
	Unacknowledged int64  `json:"unacknowledged"` // changes that are not committed yet
	Bytes          uint64 `json:"bytes"`          // of the data directory
	Free           uint64 `json:"free"`           // bytes on its disk
	MinFree        uint64 `json:"min_free"`       // --min-free: below it new jobs are refused
}

// ProtocolConnections are the open connections of a protocol, by role.
type ProtocolConnections struct {
	Protocol string `json:"protocol"`
	Clients  int    `json:"clients"`
	Workers  int    `json:"workers"`
	Others   int    `json:"others"` // before the handshake, and in protocols without roles
}

// Attention is something that an operator should look at. Those of a Cluster have kinds of their own.
type Attention struct {
	Kind       string `json:"kind"` // not-ready, degraded, node, disk, certificate, no-worker, old, paused or failed
	Queue      string `json:"queue,omitempty"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Text       string `json:"text"`
}
