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
	// readBuffer holds several hundred small replies per read.
	readBuffer = 64 << 10
	// keepBuffer is the largest buffer kept between two requests: one huge
	// workload must not pin its size for the life of the connection.
	keepBuffer = 1 << 20
	idLen      = 4 // a message id
)

// conn is one connection: any number of goroutines send requests, one
// goroutine reads replies and hands each to the call that waits for its id.
type conn struct {
	address string
	options Options
	framing periodic.Framing
	data    bool // the server wraps STATUS and DUMP in DATA (2020 and later)
	net     net.Conn
	in      *bufio.Reader // of the reading goroutine
	frame   bytes.Buffer  // of the reading goroutine

	received  atomic.Int64 // bytes; tells a dead peer from a slow one
	streaming atomic.Bool  // a caller consumes the reply's bytes itself

	writing chan struct{} // its one token is the right to write
	out     []byte        // guarded by writing

	// stray gets replies that nobody waits for; the body dies when it returns.
	stray func(body []byte)

	mu      sync.Mutex
	lastID  uint32
	writes  uint64 // counts starts and ends of writes
	waiting map[uint32]*call
	err     error // why the connection ended

	ended chan struct{} // closed after err is set
	done  sync.WaitGroup
}

// call is one request whose reply somebody waits for.
type call struct {
	id         uint32
	stream     bool // hand over the connection's bytes instead of a copy
	notSuccess bool // SUCCESS is not the reply yet (GRAB_JOB since 2024)
	reply      chan reply
	flow       *flow // more replies follow the first (RECV_DATA); reply is unused then
}

// reply is a body behind the message id, or a stream of one.
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
	c.in = bufio.NewReaderSize(counter{nc, &c.received}, readBuffer)
	c.writing <- struct{}{}
	return c
}

// counter counts what is read through it.
type counter struct {
	io.Reader
	n *atomic.Int64
}

func (r counter) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}

// handshake says who we are and learns how the server will answer.
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
	// The connection id: four raw bytes, or DATA and four bytes since 2020.
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

// fail ends the connection for the first reason given.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = plain(err)
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
		if other := sounds(header); other != "" && other != "Periodic" {
			return 0, 0, fmt.Errorf("%w, it sounds like %s", ErrNotPeriodic, other)
		}
		return 0, 0, ErrNotPeriodic
	}
	return size, binary.BigEndian.Uint32(header[c.framing.HeaderLen():]), nil
}

// readFrame reads one whole frame; its body is a view into c.frame. The buffer
// grows as bytes arrive, not by what a header promises.
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

// readOne reads one reply and hands it to whoever waits for it.
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
	w := c.take(r.MsgID, func(w *call) bool { return !w.notSuccess || !success })
	switch {
	case w != nil && w.flow != nil:
		return c.pass(w.flow, bytes.Clone(r.Body))
	case w != nil:
		w.reply <- reply{body: bytes.Clone(r.Body)}
	case c.stray != nil:
		c.stray(r.Body)
	}
	return nil
}

// take returns the call waiting for id if it fits, and removes it unless more
// replies follow.
func (c *conn) take(id uint32, fits func(*call) bool) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[id]
	if w == nil || !fits(w) {
		return nil
	}
	if w.flow == nil {
		delete(c.waiting, id)
	}
	return w
}

// keepAlive pings, and gives the connection up when nothing at all came
// between two pings.
func (c *conn) keepAlive() {
	ticker := time.NewTicker(c.options.PingEvery)
	defer ticker.Stop()
	seen := int64(-1) // received when the last ping was sent
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		// While a caller consumes, an answer stands behind what it has not read
		// yet; the server is to hear from us all the same.
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
