package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// epoch is the zero of every time stamp of a run.
var epoch = time.Now()

// Now is the monotonic time in nanoseconds since the program began.
func Now() int64 { return int64(time.Since(epoch)) }

const (
	// pumpBuffer is the size of one read and of one write: more than 64 replies or requests of any protocol.
	pumpBuffer = 256 << 10
	// longRest is the size from which the beginning of a message is not copied back into the buffer.
	longRest = 32 << 10
	// maxRest is above the length of any message: a wrong length must fail, and not wait for ever.
	maxRest = 8 << 20
	// pumpTick is the period in which a pump looks whether it should stop.
	pumpTick = 100 * time.Millisecond
)

// ErrStopped reports a trial that was stopped.
var ErrStopped = errors.New("stopped")

// conversation is one connection's half of a protocol.
type conversation interface {
	// open appends the requests that begin the conversation.
	open(now int64, out []byte) []byte
	// turn consumes the whole messages at the front of in and appends the requests that follow from them.
	turn(now int64, in, out []byte) (n int, _ []byte, err error)
}

// connection is one connection and its conversation.
type connection struct {
	fd           int
	conversation conversation
	unread       []byte // the beginning of a message, until its end is read
	unsent       []byte // requests that the socket did not take yet
	writing      bool   // the poller watches for room, because of unsent
}

// goal tells a pump whether it is done, and whether anything moves.
type goal interface {
	reached() bool
	progress() int
}

// pump drives many connections from one goroutine: wait, read everything of one connection, answer it with one write.
// The load generator shares two cores with the server that it measures, so it does without a goroutine a connection: a
// round trip costs two system calls and a share of a wait.
type pump struct {
	poller      int
	connections []*connection
	in          []byte
	out         []byte
	pacer       *pacer   // nil: closed loop
	backlog     *backlog // of producers; nil: no bound
	events      []unix.EpollEvent
}

// newPump takes over the connections and closes them in close.
func newPump(connections []*connection) (*pump, error) {
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot create a poller: %w", err)
	}
	p := &pump{
		poller: poller, connections: connections, in: make([]byte, pumpBuffer), out: make([]byte, 0, pumpBuffer),
		events: make([]unix.EpollEvent, 256),
	}
	for i, l := range connections {
		if err := p.watch(unix.EPOLL_CTL_ADD, l.fd, i, unix.EPOLLIN); err != nil {
			return p, err
		}
	}
	return p, nil
}

// watch registers a descriptor with the poller; its events carry the token.
func (p *pump) watch(operation, fd, token int, events uint32) error {
	event := unix.EpollEvent{Events: events, Fd: int32(token)}
	if err := unix.EpollCtl(p.poller, operation, fd, &event); err != nil {
		return fmt.Errorf("cannot watch a connection: %w", err)
	}
	return nil
}

func (p *pump) close() {
	if p == nil {
		return
	}
	for _, l := range p.connections {
		_ = unix.Close(l.fd)
	}
	_ = unix.Close(p.poller)
}

func (p *pump) open() error {
	for i, l := range p.connections {
		if err := p.send(l, i, l.conversation.open(Now(), p.out[:0])); err != nil {
			return err
		}
	}
	return nil
}

// run serves the connections until the goal is reached, stop is set, a connection fails, or nothing moves for the time
// limit.
func (p *pump) run(g goal, stop *atomic.Bool, limit time.Duration) error {
	last, since := g.progress(), Now()
	for !g.reached() {
		if stop.Load() {
			return ErrStopped
		}
		served, err := p.serve(pumpTick)
		if err != nil {
			return err
		}
		if served > 0 {
			continue
		}
		if moved := g.progress(); moved != last {
			last, since = moved, Now()
		} else if Now()-since > int64(limit) {
			return fmt.Errorf("nothing moves for %v", limit)
		}
	}
	return nil
}

// sweep reads the bytes that have arrived by now. A nil pump has no connections.
func (p *pump) sweep() error {
	for p != nil {
		if served, err := p.serve(0); err != nil || served == 0 {
			return err
		}
	}
	return nil
}

// serve waits for at most the given time and gives every ready connection one turn.
func (p *pump) serve(wait time.Duration) (int, error) {
	n, err := unix.EpollWait(p.poller, p.events, int(wait.Milliseconds()))
	if err != nil {
		if errors.Is(err, unix.EINTR) {
			return 0, nil
		}
		return 0, fmt.Errorf("cannot wait for connections: %w", err)
	}
	for _, event := range p.events[:n] {
		switch event.Fd {
		case pacerToken:
			err = p.pacer.fire(p)
		case backlogToken:
			err = p.backlog.resume(p)
		default:
			err = p.turn(int(event.Fd), event.Events)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// turn reads once, lets the conversation answer, and writes once.
func (p *pump) turn(index int, events uint32) error {
	l := p.connections[index]
	if events&unix.EPOLLOUT != 0 {
		if err := p.send(l, index, nil); err != nil {
			return err
		}
	}
	if events&^uint32(unix.EPOLLOUT) == 0 {
		return nil
	}
	// A long message is read to where its beginning lies, so that it is not copied with each of its parts.
	in, held := p.in, len(l.unread)
	if held < longRest {
		copy(in, l.unread)
	} else {
		l.unread = slices.Grow(l.unread, pumpBuffer)
		in = l.unread[:cap(l.unread)]
	}
	n, err := unix.Read(l.fd, in[held:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read from the server: %w", err)
	case n == 0:
		return fmt.Errorf("the server closed a connection: %w", io.ErrUnexpectedEOF)
	}
	used, out, err := l.conversation.turn(Now(), in[:held+n], p.out[:0])
	if err != nil {
		return err
	}
	switch {
	case used == 0 && held >= longRest:
		l.unread = in[:held+n]
	default:
		l.unread = append(l.unread[:0], in[used:held+n]...)
	}
	if len(l.unread) >= maxRest {
		return fmt.Errorf("%w: no end within %d bytes", ErrMalformed, len(l.unread))
	}
	if len(out) == 0 {
		return nil
	}
	p.out = out[:0] // it may have grown
	return p.send(l, index, out)
}

// send writes the unsent bytes from before and then out. It keeps the bytes that the socket does not take, and has the
// poller tell when there is room again.
func (p *pump) send(l *connection, index int, out []byte) error {
	if len(l.unsent) > 0 {
		l.unsent = append(l.unsent, out...)
		out = l.unsent
	}
	var err error
	for len(out) > 0 && err == nil {
		var n int
		if n, err = unix.Write(l.fd, out); n > 0 {
			out = out[n:]
		}
	}
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("cannot write to the server: %w", err)
	}
	l.unsent = append(l.unsent[:0], out...)
	if writing := len(l.unsent) > 0; writing != l.writing {
		l.writing = writing
		watched := uint32(unix.EPOLLIN)
		if writing {
			watched |= unix.EPOLLOUT
		}
		return p.watch(unix.EPOLL_CTL_MOD, l.fd, index, watched)
	}
	return nil
}

// detach takes the descriptor of a greeted connection out of the Go runtime's poller. The descriptor stays
// non-blocking.
func detach(conn net.Conn) (int, error) {
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("cannot take a connection over: %w", err)
	}
	var fd int
	var dupErr error
	err = raw.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return 0, fmt.Errorf("cannot take a connection over: %w", err)
	}
	return fd, nil
}
