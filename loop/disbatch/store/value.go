package store

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
)

// Integer reads an integer of any numeric type or in a text: releases of the original differ.
func Integer(v bson.RawValue) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), true
	case bson.TypeInt64:
		return v.Int64(), true
	case bson.TypeDouble:
		return fromFloat(v.Double())
	case bson.TypeString:
		digits := strings.TrimSpace(Text(v))
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
			return n, true
		}
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return 0, false
		}
		return fromFloat(f)
	}
	return 0, false
}

func fromFloat(f float64) (int64, bool) {
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// NewestSecond is the largest number that Instant reads as seconds since 1970. Larger numbers are milliseconds.
const NewestSecond = 9999999999

// Instant reads a time: a date, or seconds or milliseconds since 1970. It returns the zero time for other values.
func Instant(v bson.RawValue) time.Time {
	if v.Type == bson.TypeDateTime {
		return v.Time()
	}
	seconds := math.NaN()
	switch v.Type {
	case bson.TypeDouble:
		seconds = v.Double()
	case bson.TypeString:
		if f, err := strconv.ParseFloat(Text(v), 64); err == nil {
			seconds = f
		}
	default:
		if n, ok := Integer(v); ok {
			seconds = float64(n)
		}
	}
	if math.IsNaN(seconds) || math.Abs(seconds) > 1<<53 {
		return time.Time{}
	}
	if seconds > NewestSecond {
		return time.UnixMilli(int64(seconds))
	}
	return time.UnixMilli(int64(seconds * 1000))
}

// Text reads a string. It returns an empty string for other types and for a string with a wrong length.
func Text(v bson.RawValue) string {
	s, _ := v.StringValueOK()
	return s
}

// Texts reads an array of strings and ids, or a single string.
func Texts(v bson.RawValue) []string {
	if s, ok := v.StringValueOK(); ok && s != "" {
		return []string{s}
	}
	array, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, _ := array.Values()
	var out []string
	for _, e := range values {
		switch {
		case e.Type == bson.TypeObjectID:
			out = append(out, e.ObjectID().Hex())
		case Text(e) != "":
			out = append(out, Text(e))
		}
	}
	return out
}

// Missing reports whether a field is null or absent.
func Missing(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

// CutAfter returns the length in bytes of the first characters of a text, at most its length.
func CutAfter(text string, characters int) int {
	if len(text) <= characters {
		return len(text)
	}
	for i := range text {
		if characters == 0 {
			return i
		}
		characters--
	}
	return len(text)
}
