package faktory

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestNext: a line ends with LF or CR LF, and has at most so many bytes without its end.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		in, line string
		n        int
		err      error
	}{
		{"", "", 0, nil},
		{"END", "", 0, nil},
		{"END\n", "END", 4, nil},
		{"END\r\nX", "END", 5, nil},
		{"\n", "", 1, nil},
		{"\r\n", "", 2, nil},
		{"a\rb\n", "a\rb", 4, nil},
		{"12345678\n", "12345678", 9, nil},
		{"12345678\r\n", "12345678", 10, nil},
		{"12345678\r", "", 0, nil},
		{"123456789\n", "", 0, ErrTooLong},
		{"1234567890", "", 0, ErrTooLong},
	} {
		line, n, err := Next([]byte(c.in), 0, 8)
		if string(line) != c.line || n != c.n || err != c.err || cap(line) != len(line) {
			t.Errorf("Next(%q) = %q of cap %d, %d, %v", c.in, line, cap(line), n, err)
		}
	}
}

// TestNextReply: replies of every kind, and bytes that are none.
func TestNextReply(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind Kind
		data string
		n    int
		err  error
	}{
		{"+OK\r\n+", Simple, "OK", 5, nil},
		{"-ERR no\r\n", Error, "ERR no", 9, nil},
		{":12\r\n", Number, "12", 5, nil},
		{":x\r\n", 0, "", 0, ErrReply},
		{"$-1\r\n", Null, "", 5, nil},
		{"$0\r\n\r\n", Bulk, "", 6, nil},
		{"$2\r\n\r\n\r\n", Bulk, "\r\n", 8, nil},
		{"$2\r\nab\r", 0, "", 0, nil},
		{"$2\r\nabc\r\n", 0, "", 0, ErrReply},
		{"$02\r\nab\r\n", 0, "", 0, ErrReply},
		{"$+2\r\nab\r\n", 0, "", 0, ErrReply},
		{"$-2\r\n", 0, "", 0, ErrReply},
		{"$99\r\n", 0, "", 0, ErrTooLong},
		{"*1\r\n", 0, "", 0, ErrReply},
		{"\r\n", 0, "", 0, ErrReply},
		{"+OK", 0, "", 0, nil},
		{strings.Repeat("+", 40), 0, "", 0, ErrTooLong},
	} {
		kind, data, n, err := NextReply([]byte(c.in), 32)
		if kind != c.kind || string(data) != c.data || n != c.n || err != c.err {
			t.Errorf("NextReply(%q) = %q, %q, %d, %v", c.in, kind, data, n, err)
		}
	}
}

// TestReplies: each reply is read back as it was written.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		in, want string
		kind     Kind
	}{
		{string(AppendOK(nil)), "OK", Simple},
		{string(AppendNull(nil)), "", Null},
		{string(AppendBulk(nil, []byte("a\r\nb"))), "a\r\nb", Bulk},
		{string(AppendError(nil, "ERR", "two\r\nlines")), "ERR two  lines", Error},
		{string(AppendHi(nil, "", 0)), `HI {"v":2}`, Simple},
		{string(AppendHi(nil, "5a", 4000)), `HI {"v":2,"i":4000,"s":"5a"}`, Simple},
	} {
		if kind, data, n, err := NextReply([]byte(c.in), 100); kind != c.kind || string(data) != c.want || n != len(c.in) || err != nil {
			t.Errorf("%q is read as %q %q, %d, %v", c.in, kind, data, n, err)
		}
	}
}

// TestHello: the hash is that of the protocol, and other first lines are none.
func TestHello(t *testing.T) {
	// printf '%s' 'foobar55104dc76695721d' | sha256sum, and five times with the digest as the input
	if got := Hash("foobar", "55104dc76695721d", 1545); got != "6d877f8e5544b1f2598768f817413ab8a357afffa924dedae99eb91472d4ec30" {
		t.Errorf("the hash is %s", got)
	}
	h, err := ParseHello([]byte(`HELLO {"v":2,"wid":"w","hostname":"h","pid":7,"labels":["x"],"pwdhash":"p","other":[]}`))
	if err != nil || h.Version != 2 || h.Worker != "w" || h.Hostname != "h" || h.PID != 7 || h.Password != "p" || len(h.Labels) != 1 {
		t.Errorf("got %+v, %v", h, err)
	}
	for _, in := range []string{"", "HELLO", "HELLO ", "HELLO 2", "HELLO  {}", "hello {}", `HELLO {"v":"2"}`, `HELLO {} x`, "GET / HTTP/1.1"} {
		if _, err := ParseHello([]byte(in)); err != ErrHello {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// TestJobIsKept: what a worker sees of a job has the members in their order, the bytes of their values, and others
// behind.
func TestJobIsKept(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"jid":"job-0001","jobtype":"T","args":[]}`, `{"retry":25,"jid":"job-0001","queue":"default","jobtype":"T","created_at":"C","enqueued_at":"E","args":[]}`},
		{`{"args":[1.0,12345678901234567890,"\u00e9\/"],"jobtype":"T","jid":"job-0001","retry":0,"queue":"q","created_at":"x","enqueued_at":"y"}`,
			`{"retry":0,"jid":"job-0001","queue":"q","jobtype":"T","created_at":"x","enqueued_at":"E","args":[1.0,12345678901234567890,"\u00e9\/"]}`},
		{` { "x" : { } , "jid" : "job-0001" , "jobtype" : "T" , "args" : [ ] , "retry" : null , "custom" : { "b" : 1 , "a" : 2 } , "y":null } `,
			`{"retry":25,"custom":{ "b" : 1 , "a" : 2 },"jid":"job-0001","queue":"default","jobtype":"T","created_at":"C","enqueued_at":"E","args":[ ],"x":{ },"y":null}`},
		{`{"JID":"job-0001","JobType":"T","args":[],"at":"","reserve_for":0,"backtrace":0,"custom":{},"failure":null,"priority":9}`,
			`{"retry":25,"priority":9,"jid":"job-0001","queue":"default","jobtype":"T","created_at":"C","enqueued_at":"E","args":[]}`},
		{`{"jid":"job-0000","jid":"job-0001","jobtype":"T","args":[1],"args":[2]}`, `{"retry":25,"jid":"job-0001","queue":"default","jobtype":"T","created_at":"C","enqueued_at":"E","args":[2]}`},
	} {
		var j Job
		if err := ParseJob([]byte(c.in), nil, &j); err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		got := j.AppendStored(nil, "C", "E")
		if string(got) != c.want {
			t.Errorf("%s\nis  %s\nnot %s", c.in, got, c.want)
		}
		if string(j.JID) != "job-0001" || string(j.Type) != "T" {
			t.Errorf("%s: %q, %q", c.in, j.JID, j.Type)
		}
		if got := AppendFetched(nil, got, []byte(`{"f":1}`), "L"); !bytes.Contains(got, []byte(`,"failure":{"f":1},`)) || !bytes.Contains(got, []byte(`,"enqueued_at":"L",`)) || bytes.Contains(got, []byte(`"E"`)) {
			t.Errorf("fetched as %s", got)
		}
	}
}

// TestJobErrors: each text that is no job has its error.
func TestJobErrors(t *testing.T) {
	job := func(more string) string { return `{"jid":"job-0001","jobtype":"T","args":[]` + more + `}` }
	for in, want := range map[string]error{
		``: ErrJSON, `[]`: ErrJSON, `{`: ErrJSON, `{}`: errJID, job("") + "x": ErrJSON, job(`,"retry":`): ErrJSON,
		`{"jid":"1234567","jobtype":"T","args":[]}`:                          errJID,
		`{"jid":"` + strings.Repeat("x", 256) + `","jobtype":"T","args":[]}`: errJID,
		`{"jid":"job-00\u00001","jobtype":"T","args":[]}`:                    errJID,
		`{"jid":"job-0001","jobtype":"","args":[]}`:                          errType,
		`{"jid":"job-0001","jobtype":"T","args":null}`:                       errArgs,
		job(`,"queue":"a b"`):                                                errQueue, job(`,"queue":"é"`): errQueue, job(`,"queue":7`): ErrJSON,
		job(`,"reserve_for":86401`): errReserve, job(`,"reserve_for":"1"`): ErrJSON, job(`,"retry":1.5`): ErrJSON, job(`,"retry":"3"`): ErrJSON,
		job(`,"at":"tomorrow"`): errAt, job(`,"at":5`): ErrJSON, job(`,"custom":[]`): ErrJSON, job(`,"failure":{"retry_count":"x"}`): ErrJSON,
		job(`,"custom":{"unique_for":"600"}`): errUniqueFor, job(`,"custom":{"unique_for":0}`): errUniqueFor, job(`,"custom":{"unique_for":1e300}`): errUniqueFor,
		job(`,"custom":{"unique_until":"end"}`): errUniqueUntil, job(`,"custom":{"expires_at":"soon"}`): errExpires,
	} {
		var j Job
		if err := ParseJob([]byte(in), nil, &j); !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", in, err, want)
		}
	}
}

// TestJobFields: the fields that the server follows, at their limits.
func TestJobFields(t *testing.T) {
	for more, want := range map[string]string{
		``: "5 1800 25 false 0",
		`,"priority":1,"reserve_for":1,"retry":-5`:              "1 60 -5 true 0",
		`,"priority":10,"reserve_for":86400,"retry":1000000000`: "5 86400 32767 true 0",
		`,"priority":"x","reserve_for":-7`:                      "5 60 25 false 0",
		`,"at":"2026-11-21T05:37:55.123456789+01:00"`:           "5 1800 25 false 1795235875123",
		`,"at":"0001-01-01T00:00:00Z"`:                          "5 1800 25 false 1",
	} {
		var j Job
		if err := ParseJob([]byte(`{"jid":"job-0001","jobtype":"T","args":[]`+more+`}`), nil, &j); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(j.Priority, j.ReserveFor, j.Retry, j.OwnRetry, j.At); got != want {
			t.Errorf("%s: %s, not %s", more, got, want)
		}
	}
}

// TestCustom: what the custom data asks for is read from a pushed and from a stored job.
func TestCustom(t *testing.T) {
	for custom, want := range map[string]Custom{
		`{}`:                 {},
		`{"unique_for":1.5}`: {UniqueFor: 1500},
		`{"unique_for":600,"unique_until":"start","track":1}`:    {UniqueFor: 600_000, UntilStart: true, Tracked: true},
		`{"unique_until":"success","track":0,"unique_for":null}`: {},
		`{"expires_at":"2026-11-21T05:37:55Z","a":{"track":1}}`:  {ExpiresAt: 1795239475000},
	} {
		var j Job
		if err := ParseJob([]byte(`{"jid":"job-0001","jobtype":"T","args":[],"custom":`+custom+`}`), nil, &j); err != nil {
			t.Fatal(err)
		}
		if got := StoredCustom(j.AppendStored(nil, "C", "E")); j.Custom != want || got != want {
			t.Errorf("%s: %+v, stored %+v, not %+v", custom, j.Custom, got, want)
		}
	}
	same := func(a, b string) bool {
		var all [2]string
		for i, in := range []string{a, b} {
			var j Job
			if err := ParseJob([]byte(`{"jid":"job-0001",`+in+`}`), nil, &j); err != nil {
				t.Fatal(err)
			}
			all[i] = string(j.AppendIdentity(nil))
		}
		return all[0] == all[1]
	}
	if !same(`"jobtype":"T","args":[{"a":1,"b":"\u0041"}]`, `"args":[ { "b":"A", "a":1 } ],"jobtype":"\u0054","queue":"default"`) {
		t.Error("two spellings of a job are not the same")
	}
	if same(`"jobtype":"T","args":[1]`, `"jobtype":"T","args":["1"]`) || same(`"jobtype":"T","args":[]`, `"jobtype":"U","args":[]`) || same(`"jobtype":"T","args":[]`, `"jobtype":"T","args":[],"queue":"q"`) {
		t.Error("two jobs are the same")
	}
}

// TestMatches: the patterns of Redis.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"?", "", false}, {"??", "ab", true},
		{"[a-c]x", "bx", true}, {"[c-a]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[^a-c]x", "dx", true}, {`[\]]`, "]", true}, {"[ab", "a", true},
		{`\*`, "*", true}, {`\*`, "a", false}, {`a\`, `a\`, true}, {"*a*b*c*", "xaxbxcx", true}, {"[]", "a", false}, {"*\"jid\":\"a?\"*", `{"jid":"ab"}`, true},
	} {
		if got := Matches(c.pattern, []byte(c.text)); got != c.want {
			t.Errorf("Matches(%q, %q) is %v", c.pattern, c.text, got)
		}
	}
}

// TestAck: an ACK is an object of strings.
func TestAck(t *testing.T) {
	for in, want := range map[string]string{
		`{"jid":"a"}`: "a", `{"x":"y","jid":"a\u0062","z":null}`: "ab", `{"JID":"a"}`: "", `{"jid":null}`: "", `{"jid":1}`: "", `{"jid":"a","n":1}`: "", `{"jid":"a"`: "", `"a"`: "", ``: "", `{"jid":"a"} x`: "",
	} {
		if jid, ok := Ack(nil, []byte(in)); ok != (want != "") || ok && string(jid) != want {
			t.Errorf("%s: %q, %v", in, jid, ok)
		}
	}
}

// TestNothingIsAllocated: the frequent commands are decoded and answered without an allocation.
func TestNothingIsAllocated(t *testing.T) {
	push, ack := []byte(`{"jid":"job-0001","jobtype":"T","args":[1,"two"],"queue":"q","created_at":"2026-11-21T05:37:55Z","custom":{"a":1},"retry":3}`), []byte(`{"jid":"job-0001"}`)
	scratch, out := make([]byte, 0, 64), make([]byte, 0, 1024)
	var j Job
	if n := testing.AllocsPerRun(100, func() {
		if err := ParseJob(push, scratch, &j); err != nil {
			t.Fatal(err)
		}
		out = AppendBulk(j.AppendStored(out[:0], "C", "E"), push)
		if jid, ok := Ack(scratch, ack); !ok || len(jid) != 8 {
			t.Fatal("no jid")
		}
		_ = StoredCustom(push)
		_, _, _ = Next(append(out, '\n'), 0, 1<<20)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
