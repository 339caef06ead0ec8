package loop

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"treadle/codec/kts46"
	"treadle/codec/periodic"
)

// TestShares: a protocol may have all connections but the shares of the other protocols that are
// served, whatever those do. A closed connection makes room.
func TestShares(t *testing.T) {
	t.Parallel()
	f := func(protocols, most, share int) {
		t.Helper()
		s := &connShares{limit: most}
		fill := func(p protocolID) (n int) {
			for s.tryAdd(p) {
				n++
			}
			return n
		}
		s.protocols = append(s.protocols, &protocolShare{name: "one that does not listen"})
		var used []protocolID
		for p := range protocols {
			s.protocols = append(s.protocols, &protocolShare{name: fmt.Sprint(p)})
			s.reserveShare(protocolID(p + 1))
			used = append(used, protocolID(p+1))
		}
		for _, flooding := range used {
			others := len(used) - 1
			if n := fill(flooding); n != most-others*share {
				t.Errorf("of %d, %d has %d, want all but %d for each of the %d others", most, flooding, n, share, others)
			}
			for _, p := range used {
				if p != flooding {
					if n := fill(p); n != share {
						t.Errorf("of %d, %d has %d when %d has all it may have, want %d", most, p, n, flooding, share)
					}
				}
			}
			if n := s.count(); n != most {
				t.Errorf("of %d, %d are open", most, n)
			}
			for _, p := range used {
				for s.open(p) > 0 {
					s.remove(p)
				}
			}
		}
	}
	for _, most := range []int{1, 7, 1000} {
		f(1, most, most)
	}
	f(4, 7, 0) // less than one connection each in a half of them
	f(4, 8, 1)
	f(4, 15, 1)
	f(4, 16, 2)
	f(4, 47, 2)
	f(4, 48, 3)
	f(4, 16000, 1000)
	f(2, 3, 0)
	f(2, 8, 2)
	f(2, 1000, 125)
}

// TestGloomSpeaksFirst: a silent Gloom peer is closed as one without a handshake. A peer that has begun
// a frame has the time of a frame, and one that has sent a frame stays.
func TestGloomSpeaksFirst(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}, Slaves: []string{"tcp://127.0.0.1:0"}}})
	sweep := func(d time.Duration) {
		w.advance(d.Milliseconds())
		for _, r := range w.loops {
			r.sweep()
		}
		w.settle()
	}
	for _, master := range []bool{true, false} {
		silent, begun, spoken := w.openGloom(0, master), w.openGloom(0, master), w.openGloom(0, master)
		begun.send([]byte{0})
		spoken.send(gloomFrame(`{}`))
		sweep(w.o.HandshakeTimeout)
		if silent.closed {
			t.Error("a silent peer is closed too soon")
		}
		sweep(time.Second)
		if !silent.closed || begun.closed || spoken.closed {
			t.Errorf("master %v: behind the time of a handshake are closed: silent %v, with a frame begun %v, that has spoken %v", master, silent.closed, begun.closed, spoken.closed)
		}
		sweep(w.o.FrameTimeout)
		if !begun.closed {
			t.Error("a peer with an unfinished frame is kept")
		}
		sweep(24 * time.Hour)
		if spoken.closed {
			t.Error("a peer that has spoken is closed")
		}
		spoken.close()
	}
	if n := w.closedFor(errHandshake); n != 2 || w.Server.conns.protocols[w.Server.conns.id("gloom")].silent.Load() != 2 {
		t.Errorf("%d peers are counted as silent, %d of the protocol, want two", n, w.Server.conns.protocols[w.Server.conns.id("gloom")].silent.Load())
	}
}

// TestGloomFlood: Gloom connections that stay take all that the protocol may have. Those of all other
// protocols are accepted and served. The log names the refused ones.
func TestGloomFlood(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	on := []string{"tcp://127.0.0.1:0"}
	r := startServer(t, Options{
		Gloom: GloomOptions{Masters: on, Slaves: on}, Dwork: DworkOptions{Listen: on}, Kts46: ktsOn, HTTP: "127.0.0.1:0", MaxConnections: 64,
		HandshakeTimeout: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	const share = 64 / sharedPart / 4 // of four protocols
	for i := range 64 - 3*share {
		c := r.dialGloom(i%2 == 0)
		c.send(gloomFrame(`{}`))
		if got := c.nextGloom("c", ""); !strings.Contains(got, "missing_field") {
			t.Fatalf("connection %d: %s", i, got)
		}
	}
	for _, master := range []bool{true, false} {
		if got := r.dialGloom(master).wantClosed(); len(got) > 0 {
			t.Errorf("one that is too many is told %q", got)
		}
	}
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
	client.send(request(3, periodic.RunJob, job("f", "n")))
	handle, _ := assigned(t, worker.next())
	worker.send(request(4, periodic.WorkDone, append(handle, "done"...)))
	client.want(3, []byte("done")...)
	hello := string(kts46.AppendCall(nil, "hello"))
	for range share {
		c := r.dialKts("kts46")
		if _, err := io.WriteString(c, head(len(hello))+hello); err != nil {
			t.Fatal(err)
		}
		if status, _ := answer(t, c); status != 200 {
			t.Errorf("kts46: status %d", status)
		}
	}
	hub, err := net.Dial("tcp", r.address("dwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	_ = hub.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(hub, make([]byte, 1)); err != nil { // the hub's greeting
		t.Errorf("dwork: %v", err)
	}
	r.wantMetric(`treadle_connections_refused_total{protocol="gloom"}`, 2)
	r.wantMetric(`treadle_connections_refused_total{protocol="periodic"}`, 0)
	r.until("Gloom to have the rest", func() bool { return r.conns.open(r.conns.id("gloom")) == 64-3*share })
	if text := log.String(); !strings.Contains(text, "turning a connection away") || !strings.Contains(text, fmt.Sprintf("protocol=gloom open=%d max-connections=64", 64-3*share)) {
		t.Errorf("the log does not say it: %s", text)
	}
}

// TestSilentMakeRoom: while connections are refused, silent ones are closed soon, whatever
// --handshake-timeout is, and a peer that speaks is served.
func TestSilentMakeRoom(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}, Slaves: []string{"off"}}, MaxConnections: 32, HandshakeTimeout: time.Hour})
	spoken := r.dialGloom(true)
	spoken.send(gloomFrame(`{}`))
	spoken.nextGloom("c", "")
	for range 31 - r.conns.share {
		r.dialGloom(true)
	}
	r.until("all to be there", func() bool { return r.conns.count() == 32-r.conns.share })
	r.eachReactor((*reactor).sweep)
	if n := r.conns.count(); n != 32-r.conns.share {
		t.Errorf("%d are open though nobody was turned away", n)
	}
	r.until("another to get in", func() bool {
		c := r.dialGloom(true)
		defer c.Close()
		return c.trySend(gloomFrame(`{}`)) == nil && strings.Contains(c.nextGloom("c", ""), "missing_field")
	})
	spoken.send(gloomFrame(`{}`))
	if got := spoken.nextGloom("c", ""); !strings.Contains(got, "missing_field") {
		t.Errorf("one that has spoken: %s", got)
	}
	if n := r.conns.protocols[r.conns.id("gloom")].silent.Load(); n == 0 {
		t.Errorf("%d are counted as silent", n)
	}
}

// lockedBuffer is a buffer for many goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
