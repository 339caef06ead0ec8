package client

import (
	"context"
	"errors"
	"fmt"

	"treadle/codec/periodic"
)

// RefusedError is an ErrRefused with the server's reason.
type RefusedError struct {
	Reason periodic.Reason
	Err    error // names the request and the server
}

var reasons = map[periodic.Reason]string{
	periodic.ReasonDisk:      "it takes no new jobs, because the disk of its --data has less free space than --min-free: free some",
	periodic.ReasonRoom:      "it would leave less than --min-free on the disk of its --data: free some, or load it in parts",
	periodic.ReasonFunctions: "it has as many functions as it can: drop some that are not used",
	periodic.ReasonWaiters:   "too many clients wait for this job's result already",
	periodic.ReasonMemory:    "it holds as many jobs, or requests, as it can",
	periodic.ReasonReports:   "too many dumps are running: try again later",
	periodic.ReasonLocks:     "it has reached its limit of named locks",
	periodic.ReasonWorker:    "this worker has reached its limit of functions or of requested jobs",
	periodic.ReasonSize:      "a job is larger than its --max-frame",
	periodic.ReasonSetting:   "one of its settings forbids it",
	periodic.ReasonPolicy:    "the policy of the queue forbids it, by a pause of submits, max-jobs, max-bytes or max-payload: see treadle queue show",
	periodic.ReasonPaused:    "the queue is paused for submits: treadle queue show says by whom and why, treadle queue resume ends it",
	periodic.ReasonPayload:   "the workload is larger than the max-payload of the queue's policy: see treadle queue show",
	periodic.ReasonMaxJobs:   "as many jobs are pending as the max-jobs of the queue's policy allows: try again later, or see treadle queue show",
	periodic.ReasonMaxBytes:  "the jobs of the queue would take more than the max-bytes of its policy: try again later, or see treadle queue show",
	periodic.ReasonMaxMemory: "it takes no new jobs, because it holds as much as its --max-memory allows: have workers do some, or remove some",
	periodic.ReasonMalformed: "the request is malformed",
	periodic.ReasonRole:      "it does not accept this request from this client",
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v: %s", e.Err, reasons[e.Reason])
}

// Unwrap returns the refusal.
func (e *RefusedError) Unwrap() error { return e.Err }

// Forbidden reports whether a setting of the server, or the kind of this client, is the reason.
func (e *RefusedError) Forbidden() bool {
	return e.Reason == periodic.ReasonSetting || e.Reason == periodic.ReasonRole
}

// Explain adds the server's reason when err is an ErrRefused: the reason of this connection's last
// refusal, else the reason for which the server refuses new jobs. It returns err itself when the
// server gives no reason; only a Treadle does.
func (c *Client) Explain(ctx context.Context, err error) error {
	if !errors.Is(err, ErrRefused) {
		return err
	}
	for _, key := range []string{periodic.KeyRefused, periodic.KeyRefusing} {
		value, failed := c.ConfigGet(ctx, key)
		if failed != nil {
			return err
		}
		reason := periodic.Reason(value)
		if _, known := reasons[reason]; known && uint32(reason) == value {
			return &RefusedError{reason, err}
		}
	}
	return err
}
