package loop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"treadle/codec/kts46"
)

// ktsOn listens with both versions.
var ktsOn = Kts46Options{Listen: []string{"tcp://127.0.0.1:0"}, JSON: []string{"tcp://127.0.0.1:0"}}

// address is where a protocol is served.
func (r *rig) address(protocol string) string {
	r.t.Helper()
	for _, l := range r.listening {
		if l.Protocol == protocol {
			return strings.TrimPrefix(l.Address, "tcp://")
		}
	}
	r.t.Fatalf("nobody speaks %s", protocol)
	return ""
}

// dialKts opens a connection for bytes of the test's own.
func (r *rig) dialKts(protocol string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address(protocol))
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

// TestKtsHTTP: what is no call is answered by HTTP, whatever the content type says.
func TestKtsHTTP(t *testing.T) {
	r := startServer(t, Options{Kts46: ktsOn})
	hello := string(kts46.AppendCall(nil, "hello"))
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
	f("POST", "kts46", "/", "text/xml", hello, 200, ktsGreeting)
	f("POST", "kts46", "/RPC2", "application/x-whatever", hello, 200, ktsGreeting)
	f("POST", "kts46", "/rpc2", "text/xml", hello, 404, "")
	f("GET", "kts46", "/RPC2", "text/xml", "", 404, "")
	f("POST", "kts46", "/RPC2", "text/xml", "", 200, "cannot be read")
	f("POST", "kts46", "/RPC2", "text/xml", "\xff\xfe<", 200, "cannot be read")
	f("POST", "kts46", "/RPC2", "text/xml", "<!DOCTYPE x [<!ENTITY a 'b'>]>"+hello, 200, "document type")
	f("POST", "kts46-json", "/jsonrpc", "application/x-www-form-urlencoded", `{"method":"hello","id":1}`, 200, ktsGreeting)
	f("POST", "kts46-json", "/", "application/json", `{"method":"hello","id":1}`, 404, "Unknown path!")
	f("PUT", "kts46-json", "/jsonrpc", "application/json", `{"method":"hello","id":1}`, 404, "Unknown path!")
	f("GET", "kts46-json", "/anything", "", "", 200, `"waitingQueue": []`)
}

// TestKtsHugeBodies: a body longer than a call can be is refused, announced or not, and
// costs no memory.
func TestKtsHugeBodies(t *testing.T) {
	r := startServer(t, Options{Kts46: ktsOn, HTTP: "127.0.0.1:0"})
	const huge = 100 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, protocol := range []string{"kts46", "kts46-json"} {
		// Announced: it is answered before any of the body has come.
		c := r.dialKts(protocol)
		request := strings.Replace(head(huge), "/RPC2", map[string]string{"kts46": "/RPC2", "kts46-json": "/jsonrpc"}[protocol], 1)
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if status, body := answer(t, c); status != 413 || !strings.Contains(body, "1MiB") {
			t.Errorf("%s: status %d, %s", protocol, status, body)
		}
		// In chunks, without end: the connection is closed when it is too long.
		c = r.dialKts(protocol)
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
	r.wantMetric("treadle_kts46_too_large_total", 4)
}

// TestKtsUnread: peers that ask for everything there is and never read it take what may be
// unread; those that have asked first are hung up on, and who reads is answered.
func TestKtsUnread(t *testing.T) {
	const projects, outbound = 60_000, 12 << 20
	r := startServer(t, Options{Kts46: ktsOn, MaxFrame: outbound, GloomMaxFrame: outbound, MaxOutbound: outbound})
	r.projects(projects, "%0250d")
	// Large calls have their turns, which are over when the answers are written.
	call := string(kts46.AppendCall(nil, "getServerStatus")) + strings.Repeat("\n", keepBuffer)
	ask := head(len(call)) + call
	var deaf []net.Conn
	for range 6 { // each has 30 MB, of which the system takes some, and 48 MiB may be unread
		c := r.dialKts("kts46")
		_, err := io.WriteString(c, ask)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // it is being answered
		}
		if err != nil {
			t.Fatal(err)
		}
		deaf = append(deaf, c)
	}
	c := r.dialKts("kts46")
	if _, err := io.WriteString(c, ask); err != nil {
		t.Fatal(err)
	}
	if status, body := answer(t, c); status != 200 || len(body) < 250*projects {
		t.Errorf("status %d, %d bytes", status, len(body))
	}
	for i, c := range deaf[:4] {
		if n, _ := io.Copy(io.Discard, io.LimitReader(c, 250*projects)); n == 250*projects {
			t.Errorf("peer %d, which did not read, has its answer", i)
		}
	}
}

// projects makes n projects, named by their numbers.
func (r *rig) projects(n int, name string) {
	r.t.Helper()
	if err := r.kts46.turn(func() error {
		for i := range n {
			if err := r.kts46.createProject(fmt.Sprintf(name, i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// TestKtsCompose: while a long answer is put together, no other is, and short ones are.
func TestKtsCompose(t *testing.T) {
	r := startServer(t, Options{Kts46: ktsOn})
	ask := func(method string) net.Conn {
		c, call := r.dialKts("kts46"), string(kts46.AppendCall(nil, method))
		if _, err := io.WriteString(c, head(len(call))+call); err != nil {
			t.Fatal(err)
		}
		return c
	}
	r.projects(ktsMany, "%d")
	r.kts46.composing.Lock()
	var long []net.Conn
	for range 20 {
		long = append(long, ask("getServerStatus"))
	}
	for range 20 {
		for _, short := range []string{"hello", "getCurrentTasks"} { // nobody has any
			if status, _ := answer(t, ask(short)); status != 200 {
				t.Errorf("%s: status %d", short, status)
			}
		}
	}
	if n := r.kts46.stats.requests["getServerStatus"].Load(); n != 0 {
		t.Errorf("%d long answers are put together", n)
	}
	r.kts46.composing.Unlock()
	for _, c := range long {
		if status, _ := answer(t, c); status != 200 {
			t.Errorf("status %d", status)
		}
	}
}

// pipeListener accepts what is sent to it.
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

// TestKtsSlowBodies: a call that does not come to its end is given up, in the head or in
// the body, and does not keep others waiting. Its time is simulated: that of the call
// beside it is never over because the machine is slow.
func TestKtsSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(Options{Data: NoData, Shards: 1, Loops: 1, Kts46: ktsOn})
		if err != nil {
			t.Fatal(err)
		}
		l, ended := make(pipeListener), make(chan error, 1)
		server := s.kts46.newServer(s.kts46.serveXML)
		go func() { ended <- server.Serve(&countedListener{l, s, kts46ID}) }()
		dial := func() net.Conn {
			near, far := net.Pipe()
			l <- far
			return near
		}
		hello := string(kts46.AppendCall(nil, "hello"))
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
			if _, err := io.Copy(io.Discard, c); err != nil || time.Since(began) > s.o.FrameTimeout {
				t.Errorf("%q: the connection is not closed in time: %v", text, err)
			}
			c.Close()
		}
		synctest.Wait()
		if cut, open := s.kts46.stats.cut.Load(), s.conns.Load(); cut != 2 || open != 0 {
			t.Errorf("%d calls are counted as cut, want 2; %d connections are open", cut, open)
		}
		server.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}

// TestKtsConnections: they count under --max-connections.
func TestKtsConnections(t *testing.T) {
	r := startServer(t, Options{Kts46: ktsOn, MaxConnections: 2, HTTP: "127.0.0.1:0"})
	first, second := r.dialKts("kts46"), r.dialKts("kts46-json")
	r.wantMetric("treadle_connections", 2)
	third := r.dialKts("kts46")
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a third connection is served")
	}
	first.Close()
	second.Close()
	r.wantMetric("treadle_connections", 0)
	hello := string(kts46.AppendCall(nil, "hello"))
	c := r.dialKts("kts46")
	if _, err := io.WriteString(c, head(len(hello))+hello); err != nil {
		t.Fatal(err)
	}
	if status, _ := answer(t, c); status != 200 {
		t.Errorf("status %d", status)
	}
}

// TestKtsStop: a call under way is answered before the server ends, though its change is
// on disk only then; what comes later is not heard.
func TestKtsStop(t *testing.T) {
	d := newDisk()
	r := d.on(t, Options{Kts46: ktsOn})
	call := string(kts46.AppendCall(nil, "createProject", "p"))
	c := r.dialKts("kts46")
	d.gate.Lock()
	if _, err := io.WriteString(c, head(len(call))+call); err != nil {
		t.Fatal(err)
	}
	r.until("the call to be under way", func() bool { return r.kts46.active.Load() > 0 })
	r.end()
	d.gate.Unlock()
	if status, body := answer(t, c); status != 200 || !strings.Contains(body, "<nil/>") {
		t.Errorf("status %d, %s", status, body)
	}
	r.wait()
	if err := r.kts46.turn(func() error { t.Error("a call is heard"); return nil }); err != errKtsStopping {
		t.Error(err)
	}
	again := d.on(t, Options{Kts46: ktsOn})
	if again.kts46.projects["p"] == nil {
		t.Error("what was answered is lost")
	}
}

// TestKtsSuperviseServer: the supervisor of a server restarts by itself.
func TestKtsSuperviseServer(t *testing.T) {
	o := ktsOn
	o.RestartAfter = 20 * time.Millisecond
	r := startServer(t, Options{Kts46: o})
	rig := &ktsRig{t: t, ktsHub: r.kts46}
	rig.does("createProject", "p")
	rig.does("addJob", "p", "a", definition(1, 1, 1))
	rig.does("runJob", "p", "a")
	task := rig.wantJob("silent", "a simulation")
	r.until("the task to be queued again", func() bool {
		all, _ := rig.does("getCurrentTasks").([]any)
		return len(all) == 0
	})
	rig.faults("no current tasks", "reportStatus", "silent", "finished", task.last)
}

// lockedBuffer takes what many goroutines write.
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

// TestKtsGuard: a mistake of our own closes the connection and is logged; the server and
// its book go on.
func TestKtsGuard(t *testing.T) {
	var log lockedBuffer
	r := startServer(t, Options{Kts46: ktsOn, Log: slog.New(slog.NewTextHandler(&log, nil))})
	broken := httptest.NewServer(r.kts46.guard(func(http.ResponseWriter, *http.Request) {
		_ = r.kts46.turn(func() error { panic("BUG: broken") })
	}))
	defer broken.Close()
	if a, err := http.Get(broken.URL); err == nil {
		a.Body.Close()
		t.Errorf("it is answered with %s", a.Status)
	}
	if !strings.Contains(log.String(), "BUG: broken") {
		t.Errorf("the log has %q", log.String())
	}
	(&ktsRig{t: t, ktsHub: r.kts46}).does("createProject", "p")
}
