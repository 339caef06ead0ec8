package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	rows, err := c.details(ctx, periodic.KeyFailedStatus, failedNumbers)
	if errors.Is(err, ErrNoDetails) { // of an older version
		rows, err = c.details(ctx, periodic.KeyStatus, detailNumbers)
	}
	return rows, err
}

func (c *Client) details(ctx context.Context, key string, numbers int) ([]Queue, error) {
	text, err := c.conn.expect(ctx, periodic.ConfigGet, periodic.Config, func(dst []byte) []byte {
		return periodic.AppendStr8String(dst, key)
	})
	switch {
	case err != nil:
		return nil, c.conn.describe("read the status", err)
	case len(text) == 4: // a number is the answer of a server that does not know the key
		return nil, ErrNoDetails
	}
	rows, err := parseStatus(string(text), numbers)
	return rows, c.conn.describe("read the status", err)
}

// ErrNoDetails reports a question that the server does not know.
var ErrNoDetails = errors.New("the server does not tell")

// The number of counts in a line.
const (
	plainNumbers  = 4
	crcNumbers    = 5
	detailNumbers = 7
	failedNumbers = 8
)

// numbersOf returns the number of counts in a STATUS line.
func numbersOf(framing periodic.Framing) int {
	if framing == periodic.CRC {
		return crcNumbers
	}
	return plainNumbers
}

// parseStatus parses lines of func,workers,jobs,processing[,locked[,delayed,waiting[,failed]]],schedat.
// Names may contain commas and line ends, so counts are taken from the end of a line, and a line
// without enough of them is the beginning of a name.
func parseStatus(text string, numbers int) ([]Queue, error) {
	var rows []Queue
	name := ""
	for i, line := range strings.Split(text, "\n") {
		if i == 0 && text == "" {
			break
		}
		row, ok := parseRow(name+line, numbers)
		if !ok {
			name += line + "\n"
			continue
		}
		name = ""
		rows = append(rows, row)
	}
	if name != "" {
		return nil, fmt.Errorf("the server sent a status line that cannot be read: %q", strings.TrimSuffix(name, "\n"))
	}
	return rows, nil
}

func parseRow(line string, numbers int) (q Queue, ok bool) {
	fields := strings.Split(line, ",")
	if len(fields) < numbers+1 {
		return q, false
	}
	at := len(fields) - numbers
	q.Func = strings.Join(fields[:at], ",")
	targets := []*int64{&q.Workers, &q.Jobs, &q.Running}
	if numbers >= crcNumbers {
		q.Locked = new(int64)
		targets = append(targets, q.Locked)
	}
	if numbers >= detailNumbers {
		q.Delayed, q.Waiting = new(int64), new(int64)
		targets = append(targets, q.Delayed, q.Waiting)
	}
	if numbers >= failedNumbers {
		q.Failed = new(int64)
		targets = append(targets, q.Failed)
	}
	targets = append(targets, &q.Next)
	for i, target := range targets {
		n, err := strconv.ParseInt(fields[at+i], 10, 64)
		if err != nil {
			return q, false
		}
		*target = n
	}
	return q, true
}
