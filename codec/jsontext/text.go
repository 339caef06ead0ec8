package jsontext

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Surrogates, U+D800 to U+DFFF, are not characters. A pair in the right order encodes one character above U+FFFF. JSON
// text may have the escape of a lone surrogate, which UTF-8 cannot encode. It is kept in WTF-8, in the three bytes that
// UTF-8 would use.
const surrogateLen = 3

const hexDigits = "0123456789abcdef"

// Text returns the characters of raw, the text of a JSON string, as UTF-8, with lone surrogates as WTF-8. Two strings
// have the same characters exactly when these bytes are equal. For any other JSON value Text returns raw itself and
// false. Without escapes the result is a view into raw. Otherwise it is written behind the bytes of dst, and nothing is
// allocated when dst has room for another len(raw) bytes.
func Text(dst, raw []byte) (text []byte, isString bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return raw, false
	}
	inner := raw[1 : len(raw)-1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	return AppendUnescaped(dst, inner)[len(dst):], true
}

// AppendUnescaped appends the inside of a valid JSON string with its escapes resolved, which is never longer.
func AppendUnescaped(dst, text []byte) []byte {
	for {
		n := bytes.IndexByte(text, '\\')
		if n < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:n]...)
		text = text[n+1:]
		if text[0] != 'u' {
			dst = append(dst, unescape(text[0]))
			text = text[1:]
			continue
		}
		r := rune(hexValue(text[1:5]))
		text = text[5:]
		if !utf16.IsSurrogate(r) {
			dst = utf8.AppendRune(dst, r)
			continue
		}
		if pair := secondHalf(r, text); pair != 0 {
			dst = utf8.AppendRune(dst, pair)
			text = text[6:]
			continue
		}
		dst = append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
}

// unescape returns the character of an escape of two bytes.
func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// secondHalf returns the character of the pair of the surrogate r and the escape at the front of text, or 0.
func secondHalf(r rune, text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	if pair := utf16.DecodeRune(r, rune(hexValue(text[2:6]))); pair != utf8.RuneError {
		return pair
	}
	return 0
}

// hexValue returns the value of four hexadecimal digits, or a negative number for other characters.
func hexValue(digits []byte) int {
	_ = digits[3]
	return digit(digits[0])<<12 | digit(digits[1])<<8 | digit(digits[2])<<4 | digit(digits[3])
}

func digit(c byte) int {
	if n := int(c) - '0'; uint(n) <= 9 {
		return n
	}
	if n := int(c|0x20) - 'a'; uint(n) <= 5 {
		return n + 10
	}
	return -1
}

// AppendText appends text as a JSON string in ASCII, with the escapes of Gloom's reference server. A lone surrogate in
// WTF-8 becomes its escape; other bytes that are not UTF-8 become one \ufffd each. Text undoes AppendText whenever text
// came from Text or is UTF-8.
func AppendText(dst, text []byte) []byte { return appendString(dst, text, true) }

// AppendFromUTF8 is AppendText for text that did not come from Text: each byte that is not UTF-8 becomes one \ufffd,
// also those of a lone surrogate.
func AppendFromUTF8(dst, text []byte) []byte { return appendString(dst, text, false) }

// appendString appends text as a JSON string. With surrogates it recognises lone ones in WTF-8.
func appendString(dst, text []byte, surrogates bool) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := plainLen(text)
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		if text[0] < utf8.RuneSelf {
			dst = appendEscaped(dst, text[0])
			text = text[1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		if size == 1 && surrogates {
			r, size = decodeSurrogate(text)
		}
		if r > 0xffff {
			var low rune
			r, low = utf16.EncodeRune(r)
			dst, r = appendHex(dst, r), low
		}
		dst = appendHex(dst, r)
		text = text[size:]
	}
	return append(dst, '"')
}

// plainLen returns how many bytes at the front of text AppendText does not escape.
func plainLen(text []byte) int {
	for i, c := range text {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
}

// appendEscaped appends the escape of an ASCII character.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return appendHex(dst, rune(c))
}

// appendHex appends the escape \uXXXX of a character up to U+FFFF.
func appendHex(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&0xf], hexDigits[r>>4&0xf], hexDigits[r&0xf])
}

// decodeSurrogate reads a surrogate in WTF-8. It returns utf8.RuneError and 1 for other bytes.
func decodeSurrogate(text []byte) (r rune, size int) {
	if len(text) >= surrogateLen && text[0] == 0xed && text[1]&0xe0 == 0xa0 && text[2]&0xc0 == 0x80 {
		return 0xd000 | rune(text[1]&0x3f)<<6 | rune(text[2]&0x3f), surrogateLen
	}
	return utf8.RuneError, 1
}
