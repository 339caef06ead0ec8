package admin

import (
	"strconv"
	"unicode/utf8"

	"treadle/codec/jsontext"
)

// ParsePlain decodes the usual form of a job in a fraction of encoding/json's time: an object whose members have their
// exact names, and no bytes in base64. It returns false for any other text and leaves j as it is: encoding/json says
// what that is. What it returns true for, encoding/json decodes to the same job, but that j has its queue, name and
// workload as bytes: nothing is copied, and they are views into text where that has no escapes.
func (j *Job) ParsePlain(text []byte) bool {
	var plain Job
	var o jsontext.Object
	if !o.Open(text) {
		return false
	}
	for o.Next() {
		if !plain.setPlain(o.Key, o.Value) {
			return false
		}
	}
	if !o.Valid() {
		return false
	}
	*j = plain
	return true
}

// setPlain sets one member from the text of its value, which is valid JSON.
func (j *Job) setPlain(member, value []byte) (ok bool) {
	if value[0] == 'n' { // null, which leaves most members as they are
		return false
	}
	switch string(member) {
	case "queue":
		j.QueueBytes, ok = plainText(value)
	case "name":
		j.NameBytes, ok = plainText(value)
	case "workload":
		j.WorkloadBytes, ok = plainText(value)
	case "workload_json":
		j.WorkloadJSON, ok = value, true
	case "priority":
		n, err := strconv.ParseInt(string(value), 10, 64)
		j.Priority, ok = n, err == nil
	case "at":
		ok = j.At.UnmarshalJSON(value) == nil
	case "delay":
		ok = j.Delay.UnmarshalJSON(value) == nil
	case "timeout":
		ok = j.Timeout.UnmarshalJSON(value) == nil
	case "wait":
		ok = j.Wait.UnmarshalJSON(value) == nil
	}
	return ok
}

// plainText returns the characters of a JSON string that has no lone surrogate; nil: it is empty. They are a view into
// value where that has no escapes.
func plainText(value []byte) ([]byte, bool) {
	text, isString := jsontext.Text(nil, value)
	if len(text) == 0 {
		text = nil
	}
	return text, isString && utf8.Valid(text)
}
