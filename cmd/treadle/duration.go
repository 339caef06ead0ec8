package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/setting"
)

// digit is replaced by 0 where a time may be out of range, to see whether it is written as a time.
var digit = regexp.MustCompile("[0-9]")

// parseDuration reads the time of a flag or setting: seconds, or with units as 1h30m or 500ms.
func parseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	d, ok := tryDuration(text)
	if ok {
		return d, nil
	}
	if _, ok := tryDuration(digit.ReplaceAllString(text, "0")); ok {
		return 0, fmt.Errorf("%q is too long a time: at most 292 years", text)
	}
	return 0, fmt.Errorf("%q is not a time: write seconds (90), or units as in 500ms, 90s, 5m or 1h30m", text)
}

// tryDuration returns false for a text that is no time, and for a time that is out of range.
func tryDuration(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		d := time.Duration(seconds) * time.Second
		return d, int64(d/time.Second) == seconds
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// decodeDuration reads the time of a flag.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := parseDuration(fmt.Sprint(token.Value))
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
		return 0, badUsage("%s: %s is negative", flag, setting.FormatDuration(d))
	case d%time.Second != 0:
		return 0, badUsage("%s: %s is no whole number of seconds, in which the protocol counts", flag, setting.FormatDuration(d))
	case seconds > most:
		return 0, badUsage("%s: %s is too long: at most %s", flag, setting.FormatDuration(d), setting.FormatDuration(time.Duration(most)*time.Second))
	}
	return seconds, nil
}
