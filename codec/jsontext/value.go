package jsontext

import (
	"encoding/base64"
	"math"
	"unicode/utf8"
)

// AppendValue appends any bytes as one JSON value. Bytes that are Valid are appended as they are, without outer white
// space; other UTF-8 as a string, as AppendText writes it; other bytes as {"base64":"..."} with padding. wrapped means
// that data became a string, from which Text returns data.
func AppendValue(dst, data []byte) (out []byte, wrapped bool) {
	if start, end := find(data); end > 0 {
		return append(dst, data[start:end]...), false
	}
	if utf8.Valid(data) {
		return AppendFromUTF8(dst, data), true
	}
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, `"}`...), false
}

// Integer reads raw, the text of a JSON value, as an integer of any size and clamps it to 64 bits. It returns false for
// a number with a fraction or an exponent, for other values and for nil.
func Integer(raw []byte) (n int64, ok bool) {
	if end := skipInteger(raw, 0); end == 0 || end < len(raw) {
		return 0, false
	}
	negative := raw[0] == '-'
	if negative {
		raw = raw[1:]
	}
	for _, c := range raw { // n counts down, because MinInt64 has no positive counterpart
		digit := int64(c - '0')
		if n < (math.MinInt64+digit)/10 {
			n = math.MinInt64
			break
		}
		n = n*10 - digit
	}
	switch {
	case negative:
		return n, true
	case n == math.MinInt64:
		return math.MaxInt64, true
	}
	return -n, true
}
