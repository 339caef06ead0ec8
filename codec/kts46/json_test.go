package kts46

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestParseRequest(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	f := func(text string, want Request) {
		t.Helper()
		if got, err := ParseRequest([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	f(`{"method":"hello","params":["a",[1]],"id":7}`, Request{Method: "hello", Params: []json.RawMessage{raw(`"a"`), raw(`[1]`)}, ID: raw("7")})
	f(`{"method":"hello","id":"s"}`, Request{Method: "hello", ID: raw(`"s"`)})
	f(`{"method":"hello","id":0}`, Request{Method: "hello", ID: raw("0")})
	f(`{"method":"hello","id":null}`, Request{Method: "hello"})
	f(`{"method":5,"params":{"a":1},"id":false}`, Request{ID: raw("false")})
	f(`null`, Request{Null: true})
	f(`[{"method":"hello","id":1}]`, Request{})
	f(`"hello"`, Request{})
	for _, text := range []string{"", "not json", "{", `{"method":"hello"} x`} {
		if got, err := ParseRequest([]byte(text)); err != errNotJSON {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestAppendReply(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	id := json.RawMessage("7")
	f(AppendResult([]byte("x"), id, "<ok>"), `x{"result":"<ok>","error":null,"id":7}`)
	f(AppendResult(nil, id, nil), `{"result":null,"error":null,"id":7}`)
	f(AppendError(nil, json.RawMessage("false"), "Runtime error"), `{"result":null,"error":"Runtime error","id":false}`)
	f(AppendError(nil, id, &Error{Type: "UnknownTaskType", TaskType: "bogus", ArgumentName: "taskTypes[0]"}),
		`{"result":null,"error":{"type":"UnknownTaskType","taskType":"bogus","argumentName":"taskTypes[0]"},"id":7}`)
}
