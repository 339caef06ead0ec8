package loop

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"treadle/codec/periodic"
)

// TestMaxConnections: a connection beyond the limit is closed at once, the others are served, and a closed
// one makes room.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxConnections: 10, Loops: 2})
	var in []*testConn
	for range 10 {
		in = append(in, r.greet(periodic.Client))
	}
	for _, network := range []string{"unix", "tcp", "unix"} {
		if got := r.dial(network).wantClosed(); len(got) > 0 {
			t.Errorf("the one too many was told %x", got)
		}
	}
	for _, w := range in {
		w.ping()
	}
	r.wantMetric(`treadle_connections_refused_total{protocol="periodic"}`, 3)
	r.wantMetric("treadle_connections", 10)
	in[0].Close()
	r.wantMetric("treadle_connections", 9)
	r.greet(periodic.Client).ping()
	r.wantMetric(`treadle_connections_opened_total{protocol="periodic"}`, 11)
}

// TestManyConnections: as many connections as the descriptors of one process allow for both ends, at most
// 4000, are idle and served.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := min(4000, int(limit.Cur-reservedFiles)/3)
	var all []*testConn
	for i := range n {
		w := r.dial([]string{"unix", "tcp"}[i%2])
		w.send(hello)
		all = append(all, w)
	}
	ids := map[uint32]bool{}
	for i, w := range all {
		ids[w.next().MsgID] = true
		w.send(request(uint32(i), periodic.SubmitJob, job("f", fmt.Sprint(i))))
	}
	for i, w := range all {
		w.want(uint32(i), byte(periodic.Success))
	}
	if len(ids) != n {
		t.Errorf("%d connections have %d ids", n, len(ids))
	}
	r.wantMetric("treadle_connections", n)
	r.wantMetric(`treadle_connections_opened_total{protocol="periodic"}`, n)
	r.wantMetric("treadle_jobs", n)
	for _, w := range all {
		w.Close()
	}
	r.wantMetric("treadle_connections", 0)
}

// flaky is a listener that fails before it accepts.
type flaky struct {
	net.Listener
	faults atomic.Int32
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.faults.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept", syscall.EMFILE)}
	}
	return f.Listener.Accept()
}

// TestAcceptErrors: an accept that fails for want of descriptors is counted, and the next connection is
// accepted. So is a connection that no loop can take.
func TestAcceptErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := &flaky{Listener: inner}
	l.faults.Store(3)
	r := startServer(t, Options{HTTP: "127.0.0.1:0"}, func(s *Server) {
		s.listeners = append(s.listeners, listener{l, path, s.loopPort("periodic")})
	})
	r.unix = path
	r.greet(periodic.Client).ping()
	r.wantMetric("treadle_accept_errors_total", 3)

	here, there := net.Pipe() // a pipe has no descriptor for a loop
	defer there.Close()
	r.admit(here, listener{loopPort: r.loopPort("periodic")})
	r.wantMetric("treadle_accept_errors_total", 4)
	r.wantMetric("treadle_connections", 1)
	if _, err := there.Write([]byte("x")); err == nil {
		t.Error("a connection that cannot be served is left open")
	}
}

// TestPanicEngine: a fault in one session's conversation closes it and not the
// server.
func TestPanicEngine(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	bystander := r.greet(periodic.Client)
	id := r.newcomer(nil)
	victim := r.greet(periodic.Client)
	r.eachReactor(func(re *reactor) {
		for s := range re.sessions.all() {
			if s.ID != id {
				s.conv = &panicky{Conversation: s.conv, consuming: true}
			}
		}
	})
	victim.send(request(1, periodic.Ping))
	victim.wantClosed()
	bystander.ping()
	r.wantMetric(closedMetric("internal_error"), 1)
}

// TestHalfClose: a peer that closes its writing side behind its requests, as a pipeline into a socket does,
// gets the replies, also those that wait for the disk.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Data: t.TempDir()}} {
		r := startServer(t, o)
		for _, network := range []string{"unix", "tcp"} {
			w := r.dial(network)
			w.send(append(append(hello[:len(hello):len(hello)], request(2, periodic.Ping)...), request(1, periodic.SubmitJob, job("f", "n"))...))
			if err := w.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			w.next()
			w.want(2, byte(periodic.Pong))
			w.want(1, byte(periodic.Success))
			w.wantClosed()
		}
		r.until("no connection to be left", func() bool { return r.conns.count() == 0 })
		r.stop()
	}
}

// TestAcceptWhileStopping: a connection that is accepted during the stop does not keep the server from
// stopping.
func TestAcceptWhileStopping(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := &latecomer{Listener: inner, accepted: make(chan struct{}), closed: make(chan struct{}), admitted: make(chan struct{})}
	r := startServer(t, Options{}, func(s *Server) {
		s.listeners = append(s.listeners, listener{l, path, s.loopPort("periodic")})
	})
	first := r.greet(periodic.Client) // so that there is a loop to be stopped
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-l.accepted
	r.end()
	<-l.closed
	for range 100 {
		r.turns() // the loops run until it is admitted
	}
	close(l.admitted)
	r.wait()
	first.wantClosed()
}

// latecomer is a listener whose last connection comes after its Close.
type latecomer struct {
	net.Listener
	accepted, closed, admitted chan struct{}
	late                       bool
}

func (l *latecomer) Accept() (net.Conn, error) {
	if l.late {
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.late = true
	close(l.accepted)
	<-l.closed
	<-l.admitted
	return c, nil
}

func (l *latecomer) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Listener.Close()
}
