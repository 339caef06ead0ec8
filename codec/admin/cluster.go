package admin

// Cluster is the answer to GET /api/v1/cluster: the nodes, and their states as one of them has learned it from all. A
// server that is alone has no name of a cluster and no nodes.
type Cluster struct {
	Cluster string        `json:"cluster,omitempty"`
	Node    string        `json:"node,omitempty"`   // that has asked the others
	Leader  string        `json:"leader,omitempty"` // empty: no node leads
	Term    uint64        `json:"term,omitempty"`
	Nodes   []ClusterNode `json:"nodes"`
	// Spare is how many more nodes may be lost so that the others are still a majority.
	Spare int `json:"spare"`
	// Attention is what needs an operator's attention, the most urgent first.
	Attention []Attention `json:"attention"`
}

// ClusterNode is a node of a cluster. A node that does not answer has an error, and no role and numbers.
type ClusterNode struct {
	Node    string  `json:"node"`
	Address string  `json:"address"`
	Role    string  `json:"role,omitempty"` // leader, follower, candidate or learner
	Leader  string  `json:"leader,omitempty"`
	Term    uint64  `json:"term,omitempty"`
	Last    uint64  `json:"last,omitempty"`    // the last entry on its disk
	Stored  uint64  `json:"stored,omitempty"`  // the last entry that is in its store
	Behind  *uint64 `json:"behind,omitempty"`  // entries that the leader has and it has not; left out without a leader
	Contact int64   `json:"contact,omitempty"` // milliseconds since it has heard of a leader; of the leader, of a majority
	Ahead   int64   `json:"ahead,omitempty"`   // milliseconds that its clock is ahead of that of the node that has asked
	Write   int64   `json:"write,omitempty"`   // microseconds that its disk takes for a write to the log of late
	Error   string  `json:"error,omitempty"`
}
