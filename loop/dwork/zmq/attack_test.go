package zmq

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"treadle/loop/budget"
)

// long is the header of a frame of that size.
func long(flags byte, size uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte{flags | longFlag}, size))
}

// TestSilentPeers opens connections that send nothing, half a greeting and half a READY: nobody waits for them, and
// they are closed when their time is over.
func TestSilentPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{HandshakeTimeout: 300 * time.Millisecond})
		r.hub(echoes)
		c := r.client()
		ready := commandFrame("READY", property("Socket-Type", "DEALER"))
		var peers []*peer
		for _, start := range []string{"", "\xff", string(greeting[:20]), string(greeting), string(greeting) + ready[:1], string(greeting) + ready[:9]} {
			p := r.peer()
			p.send(start)
			peers = append(peers, p)
		}
		r.serves(c)
		for _, p := range peers {
			p.closed()
		}
		r.until("the end of them", func(s Stats) bool { return s.BadHandshakes == int64(len(peers)) })
		r.serves(c)
	})
}

// TestBadHandshakes sends what is no handshake: the connection is closed, whatever zmq4 makes of it.
func TestBadHandshakes(t *testing.T) {
	r := echo(t, Options{})
	c := r.client()
	good := string(greeting)
	plain := strings.Replace(good, "NULL\x00", "PLAIN", 1)
	f := func(name, bytes string) {
		t.Helper()
		before := r.Stats().BadHandshakes
		p := r.peer()
		p.send(bytes)
		p.closed()
		r.until(name, func(s Stats) bool { return s.BadHandshakes == before+1 })
		r.serves(c)
	}
	f("HTTP", "GET / HTTP/1.1\r\nHost: treadle\r\n\r\n"+strings.Repeat("x", 64))
	f("ZMTP 2", strings.Replace(good, "\x7f\x03", "\x7f\x01", 1))
	f("PLAIN", plain+commandFrame("HELLO", "\x01a\x01b"))
	f("a message for READY", good+frames("READY"))
	f("READY in pieces", good+"\x05"+commandFrame("READY", "")[1:])
	f("another command", good+commandFrame("PING", "\x00\x00"))
	f("a READY of 8 GiB", good+long(commandFlag, 8<<30))
	f("a READY of 2^62 bytes", good+long(commandFlag, 1<<62))
	f("a READY over the limit", good+long(commandFlag, maxReady+1))
	f("an empty READY", good+"\x04\x00")
	f("no socket type", good+commandFrame("READY", ""))
	f("a publisher", good+commandFrame("READY", property("Socket-Type", "PUB")))
	f("a lying name length", good+commandFrame("READY", "\xf0Socket-Type"))
	f("a name cut in its length", good+commandFrame("READY", "\x0bSocket-Type\x00"))
	f("a lying value length", good+commandFrame("READY", "\x0bSocket-Type\x7f\xff\xff\xffDEALER"))
	f("a lying command length", good+"\x04\x06\xffREADY")
}

// TestBadFrames breaks off behind the handshake.
func TestBadFrames(t *testing.T) {
	r := echo(t, Options{MaxFrame: 1 << 20})
	c := r.client()
	f := func(name, text, bytes string) {
		t.Helper()
		before := r.Stats().BadFrames
		p := r.friend("")
		p.send(frames("", "first"))
		p.expect(frames("", "first"))
		p.send(bytes)
		p.closed()
		r.until(name, func(s Stats) bool { return s.BadFrames == before+1 })
		if !r.heard(text) {
			t.Errorf("%s: %q was not told of", name, text)
		}
		r.serves(c)
	}
	f("2^62 bytes", errFrameSize.Error(), long(0, 1<<62))
	f("2^64-1 bytes", errFrameSize.Error(), long(0, 1<<64-1))
	f("8 GiB", errFrameSize.Error(), frames("", "")[:2]+long(0, 8<<30))
	f("one byte over the limit", errFrameSize.Error(), long(moreFlag, 1<<20+1))
	f("endless frames", errFrames.Error(), strings.Repeat("\x01\x01x", 33))
	f("endless empty frames", errFrames.Error(), strings.Repeat("\x01\x00", 33))
	f("large frames", errSize.Error(), long(moreFlag, 1<<20)+strings.Repeat("x", 1<<20)+long(moreFlag, 1<<20))
	f("unknown flags", errReserved.Error(), "\x08\x00")
	f("a command in pieces", errCommand.Error(), "\x05\x05\x04PING")
	f("a command inside a message", errCommand.Error(), "\x01\x00"+commandFrame("PING", "\x00\x00"))
}

// TestFaultBehindRequests answers what came before the fault.
func TestFaultBehindRequests(t *testing.T) {
	r := echo(t, Options{})
	p := r.friend("")
	p.send(frames("", "a") + frames("id", "", "b") + "\x08\x00")
	p.expect(frames("", "a") + frames("id", "", "b"))
	p.closed()
}

// TestHugeHeader announces the largest frame that is allowed and sends none of it: nothing is allocated for it.
func TestHugeHeader(t *testing.T) {
	var b memoryBudget
	in := []byte(frames("", "")[:2] + long(0, 16<<20))
	s := stream{from: bytes.NewReader(in), limit: 32 << 20, memory: &b}
	if err := s.fill(); err != nil || len(s.buffered()) != len(in) {
		t.Fatal(err)
	}
	if _, n, err := next(s.buffered(), limits{16 << 20, 32}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	_ = s.fill()
	if cap(s.buf) != smallBuffer {
		t.Errorf("%d bytes for a header", cap(s.buf))
	}
}

// TestNeverReading floods without ever reading: the connection's requests stop being read, it is closed, and others are
// served meanwhile.
func TestNeverReading(t *testing.T) {
	r := echo(t, Options{WriteTimeout: 300 * time.Millisecond})
	c := r.client()
	p := r.friend("")
	payload := strings.Repeat(frames("", strings.Repeat("x", 250)), 1000)
	sent := make(chan int)
	go func() {
		total := 0
		for {
			n, err := p.Write([]byte(payload))
			total += n
			if err != nil {
				sent <- total
				return
			}
		}
	}()
	for range 10 {
		r.serves(c)
	}
	r.until("its end", func(s Stats) bool { return s.Stalled == 1 })
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were taken", n)
	}
	r.serves(c)
}

// TestUnfinishedMessage stops inside a message: it is closed in its time, while silence between messages is not.
func TestUnfinishedMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{FrameTimeout: 200 * time.Millisecond})
		r.hub(echoes)
		c := r.client()
		quiet, p := r.friend(""), r.friend("")
		whole := frames("", "a")
		for _, q := range []*peer{quiet, p} { // this deadline is taken back when the message ends
			q.send(whole[:3])
			r.serves(c)
			q.send(whole[3:])
			q.expect(whole)
		}
		p.send(whole[:3])
		p.closed()
		r.until("a stall", func(s Stats) bool { return s.Stalled == 1 })
		quiet.send(whole)
		quiet.expect(whole)
	})
}

// TestEqualIdentities has two clients of one name: each gets its own replies.
func TestEqualIdentities(t *testing.T) {
	r := echo(t, Options{})
	a, b := r.friend("same"), r.friend("same")
	for range 100 {
		a.send(frames("", "a"))
		b.send(frames("", "b"))
	}
	a.expect(strings.Repeat(frames("", "a"), 100))
	b.expect(strings.Repeat(frames("", "b"), 100))
}

// TestHeartbeats answers PINGs between requests, with their context and without their time to live.
func TestHeartbeats(t *testing.T) {
	r := echo(t, Options{})
	p := r.friend("")
	p.send(commandFrame("PING", "\x00\x64") + frames("", "a") + commandFrame("PING", "\x00\x64context"))
	p.expect(commandFrame("PONG", "") + commandFrame("PONG", "context") + frames("", "a"))
	p.send(commandFrame("PING", "\x00\x640123456789abcdefghi"))
	p.expect(commandFrame("PONG", "0123456789abcdef"))
	p.send(commandFrame("PING", "\x00") + commandFrame("PONG", "") + commandFrame("SUBSCRIBE", "x") + "\x04\x00" + frames("", "b"))
	p.expect(frames("", "b"))
	if n := r.Stats().Heartbeats; n != 3 {
		t.Errorf("%d PINGs were answered", n)
	}
}

// TestDropped sends what is no request: it is counted and has no answer.
func TestDropped(t *testing.T) {
	r := echo(t, Options{})
	p := r.friend("")
	p.send(frames("alone") + frames("a", "b", "c") + frames("") + frames("id", "") + // no delimiter, or nothing behind it
		frames("", "a", "b") + frames("", "a", "") + frames("id", "", "", "x") + // too much behind it
		frames("", "") + frames("id", "other", "", "served"))
	p.expect(frames("", "") + frames("id", "other", "", "served"))
	if s := r.Stats(); s.NoDelimiter != 4 || s.ExtraFrames != 3 || s.Requests != 2 {
		t.Errorf("%+v", s)
	}
}

// TestBufferedBudget lets many connections have large messages under way: the one that is too much is closed.
func TestBufferedBudget(t *testing.T) {
	r := echo(t, Options{MaxBuffered: 1 << 20})
	c := r.client()
	start := frames("", "")[:2] + long(0, 8<<20) + strings.Repeat("x", 3<<19)
	p := r.friend("")
	_, _ = p.Write([]byte(start)) // may fail: the connection is closed meanwhile
	p.closed()
	r.until("an overflow", func(s Stats) bool { return s.Overflows == 1 && s.Open == 1 })
	if used := r.buffered.used.Load(); used != 0 {
		t.Errorf("%d bytes are still counted", used)
	}
	ask(t, c, strings.Repeat("y", 400<<10)) // there is room again
	r.serves(c)
}

// TestOutboundLimit asks for much at once: one large reply is fine, many are not.
func TestOutboundLimit(t *testing.T) {
	r := listen(t, Options{MaxOutbound: 1 << 20})
	large := make([]byte, 2<<20)
	r.hub(func(batch []Request) {
		for _, q := range batch {
			if string(q.Payload) == "large" {
				q.Reply(large)
			} else {
				q.Reply(q.Payload)
			}
		}
	})
	c := r.client()
	p := r.friend("")
	p.send(frames("", "large"))
	p.skip(2 + 9 + len(large))
	p.send(strings.Repeat(frames("", "large"), 20))
	p.closed()
	r.until("an overflow", func(s Stats) bool { return s.Overflows == 1 })
	r.serves(c)
}

// TestUnsent lets peers have large replies that they do not read, each no more than it may: those that have had theirs
// for the longest are closed, and a peer that reads gets what it asks for.
func TestUnsent(t *testing.T) {
	const large = 4 << 20
	synctest.Test(t, func(t *testing.T) { // no peer's writes take longer than another's
		r := listenPipes(t, Options{MaxUnsent: 3 * large})
		r.hub(func(batch []Request) {
			for _, q := range batch {
				if string(q.Payload) == "large" {
					q.Reply(make([]byte, large))
				} else {
					q.Reply(q.Payload)
				}
			}
		})
		c := r.client()
		var stalled []*peer
		for range 6 {
			p := r.friend("")
			p.send(frames("", "large"))
			stalled = append(stalled, p)
			synctest.Wait()
		}
		r.until("overflows", func(s Stats) bool { return s.Overflows >= 3 })
		for _, p := range stalled[4:] { // nearly the last to ask
			p.skip(2 + 9 + large)
		}
		p := r.friend("")
		p.send(frames("", "large"))
		p.skip(2 + 9 + large)
		r.serves(c)
		for _, p := range stalled {
			_ = p.Close()
		}
		r.until("nothing to be counted", func(Stats) bool {
			_, _, bytes := r.unsent.State()
			return bytes == 0
		})
	})
}

// TestUnsentIsRead lets one peer read a large reply slowly, and others never: it gets the reply, however many come
// after it.
func TestUnsentIsRead(t *testing.T) {
	const large, stalled = 4 << 20, 6
	synctest.Test(t, func(t *testing.T) {
		r := listenPipes(t, Options{MaxUnsent: 3 * large})
		r.hub(func(batch []Request) {
			for _, q := range batch {
				q.Reply(make([]byte, large))
			}
		})
		slow, rest := r.friend(""), 2+9+large
		slow.send(frames("", "large"))
		for range stalled {
			synctest.Wait()
			slow.skip(2 * writePiece)
			rest -= 2 * writePiece
			synctest.Wait()
			r.friend("").send(frames("", "large"))
		}
		slow.skip(rest)
		r.until("the end of the others", func(s Stats) bool { return s.Overflows >= stalled-3 })
	})
}

// scarce is a listener of a system without descriptors: it fails every time until told otherwise.
type scarce struct {
	net.Listener
	failures atomic.Int64
	rich     atomic.Bool
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.rich.Load() {
		return s.Listener.Accept()
	}
	s.failures.Add(1)
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
}

// TestNoDescriptors fails to accept for a while: the listener neither ends nor spins, and accepts again afterwards.
func TestNoDescriptors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scarce{Listener: ln}
	start := time.Now()
	r := listenOn(t, s, Options{})
	r.hub(echoes)
	r.until("failures", func(s Stats) bool { return s.AcceptErrors >= 3 })
	if most := int64(time.Since(start)/acceptPause) + 1; s.failures.Load() > most {
		t.Errorf("%d failures, at most %d fit in the time", s.failures.Load(), most)
	}
	if !r.heard("too many open files") {
		t.Error("nobody was told")
	}
	s.rich.Store(true)
	r.serves(r.client())
}

// TestMaxConnections turns one more away, and lets it in when another has gone.
func TestMaxConnections(t *testing.T) {
	r := echo(t, Options{MaxConnections: 2})
	a, b := r.client(), r.client()
	r.peer().closed()
	if s := r.Stats(); s.Refused != 1 || s.Open != 2 || !r.heard("max-connections") {
		t.Errorf("%+v", s)
	}
	_ = a.Close()
	r.until("room", func(s Stats) bool { return s.Open == 1 })
	r.serves(b)
}

// TestUnsentVictims: a connection that writes nothing yet, or has few replies, is not taken for one that does not read.
func TestUnsentVictims(t *testing.T) {
	const large = 4 * fewUnsent
	l := &Listener{unsent: budget.Budget{Max: 2 * large, Free: fewUnsent}}
	add := func(unsent int) *conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		c := newConn(l, near)
		c.unsent = l.unsent.Begin(0, nil, c.drop)
		c.unsent.Resize(unsent)
		return c
	}
	waits, few, stalled, another := add(0), add(fewUnsent), add(large), add(large)
	for c, want := range map[*conn]bool{waits: false, few: false, stalled: true, another: false} {
		if c.dropped.Load() != want {
			t.Errorf("hung up on: %v, want %v", !want, want)
		}
	}
}
