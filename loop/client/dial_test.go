package client

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"treadle/codec/periodic"
)

func TestAddresses(t *testing.T) {
	f := func(in, network, address string) {
		t.Helper()
		n, a, err := splitAddress(in, "5000")
		if err != nil || n != network || a != address {
			t.Errorf("%q: got %q %q %v, want %q %q", in, n, a, err, network, address)
		}
	}
	f("tcp://127.0.0.1:5000", "tcp", "127.0.0.1:5000")
	f("tcp://[::1]:5000", "tcp", "[::1]:5000")
	f("tcp://:5000", "tcp", ":5000")
	f("example.org:5000", "tcp", "example.org:5000")
	f("unix:///tmp/periodic.sock", "unix", "/tmp/periodic.sock")
	f("/tmp/periodic.sock", "unix", "/tmp/periodic.sock")
	f("./periodic.sock", "unix", "./periodic.sock")
	f("localhost:http", "tcp", "localhost:http")
	f("localhost", "tcp", "localhost:5000")
	f("tcp://localhost", "tcp", "localhost:5000")
	f("127.0.0.1", "tcp", "127.0.0.1:5000")
	f("[::1]", "tcp", "[::1]:5000")
	f("::1", "tcp", "[::1]:5000")
	for bad, why := range map[string]string{
		"": "the host is missing", "a:b:c": "too many colons",
		"http://localhost:80": `"http" is none of tcp, tls and unix`, "unix://": "path is missing",
		"localhost:": `"" is no port`, "localhost:99999": `"99999" is no port`, "tcp://localhost:80/": `"80/" is no port`,
	} {
		_, err := Dial(within(t), bad, Options{})
		var address *AddressError
		if !errors.As(err, &address) {
			t.Errorf("%q: %v is no AddressError", bad, err)
			continue
		}
		for _, part := range []string{why, strconv.Quote(bad), "-H or TREADLE_HOST", "write it as host, host:port, tcp://"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q does not say %q", bad, err, part)
			}
		}
	}
}

// TestHandshake checks the bytes of the handshake in both framings.
func TestHandshake(t *testing.T) {
	f := func(framing periodic.Framing, dial func(ctx context.Context, address string, o Options) error, want, reply string) {
		t.Helper()
		address := listen(t, framing, func(p *peer) {
			p.want(want)
			p.send(reply)
			p.drain()
		})
		check(t, dial(within(t), address, Options{Framing: framing}), nil)
	}
	client := func(ctx context.Context, address string, o Options) error {
		c, err := Dial(ctx, address, o)
		if err == nil {
			c.Close()
		}
		return err
	}
	worker := func(ctx context.Context, address string, o Options) error {
		w, err := DialWorker(ctx, address, o)
		if err == nil {
			w.Close()
		}
		return err
	}
	f(periodic.Plain, client, "005245510000000101", "00524553000000049feb684b")
	f(periodic.Plain, worker, "005245510000000102", "0052455300000004094c3884")
	f(periodic.CRC, client, "0052455100000001a505df1b01", "00524553000000056d584e201ed88e6519")
	f(periodic.CRC, worker, "00524551000000013c0c8ea102", "0052455300000005f169028b1e8112b520")
}

func TestDialFailures(t *testing.T) {
	f := func(what string, err error, parts ...string) {
		t.Helper()
		var dial *DialError
		if !errors.As(err, &dial) {
			t.Fatalf("%s: %v is no DialError", what, err)
		}
		for _, part := range append(parts, "cannot connect to ", dial.Address, "treadle serve", "TREADLE_HOST") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	_, err = Dial(within(t), closed, Options{})
	f("closed port", err, "tcp://"+closed, "connection refused")
	_, err = Dial(within(t), t.TempDir()+"/none", Options{})
	f("no socket", err, "no such file")

	address := listen(t, periodic.Plain, func(p *peer) {
		p.wantRequest("01")
		p.send(ascii("HTTP/1.1 400 Bad Request\r\n\r\n"))
		p.drain()
	})
	_, err = Dial(within(t), address, Options{})
	reached := func(what string, err error, parts ...string) {
		t.Helper()
		var peer *PeerError
		if !errors.As(err, &peer) {
			t.Fatalf("%s: %v is no PeerError", what, err)
		}
		for _, part := range append(parts, "cannot talk to ", peer.Address, "another protocol's socket?", "-H or TREADLE_HOST names the server") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
	}
	reached("not Periodic", err, "does not speak Periodic", "looks like HTTP")
	check(t, err, ErrNotPeriodic)

	address = listen(t, periodic.Plain, func(p *peer) { p.wantRequest("01") })
	_, err = Dial(within(t), address, Options{})
	reached("closes", err, "closed the connection")

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	address = listen(t, periodic.Plain, func(p *peer) { p.drain() })
	_, err = Dial(ctx, address, Options{})
	reached("says nothing", err, "no answer in time")
	check(t, err, context.DeadlineExceeded)
}

// TestKeepAlive checks that an idle connection pings.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pinged := make(chan struct{})
		// An answer may also take the time between two pings.
		inBubble(t, Options{PingEvery: time.Second}, func(p *peer) {
			p.wantRequest("0000000109")
			p.reply("000000010a")
			p.wantRequest("0000000209")
			p.reply("000000020a")
			close(pinged)
			p.drain()
		})
		<-pinged
	})
}

// TestServerGoneSilent checks that waiting calls fail when the server stops answering.
func TestServerGoneSilent(t *testing.T) {
	address := listen(t, periodic.Plain, func(p *peer) {
		p.welcome("02")
		p.drain()
	})
	w, err := DialWorker(within(t), address, Options{PingEvery: 10 * time.Millisecond})
	check(t, err, nil)
	defer w.Close()
	if _, err := w.Grab(within(t)); err == nil || !strings.Contains(err.Error(), "nothing came for 10ms") {
		t.Errorf("got %v", err)
	}
	<-w.Ended()
}

// TestConnectionLost checks that the error that ends a connection reaches the waiting call and
// every later one.
func TestConnectionLost(t *testing.T) {
	f := func(what, bytes string, want error) {
		t.Helper()
		c := connect(t, periodic.CRC, func(p *peer) {
			p.wantRequest("0000000109")
			p.send(bytes)
		})
		for range 2 {
			if err := c.Ping(within(t)); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", what, err, want)
			}
		}
	}
	good := frame(t, periodic.CRC, "RES", "000000010a")
	f("closed", "", ErrClosed)
	f("closed inside a header", good[:10], ErrClosed)
	f("closed inside a frame", good[:len(good)-2], ErrClosed)
	f("wrong magic", strings.Replace(good, "00524553", "00524551", 1), ErrNotPeriodic)
	f("no room for an id", "0052455300000003000000000000000000", ErrNotPeriodic)
	f("announces 4 GiB", "00524553ffffffff000000000000000000", ErrNotPeriodic)
	f("wrong checksum", good[:len(good)-2]+"10", periodic.ErrChecksum)
}
