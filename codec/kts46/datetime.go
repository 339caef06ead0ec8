package kts46

import (
	"strings"
	"time"
)

// DateTime is XML-RPC's dateTime.iso8601 as on the wire: UTC, whole seconds, no zone, no dashes. One that was decoded
// may have any text.
type DateTime string

const dateTimeLayout = "20060102T15:04:05"

// NewDateTime returns a time without its fraction of a second.
func NewDateTime(t time.Time) DateTime { return DateTime(t.UTC().Format(dateTimeLayout)) }

// Time returns the time of a text, which may also have dashes, a fraction of a second or a Z, as clients write them. ok
// is false for any other text.
func (d DateTime) Time() (t time.Time, ok bool) {
	s := strings.TrimSuffix(string(d), "Z")
	layout := dateTimeLayout
	if len(s) > 4 && s[4] == '-' {
		layout = "2006-01-02T15:04:05"
	}
	t, err := time.Parse(layout, s) // takes a fraction too
	return t, err == nil
}

// sigLayout is the layout of a version 2 signature: always three digits of a fraction and a Z.
const sigLayout = "2006-01-02T15:04:05.000Z"

// Sig returns the signature of version 2 for a time.
func Sig(t time.Time) string { return t.UTC().Format(sigLayout) }
