package client

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"treadle/codec/periodic"
)

// Queue is one row of STATUS: a function and how it stands.
type Queue struct {
	Func    string `json:"function"`
	Workers int64  `json:"workers"`          // that can do it
	Jobs    int64  `json:"jobs"`             // running ones included
	Running int64  `json:"running"`          // in the hands of workers
	Locked  *int64 `json:"locked,omitempty"` // waiting for a lock; nil in the 2018 framing
	Next    int64  `json:"next"`             // when the earliest pending job is due, unix seconds; the server's present when there is none
}

// parseStatus reads lines of func,workers,jobs,processing[,locked],schedat.
// Names may hold commas and line ends, so numbers are counted from a line's
// end, and a line without enough of them is the front of a name.
func parseStatus(text string, framing periodic.Framing) ([]Queue, error) {
	numbers := 4
	if framing == periodic.CRC {
		numbers = 5
	}
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
	targets := []*int64{&q.Workers, &q.Jobs, &q.Running, &q.Next}
	if numbers == 5 {
		q.Locked = new(int64)
		targets = slices.Insert(targets, 3, q.Locked)
	}
	for i, target := range targets {
		n, err := strconv.ParseInt(fields[at+i], 10, 64)
		if err != nil {
			return q, false
		}
		*target = n
	}
	return q, true
}
