package admin

import "encoding/json"

// Job is a job to submit as JSON has it. A name that is not UTF-8 stands in the member with _b64, in base64.
type Job struct {
	Queue      string `json:"queue"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Name       string `json:"name,omitempty"` // unique in its queue; none: the server makes one
	NameBytes  []byte `json:"name_b64,omitempty"`

	// Workload is text, WorkloadBytes any bytes, WorkloadJSON a JSON value, kept byte for byte. A job has one or none.
	Workload      string          `json:"workload,omitempty"`
	WorkloadBytes []byte          `json:"workload_b64,omitempty"`
	WorkloadJSON  json.RawMessage `json:"workload_json,omitempty"`

	Priority int64    `json:"priority,omitempty"` // the larger first
	At       Moment   `json:"at,omitzero"`        // not before that moment
	Delay    Duration `json:"delay,omitzero"`     // the job is due after this time
	Timeout  Duration `json:"timeout,omitzero"`   // of each run; none: the server's
	Wait     Duration `json:"wait,omitzero"`      // how long the answer may wait for the end of the job; none: it does not
}

// Submitted is the answer to a submission.
type Submitted struct {
	Queue      string `json:"queue"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Name       string `json:"name"`
	NameBytes  []byte `json:"name_b64,omitempty"`
	// State is submitted; of a submission that waited also done, failed, removed, or pending when its time was over.
	State       string  `json:"state"`
	Result      *string `json:"result,omitempty"` // of a done job, when it is UTF-8
	ResultBytes []byte  `json:"result_b64,omitempty"`
	Error       string  `json:"error,omitempty"` // of a failed job: the last error of its attempts; "expired" when it has none
}

// SubmittedLines is the answer to a submission of JSON lines. Lines are counted from 1; empty ones have numbers too.
type SubmittedLines struct {
	Submitted int           `json:"submitted"`
	Refused   int           `json:"refused,omitempty"`
	Errors    []RefusedLine `json:"errors,omitempty"` // of the first refused lines
	Error     string        `json:"error,omitempty"`  // why the rest of the lines was not looked at
	Next      int           `json:"next_line,omitempty"`
}

// RefusedLine is a line that was not submitted.
type RefusedLine struct {
	Line   int    `json:"line"`
	Error  string `json:"error"`
	Reason string `json:"reason,omitempty"` // the label of the refusal in the metrics
}

// Queue is a queue as JSON has it. The counts are of jobs in each state.
type Queue struct {
	Queue      string `json:"queue"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Workers    int    `json:"workers"`
	Busy       int    `json:"busy"` // of the workers, those that do a job of the queue
	Ready      int    `json:"ready"`
	Delayed    int    `json:"delayed"`
	Running    int    `json:"running"`
	Locked     int    `json:"locked"`
	Waiting    int    `json:"waiting"`
	Failed     int    `json:"failed"`
	Done       int    `json:"done"`
	Paused     string `json:"paused,omitempty"` // hand-out, submits or all
	PausedBy   string `json:"paused_by,omitempty"`
	PausedWhy  string `json:"paused_why,omitempty"`
	Oldest     int64  `json:"oldest"` // how long the oldest ready job has been due, in seconds

	// Counted reports whether the server counts what happens to the jobs of the queue, see --metrics-max-queues. The
	// totals count from then on. Without it they are 0, and there are no rates and protocols.
	Counted        bool     `json:"counted"`
	SubmittedTotal uint64   `json:"submitted_total"`
	DoneTotal      uint64   `json:"done_total"`
	FailedTotal    uint64   `json:"failed_total"` // for good
	Rates          *Rates   `json:"rates,omitempty"`
	Protocols      []string `json:"protocols,omitempty"` // by which its jobs have come
}

// Rates are jobs a second, over the last five seconds.
type Rates struct {
	Submitted float64 `json:"submitted"`
	Done      float64 `json:"done"`
	Failed    float64 `json:"failed"` // given up; in an Overview runs that failed
}

// Queues is a page of queues, in the order that the request asks for.
type Queues struct {
	Queues []Queue `json:"queues"`
	Of     int     `json:"of"`             // so many queues there are, on all pages
	Next   string  `json:"next,omitempty"` // the cursor of the next page; empty: none
}

// Error is the answer to a request that was not carried out.
type Error struct {
	Error  string `json:"error"`
	Reason string `json:"reason,omitempty"` // of a refusal: its label in the metrics
}
