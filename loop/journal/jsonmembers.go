package journal

import (
	"errors"
	"strconv"
)

// memberNames returns the member names of the JSON object b, which is valid JSON. It refuses names
// with escapes. Package json is too lenient for an import: it ignores case, takes the last of two
// equal names and replaces half a surrogate pair.
func memberNames(b []byte) ([]string, error) {
	var names []string
	depth, expectName := 0, false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			expectName = depth == 1 && b[i] == '{'
		case '}', ']':
			depth--
		case ',':
			expectName = depth == 1
		case '"':
			end, escaped, err := skipString(b, i+1)
			if err != nil {
				return nil, err
			}
			if expectName {
				if escaped {
					return nil, errors.New("a member's name with an escape")
				}
				names = append(names, string(b[i+1:end]))
				expectName = false
			}
			i = end
		}
	}
	return names, nil
}

var errHalfPair = errors.New("half a surrogate pair")

// skipString returns the offset of the quote that ends the string beginning at b[i].
func skipString(b []byte, i int) (end int, escaped bool, err error) {
	pair := -1 // where the second half of a pair must begin
	for ; b[i] != '"'; i++ {
		if b[i] == '\\' && b[i+1] == 'u' {
			unit, err := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
			if err != nil {
				return 0, false, err
			}
			if second := unit >= 0xdc00 && unit < 0xe000; second != (pair == i) {
				return 0, false, errHalfPair
			}
			pair = -1
			if unit >= 0xd800 && unit < 0xdc00 {
				pair = i + 6
			}
			escaped = true
			i += 5
			continue
		}
		if pair == i {
			return 0, false, errHalfPair
		}
		if b[i] == '\\' {
			escaped = true
			i++
		}
	}
	if pair == i {
		return 0, false, errHalfPair
	}
	return i, escaped, nil
}
