package admin

// DisbatchSite is the answer to GET /api/v1/disbatch of a server that is a node of a Disbatch site: the queues and
// nodes of the site.
type DisbatchSite struct {
	Database string          `json:"database"`
	Queues   []DisbatchQueue `json:"queues"` // by age
	Nodes    []DisbatchNode  `json:"nodes"`  // by name
	// Uncounted is why the tasks of the queues could not be counted; empty: they were.
	Uncounted string `json:"uncounted,omitempty"`
}

// DisbatchQueue is a queue of a Disbatch site.
type DisbatchQueue struct {
	ID      string `json:"id"`
	Queue   string `json:"queue"`
	Plugin  string `json:"plugin"`
	Limit   int    `json:"limit"`    // tasks at a time
	PerNode bool   `json:"per_node"` // each node has the limit for itself
	Problem string `json:"problem,omitempty"`

	Queued    int64 `json:"queued"`
	Running   int64 `json:"running"`   // claimed ones, too
	Completed int64 `json:"completed"` // succeeded, failed, and with a status of their plugin's
}

// DisbatchNode is a node of a Disbatch site.
type DisbatchNode struct {
	Node    string `json:"node"`
	Limit   *int   `json:"limit,omitempty"` // tasks at a time; none: no limit
	Seen    int64  `json:"seen,omitempty"`  // Unix milliseconds, by its clock
	Late    bool   `json:"late"`            // it reports each second, and has not for a minute
	Problem string `json:"problem,omitempty"`
}

// DisbatchTasks is a page of tasks, the newest first.
type DisbatchTasks struct {
	Tasks []DisbatchTask `json:"tasks"`
	Next  string         `json:"next,omitempty"` // the cursor of the next page; empty: there is none
}

// DisbatchTask is a task of a Disbatch site. In a list it has no payload and no output.
type DisbatchTask struct {
	ID      string `json:"id"`
	Queue   string `json:"queue"` // its name, or its id when there is no such queue any more
	QueueID string `json:"queue_id"`
	Status  int    `json:"status"`
	State   string `json:"state"` // the status in a word, or completed
	Node    string `json:"node,omitempty"`
	Created int64  `json:"created,omitempty"` // Unix milliseconds
	Changed int64  `json:"changed,omitempty"` // Unix milliseconds

	Params *DisbatchText `json:"params,omitempty"` // JSON
	Stdout *DisbatchText `json:"stdout,omitempty"`
	Stderr *DisbatchText `json:"stderr,omitempty"`
}

// DisbatchText is the beginning of a payload or an output.
type DisbatchText struct {
	Size  int64  `json:"size"` // bytes of all of it
	Text  string `json:"text,omitempty"`
	Bytes []byte `json:"text_b64,omitempty"` // in place of text that is not UTF-8
	Cut   bool   `json:"cut,omitempty"`      // there is more
	Error string `json:"error,omitempty"`    // why it cannot be read
}
