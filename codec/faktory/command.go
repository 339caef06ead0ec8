package faktory

import (
	"encoding/json"
	"errors"

	"treadle/codec/jsontext"
)

// Ack returns the jid of the text of an ACK. ok is false when it is no object of strings with one.
func Ack(dst, text []byte) (jid []byte, ok bool) {
	var o jsontext.Object
	if !o.Open(text) {
		return nil, false
	}
	for o.Next() {
		value, isText := jsontext.Text(dst, o.Value)
		if !isText && string(o.Value) != "null" {
			return nil, false
		}
		if isText && string(o.Key) == "jid" { // Faktory looks it up in a map: another case is another key
			jid, ok = value, true
			dst = nil // jid may be in it
		}
	}
	return jid, ok && o.Valid()
}

// Failure is what a worker says of a job that it could not do.
type Failure struct {
	JID       string   `json:"jid"`
	Type      string   `json:"errtype"`
	Message   string   `json:"message"`
	Backtrace []string `json:"backtrace"`
}

// Beat is a sign of life of a worker process.
type Beat struct {
	Worker string `json:"wid"`
	State  string `json:"current_state"` // empty, quiet or terminate
	RSS    int64  `json:"rss_kb"`
}

// Mutation is a change of many jobs.
type Mutation struct {
	Verb   string  `json:"cmd"`    // clear, kill, discard or requeue
	Target string  `json:"target"` // scheduled, retries or dead
	Filter *Filter `json:"filter"` // nil: all jobs
}

// Filter says which jobs a Mutation means. JIDs come before the rest.
type Filter struct {
	JIDs    []string `json:"jids"`
	Type    string   `json:"jobtype"`
	Pattern string   `json:"regexp"` // of Matches, for the JSON of a job
}

// Progress is what a worker says of a job that it does.
type Progress struct {
	JID          string `json:"jid"`
	Percent      int    `json:"percent"`
	Description  string `json:"desc"`
	ReserveUntil string `json:"reserve_until"`
}

// errNoObject reports that a text is not one JSON object.
var errNoObject = errors.New("no JSON object")

// Parse reads the JSON object of a rare command into one of the types above.
func Parse[T any](text []byte) (*T, error) {
	v := new(T)
	if len(text) == 0 || text[0] != '{' {
		return nil, errNoObject
	}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, err
	}
	return v, nil
}
