package web

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"treadle/loop/budget"
)

// TestServerRecovers: a panic of a handler closes the connection and is logged with its origin.
func TestServerRecovers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // written before Close sees the connection end
	s := NewServer(l, Config{
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("BUG: broken") }), Guard: newGuard(t, GuardOptions{}),
		Log: slog.New(slog.NewTextHandler(&log, nil)), Grace: time.Minute,
	})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	if a, err := http.Get("http://" + l.Addr().String() + "/path"); err == nil {
		a.Body.Close()
		t.Errorf("it is answered with %s", a.Status)
	}
	if err := errors.Join(s.Close(), <-ended); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "BUG: broken") || !strings.Contains(log.String(), "path=/path") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log has %q", log.String())
	}
}

// stubPeer records whether its connection was ended.
type stubPeer struct {
	http.ResponseWriter
	ended bool
}

func (p *stubPeer) SetReadDeadline(time.Time) error { return nil }
func (p *stubPeer) SetWriteDeadline(end time.Time) error {
	p.ended = end.Before(time.Now())
	return nil
}

// slowPeer calls moves before each piece that it reads or sends.
type slowPeer struct {
	moves func()
	sends *strings.Reader
}

func (p *slowPeer) Write(b []byte) (int, error) {
	p.moves()
	return len(b), nil
}

func (p *slowPeer) Read(b []byte) (int, error) {
	p.moves()
	return p.sends.Read(b[:min(len(b), pieceSize)])
}

// TestTransferMoves: a transfer that moves piece by piece is evicted after those that move nothing. It holds all of an
// answer, and of an announced body, until its end.
func TestTransferMoves(t *testing.T) {
	const size, pieces = 4 * pieceSize, 4
	f := func(name string, run func(slow *Transfer, peer *slowPeer) error) {
		t.Helper()
		all := Transfers{Budget: budget.Budget{Max: 3 * size}}
		var slowEnd stubPeer
		_, slow := all.Begin(t.Context(), &slowEnd)
		var stalled []*stubPeer
		err := run(slow, &slowPeer{moves: func() {
			stalled = append(stalled, &stubPeer{})
			_, one := all.Begin(t.Context(), stalled[len(stalled)-1])
			one.Resize(size)
		}, sends: strings.NewReader(strings.Repeat("x", size))})
		if err != nil || slowEnd.ended || len(stalled) < pieces {
			t.Errorf("%s: %v, ended by the server: %v, after %d pieces", name, err, slowEnd.ended, len(stalled))
		}
		for i, p := range stalled {
			if want := i < len(stalled)-2; p.ended != want {
				t.Errorf("%s: peer %d is given up: %v", name, i, p.ended)
			}
		}
		if _, held, bytes := all.State(); held != 3 || bytes != 3*size {
			t.Errorf("%s: %d transfers hold %d bytes", name, held, bytes)
		}
		slow.End()
		if _, held, bytes := all.State(); held != 2 || bytes != 2*size {
			t.Errorf("%s: %d transfers of %d bytes are left", name, held, bytes)
		}
	}
	f("answer", func(slow *Transfer, peer *slowPeer) error { return slow.Send(peer, make([]byte, size)) })
	f("body", func(slow *Transfer, peer *slowPeer) error {
		_, err := slow.ReadAll(peer, size)
		return err
	})
}

// TestTransferWaits: a transfer that is evicted while it waits for its turn keeps its connection, and its wait ends.
// One that is evicted during its turn keeps both.
func TestTransferWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, turns := Transfers{Budget: budget.Budget{Max: 10}}, make(Semaphore, 1)
		turns <- struct{}{}
		var peer stubPeer
		ctx, waiting := all.Begin(t.Context(), &peer)
		waiting.Resize(10)
		got := make(chan bool, 1)
		go func() { got <- waiting.Wait(ctx, turns, 10) }()
		synctest.Wait()
		_, other := all.Begin(t.Context(), &stubPeer{})
		defer other.End()
		other.Resize(1)
		if <-got || peer.ended {
			t.Errorf("it has its turn, or its connection is ended: %v", peer.ended)
		}
		waiting.End()
		if len(turns) != 1 {
			t.Error("it has given back a turn that it had not taken")
		}
		<-turns
		ctx, working := all.Begin(t.Context(), &peer)
		if !working.Wait(ctx, turns, 10) {
			t.Error("it has no turn")
		}
		_, third := all.Begin(t.Context(), &stubPeer{})
		defer third.End()
		third.Resize(1)
		if working.Moved() || peer.ended {
			t.Errorf("it is not evicted, or its connection is ended: %v", peer.ended)
		}
		working.End()
		if len(turns) != 0 {
			t.Error("its turn goes on")
		}
	})
}
