package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// patience bounds what hangs.
const patience = 2 * time.Minute

// serve serves at an address of the system's choice until the test ends.
func serve(t *testing.T, change ...func(*http.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, Profiles()...)
	for _, f := range change {
		f(server.http)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// asked connects, says what there is to say, and returns the status of the answer, 0: none.
func asked(t *testing.T, address, text string) (c net.Conn, status int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, text)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		status = answer.StatusCode
		answer.Body.Close()
	}
	return c, status
}

const health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// pipes are connections that are accepted when they are sent.
type pipes chan net.Conn

// Accept implements net.Listener.
func (l pipes) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (l pipes) Close() error {
	close(l)
	return nil
}

// Addr implements net.Listener.
func (pipes) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// dial connects and says something, and returns when that has been heard.
func (l pipes) dial(says string) net.Conn {
	near, far := net.Pipe()
	l <- far
	_, _ = io.WriteString(near, says) // it may be turned away
	synctest.Wait()
	return near
}

// served says whether a connection's request is answered.
func served(c net.Conn) bool {
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		synctest.Wait()
	}
	return err == nil && answer.StatusCode == 200
}

// hungUp says whether a connection that has nothing to read is closed.
func hungUp(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now())
	_, err := c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestPlaces: beyond the connections that there may be a new one is served in place of the one that
// has said nothing for the longest. While all have asked for something it waits, for one that leaves
// or whose request takes long.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
		l, ended := make(pipes), make(chan error, 1)
		server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, Page{Pattern: "GET /slow", Handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
		go func() { ended <- server.Serve() }()
		asking := l.dial(slow)
		var all, answered []net.Conn // as they are to go
		for i := range maxConnections - 1 {
			says := []string{"", "GET /heal", health}[i%3]
			c := l.dial(says)
			if says != health {
				all = append(all, c)
			} else if answered = append(answered, c); !served(c) {
				t.Errorf("connection %d is not served", i)
			}
		}
		all = append(append(all, answered...), asking)
		for i := range maxConnections + 3 {
			c := l.dial(health)
			if !served(c) {
				t.Errorf("a new connection is not served in place of one that says nothing")
			}
			all = append(all, c)
			if !hungUp(all[i]) || hungUp(all[i+1]) {
				t.Errorf("%d new connections take other places than those of the oldest that said nothing, were answered and asked", i+1)
			}
		}
		for _, c := range all {
			c.Close()
		}
		synctest.Wait()
		all = all[:0]
		for range maxConnections {
			all = append(all, l.dial(slow))
		}
		began := time.Now()
		near, far := net.Pipe()
		l <- far
		synctest.Wait()
		all[1].Close()
		if _, err := io.WriteString(near, slow); err != nil || time.Since(began) > 0 {
			t.Errorf("a new connection does not have the place that is left: %v after %v", err, time.Since(began))
		}
		if !served(l.dial(health)) || time.Since(began) < slowRequest-silence || !hungUp(all[0]) || hungUp(all[2]) {
			t.Errorf("a new connection is not served in place of the one whose request takes longest: after %v", time.Since(began))
		}
		for _, c := range append(all, near) {
			c.Close()
		}
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
}

// TestPlacesAskedAgain: connections that are answered and go on asking keep no new one out, not even
// while each has just asked again whenever somebody looks.
func TestPlacesAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newPlaces(2)
		began := time.Now()
		peers := make([]net.Conn, 4)
		for i := range peers {
			peers[i], _ = net.Pipe()
			defer peers[i].Close()
			server.begin(t.Context(), peers[i])
			server.change(peers[i], http.StateNew)
			server.change(peers[i], http.StateActive)
			server.change(peers[i], http.StateIdle)
		}
		if took := time.Since(began); took != slowRequest {
			t.Errorf("those who were answered keep their places for %v", took)
		}
		began = time.Now()
		p := places{most: 1, taken: []place{{peers[0], http.StateActive, began.Add(slowRequest)}}, left: make(chan struct{}, 1)}
		again := time.NewTicker(slowRequest / 10)
		defer again.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*slowRequest)
		defer cancel()
		go func() {
			for {
				select {
				case <-again.C:
				case <-ctx.Done():
					return
				}
				p.mu.Lock()
				if len(p.taken) > 0 && p.taken[0].conn == peers[0] {
					p.leave(0)
					p.taken = append(p.taken, place{peers[0], http.StateActive, time.Now().Add(slowRequest)})
				}
				p.mu.Unlock()
			}
		}()
		p.change(peers[1], http.StateNew)
		if took := time.Since(began); took != slowRequest {
			t.Errorf("a new connection waits for %v", took)
		}
	})
}

// TestPlacesOrder: of those whose time is over the silent go first and the asking last, and before
// all others.
func TestPlacesOrder(t *testing.T) {
	now := time.Now()
	f := func(want int, taken ...place) {
		t.Helper()
		if p := (places{taken: taken}); p.first() != want {
			t.Errorf("place %d of %v goes first, want %d", p.first(), taken, want)
		}
	}
	over := func(s http.ConnState, ago time.Duration) place { return place{nil, s, now.Add(-ago)} }
	f(2, over(http.StateActive, 9), over(http.StateIdle, 8), over(http.StateNew, 7), over(http.StateNew, 6))
	f(1, over(http.StateActive, 9), over(http.StateIdle, 8), over(http.StateNew, -time.Hour))
	f(0, over(http.StateActive, 9), over(http.StateIdle, -time.Hour), over(http.StateNew, -time.Hour))
	f(1, over(http.StateActive, -2*time.Hour), over(http.StateIdle, -time.Hour), over(http.StateNew, -3*time.Hour))
}

// TestPlaceTaken: what is done for a connection ends when another one has its place.
func TestPlaceTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ended, leave := make(pipes), make(chan error, 1), make(chan bool)
		var working atomic.Int32
		server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, Page{Pattern: "POST /work", Handler: func(_ http.ResponseWriter, r *http.Request) {
			working.Add(1)
			defer working.Add(-1)
			select {
			case <-r.Context().Done():
			case <-leave:
			}
		}})
		go func() { ended <- server.Serve() }()
		var all []net.Conn
		for range 2 * maxConnections {
			all = append(all, l.dial("POST /work HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"))
		}
		if n := working.Load(); n != maxConnections {
			t.Errorf("%d requests are worked on for %d connections", n, maxConnections)
		}
		close(leave)
		for _, c := range all {
			c.Close()
		}
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
}

// TestSendBuffer: the system keeps little of what is not read, so that who reads it is seen to.
func TestSendBuffer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	newPlaces(1).begin(t.Context(), far)
	raw, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var size int
	var fault error
	err = raw.Control(func(fd uintptr) { size, fault = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) })
	if err := errors.Join(err, fault); err != nil || size > 2*sendBuffer { // Linux counts what it needs itself
		t.Errorf("it keeps %d bytes, %v", size, err)
	}
}

// TestLongProfile: a profile may take longer than a request may take to arrive.
func TestLongProfile(t *testing.T) {
	address := serve(t, func(s *http.Server) { s.ReadTimeout, s.ReadHeaderTimeout = time.Millisecond, patience })
	began := time.Now()
	_, status := asked(t, address, "GET /debug/pprof/mutex?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if took := time.Since(began); status != 200 || took < time.Second {
		t.Errorf("it is answered %d after %v", status, took)
	}
}

// TestUnfinishedRequest: whoever does not say what it has announced is not waited for.
func TestUnfinishedRequest(t *testing.T) {
	for _, rest := range []string{"Content-Length: 100\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n100\r\nx", "Content-Le"} {
		t.Run(fmt.Sprintf("%.12s", rest), func(t *testing.T) {
			t.Parallel()
			address := serve(t)
			c, _ := asked(t, address, "POST /healthz HTTP/1.1\r\nHost: localhost\r\n"+rest)
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is kept")
			}
		})
	}
}

// TestEndlessBody: whoever sends more than anybody needs to say gets no more answered, and no
// memory for it.
func TestEndlessBody(t *testing.T) {
	address := serve(t)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	list := strings.Repeat(fmt.Sprintf("%#x+", reflect.ValueOf(New).Pointer()), 1000)
	_, _ = fmt.Fprintf(c, "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 100*len(list))
	go func() {
		for range 100 {
			if _, err := io.WriteString(c, list); err != nil {
				return
			}
		}
	}()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, _ := io.Copy(io.Discard, answer.Body); n > 10*maxBody {
		t.Errorf("%d bytes are answered", n)
	}
}
