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

// patience is the longest wait for an expected event.
const patience = 2 * time.Minute

// serve starts a server on a free port. It stops at the end of the test.
func serve(t *testing.T, change ...func(*http.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, append(Profiles(), Probe("/healthz", ready))...)
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

// asked connects, sends text and returns the status of the answer, 0 without one.
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

// ready is the state of a probe.
func ready() (bool, string) { return true, "ok" }

const health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// pipes is a listener of connections that the test sends it.
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

// dial connects and writes a text, and returns when the server has read it.
func (l pipes) dial(says string) net.Conn {
	near, far := net.Pipe()
	l <- far
	_, _ = io.WriteString(near, says) // fails when the server closes the connection
	synctest.Wait()
	return near
}

// served reports whether a request of the connection is answered with 200.
func served(c net.Conn) bool {
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		synctest.Wait()
	}
	return err == nil && answer.StatusCode == 200
}

// hungUp reports whether the server has closed a connection that has nothing to read.
func hungUp(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now())
	_, err := c.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestConnections: at the limit a new connection replaces the one that has been silent for the longest. While all
// others have sent requests, the new one waits until another leaves or exceeds its grace.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
		l, ended := make(pipes), make(chan error, 1)
		server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, Probe("/healthz", ready), Route{Pattern: "GET /slow", Probe: true, Handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }})
		go func() { ended <- server.Serve() }()
		asking := l.dial(slow)
		var all, answered []net.Conn // in the order in which they are replaced
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
				t.Errorf("a new connection is not served in place of a silent one")
			}
			all = append(all, c)
			if !hungUp(all[i]) || hungUp(all[i+1]) {
				t.Errorf("%d new connections replace others than the oldest silent, idle and active ones", i+1)
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
			t.Errorf("a new connection is not served when another has left: %v after %v", err, time.Since(began))
		}
		if !served(l.dial(health)) || time.Since(began) < requestGrace-newGrace || !hungUp(all[0]) || hungUp(all[2]) {
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

// TestConnectionsAskAgain: connections that keep sending requests cannot keep a new one out, even if each has just sent
// another request at every look.
func TestConnectionsAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newConnections(2, nil)
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
		if took := time.Since(began); took != requestGrace {
			t.Errorf("idle connections are kept for %v", took)
		}
		began = time.Now()
		p := connections{limit: 1, open: []connection{{peers[0], http.StateActive, began.Add(requestGrace)}}, freed: make(chan struct{}, 1)}
		again := time.NewTicker(requestGrace / 10)
		defer again.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*requestGrace)
		defer cancel()
		go func() {
			for {
				select {
				case <-again.C:
				case <-ctx.Done():
					return
				}
				p.mu.Lock()
				if len(p.open) > 0 && p.open[0].conn == peers[0] {
					p.remove(0)
					p.open = append(p.open, connection{peers[0], http.StateActive, time.Now().Add(requestGrace)})
				}
				p.mu.Unlock()
			}
		}()
		p.change(peers[1], http.StateNew)
		if took := time.Since(began); took != requestGrace {
			t.Errorf("a new connection waits for %v", took)
		}
	})
}

// TestConnectionsOrder: of the connections that have exceeded their grace, silent ones go before idle ones, and those
// with a request go last. All of them go before other connections.
func TestConnectionsOrder(t *testing.T) {
	now := time.Now()
	f := func(want int, open ...connection) {
		t.Helper()
		if p := (connections{open: open}); p.victim() != want {
			t.Errorf("connection %d of %v goes first, want %d", p.victim(), open, want)
		}
	}
	over := func(s http.ConnState, ago time.Duration) connection { return connection{nil, s, now.Add(-ago)} }
	f(2, over(http.StateActive, 9), over(http.StateIdle, 8), over(http.StateNew, 7), over(http.StateNew, 6))
	f(1, over(http.StateActive, 9), over(http.StateIdle, 8), over(http.StateNew, -time.Hour))
	f(0, over(http.StateActive, 9), over(http.StateIdle, -time.Hour), over(http.StateNew, -time.Hour))
	f(1, over(http.StateActive, -2*time.Hour), over(http.StateIdle, -time.Hour), over(http.StateNew, -3*time.Hour))
}

// TestConnectionReplaced: the request of a replaced connection is cancelled.
func TestConnectionReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ended, leave := make(pipes), make(chan error, 1), make(chan bool)
		var working atomic.Int32
		server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, Probe("/healthz", ready), Route{Pattern: "POST /work", Probe: true, Handler: func(_ http.ResponseWriter, r *http.Request) {
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
			t.Errorf("%d requests are handled for %d connections", n, maxConnections)
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

// TestSendBuffer: the kernel buffers little of an unread answer, so the server notices that a slow peer reads.
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
	newConnections(1, nil).begin(t.Context(), far)
	raw, err := far.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var size int
	var fault error
	err = raw.Control(func(fd uintptr) { size, fault = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF) })
	if err := errors.Join(err, fault); err != nil || size > 2*sendBuffer { // Linux doubles it for its own bookkeeping
		t.Errorf("the kernel buffers %d bytes, %v", size, err)
	}
}

// TestLongProfile: a profile may take longer than reading a request may.
func TestLongProfile(t *testing.T) {
	address := serve(t, func(s *http.Server) { s.ReadTimeout, s.ReadHeaderTimeout = time.Millisecond, patience })
	began := time.Now()
	_, status := asked(t, address, "GET /debug/pprof/mutex?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if took := time.Since(began); status != 200 || took < time.Second {
		t.Errorf("it is answered %d after %v", status, took)
	}
}

// TestUnfinishedRequest: a request whose rest never comes is ended.
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

// TestEndlessBody: a body over the limit gets no further answer and uses no memory.
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
