package admin

// Overview is the answer to GET /api/v1/overview: the server and its queues at one moment, small enough to be asked for
// every second.
type Overview struct {
	At      int64  `json:"at"`      // Unix milliseconds
	Started int64  `json:"started"` // Unix milliseconds: the counters below count from then on
	Ready   bool   `json:"ready"`
	Health  string `json:"health"` // what /readyz says

	Submitted uint64 `json:"submitted"` // jobs
	Done      uint64 `json:"done"`      // jobs
	Failed    uint64 `json:"failed"`    // runs that failed, timed out or lost their worker; most are tried again

	Memory      int64            `json:"memory"`       // in use, in bytes
	MemoryLimit int64            `json:"memory_limit"` // --max-memory
	Journal     *OverviewJournal `json:"journal,omitempty"`

	// Queues are those with most jobs that are ready, running or delayed, in that order. Rest is the sum of all others.
	Queues     []OverviewQueue `json:"queues"`
	Rest       OverviewQueue   `json:"rest"`
	RestQueues int             `json:"rest_queues"` // how many Rest has
}

// OverviewJournal is the journal of a server that has one.
type OverviewJournal struct {
	Unacknowledged int64  `json:"unacknowledged"` // changes that are not committed yet
	Bytes          uint64 `json:"bytes"`          // of the data directory
	Free           uint64 `json:"free"`           // bytes on its disk
}

// OverviewQueue is a queue in an Overview. Its counters count from when the server gave it some, see
// --metrics-max-queues.
type OverviewQueue struct {
	Queue
	Busy      int    `json:"busy"`   // of the workers, those that do a job of the queue
	Oldest    int64  `json:"oldest"` // how long the oldest ready job has been due, in seconds
	Submitted uint64 `json:"submitted_total"`
	Finished  uint64 `json:"done_total"`
	GivenUp   uint64 `json:"failed_total"` // for good
}
