package faktory

import (
	"encoding/json"
	"strings"
	"time"

	codec "treadle/codec/faktory"
	"treadle/sched"
)

// Bounds of what is kept of a failure, as with Faktory. All of it together has sched.MaxFailureText.
const (
	maxErrorType    = 100
	maxErrorMessage = 1000
	maxBacktrace    = 50 // lines
)

// An error text of a history is for people: the type, a colon and the message, then a line with a tab before it for
// each line of the backtrace. A line end within one of them has a blank behind it. A type with a colon and a blank is
// written as a JSON string.

// appendFailure appends what a worker says of a failure as an error text.
func appendFailure(dst []byte, f *codec.Failure) []byte {
	errorType := cutTo(strings.TrimSpace(f.Type), maxErrorType)
	if errorType == "" {
		errorType = unknown
	}
	message := cutTo(strings.TrimSpace(f.Message), maxErrorMessage)
	if message == "" {
		message = unknown
	}
	if strings.Contains(errorType, ": ") || errorType[0] == '"' {
		quoted, _ := json.Marshal(errorType) // strings can be marshalled
		errorType = string(quoted)
	}
	dst = append(appendFolded(dst, errorType), ": "...)
	dst = appendFolded(dst, message)
	for _, line := range f.Backtrace[:min(len(f.Backtrace), maxBacktrace)] {
		if len(dst)+2+len(line)+strings.Count(line, "\n") > sched.MaxFailureText {
			break
		}
		dst = appendFolded(append(dst, "\n\t"...), line)
	}
	return dst
}

const unknown = "unknown"

// cutTo cuts a text at so many bytes.
func cutTo(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

func appendFolded(dst []byte, text string) []byte {
	return append(dst, strings.ReplaceAll(text, "\n", "\n ")...)
}

// parseFailure reads an error text that appendFailure has written.
func parseFailure(text string) (errorType, message string, backtrace []string) {
	head, lines, _ := strings.Cut(text, "\n\t")
	errorType, message, _ = cutType(head)
	message = unfold(message)
	if lines != "" {
		for line := range strings.SplitSeq(lines, "\n\t") {
			backtrace = append(backtrace, unfold(line))
		}
	}
	return errorType, message, backtrace
}

func cutType(head string) (errorType, message string, ok bool) {
	if strings.HasPrefix(head, `"`) {
		d := json.NewDecoder(strings.NewReader(head))
		if d.Decode(&errorType) == nil {
			return errorType, strings.TrimPrefix(head[d.InputOffset():], ": "), true
		}
	}
	errorType, message, ok = strings.Cut(head, ": ")
	return unfold(errorType), message, ok
}

func unfold(text string) string { return strings.ReplaceAll(text, "\n ", "\n") }

// The errors of failures that no worker has reported, as workers see them.
const (
	typeExpired = "ReservationExpired"
	textExpired = "the worker has not reported the job within its reservation"
	typeLeft    = "WorkerLeft"
	textLeft    = "the worker has left"
)

// lastFailure returns the last failure of a job for its next worker, as JSON; nil: it has none.
func lastFailure(j *sched.Job, history []byte) []byte {
	tries, all := sched.ParseHistory(history)
	first, last := failures(all, int(tries))
	if last == nil {
		return nil
	}
	f := codec.Failed{FailedAt: timestamp(first.At * 1000), Count: max(int64(tries)-1, 0)}
	retries := int64(j.Count)
	if j.Count == sched.AnyRetries {
		retries = codec.DefaultRetry
	}
	if f.Remaining = retries; retries > 0 {
		f.NextAt, f.Remaining = timestamp(j.Due*1000), max(retries-f.Count, 0)
	}
	switch {
	case last.TimedOut():
		f.Type, f.Message = typeExpired, textExpired
	case last.Left():
		f.Type, f.Message = typeLeft, textLeft
	case strings.HasPrefix(last.Worker, name+" ") || last.Worker == name:
		f.Type, f.Message, f.Backtrace = parseFailure(last.Text)
	default:
		f.Type, f.Message = unknown, last.Text
	}
	return f.Append(nil)
}

// failures returns the first and the last failure of the last tries.
func failures(all []sched.Attempt, tries int) (first, last *sched.Attempt) {
	for i := len(all) - 1; i >= 0 && (last == nil || tries > 0); i-- {
		if all[i].Failed() {
			if first = &all[i]; last == nil {
				last = first
			}
			tries--
		}
	}
	if last != nil && tries > 0 { // some were forgotten, but never the first
		for i := range all {
			if all[i].Failed() {
				return &all[i], last
			}
		}
	}
	return first, last
}

// historyOf returns the history of a job that is pushed with a failure, nil when it has none. The job goes on with the
// retries that are left.
func historyOf(failure []byte, now sched.Time) []byte {
	if failure == nil {
		return nil
	}
	f, err := codec.Parse[codec.Failed](failure)
	if err != nil {
		return nil
	}
	at := now.Wall
	if t, err := time.Parse(time.RFC3339Nano, f.FailedAt); err == nil {
		at = t.UnixMilli()
	}
	text := appendFailure(nil, &codec.Failure{Type: f.Type, Message: f.Message, Backtrace: f.Backtrace})
	return sched.AppendHistory(nil, uint64(min(max(f.Count, 0), maxCount))+1, []sched.Attempt{sched.FailedAttempt(at, name, string(text))})
}

// maxCount bounds the failures that a pushed job may have had.
const maxCount = 1 << 15
