package zmq

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"
)

const (
	// writePiece is what a peer must accept within the write time-out, in bytes.
	writePiece = 256 << 10
	// keptReplies is the size of a reply buffer that a connection keeps.
	keptReplies = 256 << 10
)

var errOutbound = errors.New("zmq: the replies to a peer take too much memory")

// Request is one message of a peer. It is a small value; copies are the same request.
type Request struct {
	// Payload is the frame behind the delimiter: a view that is valid until the request is answered.
	Payload []byte

	envelope []byte
	conn     *conn
	index    int // among the requests of its turn
}

// Reply answers the request with one frame, which is copied. It must be called once, by the hub's goroutine, and never
// waits; the reply leaves when the other requests of the same turn are answered too. The peer may be gone: then nothing
// happens.
func (r Request) Reply(payload []byte) { r.conn.reply(r, payload) }

// Peer returns the address of the request's connection, for logs.
func (r Request) Peer() string { return r.conn.RemoteAddr().String() }

// span is where a reply stands in the buffer.
type span struct{ start, end int }

// conn is one connection. Its goroutine owns it, but between a post and the last answer the hub does: then it owns
// answers, answered, inOrder, out and overflow.
type conn struct {
	net.Conn
	l  *Listener
	in stream

	requests []Request // of this turn
	answers  []span    // by the index of the request; end is 0 when there is none yet
	answered int
	inOrder  bool   // so far, replies came in the order of the requests
	out      []byte // pongs, then replies
	overflow bool   // a reply was left out
	sorted   []byte
	done     chan struct{} // sent to with the last answer

	unsent  atomic.Int64  // bytes of a turn's replies that are to be written
	since   atomic.Uint64 // smaller: the peer has taken none of them for longer
	dropped atomic.Bool   // hung up on because of it

	unfinished bool // a part of a message is held, and a deadline is set for the rest
}

func newConn(l *Listener, nc net.Conn) *conn {
	return &conn{
		Conn: nc,
		l:    l,
		in:   stream{from: nc, limit: l.o.limits().buffer(), budget: &l.budget},
		done: make(chan struct{}, 1),
	}
}

// run serves the connection from its handshake to its end.
func (c *conn) run() {
	err := c.open()
	for err == nil {
		err = c.turn()
	}
	_ = c.Close() // what could be written was written
	c.in.release()
	c.l.settle(c)
	if c.dropped.Load() {
		err = errOutbound
	}
	c.l.remove(c)
	c.account(err)
}

// errHandshake stands around what went wrong before the first message.
type errHandshake struct{ error }

func (e errHandshake) Unwrap() error { return e.error }

func (c *conn) open() error {
	err := c.SetDeadline(time.Now().Add(c.l.o.HandshakeTimeout))
	if err == nil {
		err = handshake(c.Conn, &c.in, zmq4.Router, true)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return errHandshake{err}
	}
	return c.quitting()
}

// quitting returns an error when the listener is closed.
func (c *conn) quitting() error {
	select {
	case <-c.l.quit:
		return net.ErrClosed
	default:
		return nil
	}
}

// turn answers the complete messages that are held, up to the connection's share, or reads when there is none.
func (c *conn) turn() error {
	n, err := c.gather(c.l.turn())
	if err != nil {
		return err
	}
	if n == 0 {
		return c.read()
	}
	if len(c.requests) == 0 {
		return c.rest(c.flush())
	}
	if err := c.ask(); err != nil {
		return err
	}
	return c.flush()
}

// droppedRest is how long a connection rests that has sent nothing but PINGs and messages to drop: reading them costs
// next to nothing, and so a hundred peers that send them without end would leave others no processor.
const droppedRest = 10 * time.Millisecond

// rest makes a flood of nothing slow.
func (c *conn) rest(err error) error {
	if err != nil || len(c.in.held()) == 0 {
		return err // more than a flood would leave
	}
	pause := time.NewTimer(droppedRest)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-c.l.quit:
	}
	return nil
}

// gather takes up to most messages from what is held, and returns how many it took. A fault is returned when everything
// before it is answered.
func (c *conn) gather(most int) (n int, err error) {
	c.requests, c.answers, c.out = c.requests[:0], c.answers[:0], c.out[:0]
	c.answered, c.inOrder = 0, true
	for limits := c.l.o.limits(); n < most; n++ {
		m, size, err := next(c.in.held(), limits)
		if err != nil && n == 0 {
			return 0, err
		}
		if size == 0 {
			break
		}
		c.in.take(size)
		switch m.kind {
		case request:
			c.requests = append(c.requests, Request{m.payload, m.envelope, c, len(c.requests)})
			c.answers = append(c.answers, span{})
		case ping:
			c.out = appendPong(c.out, m.payload)
			c.l.counters.heartbeats.Add(1)
		case noDelimiter:
			c.l.counters.noDelimiter.Add(1)
		case extraFrames:
			c.l.counters.extraFrames.Add(1)
		}
	}
	c.l.counters.requests.Add(int64(len(c.requests)))
	return n, nil
}

// read waits for more bytes. An unfinished message has its time, silence has not.
func (c *conn) read() error {
	if unfinished := len(c.in.held()) > 0; unfinished != c.unfinished {
		c.unfinished = unfinished
		var deadline time.Time
		if unfinished {
			deadline = time.Now().Add(c.l.o.FrameTimeout)
		}
		if err := c.SetReadDeadline(deadline); err != nil {
			return err
		}
		if err := c.quitting(); err != nil { // Close's own deadline may just have been overwritten
			return err
		}
	}
	return c.in.fill()
}

// ask posts the requests and waits until the last is answered.
func (c *conn) ask() error {
	c.l.waiting.Add(1)
	c.l.post(c)
	var err error
	select {
	case <-c.done:
	case <-c.l.quit:
		select {
		case <-c.done:
		default:
			err = net.ErrClosed
		}
	}
	c.l.waiting.Add(-1)
	return err
}

func (c *conn) reply(r Request, payload []byte) {
	if c.answers[r.index].end != 0 {
		panic("BUG: a request was answered twice")
	}
	start := len(c.out)
	if c.answered > 0 && start+len(payload) > c.l.o.MaxOutbound {
		c.overflow = true
	} else {
		c.out = appendReply(c.out, r.envelope, payload)
	}
	c.answers[r.index] = span{start, max(len(c.out), 1)}
	c.inOrder = c.inOrder && r.index == c.answered
	if c.answered++; c.answered == len(c.answers) {
		c.l.owe(c, len(c.out))
		c.done <- struct{}{}
	}
}

// flush writes the turn's pongs and replies.
func (c *conn) flush() error {
	if c.overflow {
		return errOutbound
	}
	out := c.out
	if !c.inOrder {
		c.sorted = c.sorted[:0]
		first := len(out) // the pongs stand before any reply
		for _, a := range c.answers {
			first = min(first, a.start)
		}
		c.sorted = append(c.sorted, out[:first]...)
		for _, a := range c.answers {
			c.sorted = append(c.sorted, out[a.start:a.end]...)
		}
		out = c.sorted
	}
	for len(out) > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.l.o.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.Write(out[:min(len(out), writePiece)])
		if err != nil {
			return err
		}
		out = out[n:]
		c.since.Store(c.l.owed.Add(1)) // it reads
	}
	c.l.settle(c)
	if cap(c.out) > keptReplies {
		c.out = nil
	}
	if cap(c.sorted) > keptReplies {
		c.sorted = nil
	}
	return nil
}

// account counts how the connection ended and tells of what was its peer's fault.
func (c *conn) account(err error) {
	var (
		early errHandshake
		bad   badFrame
		k     = &c.l.counters
		count *atomic.Int64
	)
	switch {
	case c.quitting() != nil:
		return
	case errors.As(err, &early):
		count = &k.badHandshakes
	case errors.As(err, &bad):
		count = &k.badFrames
	case errors.Is(err, os.ErrDeadlineExceeded):
		count = &k.stalled
	case errors.Is(err, errBuffered), errors.Is(err, errOutbound):
		count = &k.overflows
	default: // to go is no fault
		return
	}
	c.l.o.Trouble(fmt.Errorf("closed the connection of %s: %w", c.RemoteAddr(), err))
	count.Add(1)
}
