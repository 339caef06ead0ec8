package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// recordVersion3 is the first byte of a record with attempts. A server whose jobs have none writes none, and its
// directory stays good for the program before.
const recordVersion3 = 3

// Attempts is how a job has failed, and how one that is kept has ended.
type Attempts struct {
	FailedAt int64  // milliseconds since the Unix epoch when it was given up; 0: it waits for a retry
	Tries    uint64 // tries since the job was submitted or retried by hand
	History  []Attempt
}

// Attempt is an entry of a job's history.
type Attempt struct {
	Outcome uint8 // 1 failed, 2 timed out, 3 its worker left, 4 retried by hand, 5 moved from another queue, 6 done, 7 expired, 8 buried
	At      int64 // milliseconds since the Unix epoch
	Worker  []byte
	Text    []byte
}

func (a *Attempts) hasAttempts() bool { return a.FailedAt != 0 || a.Tries != 0 || len(a.History) > 0 }

func (a *Attempts) appendAttempts(dst []byte) []byte {
	dst = binary.AppendVarint(dst, a.FailedAt)
	dst = binary.AppendUvarint(dst, a.Tries)
	dst = binary.AppendUvarint(dst, uint64(len(a.History)))
	for i := range a.History {
		h := &a.History[i]
		dst = binary.AppendVarint(append(dst, h.Outcome), h.At)
		dst = appendBytes(appendBytes(dst, h.Worker), h.Text)
	}
	return dst
}

func (a *Attempts) attemptsSize() int {
	n := varintSize(a.FailedAt) + uvarintSize(a.Tries) + uvarintSize(uint64(len(a.History)))
	for i := range a.History {
		h := &a.History[i]
		n += 1 + varintSize(h.At) + uvarintSize(uint64(len(h.Worker))) + len(h.Worker) + uvarintSize(uint64(len(h.Text))) + len(h.Text)
	}
	return n
}

// attempts reads what appendAttempts has appended.
func (p *parser) attempts(a *Attempts) {
	a.FailedAt, a.Tries = p.varint(), p.uvarint()
	for n := p.uvarint(); n > 0 && !p.bad; n-- {
		a.History = append(a.History, Attempt{p.byte(), p.varint(), p.bytes(), p.bytes()})
	}
}

// attempts writes what a record says of attempts.
func (l *jsonLine) attempts(a *Attempts) {
	l.number("failed_at", a.FailedAt)
	if a.Tries != 0 {
		l.name("tries")
		l.b = strconv.AppendUint(l.b, a.Tries, 10)
	}
	if len(a.History) == 0 {
		return
	}
	l.name("attempts")
	l.b = append(l.b, '[')
	for i := range a.History {
		h := &a.History[i]
		if i > 0 {
			l.b = append(l.b, ',')
		}
		l.b = fmt.Appendf(l.b, `{"outcome":%d,"at":%d`, h.Outcome, h.At)
		l.bytes("worker", h.Worker)
		l.bytes("text", h.Text)
		l.b = append(l.b, '}')
	}
	l.b = append(l.b, ']')
}

var attemptNames = withBase64([]string{"outcome", "at"}, "worker", "text")

// attempt reads an entry of a history from a line of an export.
func attempt(line []byte) (a Attempt, err error) {
	var l struct {
		Outcome      uint8
		At           int64
		Worker       *string
		WorkerBase64 []byte `json:"worker_base64"`
		Text         *string
		TextBase64   []byte `json:"text_base64"`
	}
	names, err := memberNames(line)
	if err == nil {
		err = firstError(checkMembers(names, attemptNames), json.Unmarshal(line, &l))
	}
	if err != nil {
		return a, err
	}
	var errs [2]error
	a.Outcome, a.At = l.Outcome, l.At
	a.Worker, errs[0] = textOrBase64("worker", l.Worker, l.WorkerBase64)
	a.Text, errs[1] = textOrBase64("text", l.Text, l.TextBase64)
	return a, errors.Join(errs[:]...)
}
