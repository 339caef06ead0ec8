package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// parseSpan reads the time of a flag or setting: seconds, or with units as 1h30m or 500ms.
func parseSpan(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		if seconds > math.MaxInt64/int64(time.Second) || seconds < math.MinInt64/int64(time.Second) {
			return 0, fmt.Errorf("%q is too long a time: at most 292 years", text)
		}
		return time.Duration(seconds) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time: write seconds (90), or units as in 500ms, 90s, 5m or 1h30m", text)
	}
	return d, nil
}

// spell writes a time without zero units at its end, 10m instead of 10m0s.
func spell(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// decodeSpan reads the time of a flag.
func decodeSpan(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := parseSpan(fmt.Sprint(token.Value))
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// wholeSeconds returns a flag's time in seconds, the protocol's unit, and refuses parts of seconds.
func wholeSeconds(flag string, d time.Duration, most int64) (int64, error) {
	seconds := int64(d / time.Second)
	switch {
	case d < 0:
		return 0, badUsage("%s: %s is negative", flag, spell(d))
	case d%time.Second != 0:
		return 0, badUsage("%s: %s is no whole number of seconds, in which the protocol counts", flag, spell(d))
	case seconds > most:
		return 0, badUsage("%s: %s is too long: at most %s", flag, spell(d), spell(time.Duration(most)*time.Second))
	}
	return seconds, nil
}
