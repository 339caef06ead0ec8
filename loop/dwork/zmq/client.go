package zmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

var (
	errAddress = errors.New("an address is tcp://HOST:PORT or HOST:PORT")
	errReply   = errors.New("zmq: the server's message is no reply")
)

// clientLimits bound the messages of a server: one reply may be far larger than any request.
var clientLimits = limits{frame: math.MaxInt32, frames: 32}

// Client is one connection to a ROUTER or REP. One goroutine may call Send and Flush while another calls Recv; Request
// is all three. After an error only Close makes sense: what comes next may be the reply to an earlier request.
type Client struct {
	conn  net.Conn
	in    stream
	ended memoryBudget // no limit: the server is trusted with our memory

	mu  sync.Mutex
	out []byte // sent and not flushed, whole messages
}

// Dial connects to tcp://host:port, or host:port, until ctx ends. ctx has no effect on the client afterwards.
func Dial(ctx context.Context, address string) (*Client, error) {
	where := strings.TrimPrefix(address, "tcp://")
	if strings.Contains(where, "/") {
		return nil, fmt.Errorf("cannot connect to %s: %w", address, errAddress)
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", where)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", address, err)
	}
	return NewClient(ctx, nc)
}

// NewClient makes the handshake on a connection, until ctx ends. The connection is the client's, and closed when it
// fails.
func NewClient(ctx context.Context, nc net.Conn) (*Client, error) {
	c := &Client{conn: nc}
	c.ended.limit = math.MaxInt64
	c.in = stream{from: nc, limit: clientLimits.message(), memory: &c.ended}
	if err := c.until(ctx, func() error {
		_, err := handshake(nc, &c.in, zmq4.Dealer, false)
		return err
	}); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("%s does not speak ZeroMQ: %w", nc.RemoteAddr(), err)
	}
	return c, nil
}

// until does what may block, and makes it fail when ctx ends.
func (c *Client) until(ctx context.Context, do func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// Request sends payload and waits for its reply until ctx ends. The reply is valid until the next call.
func (c *Client) Request(ctx context.Context, payload []byte) (reply []byte, err error) {
	err = c.until(ctx, func() error {
		c.Send(payload)
		err := c.Flush()
		if err == nil {
			reply, err = c.Recv()
		}
		return err
	})
	return reply, err
}

// Send puts payload, with a delimiter before it, in the buffer of what Flush writes.
func (c *Client) Send(payload []byte) {
	c.mu.Lock()
	c.out = appendReply(c.out, delimiter, payload)
	c.mu.Unlock()
}

// Flush writes what was sent, however long it takes.
func (c *Client) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Recv waits for the next reply, however long it takes: replies come in the order of the requests. It is valid until
// the next call. What stands before the delimiter is left out, and the server's PINGs are answered.
func (c *Client) Recv() ([]byte, error) {
	for {
		m, n, err := next(c.in.buffered(), clientLimits)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			if err := c.in.fill(); err != nil {
				return nil, err
			}
			continue
		}
		c.in.consume(n)
		switch m.kind {
		case request:
			return m.payload, nil
		case ping:
			c.mu.Lock()
			c.out = appendPong(c.out, m.payload)
			c.mu.Unlock()
			if err := c.Flush(); err != nil {
				return nil, err
			}
		case noDelimiter, extraFrames:
			return nil, errReply
		}
	}
}

// SetDeadline bounds Flush and Recv; see net.Conn.
func (c *Client) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
