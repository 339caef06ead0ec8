package jsontext

import (
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"treadle/codec/jsontext/jsontest"
)

func TestAppendValue(t *testing.T) {
	f := func(data, want string, wantWrapped bool) {
		t.Helper()
		got, wrapped := AppendValue([]byte("before"), []byte(data))
		if string(got) != "before"+want || wrapped != wantWrapped {
			t.Errorf("%q: %s, %v, want %s, %v", data, got, wrapped, want, wantWrapped)
		}
		value := got[len("before"):]
		if !Valid(value) {
			t.Errorf("%q: %s is not valid", data, value)
		}
		if text, _ := Text(nil, value); wrapped && string(text) != data {
			t.Errorf("%q comes back as %q", data, text)
		}
	}
	f(`7`, `7`, false)
	f(`{"b" : [1.50, "\u00e9é"]}`, `{"b" : [1.50, "\u00e9é"]}`, false)
	f(`"text"`, `"text"`, false)
	f(" \n[1, 2]\t\r\n", `[1, 2]`, false)
	f(jsontest.Nested(MaxNesting), jsontest.Nested(MaxNesting), false)
	f(jsontest.Nested(MaxNesting+1), `"`+jsontest.Nested(MaxNesting+1)+`"`, true)
	f(``, `""`, true)
	f(` `, `" "`, true)
	f(`text`, `"text"`, true)
	f("two\nlines\n", `"two\nlines\n"`, true)
	f(`1 2`, `"1 2"`, true)
	f(`{"a":`, `"{\"a\":"`, true)
	f("é😀", `"\u00e9\ud83d\ude00"`, true)
	f("\xff", `{"base64":"/w=="}`, false)
	f("a\x00\xfe", `{"base64":"YQD+"}`, false)
	f("\xed\xa0\x80", `{"base64":"7aCA"}`, false)
	f("\"\xff\"", `{"base64":"Iv8i"}`, false)
}

func TestInteger(t *testing.T) {
	f := func(raw string, want int64, wantOK bool) {
		t.Helper()
		if got, ok := Integer([]byte(raw)); got != want || ok != wantOK {
			t.Errorf("%s: %d, %v, want %d, %v", raw, got, ok, want, wantOK)
		}
	}
	const most, least = 1<<63 - 1, -1 << 63
	f(`0`, 0, true)
	f(`-0`, 0, true)
	f(`5`, 5, true)
	f(`-5`, -5, true)
	f(`1234567890`, 1234567890, true)
	f(`9223372036854775799`, most-8, true)
	f(`9223372036854775806`, most-1, true)
	f(`9223372036854775807`, most, true)
	f(`9223372036854775808`, most, true)
	f(`9223372036854775810`, most, true)
	f(`18446744073709551616`, most, true)
	f(`100000000000000000000000000000`, most, true)
	f(`1`+strings.Repeat("0", 10000), most, true)
	f(`-9223372036854775806`, least+2, true)
	f(`-9223372036854775807`, least+1, true)
	f(`-9223372036854775808`, least, true)
	f(`-9223372036854775809`, least, true)
	f(`-18446744073709551617`, least, true)
	f(`-1`+strings.Repeat("0", 10000), least, true)
	for _, raw := range []string{``, `1.5`, `1.0`, `1e1`, `1E1`, `0.0`, `-0.0`, `0e0`, `"1"`, `""`, `null`, `true`, `false`, `[]`, `[1]`, `{}`,
		`00`, `01`, `-00`, `-01`, `+1`, `-`, `--1`, `1-`, `0x1`, ` 1`, `1 `, `1_0`} {
		f(raw, 0, false)
	}
}

func TestIntegerClamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`-?(0|[1-9][0-9]{0,22})`).Draw(t, "raw")
		if near := rapid.Int64Range(-30, 30).Draw(t, "near"); rapid.Bool().Draw(t, "at the limit") {
			n := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 63), big.NewInt(near))
			if raw[0] == '-' {
				n.Neg(n)
			}
			raw = n.String()
		}
		got, ok := Integer([]byte(raw))
		want, _ := strconv.ParseInt(raw, 10, 64) // clamps
		if got != want || !ok {
			t.Fatalf("%s: %d, %v, want %d", raw, got, ok, want)
		}
	})
}
