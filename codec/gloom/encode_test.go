package gloom

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	f := func(got []byte, want string) {
		t.Helper()
		if !bytes.Equal(got, append([]byte("before"), frame([]byte(want))...)) {
			t.Errorf("%q, want before, a header and %s", got, want)
		}
	}
	b := func(text string) []byte { return []byte(text) }
	dst := b("before")
	dst = dst[:len(dst):len(dst)]
	f(AppendOK(dst), `{"ok":true}`)
	f(AppendSubmitted(dst, b(`{"a":1}`)), `{"ok":true,"id":{"a":1}}`)
	f(AppendJob(dst, b(`"i"`), b(`null`), b(`[1,{}]`)), `{"action":"job","id":"i","type":null,"body":[1,{}]}`)
	f(AppendResponse(dst, b(`7.0`), b(`"r"`)), `{"id":7.0,"body":"r"}`)
	f(AppendError(dst, UnknownAction, b(`{"any":"value"}`)), `{"error":"unknown_action","reason":{"any":"value"}}`)
	f(AppendError(dst, MissingField, b(`"job_type"`)), `{"error":"missing_field","reason":"job_type"}`)
	f(AppendInvalid(dst, nil), `{"error":"invalid_json","reason":""}`)
	f(AppendInvalid(dst, b("{\"a\":\"é\x7f\t/\"")), `{"error":"invalid_json","reason":"{\"a\":\"\u00e9\u007f\t/\""}`)
	f(AppendInvalid(dst, b("\xff\xfe😀")), `{"error":"invalid_json","reason":"\ufffd\ufffd\ud83d\ude00"}`)
	f(AppendInvalid(dst, b("\xed\xa0\x80")), `{"error":"invalid_json","reason":"\ufffd\ufffd\ufffd"}`)
	f(AppendTooLarge(dst), `{"error":"size_error","reason":"length too large"}`)
	f(AppendJoin(dst, b(`"echo"`)), `{"action":"join","type":"echo"}`)
	f(AppendSubmit(dst, b(`1`), b(`"t"`), 0, b(`null`)), `{"action":"submit","id":1,"type":"t","body":null}`)
	f(AppendSubmit(dst, b(`1`), b(`"t"`), 5, b(`[]`)), `{"action":"submit","id":1,"type":"t","priority":5,"body":[]}`)
	f(AppendSubmit(dst, b(`1`), b(`"t"`), math.MinInt64, b(`[]`)),
		`{"action":"submit","id":1,"type":"t","priority":-9223372036854775808,"body":[]}`)
	f(AppendRespond(dst, b(`{"z":1}`)), `{"action":"respond","body":{"z":1}}`)
	long := b(`"` + strings.Repeat("x", 70000) + `"`)
	f(AppendRespond(dst, long), `{"action":"respond","body":`+string(long)+`}`)
	if string(dst[:cap(dst)]) != "before" {
		t.Fatalf("the caller's bytes are now %q", dst)
	}
}

func TestFramesAreEndedWhereTheyBegan(t *testing.T) {
	var out []byte
	for i := range 5 {
		body := bytes.Repeat([]byte("1"), 1+i*100)
		out = AppendJob(AppendOK(out), []byte(`7`), []byte(`8`), body)
	}
	for i := range 10 {
		payload, n, err := Next(out, serverLimit)
		var r Reply
		if n == 0 || err != nil || ParseReply(payload, &r) != nil || r.OK != (i%2 == 0) || len(r.Body) != i%2*(1+i/2*100) {
			t.Fatalf("frame %d: %d, %v, %s", i, n, err, payload)
		}
		out = out[n:]
	}
	if len(out) > 0 {
		t.Fatalf("%q is left", out)
	}
}

func TestSizeOverTheHeader(t *testing.T) {
	var head [HeaderLen]byte
	putSize(head[:], maxPayload)
	if head != [HeaderLen]byte{255, 255, 255, 255} {
		t.Fatalf("%x", head)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("a size over maxPayload is written")
		}
	}()
	putSize(head[:], maxPayload+1)
}

func TestParseReply(t *testing.T) {
	f := func(payload string, want Reply) {
		t.Helper()
		stale := []byte("stale")
		r := Reply{true, stale, stale, stale, stale, stale, stale}
		if err := ParseReply([]byte(payload), &r); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
		if r.OK != want.OK || !same(r.ID, want.ID) || !same(r.Type, want.Type) || !same(r.Body, want.Body) ||
			!same(r.Error, want.Error) || !same(r.Reason, want.Reason) || !same(r.Action, want.Action) {
			t.Fatalf("%s: %+v, want %+v", payload, r, want)
		}
	}
	b := func(text string) []byte { return []byte(text) }
	f(`{}`, Reply{})
	f(`{"ok":true}`, Reply{OK: true})
	f(`{"ok":false}`, Reply{})
	f(`{"ok":"true"}`, Reply{}) // the document's example; the clients need the boolean
	f(`{"ok":null,"ok":true}`, Reply{})
	f(`{"o\u006b" : true , "id" : 7}`, Reply{OK: true, ID: b(`7`)})
	f(`{"action":"job","id":"i","type":null,"body":[1]}`, Reply{Action: b(`"job"`), ID: b(`"i"`), Type: b(`null`), Body: b(`[1]`)})
	f(`{"body":{},"id":1,"id":2,"priority":9}`, Reply{ID: b(`1`), Body: b(`{}`)})
	f(`{"error":"job_failed","reason":{"a":1}}`, Reply{Error: b(`"job_failed"`), Reason: b(`{"a":1}`)})
	f(`{"reason":"x","\u0065rror":"y"}`, Reply{Error: b(`"y"`), Reason: b(`"x"`)})
}
