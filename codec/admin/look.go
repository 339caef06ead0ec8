package admin

// ListedJob is a job in any state as JSON has it. A name that is not UTF-8 stands in the member with _b64, in base64.
type ListedJob struct {
	ID         string `json:"id"` // as long as the server runs; of a failed or done job for ever
	Queue      string `json:"queue"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Name       string `json:"name"`
	NameBytes  []byte `json:"name_b64,omitempty"`
	Protocol   string `json:"protocol"`
	State      string `json:"state"`
	Priority   int64  `json:"priority"`
	Due        int64  `json:"due"`              // Unix milliseconds; 0: it has no due time, as a task or a job that has ended
	Size       int    `json:"size"`             // of the workload, in bytes
	Worker     string `json:"worker,omitempty"` // that holds it, or had it last
	Since      int64  `json:"since,omitempty"`  // Unix milliseconds: the hand-out of a running job, the end of a failed or done one
	Tries      uint64 `json:"tries,omitempty"`  // attempts, where a policy counts them
	Error      string `json:"error,omitempty"`  // the last error text, its first 200 bytes
}

// Jobs is a page of the jobs that a filter means.
type Jobs struct {
	Jobs   []ListedJob `json:"jobs"`
	Looked int64       `json:"looked"` // jobs that were looked at, for this page and those before it
	Of     int         `json:"of"`     // jobs that are to be looked at in all, about
	Next   string      `json:"next"`   // the cursor of the next page; empty: all jobs were looked at
}
