package client

import (
	"context"
	"errors"
	"fmt"

	"treadle/codec/periodic"
)

// RefusedError is an ErrRefused whose reason the server has named.
type RefusedError struct {
	Reason periodic.Reason
	Err    error // says what was refused, and where
}

var reasons = map[periodic.Reason]string{
	periodic.ReasonDisk:      "it takes no new jobs, because the disk of its --data has less free space than --min-free: free some",
	periodic.ReasonRoom:      "it would leave less than --min-free on the disk of its --data: free some, or load it in parts",
	periodic.ReasonFunctions: "it has as many functions as it can: drop some that are not used",
	periodic.ReasonWaiters:   "as many clients as can wait for this job's result",
	periodic.ReasonMemory:    "it holds as many jobs, or requests, as it can",
	periodic.ReasonReports:   "as many dumps are under way as can be: try again later",
	periodic.ReasonLocks:     "it has as many named locks as it can",
	periodic.ReasonWorker:    "this worker serves as many functions, or asks for as many jobs, as it can",
	periodic.ReasonSize:      "a job is larger than its --max-frame",
	periodic.ReasonSetting:   "one of its settings forbids it",
	periodic.ReasonMalformed: "it makes no sense to it",
	periodic.ReasonRole:      "it does not know the request, or not from this client",
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%v: %s", e.Err, reasons[e.Reason])
}

// Unwrap returns what was refused.
func (e *RefusedError) Unwrap() error { return e.Err }

// Explain asks the server for its reason when err is an ErrRefused: the one for this connection's
// last refusal, else the one for which it refuses new jobs. It returns err itself when the server
// names none: one that is no Treadle does not.
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
