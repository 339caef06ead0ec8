package kts46

import (
	"strings"
	"time"
)

// DateTime is XML-RPC's dateTime.iso8601 as it stands on the wire: UTC, whole seconds,
// neither zone nor dashes. Readers get whatever text the other side wrote.
type DateTime string

const dateTimeLayout = "20060102T15:04:05"

// NewDateTime is a time on the wire; what is below a second is cut off.
func NewDateTime(t time.Time) DateTime { return DateTime(t.UTC().Format(dateTimeLayout)) }

// Time reads what clients write: also dashes, a fraction of a second or a Z. ok is false
// for any other text.
func (d DateTime) Time() (t time.Time, ok bool) {
	s := strings.TrimSuffix(string(d), "Z")
	layout := dateTimeLayout
	if len(s) > 4 && s[4] == '-' {
		layout = "2006-01-02T15:04:05"
	}
	t, err := time.Parse(layout, s) // takes a fraction too
	return t, err == nil
}

// sigLayout is the time that a version 2 signature is: always three digits and a Z.
const sigLayout = "2006-01-02T15:04:05.000Z"

// Sig is a time as version 2 writes it.
func Sig(t time.Time) string { return t.UTC().Format(sigLayout) }
