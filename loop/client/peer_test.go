package client

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// The server of these tests is a script of the bytes to expect and to send. Expectations are hex,
// so they do not depend on the client's codec. Message ids count from 1 on each connection.

// hangTimeout ends a test that hangs. No other wait depends on it.
const hangTimeout = 2 * time.Minute

// peer is the server's end of one connection.
type peer struct {
	net.Conn
	t       *testing.T
	framing periodic.Framing
}

// listen runs script for the next connection and returns the address. The script plays the
// handshake; listen closes the connection.
func listen(t *testing.T, framing periodic.Framing, script func(p *peer)) (address string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(hangTimeout))
		script(&peer{nc, t, framing})
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "unix://" + path
}

// want reads exactly these bytes.
func (p *peer) want(want string) {
	p.t.Helper()
	bytes := unhex(p.t, want)
	got := make([]byte, len(bytes))
	n, err := io.ReadFull(p, got)
	if err != nil || hex.EncodeToString(got) != hex.EncodeToString(bytes) {
		p.t.Errorf("the client sent %x (%v), want %x", got[:n], err, bytes)
		p.Close()
	}
}

// wantRequest reads a frame with this payload.
func (p *peer) wantRequest(payload string) {
	p.t.Helper()
	p.want(frame(p.t, p.framing, "REQ", payload))
}

func (p *peer) send(b string) {
	p.t.Helper()
	if _, err := p.Write(unhex(p.t, b)); err != nil {
		p.t.Errorf("cannot send: %v", err)
	}
}

// reply sends a frame with this payload.
func (p *peer) reply(payload string) { p.t.Helper(); p.send(frame(p.t, p.framing, "RES", payload)) }

// welcome plays the handshake.
func (p *peer) welcome(role string) {
	p.t.Helper()
	p.wantRequest(role)
	if p.framing == periodic.CRC {
		p.reply("1e01020304")
	} else {
		p.reply("01020304")
	}
}

// drain reads until the client closes.
func (p *peer) drain() { io.Copy(io.Discard, p) }

// frame returns a packet around a payload, built without the codec.
func frame(t *testing.T, framing periodic.Framing, kind, payload string) string {
	t.Helper()
	body := unhex(t, payload)
	b := binary.BigEndian.AppendUint32([]byte("\x00"+kind), uint32(len(body)))
	if framing == periodic.CRC {
		b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	}
	return hex.EncodeToString(append(b, body...))
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatalf("bad hex in the test: %v", err)
	}
	return b
}

// str8 and the next functions write hex for expectations.
func str8(s string) string  { return hex.EncodeToString(append([]byte{byte(len(s))}, s...)) }
func ascii(s string) string { return hex.EncodeToString([]byte(s)) }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hangTimeout)
	t.Cleanup(cancel)
	return ctx
}

// connect dials as a client, and closes at the end of the test.
func connect(t *testing.T, framing periodic.Framing, script func(p *peer)) *Client {
	t.Helper()
	address := listen(t, framing, func(p *peer) {
		p.welcome("01")
		script(p)
	})
	c, err := Dial(within(t), address, Options{Framing: framing})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// inBubble is connect over a pipe in a synctest bubble. Its time passes only while every goroutine
// waits, so an answer is never late because the machine is slow.
func inBubble(t *testing.T, o Options, script func(p *peer)) *Client {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		p := &peer{far, t, o.Framing}
		p.welcome("01")
		script(p)
	}()
	c := newConn(near, "a pipe", o)
	check(t, c.handshake(within(t), periodic.Client), nil)
	c.start()
	t.Cleanup(func() {
		(&Client{c}).Close()
		<-done
	})
	return &Client{c}
}

func connectWorker(t *testing.T, framing periodic.Framing, script func(p *peer)) *Worker {
	t.Helper()
	address := listen(t, framing, func(p *peer) {
		p.welcome("02")
		script(p)
	})
	w, err := DialWorker(within(t), address, Options{Framing: framing})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func check(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
