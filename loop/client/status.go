package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"treadle/codec/periodic"
)

// Queue is one row of STATUS: a function and how it stands.
type Queue struct {
	Func    string
	Workers int64  // that can do it
	Jobs    int64  // running ones included
	Running int64  // in the hands of workers
	Locked  *int64 // waiting for a lock; nil in the 2018 framing
	Delayed *int64 // not due yet; nil but from Details
	Waiting *int64 // for other jobs; nil but from Details
	Next    int64  // when the earliest pending job is due, unix seconds; the server's present when there is none
}

// Details is Status with all that a Treadle tells; ErrNotTold: another server does not.
func (c *Client) Details(ctx context.Context) ([]Queue, error) {
	text, err := c.conn.expect(ctx, periodic.ConfigGet, periodic.Config, func(dst []byte) []byte {
		return periodic.AppendStr8String(dst, periodic.KeyStatus)
	})
	switch {
	case err != nil:
		return nil, c.conn.fault("read the status", err)
	case len(text) == 4: // a number: what another server answers
		return nil, ErrNotTold
	}
	rows, err := parseStatus(string(text), detailNumbers)
	return rows, c.conn.fault("read the status", err)
}

// ErrNotTold is a question that the server does not know.
var ErrNotTold = errors.New("the server does not tell")

// How many numbers a line has.
const (
	plainNumbers  = 4
	crcNumbers    = 5
	detailNumbers = 7
)

// numbersOf is how many a STATUS has.
func numbersOf(framing periodic.Framing) int {
	if framing == periodic.CRC {
		return crcNumbers
	}
	return plainNumbers
}

// parseStatus reads lines of func,workers,jobs,processing[,locked[,delayed,waiting]],schedat.
// Names may hold commas and line ends, so numbers are counted from a line's
// end, and a line without enough of them is the front of a name.
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
