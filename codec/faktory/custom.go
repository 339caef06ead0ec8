package faktory

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"treadle/codec/jsontext"
)

// Custom is what the custom data of a job asks of the server.
type Custom struct {
	UniqueFor  int64 // milliseconds; 0: the job is not unique
	UntilStart bool  // it is unique until it starts, and otherwise until it is done
	Tracked    bool
	ExpiresAt  int64 // Unix milliseconds from which it must not start; 0: never
}

// Errors of ParseCustom.
const (
	errUniqueFor   = JobError("unique_for is a number of seconds, above 0 and a year at most")
	errUniqueUntil = JobError("unique_until is success or start")
	errExpires     = JobError("expires_at is no time of RFC 3339")
)

// maxUnique bounds unique_for in seconds.
const maxUnique = 366 * 24 * 3600

// ParseCustom reads the custom data of a job, a valid JSON object or nil.
func ParseCustom(text []byte) (c Custom, err error) {
	var o jsontext.Object
	if text == nil || !o.Open(text) {
		return c, nil
	}
	for o.Next() && err == nil {
		if string(o.Value) == "null" {
			continue
		}
		switch string(o.Key) {
		case "unique_for":
			c.UniqueFor, err = uniqueFor(o.Value)
		case "unique_until":
			switch string(o.Value) {
			case `"start"`:
				c.UntilStart = true
			case `"success"`:
				c.UntilStart = false
			default:
				err = errUniqueUntil
			}
		case "track":
			c.Tracked = string(o.Value) != "0" && string(o.Value) != "false"
		case "expires_at":
			c.ExpiresAt, err = parseTime(o.Value, errExpires)
		}
	}
	return c, err
}

// uniqueFor returns milliseconds.
func uniqueFor(v []byte) (int64, error) {
	var seconds float64
	if json.Unmarshal(v, &seconds) != nil || !(seconds > 0 && seconds <= maxUnique) {
		return 0, errUniqueFor
	}
	return int64(math.Ceil(seconds * 1000)), nil
}

// parseTime returns Unix milliseconds of a JSON string, from 1 to maxMillis.
func parseTime(v []byte, wrong JobError) (int64, error) {
	text, isText := jsontext.Text(nil, v)
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if !isText || err != nil {
		return 0, wrong
	}
	return min(max(at.UnixMilli(), 1), maxMillis), nil
}

// StoredCustom is ParseCustom for a job as AppendStored wrote it. It reads no further than the jid.
func StoredCustom(stored []byte) (c Custom) {
	var o jsontext.Object
	for ok := o.Open(stored) && o.Next(); ok; ok = o.Next() {
		switch string(o.Key) {
		case fieldNames[fieldCustom]:
			c, _ = ParseCustom(o.Value) // it was parsed when the job was pushed
			return c
		case fieldNames[fieldJID]:
			return c
		}
	}
	return c
}

// AppendIdentity appends what unique jobs are compared by: the queue, the type and the args. Spaces, the escapes of
// strings and the order of members make no difference.
func (j *Job) AppendIdentity(dst []byte) []byte {
	dst = jsontext.AppendFromUTF8(dst, j.Queue)
	dst = jsontext.AppendFromUTF8(append(dst, ' '), j.Type)
	d := json.NewDecoder(bytes.NewReader(j.values[fieldArgs]))
	d.UseNumber()
	var args any
	if d.Decode(&args) != nil { // nested deeper than encoding/json reads
		return append(dst, j.values[fieldArgs]...)
	}
	text, _ := json.Marshal(args) // it was unmarshalled
	return append(append(dst, ' '), text...)
}
