package jsontext

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"treadle/codec/jsontext/jsontest"
)

func TestText(t *testing.T) {
	f := func(raw, want string, wantString bool) {
		t.Helper()
		text, isString := Text([]byte("before"), []byte(raw))
		if string(text) != want || isString != wantString {
			t.Fatalf("%s: %q, %v, want %q, %v", raw, text, isString, want, wantString)
		}
	}
	f(`""`, "", true)
	f(`"a/b"`, "a/b", true)
	f(`"é漢😀"`, "é漢😀", true)
	f(`"\u00E9\u6f22\ud83d\uDE00"`, "é漢😀", true)
	f(`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", true)
	f(`"a\\u0069d"`, `a\u0069d`, true)
	f(`"\u0000\u007f\u0080\u07ff\u0800\uffff"`, "\x00\x7f\u0080\u07ff\u0800\uffff", true)
	f(`"\ud800\udc00\udbff\udfff"`, "\U00010000\U0010ffff", true)
	f(`"\ufffd"`, "\ufffd", true)
	f(`"\ud800"`, "\xed\xa0\x80", true)
	f(`"\udfffx"`, "\xed\xbf\xbfx", true)
	f(`"\ude00\ud83d"`, "\xed\xb8\x80\xed\xa0\xbd", true)
	f(`"\ud83d\ud83d\ude00\ude00"`, "\xed\xa0\xbd😀\xed\xb8\x80", true)
	f(`"\ud83dx\ude00"`, "\xed\xa0\xbdx\xed\xb8\x80", true)
	f(`"\ud83d\nde00"`, "\xed\xa0\xbd\nde00", true)
	f(`"\ud83d\n"`, "\xed\xa0\xbd\n", true)
	f(`"\ud83d\\ude00"`, "\xed\xa0\xbd\\ude00", true)
	f(`"\ud83d\u0041"`, "\xed\xa0\xbdA", true)
	f(`7`, `7`, false)
	f(`-1.50E+7`, `-1.50E+7`, false)
	f(`null`, `null`, false)
	f(`["\u0041", "a"]`, `["\u0041", "a"]`, false)
	f(``, ``, false)
}

func TestTextIsAViewWithoutEscapes(t *testing.T) {
	dst := []byte("untouched")
	raw := []byte(`"abc"`)
	text, _ := Text(dst[:2], raw)
	raw[1] = 'x'
	if string(text) != "xbc" || cap(text) != len(text) || string(dst) != "untouched" {
		t.Fatalf("%q of %d bytes, dst %q", text, cap(text), dst)
	}
	if text, _ = Text(dst[:2], []byte(`"\u0041b"`)); string(text) != "Ab" || string(dst) != "unAbuched" {
		t.Fatalf("%q, dst %q", text, dst)
	}
}

// codeUnits is a second reader of strings: UTF-16, as the escapes are.
func codeUnits(raw string) (units []uint16) {
	short := map[byte]uint16{'"': '"', '\\': '\\', '/': '/', 'b': 8, 'f': 12, 'n': 10, 'r': 13, 't': 9}
	for s := raw[1 : len(raw)-1]; s != ""; {
		switch {
		case s[0] == '\\' && s[1] == 'u':
			n, _ := strconv.ParseUint(s[2:6], 16, 16)
			units, s = append(units, uint16(n)), s[6:]
		case s[0] == '\\':
			units, s = append(units, short[s[1]]), s[2:]
		default:
			r := []rune(s)[0]
			units, s = utf16.AppendRune(units, r), s[len(string(r)):]
		}
	}
	return units
}

// sameText reports whether Text takes two values for the same.
func sameText(a, b string) bool {
	textA, stringA := Text([]byte("before"), []byte(a))
	textB, stringB := Text([]byte("before"), []byte(b))
	return stringA == stringB && bytes.Equal(textA, textB)
}

func TestTextTellsValuesApart(t *testing.T) {
	f := func(a, b string, same bool) {
		t.Helper()
		if sameText(a, b) != same {
			t.Errorf("%s and %s: same is %v", a, b, !same)
		}
	}
	f(`"a"`, `"a"`, true)
	f(`"a"`, `"\u0061"`, true)
	f(`"é"`, `"\u00e9"`, true)
	f(`"\u00e9"`, `"\u00E9"`, true)
	f(`"😀"`, `"\ud83d\ude00"`, true)
	f(`"a/b\n"`, `"a\/b\u000a"`, true)
	f(`"\ud800"`, `"\uD800"`, true)
	f(`""`, `""`, true)
	f(`7`, `7`, true)
	f(`{"a":1}`, `{"a":1}`, true)
	f(`"a"`, `"b"`, false)
	f(`"a"`, `"A"`, false)
	f(`"a"`, `""`, false)
	f(`"a"`, `"a\u0000"`, false)
	f(`"e\u0301"`, `"\u00e9"`, false) // no normalisation
	f(`"\ud800"`, `"\ud801"`, false)
	f(`"\ud800"`, `"\ufffd"`, false)
	f(`"\ud83d\ude00"`, `"\ude00\ud83d"`, false)
	f(`"\\u0061"`, `"\u0061"`, false)
	f(`7`, `7.0`, false)
	f(`7`, `"7"`, false)
	f(`0`, `-0`, false)
	f(`1e5`, `1E5`, false)
	f(`null`, `"null"`, false)
	f(`""`, `null`, false)
	f(`["a"]`, `["\u0061"]`, false)
	f(`[1]`, `[1 ]`, false)
	f(`{"a":1,"b":2}`, `{"b":2,"a":1}`, false)
	f(`"{}"`, `{}`, false)
	f(`"\""`, `"\"\""`, false)
}

func TestTextIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string {
			if rapid.IntRange(0, 4).Draw(t, name) == 0 {
				return rapid.SampledFrom([]string{`1`, `null`, `[]`, `{"a":1}`}).Draw(t, name)
			}
			return string(jsontest.String(t))
		}
		a, b := draw("a"), draw("b")
		same := a == b
		if a[0] == '"' && b[0] == '"' {
			same = slices.Equal(codeUnits(a), codeUnits(b))
		}
		if sameText(a, b) != same {
			t.Fatalf("%s and %s: same is %v", a, b, !same)
		}
	})
}

func TestAppendText(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := AppendText([]byte("before"), []byte(text)); string(got) != "before"+want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		if !Valid(AppendText(nil, []byte(text))) {
			t.Errorf("%q: not valid", text)
		}
	}
	f("", `""`)
	f("a b/c", `"a b/c"`)
	f(`say "\"`, `"say \"\\\""`)
	f("\b\f\n\r\t", `"\b\f\n\r\t"`)
	f("\x00\x01\x0b\x1b\x1f\x7f", `"\u0000\u0001\u000b\u001b\u001f\u007f"`)
	f("<a href='x'>&amp;", `"<a href='x'>&amp;"`)
	f("é漢\u2028\uffff", `"\u00e9\u6f22\u2028\uffff"`)
	f("x😀y\U00010000\U0010ffff", `"x\ud83d\ude00y\ud800\udc00\udbff\udfff"`)
	f("\ufffd", `"\ufffd"`)
	f("\xff\xfe", `"\ufffd\ufffd"`)
	f("a\xc3", `"a\ufffd"`)
	f("\xe6\xbcb", `"\ufffd\ufffdb"`)
	f("\xc0\x80", `"\ufffd\ufffd"`)
	f("\xf4\x90\x80\x80", `"\ufffd\ufffd\ufffd\ufffd"`)
	f("\xed\xa0\x80", `"\ud800"`)
	f("a\xed\xbf\xbfb", `"a\udfffb"`)
	f("\xed\xa0", `"\ufffd\ufffd"`)
	f("\xed\xa0\x7f", `"\ufffd\ufffd\u007f"`)
	f("\xed\x9f\xbf\xee\x80\x80", `"\ud7ff\ue000"`)
	f(strings.Repeat("long ", 100)+"é", `"`+strings.Repeat("long ", 100)+`\u00e9"`)
}

func TestAppendTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := jsontest.String(t)
		text, _ := Text(nil, raw)
		again := AppendText(nil, text)
		if units := codeUnits(string(again)); !slices.Equal(units, codeUnits(string(raw))) {
			t.Fatalf("%s is written as %s", raw, again)
		}
		if back, isString := Text(nil, again); !isString || !bytes.Equal(back, text) {
			t.Fatalf("%s is read as %q, %s as %q", raw, text, again, back)
		}
		var want, got string
		if json.Unmarshal(raw, &want) != nil || json.Unmarshal(again, &got) != nil || got != want {
			t.Fatalf("%s: encoding/json reads %q, %s as %q", raw, want, again, got)
		}
	})
}
