package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The functions of the scanner take the index where a part of the text begins and return the index behind it. 0 means
// that the part is not JSON. None recurses: the open arrays and objects are a stack of bytes.

const (
	// tooDeep is returned instead of an end when the stack has no room for another open array or object.
	tooDeep = -1

	// shallow is the size of the stack that is tried first. To clear a larger one takes longer than to scan most
	// values.
	shallow = 64
)

// Valid reports whether b is one JSON value in UTF-8, with or without white space around it, and not nested deeper than
// MaxNesting. Unlike encoding/json it refuses strings that are not UTF-8.
func Valid(b []byte) bool {
	_, end := find(b)
	return end > 0
}

// find returns where the one JSON value in b begins and ends. end is 0 when b is anything else.
func find(b []byte) (start, end int) {
	start = skipSpace(b, 0)
	end = skipValue(b, start, MaxNesting)
	if end > 0 && skipSpace(b, end) < len(b) {
		end = 0
	}
	return start, end
}

// skipKey skips an object's key and returns its end and the index of the value behind the colon. Both are 0 when it is
// not JSON.
func skipKey(p []byte, i int) (end, value int) {
	if i == len(p) || p[i] != '"' {
		return 0, 0
	}
	end = skipString(p, i+1)
	if end == 0 {
		return 0, 0
	}
	i = skipSpace(p, end)
	if i == len(p) || p[i] != ':' {
		return 0, 0
	}
	return end, skipSpace(p, i+1)
}

// skipValue skips the value at p[i], which may have at most this number of levels of arrays and objects.
func skipValue(p []byte, i, levels int) (end int) {
	if i == len(p) {
		return 0
	}
	if p[i] != '{' && p[i] != '[' {
		return skipScalar(p, i)
	}
	var stack [shallow]byte
	if end = skipNested(p, i, stack[:]); end == tooDeep {
		end = skipDeep(p, i, levels)
	}
	return end
}

// skipDeep is skipNested with room for that many levels, up to MaxNesting. It is a function of its own so that other
// calls do not clear its large stack.
//
//go:noinline
func skipDeep(p []byte, i, levels int) (end int) {
	var stack [MaxNesting]byte
	return max(skipNested(p, i, stack[:levels]), 0)
}

// skipNested skips the array or object at p[i]. The stack holds the closing bracket of each that is open.
func skipNested(p []byte, i int, stack []byte) (end int) {
	depth := 0
	for {
		if i == len(p) {
			return 0
		}
		if c := p[i]; c == '{' || c == '[' {
			if depth == len(stack) {
				return tooDeep
			}
			closer := c + 2 // in ASCII
			stack[depth] = closer
			depth++
			if i = skipSpace(p, i+1); i == len(p) {
				return 0
			}
			if p[i] != closer {
				if i = skipOptionalKey(p, i, closer); i == 0 {
					return 0
				}
				continue
			}
		} else {
			if i = skipScalar(p, i); i == 0 {
				return 0
			}
			i = skipSpace(p, i)
		}
		for i < len(p) && p[i] == stack[depth-1] {
			i++
			if depth--; depth == 0 {
				return i
			}
			i = skipSpace(p, i)
		}
		if i == len(p) || p[i] != ',' {
			return 0
		}
		if i = skipOptionalKey(p, skipSpace(p, i+1), stack[depth-1]); i == 0 {
			return 0
		}
	}
}

// skipOptionalKey skips the key before a value of an object, and nothing in an array, by the closing bracket.
func skipOptionalKey(p []byte, i int, closer byte) (value int) {
	if closer == '}' {
		_, i = skipKey(p, i)
	}
	return i
}

// skipScalar skips the string, number or literal at p[i].
func skipScalar(p []byte, i int) (end int) {
	switch c := p[i]; c {
	case '"':
		return skipString(p, i+1)
	case 't':
		return skipLiteral(p, i, "true")
	case 'f':
		return skipLiteral(p, i, "false")
	case 'n':
		return skipLiteral(p, i, "null")
	default:
		return skipNumber(p, i)
	}
}

func skipLiteral(p []byte, i int, word string) (end int) {
	end = i + len(word)
	if end > len(p) || string(p[i:end]) != word {
		return 0
	}
	return end
}

// skipNumber returns the end of the number at p[i:], or 0 if none begins there.
func skipNumber(p []byte, i int) (end int) {
	i = skipInteger(p, i)
	if i == 0 || i == len(p) {
		return i
	}
	if p[i] == '.' {
		if i = skipDigits(p, i+1); i == 0 {
			return 0
		}
	}
	if i < len(p) && p[i]|0x20 == 'e' {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		return skipDigits(p, i)
	}
	return i
}

// skipInteger skips a number's sign and the digits before its fraction. The first digit is 0 only when it is alone.
func skipInteger(p []byte, i int) (end int) {
	if i < len(p) && p[i] == '-' {
		i++
	}
	if i < len(p) && p[i] == '0' {
		return i + 1
	}
	return skipDigits(p, i)
}

// skipDigits skips one digit or more.
func skipDigits(p []byte, i int) (end int) {
	start := i
	for i < len(p) && p[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return 0
	}
	return i
}

func skipSpace(p []byte, i int) (end int) {
	for i < len(p) && (p[i] == ' ' || p[i] == '\n' || p[i] == '\t' || p[i] == '\r') {
		i++
	}
	return i
}

// The eight bytes of a word at once.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// notPlain marks the lowest of the eight bytes of w that is a quote, a backslash, a control character or outside ASCII.
// It returns 0 if there is none. The marks of higher bytes may be wrong, because the subtractions borrow from them.
func notPlain(w uint64) (marks uint64) {
	quote := (w ^ '"'*ones) - ones
	backslash := (w ^ '\\'*ones) - ones
	control := w - ' '*ones
	return (quote | backslash | control | w) & highs
}

// skipString skips the rest of a string behind its opening quote.
func skipString(p []byte, i int) (end int) {
	for {
		for i+8 <= len(p) {
			if marks := notPlain(binary.LittleEndian.Uint64(p[i:])); marks != 0 {
				i += bits.TrailingZeros64(marks) / 8
				break
			}
			i += 8
		}
		if i == len(p) {
			return 0
		}
		switch c := p[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i = skipEscape(p, i+1)
		case c < ' ':
			return 0
		case c < utf8.RuneSelf: // in the last bytes of p
			i++
		default:
			i = skipRunes(p, i)
		}
		if i == 0 {
			return 0
		}
	}
}

// skipEscape skips the rest of an escape behind its backslash.
func skipEscape(p []byte, i int) (end int) {
	if i == len(p) {
		return 0
	}
	switch p[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if i+5 <= len(p) && hexValue(p[i+1:i+5]) >= 0 {
			return i + 5
		}
	}
	return 0
}

// skipRunes skips a run of characters outside ASCII.
func skipRunes(p []byte, i int) (end int) {
	for i < len(p) && p[i] >= utf8.RuneSelf {
		_, size := utf8.DecodeRune(p[i:])
		if size == 1 {
			return 0
		}
		i += size
	}
	return i
}
