package loop

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// hello is the first packet of a client.
var hello = periodic.AppendHello(nil, &periodic.Hello{Role: periodic.Client})

// TestBadInput: bytes that are no request close the connection at once and are counted under their
// reason. Earlier requests are answered, and no other peer is disturbed.
func TestBadInput(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2, MaxFrame: 1 << 16})
	bystander := r.greet(periodic.Client)
	before := map[string]int{}
	f := func(reason, what string, in []byte, replies int) {
		t.Helper()
		for _, network := range []string{"unix", "tcp"} {
			w := r.dial(network)
			w.send(in)
			got := w.wantClosed()
			if n := bytes.Count(got, []byte("\x00RES")); n != replies {
				t.Errorf("%s: %d replies before the end, want %d", what, n, replies)
			}
			before[reason]++
			r.wantMetric(closedMetric(reason), before[reason])
		}
		bystander.ping()
	}
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := append(bytes.Clone(hello), request(1, periodic.Ping)...)
	f("bad_magic", "HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), 0)
	f("bad_magic", "a response for a handshake", unhex("005245530000000101"), 0)
	f("bad_handshake", "an unknown role", unhex("005245510000000109"), 0)
	f("bad_handshake", "a request for a handshake", unhex("00524551000000050000000109"), 0)
	f("too_large", "a handshake of 4 GiB", unhex("00524551ffffffff"), 0)
	f("bad_magic", "a response for a request", append(bytes.Clone(good), unhex("00524553000000050000000109")...), 2)
	f("too_short", "an empty request", append(bytes.Clone(good), unhex("0052455100000000")...), 2)
	f("too_large", "a request over the limit", append(bytes.Clone(good), unhex("00524551000100010000000109")...), 2)
	f("too_large", "a request of 4 GiB", append(bytes.Clone(good), unhex("00524551ffffffff")...), 2)
	f("too_large", "a LOAD of 2 GiB", append(bytes.Clone(good), unhex("00524551800000000000000113")...), 2)
	if n := r.metric("treadle_connections"); n != 1 {
		t.Errorf("%d connections are open, want the bystander's", n)
	}
	bystander.ask(1, 99, nil, byte(periodic.Unknown))
	bystander.ask(2, periodic.SubmitJob, nil, byte(periodic.Unknown))
	bystander.ask(3, periodic.GrabJob, nil, byte(periodic.Unknown))
	r.wantMetric(`treadle_protocol_errors_total{kind="unknown_command",protocol="periodic"}`, 1)
	r.wantMetric(`treadle_protocol_errors_total{kind="truncated",protocol="periodic"}`, 1)
	r.wantMetric(`treadle_protocol_errors_total{kind="wrong_role",protocol="periodic"}`, 1)
}

// TestSilence: no handshake, half a handshake, half a request and half a LOAD end after their time-outs.
func TestSilence(t *testing.T) {
	t.Parallel()
	clock := &manualClock{time: newMemServer(t, Options{}).manual.now()}
	r := startServer(t, Options{HTTP: "127.0.0.1:0"}, func(s *Server) { s.clock = clock.now })
	bystander := r.greet(periodic.Client)
	dumb, half := r.dial("unix"), r.dial("tcp")
	half.send(hello[:5])
	submit := request(1, periodic.SubmitJob, job("f", "n"))
	frame := r.greet(periodic.Client)
	frame.send(submit[:len(submit)-1])
	load := request(1, periodic.Load, append(count(2), append(job("f", "n"), job("f", "m")...)...))
	loading, between := r.greet(periodic.Client), r.greet(periodic.Client)
	loading.send(load[:len(load)-3])
	between.send(load[:len(load)-len(job("f", "m"))])
	r.until("all of it to be read", func() bool {
		unfinished, waiting := 0, 0
		r.eachReactor(func(re *reactor) {
			for s := range re.sessions.all() {
				if len(s.partial) > 0 {
					unfinished++
				} else if s.HandshakeDone && s.conv.IdleLimit() == r.o.FrameTimeout.Milliseconds() {
					waiting++
				}
			}
		})
		return unfinished == 3 && waiting == 1 && r.conns.count() == 6
	})
	clock.add(r.o.FrameTimeout.Milliseconds() + 1)
	r.tick()
	for _, w := range []*testConn{dumb, half, frame, loading, between} {
		if got := w.wantClosed(); len(got) > 0 {
			t.Errorf("%x was said before the end", got)
		}
	}
	r.wantMetric(closedMetric("handshake_timeout"), 2)
	r.wantMetric(closedMetric("unfinished_message"), 2)
	r.wantMetric(closedMetric("keepalive"), 1)
	bystander.ping()
}

// TestAnnouncedMemory: sizes announced on many connections take no memory.
func TestAnnouncedMemory(t *testing.T) {
	r := startServer(t, Options{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var all []*testConn
	for range 100 {
		all = append(all, r.greet(periodic.Client), r.greet(periodic.Client))
	}
	before := heap()
	for i, w := range all {
		if i%2 == 0 {
			w.send([]byte("\x00REQ\x04\x00\x00\x00\x00\x00\x00\x01\x0d\x01f\x01n\x03\xff\xff\xf0"))
		} else {
			w.send([]byte("\x00REQ\x7f\xff\xff\xff\x00\x00\x00\x01\x13\x00\x00\x00\x00\x00\x00\x00\x02\x01f\x01n\x03\xff\xff\x00"))
		}
	}
	r.until("the announcements to be read", func() bool {
		read := 0
		r.eachReactor(func(re *reactor) {
			for s := range re.sessions.all() {
				if s.partialSince > 0 {
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

// TestUnreadClient: a client that pipelines requests and never reads is closed at --max-outbound, and
// others are served.
func TestUnreadClient(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxFrame: 1 << 16, Gloom: GloomOptions{MaxFrame: 1 << 16}, MaxOutbound: 1 << 20})
	bystander := r.greet(periodic.Client)
	for i := range 500 {
		bystander.ask(uint32(i), periodic.SubmitJob, job(fmt.Sprint("function", i), "n"), byte(periodic.Success))
	}
	stalled := r.greet(periodic.Client)
	requests := bytes.Repeat(request(1, periodic.Status), 100)
	for range 1000 { // each 100 have more than a megabyte of replies
		if stalled.trySend(requests) != nil {
			break
		}
		bystander.ping()
	}
	r.wantMetric(closedMetric("slow_reader"), 1)
	bystander.ping()
}

// TestUnreadWorker: a worker that asks for jobs and never reads gets as many as its window and the kernel
// hold, and the other worker gets the rest. When it reads again it gets jobs again. No job is lost or
// done twice.
func TestUnreadWorker(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Loops: 2})
	client, stalled, good := r.greet(periodic.Client), r.greet(periodic.Worker), r.greet(periodic.Worker)
	seen := map[string]bool{}
	take := func(w *testConn) {
		t.Helper()
		_, j := assigned(t, w.next())
		if seen[string(j.Name)] {
			t.Fatalf("job %s was handed out twice", j.Name)
		}
		seen[string(j.Name)] = true
	}
	grabs := func(w *testConn, n int) {
		w.send(request(1, periodic.CanDo, str8("f")))
		for i := range n {
			w.send(request(uint32(100+i), periodic.GrabJob))
		}
	}
	submit := func(from, to int) {
		for i := from; i < to; i++ {
			client.ask(1, periodic.SubmitJob, job("f", fmt.Sprint(i), make([]byte, 4096)...), byte(periodic.Success))
		}
	}
	grabs(stalled, 2000)
	stalled.ping()
	submit(0, 1000) // all go to the worker that does not read, as far as it may have them
	r.turns()       // its loop may still hand out some
	given := int(r.sched.Stats().Assigned)
	if given < 50 || given > 250 {
		t.Errorf("%d jobs of 4 KiB are on their way to a worker that does not read", given)
	}
	grabs(good, 1000)
	for range 1000 - given {
		take(good)
	}
	submit(1000, 1100)
	for range 100 {
		take(good)
	}
	// It reads and sends no request: only its outstanding jobs come.
	for range given {
		take(stalled)
	}
	good.Close()
	submit(1100, 1400)
	for range 300 + 1100 - given { // also those that the other worker did not do
		_, j := assigned(t, stalled.next())
		seen[string(j.Name)] = true
	}
	if len(seen) != 1400 {
		t.Errorf("%d of 1400 jobs have been handed out", len(seen))
	}
}

// TestForeignProtocols: the log shows the first bytes of a connection that does not speak Periodic, at most one
// line a second.
func TestForeignProtocols(t *testing.T) {
	t.Parallel()
	const rsa, xor = "\x8f\x1c\x00\xa4\x5e", "kRKY"
	f := func(in, want string) {
		t.Helper()
		var log bytes.Buffer
		w := newMemServer(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		for range 5 {
			c := w.open(0)
			if c.send([]byte(in)); !c.closed {
				t.Errorf("%q: the connection stays", in)
			}
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `reason="`+want) {
			t.Errorf("%q: the log says %s, want %s", in, got, want)
		}
		if n := w.closedFor(periodic.ErrMagic); n != 5 {
			t.Errorf("%q: %d are counted", in, n)
		}
	}
	const hello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	f(hello, "a TLS hello: ")
	f(hello[:1], "a TLS hello: ")
	f("GET 5000 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "a WebSocket request: ")
	f("GET  HTTP/1.1\r\nUPGRADE: WebSocket\r\n\r\n", "a WebSocket request: ")
	f("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "an HTTP request: ")
	f("POST / HTTP/1.1\r\n", "an HTTP request: ")
	for _, in := range []string{rsa, xor, "\x16\x02", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f", "\x00\x00\x00\x02{}", "\x00RES\x00\x00\x00\x01\x01"} {
		f(in, "no handshake of Periodic: a client with RSA or XOR keys, ")
	}
}
