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

// JobDetails is a job with what is known of it.
type JobDetails struct {
	ListedJob
	// Workload is the first of the workload, at most 4 KiB, as text, or in WorkloadBytes when it is not UTF-8.
	Workload      *string `json:"workload,omitempty"`
	WorkloadBytes []byte  `json:"workload_b64,omitempty"`
	WorkloadSize  int     `json:"workload_size"`
	WorkloadCut   bool    `json:"workload_cut,omitempty"` // there is more
	// Result is the first of the kept result, as of the workload.
	Result      *string   `json:"result,omitempty"`
	ResultBytes []byte    `json:"result_b64,omitempty"`
	ResultSize  int       `json:"result_size,omitempty"`
	ResultCut   bool      `json:"result_cut,omitempty"`
	Until       int64     `json:"until,omitempty"`   // Unix milliseconds: the time-out of a running job, or the end of its lease
	Timeout     int32     `json:"timeout,omitempty"` // of each run, in seconds; none: the server's
	Count       int32     `json:"count,omitempty"`   // as its protocol counts: failures, or what its workers say
	Attempts    []Attempt `json:"attempts"`
	Locks       []string  `json:"locks,omitempty"` // that it holds
	Why         []Why     `json:"why"`             // why it does not run, or what became of it
}

// Why is a reason.
type Why struct {
	Reason string `json:"reason"` // one of a list, for programs
	Text   string `json:"text"`   // for people
}
