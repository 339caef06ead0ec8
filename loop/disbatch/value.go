package disbatch

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
)

// Integer reads a number as the originals wrote it: of any numeric type, or as text.
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

// NewestSecond is the largest epoch that is taken for seconds: larger ones are
// milliseconds.
const NewestSecond = 9999999999

// Instant reads a time: a date, or an epoch in seconds or milliseconds.
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

// Text reads a string; anything else is none, nor is one whose length is wrong.
func Text(v bson.RawValue) string {
	s, _ := v.StringValueOK()
	return s
}

// Texts reads an array of strings, or one string.
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

// Missing says whether a field is null or not there.
func Missing(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

// CutAfter returns the length in bytes of the first characters of a text.
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
