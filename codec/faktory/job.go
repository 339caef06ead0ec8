package faktory

import (
	"bytes"
	"fmt"
	"math"

	"treadle/codec/jsontext"
)

// Limits and defaults of the fields of a job.
const (
	DefaultQueue      = "default"
	DefaultReserveFor = 1800 // seconds
	MinReserveFor     = 60
	MaxReserveFor     = 86400
	DefaultRetry      = 25
	MiddlePriority    = 5 // of 1 to 9, the larger first
	MinJID            = 8 // bytes
	// MaxJID bounds a jid in bytes: workers of other protocols know a job by it.
	MaxJID = 255
	// MaxQueue bounds a queue's name in bytes, for the same reason.
	MaxQueue = 255
)

// JobError is why a text is no job that can be pushed.
type JobError string

// Error implements error.
func (e JobError) Error() string { return string(e) }

// Errors of ParseJob. It may wrap ErrJSON.
const (
	ErrJSON    = JobError("invalid JSON: it is no job")
	errJID     = JobError("a job needs a jid of 8 to 255 bytes, without NUL")
	errType    = JobError("a job needs a jobtype")
	errArgs    = JobError("a job needs an array of args")
	errReserve = JobError("reserve_for is one day, 86400, at most")
	errQueue   = JobError("a queue's name has 1 to 255 letters, digits, dots, dashes and underscores")
	errAt      = JobError("at is no time of RFC 3339")
)

// Job is a decoded job. The fields of bytes are views into its text, or into the scratch buffer of
// ParseJob.
type Job struct {
	JID, Queue, Type []byte // characters
	At               int64  // Unix milliseconds; 0: at once
	Retry            int32
	OwnRetry         bool // the text has a retry
	ReserveFor       int32
	Priority         int32
	Failure          []byte // a JSON object; nil: there is none
	Custom           Custom

	values [fields]jsonValue
	others bool // members that are not of the protocol
	text   []byte
}

// jsonValue is the text of a member's value, nil when there is none.
type jsonValue []byte

func (v jsonValue) missing() bool { return v == nil || string(v) == "null" }

// The members of a job in the order in which workers see them.
const (
	fieldRetry = iota
	fieldFailure
	fieldPriority
	fieldCustom
	fieldJID
	fieldQueue
	fieldType
	fieldCreated
	fieldEnqueued
	fieldAt
	fieldArgs
	fieldReserveFor
	fieldBacktrace
	fields
)

var fieldNames = [fields]string{"retry", "failure", "priority", "custom", "jid", "queue", "jobtype",
	"created_at", "enqueued_at", "at", "args", "reserve_for", "backtrace"}

// fieldOf returns the field of a key, in letters of either case as with Faktory, or -1.
func fieldOf(key []byte) int {
	for i, name := range fieldNames {
		if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) {
			return i
		}
	}
	return -1
}

// ParseJob reads the JSON of a job that a client pushes. Strings with escapes are resolved into scratch. After an error
// j has only its JID, which may be empty.
func ParseJob(text, scratch []byte, j *Job) error {
	*j = Job{text: text, Retry: DefaultRetry, ReserveFor: DefaultReserveFor, Priority: MiddlePriority}
	if err := j.walk(text); err != nil {
		return err
	}
	for i, kind := range fieldKinds {
		if v := j.values[i]; !v.missing() && kind != 0 && kindOf(v) != kind {
			return fmt.Errorf("%w: %s has a value of another type", ErrJSON, fieldNames[i])
		}
	}
	j.JID, scratch = characters(j.values[fieldJID], scratch)
	j.Queue, scratch = characters(j.values[fieldQueue], scratch)
	j.Type, _ = characters(j.values[fieldType], scratch)
	if len(j.Queue) == 0 {
		j.Queue = defaultQueue
	}
	switch {
	case len(j.JID) < MinJID || len(j.JID) > MaxJID || hasNUL(j.JID):
		return errJID
	case len(j.Type) == 0:
		return errType
	case j.values[fieldArgs].missing():
		return errArgs
	case !isQueue(j.Queue):
		return errQueue
	}
	if j.Failure = j.object(fieldFailure); j.Failure != nil {
		if _, err := Parse[Failed](j.Failure); err != nil {
			return fmt.Errorf("%w: failure has a value of another type", ErrJSON)
		}
	}
	if err := j.numbers(); err != nil {
		return err
	}
	var err error
	j.Custom, err = ParseCustom(j.object(fieldCustom))
	return err
}

var defaultQueue = []byte(DefaultQueue)

// walk finds the members of the text.
func (j *Job) walk(text []byte) error {
	var o jsontext.Object
	if !o.Open(text) {
		return ErrJSON
	}
	for o.Next() {
		if i := fieldOf(o.Key); i >= 0 {
			j.values[i] = o.Value
		} else {
			j.others = true
		}
	}
	if !o.Valid() {
		return ErrJSON
	}
	return nil
}

// The kinds of values by their first byte; 0 is any kind.
var fieldKinds = [fields]byte{
	fieldRetry: '0', fieldCustom: '{', fieldFailure: '{', fieldJID: '"', fieldQueue: '"', fieldType: '"', fieldCreated: '"', fieldEnqueued: '"',
	fieldAt: '"', fieldArgs: '[', fieldReserveFor: '0', fieldBacktrace: '0',
}

func kindOf(v jsonValue) byte {
	if c := v[0]; c == '"' || c == '{' || c == '[' {
		return c
	}
	if _, ok := jsontext.Integer(v); ok {
		return '0'
	}
	return 1
}

// characters returns the characters of a string, resolved into scratch when it has escapes, and the part of scratch
// that is left.
func characters(v jsonValue, scratch []byte) (text, rest []byte) {
	if v.missing() {
		return nil, scratch
	}
	text, _ = jsontext.Text(scratch, v)
	if len(text) == len(v)-2 { // a view
		return text, scratch
	}
	return text, nil
}

func hasNUL(b []byte) bool {
	for _, c := range b {
		if c == 0 {
			return true
		}
	}
	return false
}

// isQueue reports whether a job may be pushed to a queue of that name.
func isQueue(name []byte) bool {
	for _, c := range name {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= MaxQueue
}

func (j *Job) object(field int) []byte {
	if v := j.values[field]; !v.missing() {
		return v
	}
	return nil
}

// number returns an integer of the text, ok only when there is one.
func (j *Job) number(field int) (n int64, ok bool) {
	if v := j.values[field]; !v.missing() {
		return jsontext.Integer(v)
	}
	return 0, false
}

// numbers reads the fields that the server follows.
func (j *Job) numbers() error {
	if n, ok := j.number(fieldRetry); ok {
		j.Retry, j.OwnRetry = int32(min(max(n, -math.MaxInt16), math.MaxInt16)), true
	}
	if n, ok := j.number(fieldPriority); ok && n >= 1 && n <= 9 {
		j.Priority = int32(n)
	}
	if n, ok := j.number(fieldReserveFor); ok && n != 0 {
		if n > MaxReserveFor {
			return errReserve
		}
		j.ReserveFor = int32(max(n, MinReserveFor))
	}
	if v := j.values[fieldAt]; !v.missing() && string(v) != `""` {
		var err error
		j.At, err = parseTime(v, errAt)
		return err
	}
	return nil
}

// maxMillis is the last moment that has four digits for its year.
const maxMillis = 253402300799999

// AppendStored appends a job as it is kept, which is how workers see it: its members in the order of the protocol, and
// behind them those that are none of it. created is the creation time of a job without one; enqueued is when it was
// enqueued, empty for a job that is not yet.
func (j *Job) AppendStored(dst []byte, created, enqueued string) []byte {
	m := members{append(dst, '{')}
	if j.values[fieldRetry].missing() {
		m.dst = appendNumber(m.key(fieldRetry), DefaultRetry)
	}
	for i, v := range j.values {
		switch {
		case i == fieldQueue && (v.missing() || string(v) == `""`):
			m.text(i, DefaultQueue)
		case i == fieldCreated && (v.missing() || string(v) == `""`):
			m.text(i, created)
		case i == fieldEnqueued && enqueued != "":
			m.text(i, enqueued)
		case j.stores(i):
			m.dst = append(m.key(i), v...)
		}
	}
	if j.others {
		var o jsontext.Object
		o.Open(j.text)
		for o.Next() {
			if fieldOf(o.Key) < 0 {
				m.dst = append(m.rawKey(o.Key), o.Value...)
			}
		}
	}
	return append(m.dst, '}')
}

// stores reports whether a job is kept with the member that its client gave a field. enqueued_at and failure are the
// server's own.
func (j *Job) stores(field int) bool {
	v := j.values[field]
	return field != fieldEnqueued && field != fieldFailure && !v.missing() && string(v) != emptyValues[field]
}

// emptyValues are the values that stand for a missing member.
var emptyValues = [fields]string{fieldCustom: "{}", fieldAt: `""`, fieldReserveFor: "0", fieldBacktrace: "0"}

// members appends the members of an object.
type members struct{ dst []byte }

// rawKey begins a member by the text between the quotes of its key.
func (m *members) rawKey(key []byte) []byte { return beginMember(m, key) }

// beginMember begins a member by the text between the quotes of its key, and returns the object so far.
func beginMember[T []byte | string](m *members, key T) []byte {
	if m.dst[len(m.dst)-1] != '{' {
		m.dst = append(m.dst, ',')
	}
	m.dst = append(append(append(m.dst, '"'), key...), `":`...)
	return m.dst
}

// key begins the member of a field.
func (m *members) key(field int) []byte { return beginMember(m, fieldNames[field]) }

// text appends the member of a field whose value is a string without escapes.
func (m *members) text(field int, text string) {
	m.dst = append(append(append(m.key(field), '"'), text...), '"')
}

// AppendFetched appends a stored job as a worker receives it: with its last failure, a JSON object or nil, and with the
// time at which it was enqueued, if that is not empty.
func AppendFetched(dst, stored, failure []byte, enqueued string) []byte {
	if failure == nil && enqueued == "" {
		return append(dst, stored...)
	}
	var o jsontext.Object
	o.Open(stored)
	m := members{append(dst, '{')}
	for o.Next() {
		if enqueued != "" && string(o.Key) == fieldNames[fieldEnqueued] {
			continue
		}
		m.dst = append(m.rawKey(o.Key), o.Value...)
		switch string(o.Key) {
		case fieldNames[fieldRetry]:
			if failure != nil {
				m.dst = append(m.key(fieldFailure), failure...)
			}
		case fieldNames[fieldCreated]:
			if enqueued != "" {
				m.text(fieldEnqueued, enqueued)
			}
		}
	}
	return append(m.dst, '}')
}

// AppendForeign appends a job of another protocol as a worker receives it. name is the job's name and arg its
// workload, in JSON; an array has the args, and any other value is the only one.
func AppendForeign(dst []byte, jid string, queue, name, arg []byte, enqueued string) []byte {
	m := members{append(dst, '{')}
	m.dst = append(m.key(fieldRetry), `null`...)
	m.dst = append(jsontext.AppendFromUTF8(append(m.key(fieldCustom), `{"name":`...), name), '}')
	m.text(fieldJID, jid)
	m.dst = jsontext.AppendFromUTF8(m.key(fieldQueue), queue)
	m.dst = jsontext.AppendFromUTF8(m.key(fieldType), queue)
	m.text(fieldCreated, enqueued)
	m.text(fieldEnqueued, enqueued)
	if m.dst = m.key(fieldArgs); arg[0] == '[' {
		m.dst = append(m.dst, arg...)
	} else {
		m.dst = append(append(append(m.dst, '['), arg...), ']')
	}
	return append(m.dst, '}')
}
