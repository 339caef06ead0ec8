// Package admin has the messages of the HTTP API, which package loop/admin serves, as JSON.
package admin

import "unicode/utf8"

// Name splits a name into the members of a message that carry it: text when it is UTF-8, else bytes.
func Name(name string) (text string, inBase64 []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return "", []byte(name)
}

// Rule is a rule as JSON has it.
type Rule struct {
	Pattern      string            `json:"pattern"`
	PatternBytes []byte            `json:"pattern_b64,omitempty"`
	Source       string            `json:"source"` // file or run time
	Values       map[string]string `json:"values"`
	Changed      bool              `json:"changed,omitempty"` // whether the request has changed the rule
	// Exceptions are the first values of paused of stronger rules: their queues go on, or are paused less.
	Exceptions   []Value `json:"exceptions,omitempty"`
	ExceptionsOf int     `json:"exceptions_of,omitempty"` // how many there are
}

// Key is a key of rules as JSON has it.
type Key struct {
	Name    string `json:"name"`
	Example string `json:"example"`
	Meaning string `json:"meaning"`
}

// Value is a value of a queue's policy as JSON has it.
type Value struct {
	Key          string `json:"key"`
	Value        string `json:"value"`
	Source       string `json:"source"`
	Pattern      string `json:"pattern"`
	PatternBytes []byte `json:"pattern_b64,omitempty"`
}

// Table is the answer to GET /api/v1/policies: with a queue its values, else all rules and keys.
type Table struct {
	Queue      string  `json:"queue,omitempty"`
	QueueBytes []byte  `json:"queue_b64,omitempty"`
	Values     []Value `json:"values,omitempty"`
	Rules      []Rule  `json:"rules,omitempty"`
	Keys       []Key   `json:"keys,omitempty"`
}

// Attempt is an entry of a failed job's history as JSON has it.
type Attempt struct {
	At      int64  `json:"at"` // Unix milliseconds
	Outcome string `json:"outcome"`
	Worker  string `json:"worker,omitempty"`
	Text    string `json:"text,omitempty"`
}

// PolicyChange is a change of a run-time rule. A value of nil takes the key out of the rule.
type PolicyChange struct {
	Pattern string             `json:"pattern"`
	Values  map[string]*string `json:"values"`
	RequestedBy
}

// FailureCauses is the answer to GET /api/v1/jobs/causes: failed jobs by queue and cause, the largest group first.
type FailureCauses struct {
	Causes []FailureCause `json:"causes"`
	Other  int            `json:"other"`          // jobs of groups that the answer has no room for
	Looked int64          `json:"looked"`         // at so many failed jobs
	Of     int            `json:"of"`             // there are so many
	More   bool           `json:"more,omitempty"` // the time was over before all were looked at
}

// FailureCause are the failed jobs of a queue whose last attempts ended alike.
type FailureCause struct {
	Queue      string `json:"queue"`
	QueueBytes []byte `json:"queue_b64,omitempty"`
	Outcome    string `json:"outcome"` // of the last attempt
	Cause      string `json:"cause"`   // the main line of its error, with # for each number
	Common     string `json:"common"`  // a text that all of the errors have, for a filter; empty: there is none
	Jobs       int    `json:"jobs"`
	First      int64  `json:"first"` // Unix milliseconds of the first and last end
	Last       int64  `json:"last"`
	ID         string `json:"id"`   // of the job that failed last
	Text       string `json:"text"` // its error, the first 200 bytes
}

// CronEntry is a cron entry as JSON has it. A workload that is not UTF-8 stands in WorkloadBytes, in base64.
type CronEntry struct {
	Name          string `json:"name"` // also of its jobs
	Schedule      string `json:"schedule"`
	Zone          string `json:"zone,omitempty"` // default: Local, the server's
	Queue         string `json:"queue"`
	Workload      string `json:"workload,omitempty"`
	WorkloadBytes []byte `json:"workload_b64,omitempty"`
	Priority      int64  `json:"priority,omitempty"`
	Missed        string `json:"missed,omitempty"`  // once, the default, or skip
	Overlap       string `json:"overlap,omitempty"` // skip, the default, or queue
}

// CronAdd adds an entry, or replaces the one of its name.
type CronAdd struct {
	CronEntry
	Replace bool `json:"replace,omitempty"`
	RequestedBy
}

// CronStatus is an entry and what it has done.
type CronStatus struct {
	CronEntry
	Source string            `json:"source"` // file or run time
	Next   []string          `json:"next"`   // its next times in its zone, as RFC 3339 has them; none while it is paused
	Paused bool              `json:"paused,omitempty"`
	By     string            `json:"paused_by,omitempty"`
	Why    string            `json:"paused_why,omitempty"`
	Last   string            `json:"last"`              // the last outcome; never: no time has come
	LastAt int64             `json:"last_at,omitempty"` // Unix milliseconds
	Text   string            `json:"last_text,omitempty"`
	Counts map[string]uint64 `json:"counts"` // of each outcome
}

// CronEntries is the answer to GET /api/v1/cron, by name.
type CronEntries struct {
	Entries []CronStatus `json:"entries"`
}

// CronChange names an entry to pause, resume, run or remove.
type CronChange struct {
	Entry string `json:"entry"`
	RequestedBy
}

// CronRun is what became of a run by hand.
type CronRun struct {
	Outcome string `json:"outcome"`
	Text    string `json:"text,omitempty"`
}

// Setting is a setting of the server.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"` // default, flag, the name of a variable, or FILE:LINE
	Reload bool   `json:"reload"` // whether a reload can change it
}

// Settings is the answer to GET /api/v1/settings.
type Settings struct {
	Settings []Setting `json:"settings"`
}

// SettingChange is something that a reload has changed.
type SettingChange struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// SettingChanges is the answer to POST /api/v1/reload.
type SettingChanges struct {
	Changes []SettingChange `json:"changes"`
}
