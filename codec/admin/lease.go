package admin

// Reserve asks for jobs, which the worker then holds under leases.
type Reserve struct {
	Queues      []string `json:"queues"`
	QueuesBytes [][]byte `json:"queues_b64,omitempty"` // further ones, in base64
	Jobs        int      `json:"jobs,omitempty"`       // at most this many; default: 1
	Wait        Duration `json:"wait,omitzero"`        // how long to wait for the first; none: not at all
	Lease       Duration `json:"lease,omitzero"`       // how long the worker holds each; default: a minute
	Worker      string   `json:"worker,omitempty"`     // how views and histories name it; default: its address
}

// Leased is the answer to a Reserve: no jobs when none was ready in time.
type Leased struct {
	Jobs []LeasedJob `json:"jobs"`
}

// LeasedJob is a job under a lease. The workload is text in Workload, or bytes that are not UTF-8 in WorkloadBytes.
type LeasedJob struct {
	Token         string  `json:"token,omitempty"`     // of a broadcast none
	Broadcast     bool    `json:"broadcast,omitempty"` // all waiting workers of the queue have the job, none reports on it
	Until         int64   `json:"until,omitempty"`     // Unix milliseconds
	Queue         string  `json:"queue"`
	QueueBytes    []byte  `json:"queue_b64,omitempty"`
	Name          string  `json:"name"`
	NameBytes     []byte  `json:"name_b64,omitempty"`
	Workload      *string `json:"workload,omitempty"`
	WorkloadBytes []byte  `json:"workload_b64,omitempty"`
	Priority      int64   `json:"priority,omitempty"`
	At            int64   `json:"at,omitempty"` // Unix seconds
}

// Token is the proof of a lease. A body about leases is one of the objects below, or an array of them.
type Token struct {
	Token string `json:"token"`
}

// DoneReport ends a leased job as done.
type DoneReport struct {
	Token
	Result      string `json:"result,omitempty"` // for the submitter that waits
	ResultBytes []byte `json:"result_b64,omitempty"`
}

// FailReport gives a leased job back as failed.
type FailReport struct {
	Token
	Error string    `json:"error,omitempty"` // for the history
	Delay *Duration `json:"delay,omitempty"` // until the next attempt; none: as the queue's policy says
}

// ReleaseReport gives a leased job back unstarted.
type ReleaseReport struct{ Token }

// ExtendReport has a lease last longer, or shorter.
type ExtendReport struct {
	Token
	Lease Duration `json:"lease,omitzero"` // from now on; none: a minute
}

// ProgressReport sends data to those that listen to a leased job.
type ProgressReport struct {
	Token
	Data      string `json:"data,omitempty"`
	DataBytes []byte `json:"data_b64,omitempty"`
}

// Reported is the answer to reports.
type Reported struct {
	Reported int          `json:"reported"`
	Until    int64        `json:"until,omitempty"` // extend, of one: Unix milliseconds
	Wait     bool         `json:"wait,omitempty"`  // progress: a listener is behind, publish less often
	Left     []LeftReport `json:"left,omitempty"`  // of several: those that had no effect
}

// LeftReport is a report that had no effect.
type LeftReport struct {
	Token  string `json:"token"`
	Error  string `json:"error"`
	Reason string `json:"reason"` // see NoLease
}

// The reasons why a token is good for nothing.
const (
	NoLease      = "no-lease" // it never was one, or it ended long ago
	LeaseExpired = "expired"
	LeaseDone    = "done" // reported or released before
	LeaseRemoved = "removed"
)
