package gloom

import (
	"encoding/base64"
	"unicode/utf8"
)

// AppendValue appends bytes of another protocol as one JSON value: as they are, but for outer white space, when they
// are one by the rules of Valid; else as a string in the form of AppendText when they are UTF-8; else as
// {"base64":"..."} with padding. wrapped says that it is that string, of which Text gives the bytes back.
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
