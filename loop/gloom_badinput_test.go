package loop

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"treadle/codec/jsontext"
	served "treadle/loop/gloom"
)

// exchange does one job of a master at a slave, to see that they are served.
func (r *testServer) exchange(master, slave *testConn, id string) {
	r.t.Helper()
	want := func(w *testConn, line string) {
		r.t.Helper()
		if got := w.nextGloom("", ""); got != " < "+line {
			r.t.Fatalf("got %s, want %s", got, line)
		}
	}
	slave.send(gloomFrame(`{"action":"join","type":"exchange"}`))
	want(slave, ok)
	master.send(gloomFrame(`{"action":"submit","id":` + id + `,"type":"exchange","body":1}`))
	want(slave, pushedTo("exchange", id))
	slave.send(gloomFrame(`{"action":"respond","body":2}`))
	want(slave, ok)
	want(master, `{"ok":true,"id":`+id+`}`)
	want(master, `{"id":`+id+`,"body":2}`)
}

// TestGloomBadInput: bytes that are no request close the connection at once with the documented answer, and are counted
// under their reason. No other peer is disturbed and no session stays.
func TestGloomBadInput(t *testing.T) {
	t.Parallel()
	r := startGloom(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	bystander, slave := r.dialGloom(true), r.dialGloom(false)
	exchanges, before := 0, map[string]int{}
	f := func(reason, what string, in []byte, answer string) {
		t.Helper()
		for _, master := range []bool{true, false} {
			w := r.dialGloom(master)
			_ = w.trySend(in) // it may be closed before all is written
			got := w.nextGloom("", "")
			if answer != "" {
				if !strings.HasPrefix(got, " < "+answer) {
					t.Errorf("%s: got %.80s, want %s", what, got, answer)
				}
				got = w.nextGloom("", "")
			}
			if got != " < (closed)" {
				t.Errorf("%s: got %.80s, want the end", what, got)
			}
			before[reason]++
			r.wantMetric(gloomClosed(reason), before[reason])
		}
		exchanges++
		r.exchange(bystander, slave, fmt.Sprint(exchanges))
	}
	const invalid = `{"error":"invalid_json","reason":"`
	f("invalid_json", "a million open arrays", gloomFrame(strings.Repeat("[", 1_000_000)), invalid+"[[[[")
	f("invalid_json", "a million open objects", gloomFrame(strings.Repeat(`{"a":`, 200_000)), invalid+`{\"a\":{`)
	f("invalid_json", "one array too many in a body", gloomFrame(`{"body":`+strings.Repeat("[", jsontext.MaxNesting)+strings.Repeat("]", jsontext.MaxNesting)+`}`), invalid+`{\"body\":[[`)
	f("invalid_json", "HTTP", []byte("\x00\x00\x00\x10GET / HTTP/1.1\r\n"), invalid+`GET / HTTP`)
	f("invalid_json", "two documents", gloomFrame(`{}{}`), invalid+`{}{}"}`)
	f("invalid_json", "a large one is not repeated", gloomFrame(strings.Repeat("z", served.MaxEcho+1)), "")
	f("not_an_object", "an array", gloomFrame(`[{"action":"join"}]`), "")
	f("not_an_object", "nesting at the limit", gloomFrame(strings.Repeat("[", jsontext.MaxNesting)+strings.Repeat("]", jsontext.MaxNesting)), "")
	f("too_large", "4 GiB", []byte("\xff\xff\xff\xff"), `{"error":"size_error","reason":"length too large"}`)
	f("too_large", "a byte over the limit", []byte("\x04\x00\x00\x01{"), `{"error":"size_error","reason":"length too large"}`)
	f("too_large", "HTTP without a length", []byte("GET / HTTP/1.1\r\n\r\n"), `{"error":"size_error","reason":"length too large"}`)
	r.wantMetric("treadle_connections", 2)
}

// TestGloomAnnouncedMemory: sizes announced on many connections take no memory.
func TestGloomAnnouncedMemory(t *testing.T) {
	r := startGloom(t, Options{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var all []*testConn
	for i := range 200 {
		all = append(all, r.dialGloom(i%2 == 0))
	}
	r.until("all to be there", func() bool { return r.conns.count() == len(all) })
	before := heap()
	for _, w := range all {
		w.send([]byte("\x04\x00\x00\x00{\"action\":"))
	}
	r.until("the announcements to be read", func() bool {
		read := 0
		r.eachReactor(func(re *reactor) {
			for s := range re.sessions.all() {
				if s.HandshakeDone && s.partialSince > 0 {
					read++
				}
			}
		})
		return read == len(all)
	})
	if grown := int64(heap() - before); grown > 4<<20 {
		t.Errorf("%d announcements of 64 MiB took %d bytes", len(all), grown)
	}
}

// TestUnreadMaster: a master that never reads is closed at --max-outbound, whether its requests or the responses to its
// jobs fill it. Its slaves and the other masters are served.
func TestUnreadMaster(t *testing.T) {
	t.Parallel()
	r := startGloom(t, Options{HTTP: "127.0.0.1:0", MaxFrame: 1 << 16, Gloom: GloomOptions{MaxFrame: 1 << 16}, MaxOutbound: 1 << 20})
	bystander, slave := r.dialGloom(true), r.dialGloom(false)
	asking := r.dialGloom(true)
	unknown := bytes.Repeat(gloomFrame(`{"action":"`+strings.Repeat("z", 1000)+`"}`), 100)
	for range 1000 {
		if asking.trySend(unknown) != nil {
			break
		}
	}
	r.wantMetric(gloomClosed("slow_reader"), 1)
	r.exchange(bystander, slave, "1")

	waiting := r.dialGloom(true)
	body := `"` + strings.Repeat("y", 60_000) + `"`
	slave.send(gloomFrame(`{"action":"join","type":"large"}`))
	slave.nextGloom("", "")
	for i := range 1000 {
		if r.turns(); r.closedFor(errSlowReader) == 2 {
			break
		}
		waiting.send(gloomFrame(fmt.Sprintf(`{"action":"submit","id":"w%d","type":"large","body":1}`, i)))
		slave.nextGloom("", "")
		slave.send(gloomFrame(`{"action":"respond","body":` + body + `}`))
		if got := slave.nextGloom("", ""); got != " < "+ok {
			t.Fatalf("the slave got %s", got)
		}
	}
	r.wantMetric(gloomClosed("slow_reader"), 2)
	r.exchange(bystander, r.dialGloom(false), "2")
}
