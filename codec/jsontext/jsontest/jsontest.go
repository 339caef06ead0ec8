// Package jsontest draws JSON texts for property tests.
package jsontest

import (
	"strings"

	"pgregory.net/rapid"
)

// Nested returns depth arrays inside each other.
func Nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

// Damaged draws the text of a value, in which one byte may be changed.
func Damaged(t *rapid.T) []byte {
	text := Value(t, 4)
	if len(text) > 0 && rapid.IntRange(0, 2).Draw(t, "damage") == 0 {
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] = rapid.SampledFrom([]byte("\"\\{}[],:01-+.eEutfn \n\x00\x1f\x7f\xc3\xa9\xed")).Draw(t, "byte")
	}
	return text
}

// Value draws the text of a JSON value with at most depth levels of arrays and objects, with white space around it.
func Value(t *rapid.T, depth int) []byte {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t\r "}).Draw(t, "space")
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 {
		kind %= 6
	}
	switch kind {
	case 6, 7:
		brackets, key := "[]", func() string { return "" }
		if kind == 7 {
			brackets, key = "{}", func() string { return space + string(String(t)) + space + ":" }
		}
		var members []string
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			members = append(members, key()+string(Value(t, depth-1)))
		}
		return []byte(space + brackets[:1] + strings.Join(members, ",") + space + brackets[1:] + space)
	case 3, 4, 5:
		return []byte(space + string(String(t)) + space)
	}
	scalars := []string{"0", "-0", "7", "-12", "1.5", "1e5", "2E-3", "123456789012345678901234567890", "true", "false", "null"}
	return []byte(space + rapid.SampledFrom(scalars).Draw(t, "scalar") + space)
}

// String draws a JSON string, in which characters may have an escape that they do not need.
func String(t *rapid.T) []byte {
	parts := []string{"a", "i", "d", "action", "eleven more", "é", "漢", "😀", `\u0061`, `\u0069`, `\n`, `\"`, `\\`, `\/`, `/`,
		`\ud83d`, `\ude00`, `\ud83d\ude00`, `\ufffd`, "\ufffd", `\u0000`, "\x7f"}
	return []byte(`"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 5).Draw(t, "parts"), "") + `"`)
}
