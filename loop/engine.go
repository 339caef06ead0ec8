package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// engine runs the event loops on gnet. It enrolls connections that were accepted elsewhere, because
// in gnet an accept that fails for want of descriptors stops the loops.
type engine struct {
	gnet.BuiltinEventEngine
	server *Server
	client *gnet.Client // gnet's name for an engine without listeners

	mu       sync.Mutex
	reactors map[gnet.EventLoop]*reactor
}

// eventLoop is what a reactor asks of its event loop, which is gnet's or that of a server in memory.
type eventLoop struct {
	exec      func(func())                            // runs a function on the loop, from any goroutine
	closeConn func(connection)                        // closes a connection, on the loop
	dupWriter func(connection) io.WriteCloser         // opens a second descriptor of a connection, for writing; nil: it has failed
	after     func(time.Duration, func()) *time.Timer // as time.AfterFunc; the timer may be nil
}

// scribble overwrites every read buffer after it was handled, so that a view kept too long fails
// loudly. Tests and the invariants build turn it on.
var scribble = false

// newEngine starts the event loops.
func newEngine(server *Server) (*engine, error) {
	e := &engine{server: server, reactors: make(map[gnet.EventLoop]*reactor)}
	client, err := gnet.NewClient(e,
		gnet.WithNumEventLoop(server.o.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithLogger(gnetLog{server.log}),
	)
	if err != nil {
		return nil, fmt.Errorf("cannot set up the event loops: %w", err)
	}
	e.client = client
	if err := client.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the event loops: %w", err)
	}
	return e, nil
}

// Bounds of what one turn reads.
const (
	// readBuffer is the size of a connection's first read: a hundred of the smallest requests.
	readBuffer = 4 << 10
	// readMore is the size of its next reads: the whole window of a peer that pipelines.
	readMore = 16 << 10
	// turnTime is how long a turn continues reading from one connection.
	turnTime = 100 * time.Microsecond
	// allConnsTime is how long a turn continues reading from all connections. After it, each connection is read once.
	allConnsTime = 4 * time.Millisecond
	// turnBytes is how much a turn reads from one connection: messages of this size cost the most
	// to copy.
	turnBytes = 256 << 10
)

// enrolled is the context of a connection that has no session yet.
type enrolled struct {
	port   loopPort
	client *forwardedClient // nil: the client has connected to this server itself
}

// enroll gives an accepted connection to the loop with the fewest connections.
func (e *engine) enroll(c net.Conn, port loopPort) error {
	ctx := enrolled{port: port}
	if forwarded, ok := c.(*forwardedConn); ok {
		c, ctx.client = forwarded.UnixConn, forwarded.client // gnet knows the types of the standard library
	}
	_, err := e.client.EnrollContext(c, ctx)
	return err
}

func (e *engine) stop() error { return e.client.Stop() }

// reactorOf returns the reactor of an event loop. The first call makes it.
func (e *engine) reactorOf(el gnet.EventLoop) *reactor {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.reactors[el]
	if r == nil {
		r = newReactor(e.server, len(e.reactors))
		r.closeConn = func(c connection) {
			if err := el.Close(c.(gnet.Conn)); err != nil {
				e.server.log.Debug("closing a connection", "error", err)
			}
		}
		r.dupWriter = func(c connection) io.WriteCloser {
			fd, err := c.(gnet.Conn).Dup()
			if err != nil {
				return nil
			}
			return dupConn(fd)
		}
		r.exec = func(fn func()) {
			run := gnet.RunnableFunc(func(context.Context) error { fn(); return nil })
			// Execute fails only after the engine has stopped.
			_ = el.Execute(context.Background(), run)
		}
		e.reactors[el] = r
		e.server.reactors[r.index].Store(r)
	}
	return r
}

// OnOpen implements gnet.EventHandler.
func (e *engine) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	r := e.reactorOf(c.EventLoop())
	ctx := c.Context().(enrolled)
	s := r.open(c, ctx.port)
	if ctx.client != nil {
		r.forwarded[s] = ctx.client
	}
	c.SetContext(s)
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (e *engine) OnTraffic(c gnet.Conn) gnet.Action {
	s := c.Context().(*session)
	in, err := c.Peek(-1)
	if err != nil {
		return gnet.None
	}
	full := len(in) == readBuffer
	var start time.Time
	if full {
		start = time.Now()
	}
	s.r.traffic(s, in)
	if scribble {
		erase(in)
	}
	if s.gone {
		return gnet.None
	}
	if _, err := c.Discard(-1); err != nil {
		return gnet.Close
	}
	if full {
		readOn(s, c.Fd(), s.r.turn.readUntil(start))
	}
	return gnet.None
}

// readUntil returns when to stop reading from a connection whose first read was now.
func (t *turn) readUntil(now time.Time) time.Time {
	if t.allUntil.IsZero() {
		t.allUntil = now.Add(allConnsTime)
	}
	if until := now.Add(turnTime); until.Before(t.allUntil) {
		return until
	}
	return t.allUntil
}

// readOn reads the rest of a connection's bytes, up to the bounds of the turn. It reads a large
// message into its session's window.
func readOn(s *session, fd int, until time.Time) {
	buffer := s.r.readBuffer[:]
	for total := readBuffer; total < turnBytes && s.open() && !s.paused && time.Now().Before(until); {
		to := s.window()
		if to == nil {
			to = buffer
		}
		n, err := syscall.Read(fd, to)
		if n <= 0 || err != nil {
			return // the loop's next read meets the same error
		}
		if total += n; &to[0] != &buffer[0] {
			s.r.readIntoPartial(s, n)
		} else {
			s.r.traffic(s, to[:n])
			if scribble {
				erase(to)
			}
		}
		if n < len(to) {
			return
		}
	}
}

func erase(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// OnClose implements gnet.EventHandler.
func (e *engine) OnClose(c gnet.Conn, err error) gnet.Action {
	if s, ok := c.Context().(*session); ok {
		if errors.Is(err, io.EOF) {
			s.r.halfClose(s)
		}
		s.r.closeSession(s)
	}
	return gnet.None
}

// dupConn is a second descriptor of a connection. Bytes that the kernel does not take at once are lost.
type dupConn int

func (d dupConn) Write(b []byte) (int, error) { return syscall.Write(int(d), b) }
func (d dupConn) Close() error                { return syscall.Close(int(d)) }

// gnetLog writes gnet's warnings and errors to the server's log at level debug, and its fatal errors
// at level error.
type gnetLog struct{ log *slog.Logger }

func (l gnetLog) Debugf(string, ...any) {}
func (l gnetLog) Infof(string, ...any)  {}
func (l gnetLog) Warnf(format string, args ...any) {
	l.log.Debug("gnet: " + fmt.Sprintf(format, args...))
}
func (l gnetLog) Errorf(format string, args ...any) {
	l.log.Debug("gnet: " + fmt.Sprintf(format, args...))
}
func (l gnetLog) Fatalf(format string, args ...any) {
	l.log.Error("gnet: " + fmt.Sprintf(format, args...))
}
