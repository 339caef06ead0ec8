package gloom

import (
	"encoding/base64"
	"unicode/utf8"
)

// AppendValue appends bytes of another protocol as one JSON value. Bytes that are Valid are appended as they are, without
// outer white space; other UTF-8 as a string, as AppendText writes it; other bytes as {"base64":"..."} with padding.
// wrapped means that data became a string, from which Text returns data.
func AppendValue(dst, data []byte) (out []byte, wrapped bool) {
	if start, end := find(data); end > 0 {
		return append(dst, data[start:end]...), false
	}
	if utf8.Valid(data) {
		return appendString(dst, data, false), true
	}
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, `"}`...), false
}
