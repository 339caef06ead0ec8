package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"treadle/codec/periodic"
)

const (
	// readBuffer holds several hundred small replies.
	readBuffer = 64 << 10
	// keepBuffer is the largest buffer kept between two requests, so that one huge workload does
	// not occupy memory for the life of the connection.
	keepBuffer = 1 << 20
	idLen      = 4 // of a message id
)

// conn is one connection. Any number of goroutines send requests. One goroutine reads replies and
// passes each to the call that waits for its id.
type conn struct {
	address string
	options Options
	framing periodic.Framing
	data    bool // the server wraps STATUS and DUMP in DATA (2020 and later)
	net     net.Conn
	in      *bufio.Reader // owned by the reading goroutine
	frame   bytes.Buffer  // owned by the reading goroutine

	received  atomic.Int64 // bytes; tells a dead peer from a slow one
	streaming atomic.Bool  // a caller consumes the reply's bytes itself

	writing chan struct{} // holds one token, the right to write
	out     []byte        // guarded by writing

	// unclaimed receives replies without a waiting call. The body is valid until unclaimed returns.
	unclaimed func(body []byte)

	mu      sync.Mutex
	lastID  uint32
	writes  uint64 // counts starts and ends of writes
	waiting map[uint32]*call
	err     error // why the connection ended

	ended chan struct{} // closed after err is set
	done  sync.WaitGroup
}

// call is one request that waits for its reply.
type call struct {
	id          uint32
	stream      bool // pass on the connection's bytes instead of a copy
	skipSuccess bool // skip a SUCCESS before the reply (GRAB_JOB since 2024)
	reply       chan reply
	replies     *replyStream // receives several replies (RECV_DATA) instead of reply
}

// reply is the body behind the message id, or a stream of it.
type reply struct {
	body   []byte
	stream *io.LimitedReader
	done   chan error // tells the reading goroutine that stream is consumed
}

func newConn(nc net.Conn, address string, o Options) *conn {
	c := &conn{
		address: address, options: o, framing: o.Framing, net: nc,
		writing: make(chan struct{}, 1), waiting: map[uint32]*call{}, ended: make(chan struct{}),
	}
	c.in = bufio.NewReaderSize(countingReader{nc, &c.received}, readBuffer)
	c.writing <- struct{}{}
	return c
}

// countingReader counts the bytes read through it.
type countingReader struct {
	io.Reader
	n *atomic.Int64
}

func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// handshake sends the greeting and reads the server's variant of the protocol from its reply.
func (c *conn) handshake(ctx context.Context, role periodic.Role) error {
	deadline, _ := ctx.Deadline()
	if err := c.net.SetDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.net.Close() })
	defer stop()
	hello := periodic.Hello{Framing: c.framing, Role: role}
	if _, err := c.net.Write(periodic.AppendHello(nil, &hello)); err != nil {
		return err
	}
	r, err := c.readFrame()
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	// The connection id is four raw bytes, or DATA and four bytes since 2020.
	c.data = len(r.Body) == 1
	return c.net.SetDeadline(time.Time{})
}

func (c *conn) start() {
	c.done.Go(func() {
		for {
			if err := c.readOne(); err != nil {
				c.fail(err)
				return
			}
		}
	})
	c.done.Go(c.keepAlive)
}

// close ends the connection and waits for its goroutines.
func (c *conn) close() {
	c.fail(errClosedHere)
	c.done.Wait()
}

// fail ends the connection. The first error is kept.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = simplify(err)
	c.net.Close()
	close(c.ended)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// peekHeader waits for the next frame's header and message id.
func (c *conn) peekHeader() (size int64, id uint32, err error) {
	header, err := c.in.Peek(c.framing.HeaderLen() + idLen)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrClosed
		}
		return 0, 0, err
	}
	size = int64(binary.BigEndian.Uint32(header[4:]))
	if string(header[:4]) != "\x00RES" || size < idLen || size > math.MaxInt32 {
		if other := guessProtocol(header); other != "" && other != "Periodic" {
			return 0, 0, fmt.Errorf("%w, it looks like %s", ErrNotPeriodic, other)
		}
		return 0, 0, ErrNotPeriodic
	}
	return size, binary.BigEndian.Uint32(header[c.framing.HeaderLen():]), nil
}

// readFrame reads one frame. Its body is a view of c.frame. The buffer grows with the bytes that
// arrive, not with the size in the header.
func (c *conn) readFrame() (r periodic.Response, err error) {
	size, _, err := c.peekHeader()
	if err != nil {
		return r, err
	}
	if c.frame.Cap() > keepBuffer {
		c.frame = bytes.Buffer{}
	}
	c.frame.Reset()
	whole := int64(c.framing.HeaderLen()) + size
	if _, err := io.CopyN(&c.frame, c.in, whole); err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrClosed
		}
		return r, err
	}
	n, err := periodic.NextResponse(c.frame.Bytes(), c.framing, math.MaxInt32, &r)
	if err == nil && int64(n) != whole {
		err = ErrNotPeriodic
	}
	if err != nil {
		return r, fmt.Errorf("cannot read a reply: %w", err)
	}
	return r, nil
}

// readOne reads one reply and passes it to its call.
func (c *conn) readOne() error {
	size, id, err := c.peekHeader()
	if err != nil {
		return err
	}
	if w := c.take(id, func(w *call) bool { return w.stream }); w != nil {
		return c.handOver(w, size)
	}
	r, err := c.readFrame()
	if err != nil {
		return err
	}
	success := len(r.Body) == 1 && periodic.Command(r.Body[0]) == periodic.Success
	w := c.take(r.MsgID, func(w *call) bool { return !w.skipSuccess || !success })
	switch {
	case w != nil && w.replies != nil:
		return c.deliver(w.replies, bytes.Clone(r.Body))
	case w != nil:
		w.reply <- reply{body: bytes.Clone(r.Body)}
	case c.unclaimed != nil:
		c.unclaimed(r.Body)
	}
	return nil
}

// take returns the call waiting for id if fits accepts it. It removes the call unless more replies
// follow.
func (c *conn) take(id uint32, fits func(*call) bool) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[id]
	if w == nil || !fits(w) {
		return nil
	}
	if w.replies == nil {
		delete(c.waiting, id)
	}
	return w
}

// keepAlive sends pings, and ends the connection when no byte arrived between two pings.
func (c *conn) keepAlive() {
	ticker := time.NewTicker(c.options.PingEvery)
	defer ticker.Stop()
	seen := int64(-1) // received at the last ping; negative: no check
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		// While a caller consumes a reply, the pong waits behind the bytes not yet read. The server
		// must receive pings all the same.
		streaming := c.streaming.Load()
		if !streaming && seen >= 0 && c.received.Load() == seen {
			c.fail(fmt.Errorf("nothing came for %v", c.options.PingEvery))
			return
		}
		seen = c.received.Load()
		ctx, cancel := context.WithTimeout(context.Background(), c.options.PingEvery)
		err := c.send(ctx, c.newID(), periodic.Ping, nil)
		cancel()
		if err != nil || streaming {
			seen = -1
		}
	}
}
