package page

import (
	"strings"
	"testing"
)

// TestRedact: the values of the keys are left out wherever they stand, also of JSON that is cut, and nothing else is.
func TestRedact(t *testing.T) {
	s, ok := parseSecrecy("redact=password, Card")
	if !ok {
		t.Fatal("it is not read")
	}
	f := func(text, want string) {
		t.Helper()
		if got := string(s.redact([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	f(`{"a":1,"b":"password"}`, `{"a":1,"b":"password"}`)
	f(`{"password":"x","b":1}`, `{"password": "***","b":1}`)
	f(`{"PassWord" : 12, "b":1}`, `{"PassWord": "***", "b":1}`)
	f(`{"pass\u0077ord":true}`, `{"pass\u0077ord": "***"}`)
	f(`[{"card":{"n":["}","{"],"card":2}},{"card":[1,[2]]},"card"]`, `[{"card": "***"},{"card": "***"},"card"]`)
	f(`{"a":"say \"password\":1","card":"\"x"}`, `{"a":"say \"password\":1","card": "***"}`)
	f(`{"password":"secr`, `{"password": "***"`)
	f(`{"password":{"deep":[1`, `{"password": "***"`)
	f(`{"password`, `{"password`)
	f(`{"password":`, `{"password": "***"`)
	f(strings.Repeat(`{"card":`, 1000), `{"card": "***"`)
	for text, want := range map[string]bool{"show": true, "": true, "hide": true, "redact=": false, "redact=a,,b": false, "none": false} {
		if _, ok := parseSecrecy(text); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}

// TestSecretPayload: a payload that may not be shown is not in the page in any form.
func TestSecretPayload(t *testing.T) {
	f := func(secrecy, text, form, shown string) {
		t.Helper()
		s, _ := parseSecrecy(secrecy)
		cut := strings.HasPrefix(text, "{key")
		p := newPayload("workload", "workload", form, "/job?id=1", []byte(text), len(text), cut, &s)
		if strings.Contains(string(p.Text), "TOPSECRET") || !strings.Contains(string(p.Text), shown) {
			t.Errorf("%s, %s as %q: %s", secrecy, text, form, p.Text)
		}
	}
	for _, form := range []string{"", "json", "text", "hex"} {
		f("hide", "TOPSECRET", form, "")
		f("redact=key", `{"key":"TOPSECRET","other":"seen"}`, form, "seen")
		f("redact=key", "key=TOPSECRET", form, "")
		f("redact=key", "{key=TOPSECRET", form, "")
	}
}
