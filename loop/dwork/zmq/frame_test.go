package zmq

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

var testLimits = limits{frame: 1 << 16, frames: 4}

// TestNext reads one message each, whole and cut at every byte: a part of a message is never one.
func TestNext(t *testing.T) {
	f := func(in string, want kind, envelope, payload string) {
		t.Helper()
		m, n, err := next([]byte(in+"rest"), testLimits)
		if err != nil || n != len(in) || m.kind != want {
			t.Errorf("%q: got %d of kind %d, %v", in, n, m.kind, err)
		}
		if want == request && (string(m.envelope) != envelope || cap(m.envelope) != len(envelope)) {
			t.Errorf("%q: envelope %q", in, m.envelope)
		}
		if (want == request || want == ping) && (string(m.payload) != payload || cap(m.payload) != len(payload)) {
			t.Errorf("%q: payload %q", in, m.payload)
		}
		for i := range in {
			if _, n, err := next([]byte(in[:i]), testLimits); n != 0 || err != nil {
				t.Errorf("%q: got %d, %v", in[:i], n, err)
			}
		}
	}
	body := strings.Repeat("x", 300)
	f(frames("", "a"), request, "\x01\x00", "a")
	f(frames("", ""), request, "\x01\x00", "")
	f(frames("id", "other", "", body), request, "\x01\x02id\x01\x05other\x01\x00", body)
	f("\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01a", request, "\x03\x00\x00\x00\x00\x00\x00\x00\x00", "a") // a long empty frame
	f(frames(""), noDelimiter, "", "")
	f(frames("a", "b", "c", "d"), noDelimiter, "", "")
	f(frames("", "a", "b"), extraFrames, "", "")
	f(frames("", "", ""), extraFrames, "", "")
	f(commandFrame("PING", "\x00\x01"), ping, "", "")
	f(commandFrame("PING", "\x00\x01context"), ping, "", "context")
	f(commandFrame("PONG", "\x00\x01"), otherCommand, "", "")
	f(commandFrame("PING", ""), otherCommand, "", "")
}

// TestLimits stands on both sides of each limit.
func TestLimits(t *testing.T) {
	f := func(in string, want error) {
		t.Helper()
		if _, _, err := next([]byte(in), testLimits); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	f(long(0, 1<<16), nil)
	f(long(0, 1<<16+1), errFrameSize)
	f(frames("", "", "", ""), nil)
	f(frames("", "", "", "", ""), errFrames)
	most := frames("", "")[:2] + long(moreFlag, 1<<16) + strings.Repeat("x", 1<<16)
	rest := testLimits.message() - len(most)
	f(most+long(0, uint64(rest-9)), nil)
	f(most+long(0, uint64(rest-8)), errSize)
	f("\x08\x00", errReserved)
	f("\x80\x00", errReserved)
}

// TestAppendReply writes what next reads.
func TestAppendReply(t *testing.T) {
	for _, size := range []int{0, 1, 255, 256, 1 << 16} {
		payload := bytes.Repeat([]byte("x"), size)
		out := appendReply([]byte("before"), []byte("\x01\x00"), payload)[len("before"):]
		if m, n, err := next(out, testLimits); n != len(out) || err != nil || m.kind != request || !bytes.Equal(m.payload, payload) {
			t.Errorf("%d bytes: got %d, %v, kind %d", size, n, err, m.kind)
		}
		if short := len(out) == 4+size; short != (size < 256) {
			t.Errorf("%d bytes: %d with headers", size, len(out))
		}
	}
}

// choppy gives what it has in pieces of random size.
type choppy struct {
	in     []byte
	random *rand.Rand
}

func (c *choppy) Read(p []byte) (int, error) {
	n := copy(p, c.in[:1+c.random.IntN(len(c.in))])
	c.in = c.in[n:]
	return n, nil
}

// TestStream reads messages of all sizes, however they are cut: all arrive, and afterwards no large buffer is left.
func TestStream(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	l := limits{frame: 1 << 20, frames: 32}
	for range 20 {
		var all []byte
		var sizes []int
		for range 60 {
			size := random.IntN(1 << random.IntN(20))
			sizes = append(sizes, size)
			all = appendReply(all, []byte("\x01\x00"), bytes.Repeat([]byte{byte(size)}, size))
		}
		sizes = append(sizes, l.frame, 1, 1)
		for _, size := range sizes[60:] {
			all = appendReply(all, []byte("\x01\x00"), bytes.Repeat([]byte{byte(size)}, size))
		}
		b := memoryBudget{limit: 4 << 20}
		s := stream{from: &choppy{all, random}, limit: l.buffer(), memory: &b}
		for i := 0; i < len(sizes); {
			m, n, err := next(s.buffered(), l)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				if err := s.fill(); err != nil {
					t.Fatal(err)
				}
				if used, size := b.used.Load(), cap(s.buf); used != int64(max(size-readBuffer, 0)) || size > l.buffer() {
					t.Fatalf("%d bytes counted, the buffer has %d", used, size)
				}
				continue
			}
			if len(m.payload) != sizes[i] || sizes[i] > 0 && bytes.Count(m.payload, []byte{byte(sizes[i])}) != sizes[i] {
				t.Fatalf("message %d: %d bytes, want %d", i, len(m.payload), sizes[i])
			}
			s.consume(n)
			i++
		}
		s.release()
		if b.used.Load() != 0 {
			t.Fatal("bytes are still counted")
		}
	}
}

// TestStreamShrinks gives a large message's memory back with the next read.
func TestStreamShrinks(t *testing.T) {
	b := memoryBudget{limit: 4 << 20}
	in := appendReply(nil, []byte("\x01\x00"), make([]byte, 1<<20))
	s := stream{from: bytes.NewReader(append(in, in[:100]...)), limit: 2 << 20, memory: &b}
	for len(s.buffered()) < len(in) {
		if err := s.fill(); err != nil {
			t.Fatal(err)
		}
	}
	s.consume(len(in))
	_ = s.fill() // there may be no other bytes
	if cap(s.buf) != readBuffer || b.used.Load() != 0 || len(s.buffered()) > 100 {
		t.Errorf("%d bytes are kept, %d counted, %d held", cap(s.buf), b.used.Load(), len(s.buffered()))
	}
}

// TestStreamStaysSmall reads a long pipeline of short messages, each read filling the buffer: it grows to what a busy
// connection is given and no further.
func TestStreamStaysSmall(t *testing.T) {
	in := []byte(strings.Repeat(frames("", strings.Repeat("x", 90)), 1<<15))
	s := stream{from: bytes.NewReader(in), limit: 2 << 20, memory: new(memoryBudget)}
	for taken := 0; taken < len(in); {
		_, n, err := next(s.buffered(), testLimits)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			err = s.fill()
		}
		if err != nil || cap(s.buf) > readBuffer {
			t.Fatalf("%v, a buffer of %d bytes", err, cap(s.buf))
		}
		s.consume(n)
		taken += n
	}
	if cap(s.buf) != readBuffer {
		t.Errorf("a buffer of %d bytes", cap(s.buf))
	}
}
