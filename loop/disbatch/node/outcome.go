package node

import (
	"bytes"
	"encoding/json"
	"strings"

	"treadle/loop/disbatch/store"
)

// Values of a task's stdout if its plugin has not run or has not ended. stderr holds the reason.
const (
	unableToStart    = "Unable to start"
	unableToComplete = "Unable to complete"
)

// failedOutcome returns the end of a task without a result of its plugin. stdout is unableToStart or unableToComplete.
func failedOutcome(stdout string, reason error) store.Outcome {
	return store.Outcome{Status: store.StatusFailed, Stdout: stdout, Stderr: reason.Error()}
}

// statusOf returns the status for a number of a plugin. A number that is not positive means failed.
func statusOf(number json.RawMessage) int {
	var n json.Number
	if json.Unmarshal(number, &n) == nil {
		if i, err := n.Int64(); err == nil && i > 0 && i <= 1<<31-1 {
			return int(i)
		}
	}
	return store.StatusFailed
}

// parseResult reads the result of a worker: an object with status, stdout and stderr. Other bytes are the stdout of a
// task that has succeeded.
func parseResult(data []byte) store.Outcome {
	var r struct{ Status, Stdout, Stderr json.RawMessage }
	if json.Unmarshal(data, &r) != nil || r.Status == nil {
		return store.Outcome{Status: store.StatusSucceeded, Stdout: utf8Text(data), Stderr: ""}
	}
	return store.Outcome{Status: statusOf(r.Status), Stdout: outputOf(r.Stdout), Stderr: outputOf(r.Stderr)}
}

// outputOf returns the text of a JSON string, or the JSON of another value.
func outputOf(v json.RawMessage) string {
	var s string
	if v == nil || string(v) == "null" || json.Unmarshal(v, &s) == nil {
		return s
	}
	return utf8Text(v)
}

// statusLine removes the last line of a plugin's stdout if it is an object with a status.
func statusLine(stdout []byte) (rest []byte, status int, ok bool) {
	all := bytes.TrimRight(stdout, " \t\r\n")
	start := bytes.LastIndexByte(all, '\n') + 1
	var line struct{ Status json.RawMessage }
	if start == len(all) || all[start] != '{' || json.Unmarshal(all[start:], &line) != nil || line.Status == nil {
		return stdout, 0, false
	}
	return all[:start], statusOf(line.Status), true
}

// utf8Text returns valid UTF-8 for BSON. It replaces invalid bytes.
func utf8Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
