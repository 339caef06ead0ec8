package loop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"golang.org/x/sys/unix"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/sched"
)

// testServer is a real server in this process, on sockets of its own.
type testServer struct {
	*Server
	t     *testing.T
	unix  string // address of its socket
	tcp   string
	http  string
	timer mailSink
	end   context.CancelFunc
	ended chan struct{}
	err   error // the result of Run
}

// startServer runs a server on a unix socket and a TCP port, and on HTTP when o asks for it. prepare
// may change the server before it listens. The end of the test stops the server; TestMain checks that no goroutine of
// it is left.
func startServer(t *testing.T, o Options, prepare ...func(*Server)) *testServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "treadle")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if o.Periodic.Listen == nil {
		o.Periodic.Listen = []string{"unix://" + filepath.Join(dir, "s"), "tcp://127.0.0.1:0"}
	}
	if o.Gloom.Masters == nil {
		o.Gloom.Masters, o.Gloom.Slaves = []string{"off"}, []string{"off"}
	}
	for _, other := range []*[]string{&o.Gloom.Masters, &o.Gloom.Slaves, &o.Dwork.Listen, &o.Kts46.Listen, &o.Kts46.JSON} {
		if *other == nil {
			*other = []string{"off"}
		}
	}
	if o.Data == "" {
		o.Data = NoData
	}
	if o.HTTP == "" {
		o.HTTP = "off"
	}
	if o.Drain == 0 { // most tests leave jobs running
		o.Drain = 100 * time.Millisecond
	}
	if o.Data == "" {
		o.Data = NoData
	}
	started := make(chan []Listening, 1)
	o.Started = func(l []Listening) { started <- l }
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(s)
	}
	r := &testServer{Server: s, t: t, ended: make(chan struct{}), timer: mailSink{s, make([]bool, s.o.Loops)}}
	var ctx context.Context
	ctx, r.end = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		r.err = s.Run(ctx)
	}()
	t.Cleanup(r.stop)
	select {
	case all := <-started:
		for _, l := range all {
			switch network, address, _ := strings.Cut(l.Address, "://"); l.Setting + " " + network {
			case "periodic unix":
				r.unix = address
			case "periodic tcp":
				r.tcp = address
			case "http http":
				r.http = address
			}
		}
	case <-r.ended:
		t.Fatalf("the server does not start: %v", r.err)
	}
	return r
}

// stop ends the server and waits for it.
func (r *testServer) stop() {
	r.t.Helper()
	r.end()
	r.wait()
}

// wait waits for the server's end.
func (r *testServer) wait() {
	r.t.Helper()
	select {
	case <-r.ended:
		if r.err != nil {
			r.t.Errorf("Run: %v", r.err)
		}
	case <-time.After(patience):
		r.t.Fatal("Run does not return")
	}
}

// metric reads one number from /metrics: of a series, or the sum of all series of a name without labels.
func (r *testServer) metric(name string) int {
	r.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + r.http + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	sum, found := 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ') // labels may have spaces
		series, value := line[:max(at, 0)], line[at+1:]
		all, _, _ := strings.Cut(series, "{")
		if series != name && all != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		sum, found = sum+int(n), true
	}
	if !found {
		r.t.Fatalf("no metric is called %s in:\n%s", name, text)
	}
	return sum
}

// wantMetric waits until a metric has a value: a loop may count an event after the peer has seen it.
func (r *testServer) wantMetric(name string, want int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s to be %d", name, want), func() bool { return r.metric(name) == want })
}

// closedMetric returns the name of the metric of Periodic connections closed for a reason.
func closedMetric(reason string) string {
	return `treadle_connections_closed_total{protocol="periodic",reason="` + reason + `"}`
}

// gloomClosed is closedMetric for Gloom.
func gloomClosed(reason string) string {
	return strings.Replace(closedMetric(reason), "periodic", "gloom", 1)
}

// until waits for a condition. Between two checks every loop has a turn.
func (r *testServer) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
		r.turns()
	}
}

// turns waits until the loops have finished their turns, and the mail between them is delivered.
func (r *testServer) turns() {
	r.t.Helper()
	for range 2 * r.o.Loops {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.eachReactor(func(*reactor) {})
		}()
		select {
		case <-done:
		case <-time.After(patience):
			r.t.Fatal("the loops have ended, or do not take their turns")
		}
	}
}

// tick does the timer's work of a Tick.
func (r *testServer) tick() sched.Time {
	next := r.Server.tick(&r.timer)
	for next.Mono <= r.now().Mono {
		next = r.Server.tick(&r.timer)
	}
	r.turns()
	r.eachReactor((*reactor).sweep)
	r.turns()
	return next
}

// testConn is a connection to a testServer.
type testConn struct {
	net.Conn
	t  *testing.T
	in []byte // read, not yet taken
}

// dial connects; network is unix or tcp.
func (r *testServer) dial(network string) *testConn {
	r.t.Helper()
	address := r.unix
	if network == "tcp" {
		address = r.tcp
	}
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	w := &testConn{Conn: c, t: r.t}
	r.t.Cleanup(func() { c.Close() })
	return w
}

// greet connects to the socket and says hello in the framing of 2018.
func (r *testServer) greet(role periodic.Role) *testConn {
	r.t.Helper()
	w := r.dial("unix")
	w.send(periodic.AppendHello(nil, &periodic.Hello{Role: role}))
	w.next()
	return w
}

func (w *testConn) send(b ...[]byte) {
	w.t.Helper()
	for _, piece := range b {
		if err := w.trySend(piece); err != nil {
			w.t.Fatalf("cannot send: %v", err)
		}
	}
}

func (w *testConn) trySend(b []byte) error {
	w.SetWriteDeadline(time.Now().Add(patience))
	_, err := w.Write(b)
	return err
}

// next returns the next frame. The caller owns its body.
func (w *testConn) next() periodic.Response {
	w.t.Helper()
	r, err := w.tryNext()
	if err != nil {
		w.t.Fatalf("no reply: %v", err)
	}
	return r
}

func (w *testConn) tryNext() (r periodic.Response, err error) {
	for {
		n, err := periodic.NextResponse(w.in, periodic.Plain, periodic.MaxPayload, &r)
		if err != nil {
			return r, err
		}
		if n > 0 {
			w.in = w.in[n:]
			return r, nil
		}
		if err := w.more(); err != nil {
			return r, err
		}
	}
}

// more reads at least a byte.
func (w *testConn) more() error {
	w.SetReadDeadline(time.Now().Add(patience))
	buffer := make([]byte, 64<<10)
	n, err := w.Read(buffer)
	w.in = append(w.in[:len(w.in):len(w.in)], buffer[:n]...)
	return err
}

// want reads the reply to a request and checks it.
func (w *testConn) want(id uint32, body ...byte) {
	w.t.Helper()
	if r := w.next(); r.MsgID != id || string(r.Body) != string(body) {
		w.t.Fatalf("got %.60x for message %d, want %.60x for %d", r.Body, r.MsgID, body, id)
	}
}

// ask sends a request and checks its reply.
func (w *testConn) ask(id uint32, cmd periodic.Command, args []byte, reply ...byte) {
	w.t.Helper()
	w.send(request(id, cmd, args))
	w.want(id, reply...)
}

// ping returns when the server has handled all earlier requests.
func (w *testConn) ping() {
	w.t.Helper()
	w.ask(0xfffffffe, periodic.Ping, nil, byte(periodic.Pong))
}

// wantClosed waits until the server has closed the connection, and returns the bytes before the end.
func (w *testConn) wantClosed() []byte {
	w.t.Helper()
	for {
		switch err := w.more(); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.t.Fatal("the server does not hang up")
		default:
			return w.in
		}
	}
}

// arrived reports whether all sent bytes are in the server's kernel.
func (w *testConn) arrived() bool {
	n := 0
	w.raw(func(fd int) { n, _ = unix.IoctlGetInt(fd, unix.TIOCOUTQ) })
	return n == 0
}

// silent reports whether nothing waits to be read.
func (w *testConn) silent() bool {
	n := 0
	w.raw(func(fd int) { n, _, _ = unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT) })
	return n <= 0 && len(w.in) == 0
}

func (w *testConn) raw(fn func(fd int)) {
	w.t.Helper()
	c, err := w.Conn.(syscall.Conn).SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) { fn(int(fd)) })
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// str8 and job make arguments of requests.
func str8(s string) []byte { return periodic.AppendStr8(nil, []byte(s)) }

func job(function, name string, workload ...byte) []byte {
	return periodic.AppendJob(nil, &periodic.Job{Func: []byte(function), Name: []byte(name), Workload: workload})
}

// assigned decodes a JOB_ASSIGN.
func assigned(t *testing.T, r periodic.Response) (handle []byte, j periodic.Job) {
	t.Helper()
	if len(r.Body) == 0 || r.Body[0] != byte(periodic.JobAssign) {
		t.Fatalf("got %x, which is no JOB_ASSIGN", r.Body)
	}
	h, record, _ := periodic.Str8(r.Body[1:])
	if _, err := periodic.ParseJob(record, &j); err != nil {
		t.Fatal(err)
	}
	return periodic.AppendStr8(nil, h), j
}

// count encodes the number at the front of a DUMP or LOAD.
func count(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
