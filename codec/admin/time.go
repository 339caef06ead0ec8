package admin

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// LongestDuration is the longest Duration: a longer one is a slip of the pen.
const LongestDuration = 10 * 365 * 24 * time.Hour

// Duration is a time as JSON has it: a number of seconds, or a text such as "500ms", "90s", "1h30m" or "30d".
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	v, err := parseDuration(text)
	if err != nil {
		return err
	}
	if v < 0 || v > LongestDuration {
		return errors.New("a time of " + string(text) + " is not from 0 to " + strconv.Itoa(int(LongestDuration/(24*time.Hour))) + "d")
	}
	*d = Duration(v)
	return nil
}

// parseDuration parses a time: a number of seconds, or a text such as "90s". It returns -1 for a time that is out of
// range.
func parseDuration(raw []byte) (time.Duration, error) {
	wrong := errors.New(string(raw) + ` is no time: give seconds, as in 90 or 0.5, or a text as in "500ms", "90s", "1h30m" or "30d"`)
	if len(raw) > 0 && raw[0] != '"' {
		seconds, err := strconv.ParseFloat(string(raw), 64)
		switch {
		case err != nil || seconds != seconds:
			return 0, wrong
		case seconds < 0 || seconds > LongestDuration.Seconds():
			return -1, nil
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return 0, wrong
	}
	d, ok := durationOf(text)
	if !ok {
		return 0, wrong
	}
	return d, nil
}

// durationOf reads a time such as 500ms, 90s, 1h30m or 30d. It is longer than LongestDuration when it does not fit.
func durationOf(text string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		return time.Duration(min(n, uint64(LongestDuration/(24*time.Hour))+1)) * 24 * time.Hour, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// Moment is a moment as JSON has it: a number of Unix seconds, or a text as RFC 3339 has it.
type Moment struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (m *Moment) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	if len(raw) > 0 && raw[0] == '"' {
		if err := m.Time.UnmarshalJSON(raw); err != nil || m.Unix() < 0 {
			return errors.New(string(raw) + ` is no moment: give one as in "2030-01-31T09:00:00Z", or Unix seconds`)
		}
		return nil
	}
	seconds, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || seconds < 0 || seconds > latestMoment {
		return errors.New(string(raw) + ` is no moment: give whole Unix seconds, or a text as in "2030-01-31T09:00:00Z"`)
	}
	m.Time = time.Unix(seconds, 0)
	return nil
}

// latestMoment is the Unix second of the end of the year 9999, which RFC 3339 ends with.
const latestMoment = 253402300799
