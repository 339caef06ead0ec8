package kts46

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

const xmlHeader = "<?xml version='1.0'?>\n"

// AppendCall appends a call. The package comment lists the types of its parameters.
func AppendCall(dst []byte, method string, params ...any) []byte {
	dst = append(dst, xmlHeader+"<methodCall>\n<methodName>"...)
	dst = appendText(dst, method)
	dst = append(dst, "</methodName>\n<params>\n"...)
	for _, p := range params {
		dst = appendParam(dst, p)
	}
	return append(dst, "</params>\n</methodCall>\n"...)
}

// AppendAnswer appends the answer to a successful call.
func AppendAnswer(dst []byte, v any) []byte {
	dst = append(dst, xmlHeader+"<methodResponse>\n<params>\n"...)
	dst = appendParam(dst, v)
	return append(dst, "</params>\n</methodResponse>\n"...)
}

// AppendFault appends the answer to a failed call.
func AppendFault(dst []byte, f *Fault) []byte {
	dst = append(dst, xmlHeader+"<methodResponse>\n<fault>\n"...)
	dst = appendValue(dst, Struct{{"faultCode", f.Code}, {"faultString", f.Text}})
	return append(dst, "</fault>\n</methodResponse>\n"...)
}

func appendParam(dst []byte, v any) []byte {
	dst = append(dst, "<param>\n"...)
	dst = appendValue(dst, v)
	return append(dst, "</param>\n"...)
}

// appendValue appends a value of XML-RPC with the spaces and newlines that the reference's library writes. It panics on
// a type that no answer has.
func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "<value><nil/></value>"...) // xmlrpclib writes no newline behind it
	case string:
		dst = append(dst, "<value><string>"...)
		dst = appendText(dst, v)
		dst = append(dst, "</string></value>\n"...)
	case DateTime:
		dst = append(dst, "<value><dateTime.iso8601>"...)
		dst = appendText(dst, string(v))
		dst = append(dst, "</dateTime.iso8601></value>\n"...)
	case int64:
		dst = append(dst, "<value><int>"...)
		dst = strconv.AppendInt(dst, v, 10)
		dst = append(dst, "</int></value>\n"...)
	case float64:
		dst = append(dst, "<value><double>"...)
		dst = appendDouble(dst, v)
		dst = append(dst, "</double></value>\n"...)
	case bool:
		digit := byte('0')
		if v {
			digit = '1'
		}
		dst = append(dst, "<value><boolean>"...)
		dst = append(dst, digit)
		dst = append(dst, "</boolean></value>\n"...)
	case []any:
		dst = append(dst, "<value><array><data>\n"...)
		for _, e := range v {
			dst = appendValue(dst, e)
		}
		dst = append(dst, "</data></array></value>\n"...)
	case Struct:
		dst = append(dst, "<value><struct>\n"...)
		for _, m := range v {
			dst = append(dst, "<member>\n<name>"...)
			dst = appendText(dst, m.Name)
			dst = append(dst, "</name>\n"...)
			dst = appendValue(dst, m.Value)
			dst = append(dst, "</member>\n"...)
		}
		dst = append(dst, "</struct></value>\n"...)
	default:
		panic(fmt.Sprintf("BUG: a %T is no value of XML-RPC", v))
	}
	return dst
}

// appendDouble writes a number as Python does. From 1e16 on, and below 1e-4, it has an exponent; others have a point.
func appendDouble(dst []byte, v float64) []byte {
	size := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return append(dst, "nan"...)
	case math.IsInf(v, 1):
		return append(dst, "inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-inf"...)
	case size != 0 && (size < 1e-4 || size >= 1e16):
		return strconv.AppendFloat(dst, v, 'e', -1, 64)
	case v == math.Trunc(v):
		return strconv.AppendFloat(dst, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

// appendText escapes the characters that XML would read as others. A character that XML does not allow becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '&':
			dst = append(dst, "&amp;"...)
		case r == '<':
			dst = append(dst, "&lt;"...)
		case r == '>':
			dst = append(dst, "&gt;"...)
		case r == '\r':
			dst = append(dst, "&#13;"...)
		case !inXML(r):
			dst = utf8.AppendRune(dst, utf8.RuneError)
		default:
			dst = utf8.AppendRune(dst, r)
		}
		i += n
	}
	return dst
}

// inXML reports whether XML 1.0 allows a character.
func inXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r < 0xd800 || r >= 0xe000 && r != 0xfffe && r != 0xffff
}
