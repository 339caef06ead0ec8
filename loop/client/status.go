package client

import (
	"context"
	"errors"

	"treadle/codec/periodic"
)

// Queue is one row of STATUS: a function and its counts.
type Queue struct {
	Func    string
	Workers int64  // workers that offer the function
	Jobs    int64  // including running ones
	Running int64  // held by workers
	Locked  *int64 // waiting for a lock; nil in the 2018 framing
	Delayed *int64 // not due yet; only from Details, else nil
	Waiting *int64 // waiting for predecessors; only from Details, else nil
	Failed  *int64 // given up and kept, and not among Jobs; only from Details of a server that knows them, else nil
	Next    int64  // due time of the earliest pending job, unix seconds; the server's present time without one
}

// Details returns Status with a Treadle's additional counts. ErrNoDetails: another server has none.
func (c *Client) Details(ctx context.Context) ([]Queue, error) {
	rows, err := c.details(ctx, periodic.KeyFailedStatus, periodic.StatusAllCounts)
	if errors.Is(err, ErrNoDetails) { // of an older version
		rows, err = c.details(ctx, periodic.KeyStatus, periodic.StatusDetails)
	}
	return rows, err
}

// details returns the status in a form of Treadle's own, or ErrNoDetails from a server that does not know the key.
func (c *Client) details(ctx context.Context, key string, form periodic.StatusForm) ([]Queue, error) {
	text, err := c.conn.expect(ctx, periodic.ConfigGet, periodic.Config, func(dst []byte) []byte {
		return periodic.AppendStr8String(dst, key)
	})
	switch {
	case err != nil:
		return nil, c.conn.describe("read the status", err)
	case len(text) == 4: // a number is the answer of a server that does not know the key
		return nil, ErrNoDetails
	}
	rows, err := parseStatus(string(text), form)
	return rows, c.conn.describe("read the status", err)
}

// ErrNoDetails reports a question that the server does not know.
var ErrNoDetails = errors.New("the server does not tell")

// statusForm returns the form of the lines of STATUS.
func statusForm(framing periodic.Framing) periodic.StatusForm {
	if framing == periodic.CRC {
		return periodic.StatusCRC
	}
	return periodic.StatusPlain
}

// parseStatus parses a status. Counts that the form does not have are nil.
func parseStatus(text string, form periodic.StatusForm) ([]Queue, error) {
	lines, err := periodic.ParseStatus(text, form)
	if err != nil {
		return nil, err
	}
	var rows []Queue
	for i := range lines {
		l := &lines[i]
		known := func(count int) *int64 {
			if count < int(form) {
				return &l.Counts[count]
			}
			return nil
		}
		rows = append(rows, Queue{
			Func: l.Func, Workers: l.Counts[periodic.StatusWorkers], Jobs: l.Counts[periodic.StatusJobs], Running: l.Counts[periodic.StatusRunning],
			Locked: known(periodic.StatusLocked), Delayed: known(periodic.StatusDelayed), Waiting: known(periodic.StatusWaiting),
			Failed: known(periodic.StatusFailed), Next: l.SchedAt,
		})
	}
	return rows, nil
}
