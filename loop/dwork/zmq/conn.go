package zmq

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zeromq/zmq4"

	"treadle/loop/budget"
)

const (
	// writePiece is how many bytes a peer must accept within WriteTimeout.
	writePiece = 256 << 10
	// keptReplies is the size of a reply buffer that a connection keeps.
	keptReplies = 256 << 10
	// idleTime is the silence after which a connection releases its large buffers: most of a thousand peers are idle,
	// and 300 KiB for each are much.
	idleTime = time.Second
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

// Reply answers the request with a copy of payload. It must be called once, by the caller of Take. It never blocks.
// The reply leaves when all requests of the same turn are answered. It is dropped if the peer has left.
func (r Request) Reply(payload []byte) { r.conn.reply(r, payload) }

// Postpone is called instead of Reply for a request and for all later ones of the same turn of its connection. The
// connection hands them out again when the replies to the earlier ones are written.
func (r Request) Postpone() {
	r.conn.late++
	r.conn.count()
}

// Overflowed reports whether a reply of this turn was dropped because the turn's replies exceed MaxOutbound. The
// connection ends after the turn.
func (r Request) Overflowed() bool { return r.conn.overflow }

// MaybeUnread reports whether the peer may never read the reply, or has had another one, see Options.Unasked.
func (r Request) MaybeUnread() bool { return r.conn.mayHaveCrossed }

// Follows reports whether both requests are of one connection.
func (r Request) Follows(o Request) bool { return r.conn == o.conn }

// span is where a reply stands in the buffer.
type span struct{ start, end int }

// conn is one connection. Its goroutine owns it. Between a post and the last answer the caller of Take owns answers,
// answered, late, inOrder, out and overflow.
type conn struct {
	net.Conn
	l  *Listener
	in stream

	requests []Request // of this turn
	answers  []span    // by the index of the request; end is 0 until there is an answer
	answered int
	late     int    // number of postponed requests, the last ones; they are counted as answered
	inOrder  bool   // so far, replies came in the order of the requests
	out      []byte // pongs, then replies
	overflow bool   // a reply was left out
	sorted   []byte
	done     chan struct{} // sent to with the last answer

	unsent  *budget.Holding // of the turn's replies that are being written
	dropped atomic.Bool     // evicted because of them

	mayAwaitReply  bool      // the peer is a REQ that has sent no request yet
	unaskedAt      time.Time // when the unasked message was sent, until the first request comes
	mayHaveCrossed bool      // the request of this turn may have crossed the unasked message

	readFor readFor // what the read deadline was set for
	moved   bool    // messages were consumed since
}

// readFor is what a connection is read for.
type readFor uint8

const (
	forRequest readFor = iota
	forRest            // the rest of a message
	forIdle            // for a request, and large buffers are kept for it
	forFirst           // for the first request of a REQ
)

func newConn(l *Listener, nc net.Conn) *conn {
	return &conn{
		Conn: nc,
		l:    l,
		in:   stream{from: nc, limit: l.o.limits().buffer(), memory: &l.buffered},
		done: make(chan struct{}, 1),
	}
}

// run serves the connection from its handshake to its end.
func (c *conn) run() {
	c.unsent = c.l.unsent.Begin(0, nil, c.drop)
	err := c.open()
	for err == nil {
		err = c.serveTurn()
	}
	_ = c.Close() // what could be written was written
	c.in.release()
	c.unsent.End()
	if c.dropped.Load() {
		err = errOutbound
	}
	c.l.remove(c)
	c.reportEnd(err)
}

// drop closes the connection, which ends its writing.
func (c *conn) drop() {
	c.dropped.Store(true)
	_ = c.Close()
}

// errHandshake wraps an error from before the first message.
type errHandshake struct{ error }

func (e errHandshake) Unwrap() error { return e.error }

// open performs the handshake within HandshakeTimeout.
func (c *conn) open() error {
	var peer zmq4.SocketType
	err := c.SetDeadline(time.Now().Add(c.l.o.HandshakeTimeout))
	if err == nil {
		peer, err = handshake(c.Conn, &c.in, zmq4.Router, true)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return errHandshake{err}
	}
	c.mayAwaitReply = peer == zmq4.Req && c.l.o.Unasked != nil
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

// serveTurn answers the complete messages in the buffer, at most turnSize of them. Without any it reads.
func (c *conn) serveTurn() error {
	n, err := c.parseBatch(c.l.turnSize())
	if err != nil {
		return err
	}
	if n == 0 {
		return c.read()
	}
	if len(c.requests) == 0 {
		return c.pauseFlood(c.flush())
	}
	for {
		if err := c.ask(); err != nil {
			return err
		}
		if err := c.flush(); err != nil || c.late == 0 {
			return err
		}
		c.retryPostponed()
	}
}

// retryPostponed begins another turn with the postponed requests.
func (c *conn) retryPostponed() {
	c.requests = slices.Delete(c.requests, 0, len(c.requests)-c.late)
	for i := range c.requests {
		c.requests[i].index = i
	}
	c.answers, c.out = c.answers[:c.late], c.out[:0]
	clear(c.answers)
	c.answered, c.late, c.inOrder = 0, 0, true
}

// floodPause is how long a connection pauses after it has received nothing but PINGs and messages to drop. Without the
// pause, a hundred peers that send them without end would take the whole processor.
const floodPause = 10 * time.Millisecond

// pauseFlood pauses a connection that has received only PINGs and messages to drop.
func (c *conn) pauseFlood(err error) error {
	if err != nil || len(c.in.buffered()) == 0 {
		return err // no flood: nothing is left in the buffer
	}
	pause := time.NewTimer(floodPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-c.l.quit:
	}
	return nil
}

// parseBatch parses up to most messages of the buffer and returns their number. A fault is returned when everything
// before it is answered.
func (c *conn) parseBatch(most int) (n int, err error) {
	clear(c.requests) // they keep the buffer alive that they lay in
	c.requests, c.answers, c.out = c.requests[:0], c.answers[:0], c.out[:0]
	c.answered, c.inOrder = 0, true
	for limits := c.l.o.limits(); n < most && !c.mayHaveCrossed; n++ {
		m, size, err := next(c.in.buffered(), limits)
		if err != nil && n == 0 {
			return 0, err
		}
		if size == 0 {
			break
		}
		c.in.consume(size)
		c.moved = true
		switch m.kind {
		case request:
			c.noteCrossing()
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

// read waits for more bytes. An unfinished message must end within FrameTimeout, and a silent peer may stay. After
// idleTime of silence it releases large buffers.
func (c *conn) read() error {
	readFor, patience := forRequest, time.Duration(0)
	switch {
	case len(c.in.buffered()) > 0:
		readFor, patience = forRest, c.l.o.FrameTimeout
	case c.mayAwaitReply:
		readFor, patience = forFirst, c.l.o.UnaskedAfter
	case cap(c.in.buf) > smallBuffer || cap(c.out) > smallBuffer || cap(c.sorted) > smallBuffer || cap(c.requests) > minTurn:
		readFor, patience = forIdle, idleTime
	}
	if readFor != c.readFor || readFor == forRest && c.moved { // the rest of another message has its own time
		c.readFor, c.moved = readFor, false
		if err := c.SetReadDeadline(deadline(patience)); err != nil {
			return err
		}
		if err := c.quitting(); err != nil { // Close's own deadline may just have been overwritten
			return err
		}
	}
	err := c.in.fill()
	late := errors.Is(err, os.ErrDeadlineExceeded) && c.quitting() == nil
	if readFor == forFirst && late {
		return c.sendUnasked()
	}
	if readFor == forIdle && late {
		c.in.release()
		c.requests, c.answers, c.out, c.sorted = nil, nil, nil, nil
		return nil
	}
	return err
}

// deadline is a time from now; 0: none.
func deadline(d time.Duration) (t time.Time) {
	if d > 0 {
		t = time.Now().Add(d)
	}
	return t
}

// ask posts the requests and waits until the last is answered. A listener that closes waits for the answers to what is
// posted: a peer must hear of what it has changed.
func (c *conn) ask() error {
	if err := c.quitting(); err != nil {
		return err
	}
	c.l.waiting.Add(1)
	c.l.post(c)
	var err error
	select {
	case <-c.done:
	case <-c.l.graceOver:
		err = net.ErrClosed
	}
	c.l.waiting.Add(-1)
	return err
}

// reply appends the reply to a request. It panics on a second reply to the same request. A reply beyond MaxOutbound
// ends the connection after this turn.
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
	c.count()
}

// count notes that one request more is done with.
func (c *conn) count() {
	if c.answered++; c.answered == len(c.answers) {
		c.done <- struct{}{}
	}
}

// flush writes the turn's pongs and replies.
func (c *conn) flush() error {
	if c.overflow {
		return errOutbound
	}
	if c.mayHaveCrossed && c.late == 0 {
		came, err := c.awaitNextRequest()
		if err != nil {
			return err
		}
		if came { // the peer has had its reply
			return nil
		}
	}
	c.unsent.Resize(len(c.out))
	out := c.out
	if !c.inOrder {
		c.sorted = c.sorted[:0]
		first := len(out) // the pongs stand before any reply
		for _, a := range c.answers[:len(c.answers)-c.late] {
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
		c.unsent.Moved() // the peer reads
	}
	c.unsent.Resize(0)
	if cap(c.out) > keptReplies {
		c.out = nil
	}
	if cap(c.sorted) > keptReplies {
		c.sorted = nil
	}
	return nil
}

// reportEnd counts how the connection ended, and reports a fault of its peer.
func (c *conn) reportEnd(err error) {
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
	c.l.o.OnFault(fmt.Errorf("closed the connection of %s: %w", c.RemoteAddr(), err))
	count.Add(1)
}
