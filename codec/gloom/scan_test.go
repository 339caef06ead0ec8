package gloom

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// nested returns depth arrays inside each other.
func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestValid(t *testing.T) {
	f := func(text string, want bool) {
		t.Helper()
		if got := Valid([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		if reference := json.Valid([]byte(text)) && utf8.ValidString(text); reference != want {
			t.Errorf("%q: encoding/json says %v, want %v", text, reference, want)
		}
	}
	for _, text := range []string{`0`, `-0`, `-1`, `10`, `1.5`, `0.0`, `-0.10`, `1e5`, `1E+5`, `0e-0`, `1.5e007`,
		`true`, `false`, `null`, `""`, `"a"`, `"sixteen letters."`, `"seven.."`, `"eight..."`, `"\"\\\/\b\f\n\r\t"`,
		`"\u0000\uABCD\uabcd"`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, "\"\x7f\"", "\"é漢😀\ufffd\"", `[]`, `{}`, `[[],{}]`,
		`[1,"a",null,[true],{"a":{"b":[]}}]`, `{"":{}}`, `{"a":1,"a":2}`, " \t\r\n[ 1 , 2 ] \n", ` { "a" : 1 , "b" : { } } `} {
		f(text, true)
		f(" "+text+"\r\n\t ", true)
		f("["+text+"]", true)
		f(`{"k":`+text+`,"l":`+text+`}`, true)
		f(text+"x", false)
		f(text+",", false)
		f(text+" {}", false)
		f("\v"+text, false)
		f("\ufeff"+text, false)
		f("["+text+",]", false)
		f("["+text, false)
		f(`{"k":`+text+`]`, false)
	}
	for _, text := range []string{``, ` `, `00`, `01`, `-`, `-01`, `+1`, `.5`, `1.`, `1.e5`, `1e`, `1e+`, `1ee5`, `0x10`, `1_000`,
		`tru`, `True`, `nul`, `NaN`, `nan`, `Infinity`, `-Infinity`, `undefined`, `"`, `"a`, `'a'`, `"\`, `"\"`, `"\a"`, `"\x00"`,
		`"\u"`, `"\u00"`, `"\u000"`, `"\u000g"`, `"\U0000"`, "\"\t\"", "\"a\x00\"", "\"12345678\n\"", `[`, `]`, `{`, `}`, `[1 2]`,
		`[,1]`, `[1,,2]`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{1:2}`, `{"a":1 "b":2}`, `[1:2]`,
		`{"a","b"}`, `[}`, `{]`, `[1}`, `{"a":1]`, `[[]`, `// 1`, `1 // 1`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"",
		"\"\xf4\x90\x80\x80\"", "\"é\xc3\"", "\"\xe6\xbc", "\xff"} {
		f(text, false)
		f("[1,"+text+"]", false)
	}
}

// TestValidAtEveryPlaceOfAString: every place in a string is once each of the eight bytes that are read at once, and
// behind the last eight.
func TestValidAtEveryPlaceOfAString(t *testing.T) {
	for length := range 40 {
		for at := range length {
			for c := range 256 {
				text := []byte(`"` + strings.Repeat("x", length) + `"`)
				text[1+at] = byte(c)
				escaped := slices.Insert(bytes.Clone(text), 1+at, '\\')
				for _, text := range [][]byte{text, escaped} {
					if got, want := Valid(text), json.Valid(text) && utf8.Valid(text); got != want {
						t.Fatalf("%q: %v, want %v", text, got, want)
					}
				}
			}
		}
	}
}

func TestNesting(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(64 << 10)) // a scanner that recurses ends here
	f := func(text string, want bool) {
		t.Helper()
		if got := Valid([]byte(text)); got != want {
			t.Errorf("%.20s... of %d bytes: %v, want %v", text, len(text), got, want)
		}
		if got := json.Valid([]byte(text)); len(text) < 1<<20 && got != want {
			t.Errorf("%.20s... of %d bytes: encoding/json says %v", text, len(text), got)
		}
		want = want && text[0] == '{' // an object's own brace counts
		if got := Parse([]byte(text), new(Message)) == nil; got != want {
			t.Errorf("%.20s... of %d bytes: parsed %v, want %v", text, len(text), got, want)
		}
	}
	objects := func(depth int) string {
		return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
	}
	mixed := func(depth int) string {
		return strings.Repeat(`[{"a":`, depth/2) + "1" + strings.Repeat("}]", depth/2)
	}
	for _, depth := range []int{1, 2, shallow - 1, shallow, shallow + 1, shallow + 2, 5000, MaxNesting - 1, MaxNesting} {
		f(nested(depth), true)
		f(objects(depth), true)
		f(nested(depth)+"]", false)
		f("["+nested(depth), false)
		f(strings.Repeat("[", depth)+strings.Repeat("}", depth), false)
		f(strings.Repeat("[", depth)+"}"+strings.Repeat("]", depth-1), false)
		f(objects(depth)[:6*depth-5], false)
	}
	f(mixed(MaxNesting), true)
	f(mixed(MaxNesting)[1:], false)
	f(`{"a":`+nested(MaxNesting-1)+`}`, true)
	f(`{"a":`+nested(MaxNesting)+`}`, false)
	f(`{"b":1,"a":[`+nested(MaxNesting-2)+`,`+nested(MaxNesting-2)+`]}`, true)
	f(nested(MaxNesting+1), false)
	f(objects(MaxNesting+1), false)
	f(mixed(MaxNesting+2), false)
	f(nested(5_000_000), false)
	f(strings.Repeat("[", 5_000_000), false)
	f(`{"a":`+strings.Repeat("[", 5_000_000), false)
	f(strings.Repeat(`{"a":`, 5_000_000), false)
	f("["+strings.Repeat("[],", 2_000_000)+"[]]", true) // many, but not inside each other
}

// TestPrefixesAreInvalid: the scanner reads several bytes at once and must not read beyond the end. Every prefix of a
// value is scanned at the end of its array.
func TestPrefixesAreInvalid(t *testing.T) {
	text := []byte(` {"action":"submit","id":[-1.50e+10,true,false,null],"\u0062ody":{"é漢😀":"\ud83d\ude00\n twelve more.."}}`)
	var m Message
	for cut := range text {
		if in := bytes.Clone(text[:cut]); Valid(in[:cut:cut]) || !errors.Is(Parse(in[:cut:cut], &m), ErrInvalid) {
			t.Fatalf("%q is valid", in)
		}
	}
	if err := Parse(text, &m); err != nil {
		t.Fatal(err)
	}
}

// drawJSON draws the text of a value, now and then with a byte of it changed.
func drawJSON(t *rapid.T) []byte {
	text := drawValue(t, 4)
	if len(text) > 0 && rapid.IntRange(0, 2).Draw(t, "damage") == 0 {
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] = rapid.SampledFrom([]byte("\"\\{}[],:01-+.eEutfn \n\x00\x1f\x7f\xc3\xa9\xed")).Draw(t, "byte")
	}
	return text
}

func drawValue(t *rapid.T, depth int) []byte {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t\r "}).Draw(t, "space")
	kind := rapid.IntRange(0, 7).Draw(t, "kind")
	if depth == 0 {
		kind %= 6
	}
	switch kind {
	case 6, 7:
		brackets, key := "[]", func() string { return "" }
		if kind == 7 {
			brackets, key = "{}", func() string { return space + string(drawString(t)) + space + ":" }
		}
		var members []string
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			members = append(members, key()+string(drawValue(t, depth-1)))
		}
		return []byte(space + brackets[:1] + strings.Join(members, ",") + space + brackets[1:] + space)
	case 3, 4, 5:
		return []byte(space + string(drawString(t)) + space)
	}
	scalars := []string{"0", "-0", "7", "-12", "1.5", "1e5", "2E-3", "123456789012345678901234567890", "true", "false", "null"}
	return []byte(space + rapid.SampledFrom(scalars).Draw(t, "scalar") + space)
}

// drawString draws a JSON string, some of its characters with an escape that they need not have.
func drawString(t *rapid.T) []byte {
	parts := []string{"a", "i", "d", "action", "eleven more", "é", "漢", "😀", `\u0061`, `\u0069`, `\n`, `\"`, `\\`, `\/`, `/`,
		`\ud83d`, `\ude00`, `\ud83d\ude00`, `\ufffd`, "\ufffd", `\u0000`, "\x7f"}
	return []byte(`"` + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 5).Draw(t, "parts"), "") + `"`)
}

func TestValidAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawJSON(t)
		if got, want := Valid(text), json.Valid(text) && utf8.Valid(text); got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
