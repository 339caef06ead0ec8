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

// engine runs the event loops on gnet. Connections are accepted elsewhere and
// enrolled: an accept that fails for want of descriptors must not stop the loops.
type engine struct {
	gnet.BuiltinEventEngine
	server *Server
	client *gnet.Client // gnet's name for an engine without listeners

	mu       sync.Mutex
	reactors map[gnet.EventLoop]*reactor
}

// scribble makes every read buffer unreadable once it has been handled, so that a
// view kept too long fails loudly. Tests and the invariants build turn it on.
var scribble = false

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

// What a connection gets of a turn, in which all others wait.
const (
	// readBuffer is what a loop reads at first: of the smallest requests a hundred.
	readBuffer = 4 << 10
	// readMore is what it reads at a time while a connection's part lasts: a pipelining
	// peer's whole window.
	readMore = 16 << 10
	// turnTime is when no more is read from a connection that has more to say.
	turnTime = 100 * time.Microsecond
	// allTime is when that is so of every connection of the turn: many who have more to say
	// are each read once, and a few as long as it pays.
	allTime = 4 * time.Millisecond
	// turnBytes is another end: messages of this size cost the most to copy.
	turnBytes = 256 << 10
)

// enroll gives an accepted connection to the loop that has the fewest.
func (e *engine) enroll(c net.Conn, by loopPort) error {
	_, err := e.client.EnrollContext(c, by)
	return err
}

func (e *engine) stop() error { return e.client.Stop() }

// reactorOf returns the reactor of an event loop, made at its first connection.
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
			return duplicate(fd)
		}
		r.exec = func(fn func()) {
			run := gnet.RunnableFunc(func(context.Context) error { fn(); return nil })
			// It fails only after the engine has stopped, when nobody is left to serve.
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
	c.SetContext(r.open(c, c.Context().(loopPort)))
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
	var begun time.Time
	if full {
		begun = time.Now()
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
		readOn(s, c.Fd(), s.r.partUntil(begun))
	}
	return gnet.None
}

// partUntil is when the part of a connection ends that began now.
func (r *reactor) partUntil(now time.Time) time.Time {
	if r.allUntil.IsZero() {
		r.allUntil = now.Add(allTime)
	}
	if until := now.Add(turnTime); until.Before(r.allUntil) {
		return until
	}
	return r.allUntil
}

// readOn reads what else has come, until nothing is left or the connection has had its
// part of the turn. A large message is read to where it is put together.
func readOn(s *session, fd int, until time.Time) {
	buffer := s.r.more[:]
	for total := readBuffer; total < turnBytes && s.open() && !s.paused && time.Now().Before(until); {
		to := s.window()
		if to == nil {
			to = buffer
		}
		n, err := syscall.Read(fd, to)
		if n <= 0 || err != nil {
			return // whatever it is, the loop meets it when it reads next
		}
		if total += n; &to[0] != &buffer[0] {
			s.r.filled(s, n)
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

// duplicate is a second descriptor of a connection. What is written to it and not taken by
// the kernel at once is lost.
type duplicate int

func (d duplicate) Write(b []byte) (int, error) { return syscall.Write(int(d), b) }
func (d duplicate) Close() error                { return syscall.Close(int(d)) }

// gnetLog passes gnet's log on; its debug lines are its own business.
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
