package admin

// JobsChange changes jobs: those of IDs, the one of a queue and a name, or those that a filter means. A name that is
// not UTF-8 stands in the member with _b64, in base64.
type JobsChange struct {
	Verb       string    `json:"verb"` // see VerbRetry
	IDs        []string  `json:"ids,omitempty"`
	Queue      string    `json:"queue,omitempty"`
	QueueBytes []byte    `json:"queue_b64,omitempty"`
	Name       string    `json:"name,omitempty"`
	NameBytes  []byte    `json:"name_b64,omitempty"`
	Protocol   string    `json:"protocol,omitempty"` // of the job of Name; none: any
	Filter     string    `json:"filter,omitempty"`
	DryRun     bool      `json:"dry_run,omitempty"`  // of a filter: count the jobs, change none
	Priority   *int64    `json:"priority,omitempty"` // of VerbPriority
	At         Moment    `json:"at,omitzero"`        // of VerbDue, or Delay
	Delay      *Duration `json:"delay,omitempty"`
	To         string    `json:"to,omitempty"` // of VerbMove: a queue
	ToBytes    []byte    `json:"to_b64,omitempty"`
	RequestedBy
}

// The verbs of a JobsChange.
const (
	VerbRetry    = "retry"    // failed jobs: ready, with all their retries before them
	VerbRun      = "run"      // delayed and failed jobs: ready now
	VerbRemove   = "remove"   // jobs in any state
	VerbPriority = "priority" // pending jobs: another priority
	VerbDue      = "due"      // pending jobs: another due time
	VerbMove     = "move"     // pending and failed jobs: to another queue
)

// JobsChanged is the answer to a JobsChange without a filter.
type JobsChanged struct {
	Changed int       `json:"changed"`
	Left    []LeftJob `json:"left,omitempty"`
}

// LeftJob is a job that stayed as it was.
type LeftJob struct {
	ID     string `json:"id"`
	Status int    `json:"status"` // the HTTP status of the error: 404 of a job that is gone, 409 of one that the verb does not fit
	Error  string `json:"error"`
}

// JobsMatched is the answer to a dry run.
type JobsMatched struct {
	Matched int   `json:"matched"`
	Looked  int64 `json:"looked"`
	Of      int   `json:"of"`
	More    bool  `json:"more,omitempty"` // the time was over before all jobs were looked at
}

// OperationStarted is the answer to a JobsChange with a filter.
type OperationStarted struct {
	Operation string `json:"operation"`
}

// Cancel names an operation to cancel.
type Cancel struct {
	Operation string `json:"operation"`
	RequestedBy
}

// RequestedBy is who asks for a change, and why, for the audit.
type RequestedBy struct {
	By  string `json:"by,omitempty"`  // the name of a person or a program
	Why string `json:"why,omitempty"` // the reason
}

// Operation is a change of all jobs that a filter means.
type Operation struct {
	Operation string    `json:"operation"`
	Verb      string    `json:"verb"`
	Filter    string    `json:"filter"`
	State     string    `json:"state"`   // see OperationRunning
	Looked    int64     `json:"looked"`  // number of jobs looked at
	Of        int       `json:"of"`      // about the number of jobs at its begin
	Matched   int       `json:"matched"` // number of jobs that the filter matched
	Changed   int       `json:"changed"`
	Left      int       `json:"left"`             // number of jobs that stayed as they were
	Errors    []LeftJob `json:"errors,omitempty"` // the first of those
	By        string    `json:"by,omitempty"`
	Started   int64     `json:"started"`         // Unix milliseconds
	Ended     int64     `json:"ended,omitempty"` // Unix milliseconds
}

// The states of an operation.
const (
	OperationRunning   = "running"
	OperationDone      = "done"
	OperationCancelled = "cancelled"
)

// Operations is the answer to GET /api/v1/operations, the newest first.
type Operations struct {
	Operations []Operation `json:"operations"`
}

// QueueChange pauses, resumes, drains or empties a queue.
type QueueChange struct {
	Queue      string `json:"queue,omitempty"` // pause and resume: a name or a pattern
	QueueBytes []byte `json:"queue_b64,omitempty"`
	What       string `json:"what,omitempty"`    // pause: hand-out, the default, submits or both
	DryRun     bool   `json:"dry_run,omitempty"` // empty: count the jobs, remove none
	RequestedBy
}

// AuditRecord is a change that was made through the API.
type AuditRecord struct {
	Number  uint64 `json:"number"`           // of this server's changes
	At      int64  `json:"at"`               // Unix milliseconds
	By      string `json:"by,omitempty"`     // who asked, as the request says
	User    string `json:"user,omitempty"`   // of the process that asked on the socket, as the system knows it
	UID     *int64 `json:"uid,omitempty"`    // of User
	From    string `json:"from"`             // where the request came from: an address, or socket
	Agent   string `json:"agent,omitempty"`  // the program that asked, as it names itself
	Request string `json:"request"`          // such as POST /api/v1/jobs/change
	Target  string `json:"target,omitempty"` // what was changed
	Count   int    `json:"count,omitempty"`  // number of jobs
	Why     string `json:"why,omitempty"`
}

// Audit is a page of the audit, the newest record first.
type Audit struct {
	Records []AuditRecord `json:"records"`
	Next    string        `json:"next,omitempty"` // the cursor of the next page; empty: none
}
