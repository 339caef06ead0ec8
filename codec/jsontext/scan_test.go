package jsontext

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"treadle/codec/jsontext/jsontest"
)

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

// validParts walks over the members of an object, or the elements of an array.
func validParts(text []byte) bool {
	var o Object
	var a Array
	switch {
	case o.Open(text):
		for o.Next() {
		}
	case a.Open(text):
		for a.Next() {
		}
	}
	return o.Valid() || a.Valid()
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
		if got := validParts([]byte(text)); got != want {
			t.Errorf("%.20s... of %d bytes: walked %v, want %v", text, len(text), got, want)
		}
	}
	objects := func(depth int) string {
		return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
	}
	mixed := func(depth int) string {
		return strings.Repeat(`[{"a":`, depth/2) + "1" + strings.Repeat("}]", depth/2)
	}
	for _, depth := range []int{1, 2, shallow - 1, shallow, shallow + 1, shallow + 2, 5000, MaxNesting - 1, MaxNesting} {
		f(jsontest.Nested(depth), true)
		f(objects(depth), true)
		f(jsontest.Nested(depth)+"]", false)
		f("["+jsontest.Nested(depth), false)
		f(strings.Repeat("[", depth)+strings.Repeat("}", depth), false)
		f(strings.Repeat("[", depth)+"}"+strings.Repeat("]", depth-1), false)
		f(objects(depth)[:6*depth-5], false)
	}
	f(mixed(MaxNesting), true)
	f(mixed(MaxNesting)[1:], false)
	f(`{"a":`+jsontest.Nested(MaxNesting-1)+`}`, true)
	f(`{"a":`+jsontest.Nested(MaxNesting)+`}`, false)
	f(`{"b":1,"a":[`+jsontest.Nested(MaxNesting-2)+`,`+jsontest.Nested(MaxNesting-2)+`]}`, true)
	f(jsontest.Nested(MaxNesting+1), false)
	f(objects(MaxNesting+1), false)
	f(mixed(MaxNesting+2), false)
	f(jsontest.Nested(5_000_000), false)
	f(strings.Repeat("[", 5_000_000), false)
	f(`{"a":`+strings.Repeat("[", 5_000_000), false)
	f(strings.Repeat(`{"a":`, 5_000_000), false)
	f("["+strings.Repeat("[],", 2_000_000)+"[]]", true) // many, but not inside each other
}

// TestPrefixesAreInvalid: the scanner reads several bytes at once and must not read beyond the end. Every prefix of a
// value is scanned at the end of its array.
func TestPrefixesAreInvalid(t *testing.T) {
	text := []byte(` {"action":"submit","id":[-1.50e+10,true,false,null],"\u0062ody":{"é漢😀":"\ud83d\ude00\n twelve more.."}}`)
	for cut := range text {
		if in := bytes.Clone(text[:cut]); Valid(in[:cut:cut]) || validParts(in[:cut:cut]) {
			t.Fatalf("%q is valid", in)
		}
	}
	if !validParts(text) {
		t.Fatal("the whole text is not valid")
	}
}

func TestValidAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := jsontest.Damaged(t)
		if got, want := Valid(text), json.Valid(text) && utf8.Valid(text); got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
