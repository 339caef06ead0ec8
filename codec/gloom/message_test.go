package gloom

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"treadle/codec/jsontext"
	"treadle/codec/jsontext/jsontest"
)

func TestParse(t *testing.T) {
	f := func(payload string, want Message) {
		t.Helper()
		stale := []byte("stale")
		m := Message{stale, stale, stale, stale, stale}
		if err := Parse([]byte(payload), &m); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		if !sameMessage(&m, &want) {
			t.Fatalf("%s: %s, want %s", payload, describe(&m), describe(&want))
		}
		for _, v := range [][]byte{m.Action, m.ID, m.Type, m.Priority, m.Body} {
			if cap(v) != len(v) {
				t.Fatalf("%s: an append to %s would write into the payload", payload, v)
			}
		}
	}
	b := func(text string) []byte { return []byte(text) }
	f(`{}`, Message{})
	f(" \t\r\n{ \n} ", Message{})
	f(`{"action":"join"}`, Message{Action: b(`"join"`)})
	f(` { "action" : "join" , "type" : null } `, Message{Action: b(`"join"`), Type: b(`null`)})
	f(`{"body":{"z":[1, 2],"z":2} ,"priority":-12,"type":7.0,"id":{"id":1},"action":[ ]}`,
		Message{Action: b(`[ ]`), ID: b(`{"id":1}`), Type: b(`7.0`), Priority: b(`-12`), Body: b(`{"z":[1, 2],"z":2}`)})
	f(`{"Action":1,"actions":2,"actio":3,"":4,"ID":5,"types":6,"bodY":7,"PRIORITY":8,"ok":true}`, Message{})
	f(`{"x":{"action":1,"body":2},"y":["id","type"]}`, Message{})
	// Of equal keys the first counts.
	f(`{"action":"bogus","action":"submit","id":1,"id":2,"body":null,"body":3}`, Message{Action: b(`"bogus"`), ID: b(`1`), Body: b(`null`)})
	f(`{"\u0069d":1,"id":2}`, Message{ID: b(`1`)})
	f(`{"id":1,"\u0069d":2}`, Message{ID: b(`1`)})
	f(`{"id":1,"id":2,"id":3,"type":4}`, Message{ID: b(`1`), Type: b(`4`)})
	// Keys are compared by their characters.
	f(`{"\u0061\u0063\u0074\u0069\u006f\u006e":1}`, Message{Action: b(`1`)})
	f(`{"\u0070\u0072\u0069\u006f\u0072\u0069\u0074\u0079":1}`, Message{Priority: b(`1`)})
	f(`{"\u0070\u0072\u0069\u006f\u0072\u0069\u0074\u0079\u0000":1}`, Message{})
	f(`{"typ\u0065":1,"bod\u0079":2}`, Message{Type: b(`1`), Body: b(`2`)})
	f(`{"\\u0069d":1,"\"id\"":2,"i\/d":3,"i\u0000d":4,"\u0049D":5,"\ud800":6,"id\n":7}`, Message{})
	// Values are not touched.
	f(`{"id":"\u00e9\/","body":1.50E+07}`, Message{ID: b(`"\u00e9\/"`), Body: b(`1.50E+07`)})
	f(`{"id":12345678901234567890123456789,"body":"\ud800"}`, Message{ID: b(`12345678901234567890123456789`), Body: b(`"\ud800"`)})
}

func TestParseErrors(t *testing.T) {
	f := func(payload string, want error) {
		t.Helper()
		var m Message
		if err := Parse([]byte(payload), &m); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", payload, err, want)
		}
		var r Reply
		if err := ParseReply([]byte(payload), &r); !errors.Is(err, want) {
			t.Errorf("%q as a reply: %v, want %v", payload, err, want)
		}
	}
	for _, payload := range []string{`[]`, `5`, `"x"`, `null`, `true`, ` [{"action":"join"}] `, `-0`, `"\ud800"`, jsontest.Nested(jsontext.MaxNesting)} {
		f(payload, ErrNotObject)
		f(payload+"]", ErrInvalidJSON)
	}
	for _, payload := range []string{``, ` `, `foo`, `{`, `{"action":`, `{"action":"x"}{}`, `{"action":"x"} x`, `{} {}`, `{"action":"x",}`,
		`{,"action":"x"}`, `{"action" "x"}`, `{"action":"x" "id":1}`, `{action:"x"}`, `{1:2}`, `{"body":01}`, `{"body":.5}`, `{"body":nan}`,
		"{\"body\":\"a\tb\"}", `{"body":{1:2}}`, `{"a":1]`, `{"a":[1}`, `["action"`, "\xff\xfe", "{\"a\":\"\xff\"}", "{\"\xff\":1}",
		"{\"body\":\"\xed\xa0\x80\"}", "\ufeff{}", "{}\x00", "{\"x\":{\"y\":\"\xc3\"}}"} {
		f(payload, ErrInvalidJSON)
	}
}

func sameMessage(a, b *Message) bool {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	return same(a.Action, b.Action) && same(a.ID, b.ID) && same(a.Type, b.Type) && same(a.Priority, b.Priority) && same(a.Body, b.Body)
}

func describe(m *Message) string {
	return string(bytes.Join([][]byte{m.Action, m.ID, m.Type, m.Priority, m.Body}, []byte(" | ")))
}

// naiveMessage reads an object member by member with encoding/json: a naive copy of Parse.
func naiveMessage(payload []byte) (m Message, err error) {
	if !json.Valid(payload) || !utf8.Valid(payload) {
		return m, ErrInvalidJSON
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return m, ErrNotObject
	}
	fields := make(map[string][]byte)
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return m, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return m, err
		}
		if _, ok := fields[key.(string)]; !ok {
			fields[key.(string)] = value
		}
	}
	return Message{fields["action"], fields["id"], fields["type"], fields["priority"], fields["body"]}, nil
}

func TestParseAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		keys := []string{`"action"`, `"id"`, `"\u0069d"`, `"type"`, `"t\u0079pe"`, `"priority"`, `"body"`, `"bod\u0079"`, `"\\u0069d"`, `"x"`, ``}
		for range rapid.IntRange(0, 6).Draw(t, "members") {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			if key == "" {
				key = string(jsontest.String(t))
			}
			members = append(members, key+":"+string(jsontest.Damaged(t)))
		}
		payload := []byte("{" + strings.Join(members, ",") + "}")
		if rapid.IntRange(0, 3).Draw(t, "any") == 0 {
			payload = jsontest.Damaged(t)
		}
		want, wantErr := naiveMessage(payload)
		var m Message
		err := Parse(payload, &m)
		if !errors.Is(err, wantErr) || err == nil && !sameMessage(&m, &want) {
			t.Fatalf("%s: %v, %s, the naive one %v, %s", payload, err, describe(&m), wantErr, describe(&want))
		}
	})
}

func TestAction(t *testing.T) {
	f := func(raw string, want ActionKind) {
		t.Helper()
		m := Message{Action: []byte(raw)}
		if raw == "" {
			m.Action = nil
		}
		if got := Action(&m); got != want {
			t.Fatalf("%s: %d, want %d", raw, got, want)
		}
	}
	f(``, NoAction)
	f(`"join"`, Join)
	f(`"submit"`, Submit)
	f(`"respond"`, Respond)
	f(`"j\u006fin"`, Join)
	f(`"\u0073\u0075\u0062\u006d\u0069\u0074"`, Submit)
	f(`"\u0072\u0065\u0073\u0070\u006F\u006e\u0064"`, Respond)
	f(`"\\u006aoin"`, OtherAction)
	f(`"job"`, OtherAction)
	f(`"Join"`, OtherAction)
	f(`"join "`, OtherAction)
	f(`"join\u0000"`, OtherAction)
	f(`""`, OtherAction)
	f(`"\ud800"`, OtherAction)
	f(`"`+strings.Repeat(`\u006a`, 9)+`"`, OtherAction)
	f(`"\"join\""`, OtherAction)
	f(`null`, OtherAction)
	f(`7`, OtherAction)
	f(`["join"]`, OtherAction)
	f(`{"join":"join"}`, OtherAction)
}
