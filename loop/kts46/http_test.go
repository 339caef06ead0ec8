package kts46

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	codec "treadle/codec/kts46"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// socketHub is the protocol on sockets with the machine's clocks.
type socketHub struct {
	*testHub
	listening []protocol.Listening
}

// serve serves both versions until the test ends; unsent, unless 0, limits the unread bytes.
func serve(t *testing.T, o Options, unsent int) *socketHub {
	t.Helper()
	o.Listen, o.JSON = []string{"127.0.0.1:0"}, []string{"127.0.0.1:0"}
	r := &socketHub{testHub: newTestHub(t, o)}
	began := time.Now()
	r.server.clock = func() sched.Time {
		now := time.Now()
		return sched.Time{Wall: now.UnixMilli(), Mono: now.Sub(began).Milliseconds(), WallMicros: now.UnixMicro()}
	}
	if unsent > 0 {
		r.server.unsent, r.unread.Max, r.incoming.Max = unsent, unsent, unsent
	}
	var err error
	if r.listening, err = r.Listen(); err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	r.Serve(t.Context())
	t.Cleanup(func() {
		r.Drain()
		r.Close()
		if err := goleak.Find(before); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
	return r
}

// until waits for a condition.
func (r *socketHub) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// address returns the address of a setting.
func (r *socketHub) address(setting string) string {
	r.t.Helper()
	for _, l := range r.listening {
		if l.Setting == setting {
			return strings.TrimPrefix(l.Address, "tcp://")
		}
	}
	r.t.Fatalf("no listener for %s", setting)
	return ""
}

// dial opens a connection for raw bytes.
func (r *socketHub) dial(setting string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address(setting))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func head(length int) string {
	return fmt.Sprintf("POST /RPC2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", length)
}

// answer reads one answer.
func answer(t *testing.T, c io.Reader) (status int, body string) {
	t.Helper()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// TestKts46HTTP: requests that are no calls get HTTP answers, whatever their content type.
func TestKts46HTTP(t *testing.T) {
	r := serve(t, Options{}, 0)
	hello := string(codec.AppendCall(nil, "hello"))
	f := func(method, protocol, path, kind, body string, status int, says string) {
		t.Helper()
		request, err := http.NewRequest(method, "http://"+r.address(protocol)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", kind)
		request.Close = true
		a, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != status || !strings.Contains(string(text), says) || a.ContentLength != int64(len(text)) {
			t.Errorf("%s %s: %v, status %d, length %d, %q", method, path, err, a.StatusCode, a.ContentLength, text)
		}
	}
	f("POST", "kts46", "/", "text/xml", hello, 200, greeting)
	f("POST", "kts46", "/RPC2", "application/x-whatever", hello, 200, greeting)
	f("POST", "kts46", "/rpc2", "text/xml", hello, 404, "")
	f("GET", "kts46", "/RPC2", "text/xml", "", 404, "")
	f("POST", "kts46", "/RPC2", "text/xml", "", 200, "cannot be read")
	f("POST", "kts46", "/RPC2", "text/xml", "\xff\xfe<", 200, "cannot be read")
	f("POST", "kts46", "/RPC2", "text/xml", "<!DOCTYPE x [<!ENTITY a 'b'>]>"+hello, 200, "document type")
	f("POST", "kts46-json", "/jsonrpc", "application/x-www-form-urlencoded", `{"method":"hello","id":1}`, 200, greeting)
	f("POST", "kts46-json", "/", "application/json", `{"method":"hello","id":1}`, 404, "Unknown path!")
	f("PUT", "kts46-json", "/jsonrpc", "application/json", `{"method":"hello","id":1}`, 404, "Unknown path!")
	f("GET", "kts46-json", "/anything", "", "", 200, `"waitingQueue": []`)
}

// TestKts46HugeBodies: a body over the limit, announced or not, is refused and uses no memory.
func TestKts46HugeBodies(t *testing.T) {
	r := serve(t, Options{}, 0)
	const huge = 100 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, protocol := range []string{"kts46", "kts46-json"} {
		// Announced: the answer comes before any of the body.
		c := r.dial(protocol)
		request := strings.Replace(head(huge), "/RPC2", map[string]string{"kts46": "/RPC2", "kts46-json": "/jsonrpc"}[protocol], 1)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if status, body := answer(t, c); status != 413 || !strings.Contains(body, "1MiB") {
			t.Errorf("%s: status %d, %s", protocol, status, body)
		}
		// In endless chunks: the connection is closed when the body is too long.
		c = r.dial(protocol)
		request = request[:strings.Index(request, "Content-Length")] + "Transfer-Encoding: chunked\r\n\r\n"
		chunk := append(append([]byte("10000\r\n"), bytes.Repeat([]byte("x"), 1<<16)...), "\r\n"...)
		_, err := io.WriteString(c, request)
		sent := 0
		for ; err == nil && sent < huge; sent += 1 << 16 {
			_, err = c.Write(chunk)
		}
		if sent >= huge {
			t.Errorf("%s: all of %d bytes were taken", protocol, sent)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > huge {
		t.Errorf("%d bytes were allocated", grown)
	}
	r.until("4 calls to be counted as too large", func() bool { return r.stats.tooLarge.Load() == 4 })
}

// TestKts46Unread: peers that ask for long answers and never read them use a bounded part of memory. The server closes
// the connections of the first; a peer that reads is answered.
func TestKts46Unread(t *testing.T) {
	const projects, outbound = 60_000, 12 << 20
	r := serve(t, Options{}, 4*outbound)
	r.createProjects(projects, "%0250d")
	// Large calls take turns, which end when their answers are written.
	call := string(codec.AppendCall(nil, "getServerStatus")) + strings.Repeat("\n", largeCall)
	ask := head(len(call)) + call
	var stuck []net.Conn
	for range 6 { // each answer has 30 MB; the kernel buffers some of it, and 48 MiB may be unread
		c := r.dial("kts46")
		_, err := io.WriteString(c, ask)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // its answer has begun
		}
		if err != nil {
			t.Fatal(err)
		}
		stuck = append(stuck, c)
	}
	c := r.dial("kts46")
	if _, err := io.WriteString(c, ask); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 || len(body) < 250*projects {
		t.Errorf("status %d, %d bytes", status, len(body))
	}
	for i, c := range stuck[:4] {
		if n, _ := io.Copy(io.Discard, io.LimitReader(c, 250*projects)); n == 250*projects {
			t.Errorf("peer %d, which did not read, has its answer", i)
		}
	}
}

// createProjects makes n projects with numbered names.
func (r *testHub) createProjects(n int, name string) {
	r.t.Helper()
	if err := r.update(func() error {
		for i := range n {
			if err := r.createProject(fmt.Sprintf(name, i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// TestKts46Compose: while a long answer is built, short calls are answered and other long ones wait.
func TestKts46Compose(t *testing.T) {
	r := serve(t, Options{}, 0)
	ask := func(method string) net.Conn {
		c, call := r.dial("kts46"), string(codec.AppendCall(nil, method))
		if _, err := io.WriteString(c, head(len(call))+call); err != nil {
			t.Fatal(err)
		}
		return c
	}
	r.createProjects(manyEntries, "%d")
	r.composing.Lock()
	var long []net.Conn
	for range 20 {
		long = append(long, ask("getServerStatus"))
	}
	for range 20 {
		for _, short := range []string{"hello", "getCurrentTasks"} { // there are no tasks
			if status, _ := answer(t, ask(short)); status != 200 {
				t.Errorf("%s: status %d", short, status)
			}
		}
	}
	if n := r.stats.requests["getServerStatus"].Load(); n != 0 {
		t.Errorf("%d long answers are put together", n)
	}
	r.composing.Unlock()
	for _, c := range long {
		if status, _ := answer(t, c); status != 200 {
			t.Errorf("status %d", status)
		}
	}
}

// pipeListener accepts the connections that the test sends.
type pipeListener chan net.Conn

// Accept implements net.Listener.
func (l pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (l pipeListener) Close() error {
	close(l)
	return nil
}

// Addr implements net.Listener.
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Net: "pipe"} }

// countedConn is a connection that counts as open until Close.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// TestKts46SlowBodies: a call whose head or body never ends is closed, and delays no other call. Time is simulated, so
// a slow machine cannot end the other calls.
func TestKts46SlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestHub(t, Options{})
		l, ended := make(pipeListener), make(chan error, 1)
		server := s.newServer(l, SettingXML)
		go func() { ended <- server.Serve() }()
		var open atomic.Int64
		dial := func() net.Conn {
			near, far := net.Pipe()
			open.Add(1)
			l <- &countedConn{Conn: far, open: &open}
			return near
		}
		hello := string(codec.AppendCall(nil, "hello"))
		for _, text := range []string{"", "POST /RPC2 HTTP/1.1\r\nHo", head(100), head(100) + "<methodCall>"} {
			c, other := dial(), dial()
			for c, text := range map[net.Conn]string{c: text, other: head(len(hello)) + hello} {
				if _, err := io.WriteString(c, text); err != nil {
					t.Fatal(err)
				}
			}
			if status, _ := answer(t, other); status != 200 {
				t.Errorf("%q keeps others waiting: status %d", text, status)
			}
			other.Close()
			began := time.Now()
			if _, err := io.Copy(io.Discard, c); err != nil || time.Since(began) > s.server.Limits().FrameTimeout {
				t.Errorf("%q: the connection is not closed in time: %v", text, err)
			}
			c.Close()
		}
		synctest.Wait()
		if cut, open := s.stats.cut.Load(), open.Load(); cut != 2 || open != 0 {
			t.Errorf("%d calls are counted as cut, want 2; %d connections are open", cut, open)
		}
		server.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestKts46SuperviseServer: a server's supervisor requeues tasks without help.
func TestKts46SuperviseServer(t *testing.T) {
	r := serve(t, Options{RestartAfter: 20 * time.Millisecond}, 0)
	r.does("createProject", "p")
	r.does("addJob", "p", "a", definition(1, 1, 1))
	r.does("runJob", "p", "a")
	task := r.wantJob("silent", "a simulation")
	r.until("the task to be queued again", func() bool {
		all, _ := r.does("getCurrentTasks").([]any)
		return len(all) == 0
	})
	r.faults("no current tasks", "reportStatus", "silent", "finished", task.last)
}

// TestKts46Guard: a panic closes the connection and is logged; the server and its registry continue.
func TestKts46Guard(t *testing.T) {
	var log bytes.Buffer // written under the handler's lock, before the connection is closed
	r := newTestHub(t, Options{})
	r.server.log = slog.New(slog.NewTextHandler(&log, nil))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := web.NewServer(l, web.Config{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		_ = r.update(func() error { panic("BUG: broken") })
	}), Guard: r.server.Guard(), Log: r.server.log, Grace: time.Minute})
	ended := make(chan error, 1)
	go func() { ended <- broken.Serve() }()
	if a, err := http.Get("http://" + l.Addr().String()); err == nil {
		a.Body.Close()
		t.Errorf("it is answered with %s", a.Status)
	}
	if err := errors.Join(broken.Close(), <-ended); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "BUG: broken") {
		t.Errorf("the log has %q", log.String())
	}
	r.does("createProject", "p")
}
