package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"treadle/codec/periodic"
)

// maxName is the largest length of a str8.
const maxName = 255

// newID returns a message id that no call waits for.
func (c *conn) newID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.lastID++
		if _, used := c.waiting[c.lastID]; !used {
			return c.lastID
		}
	}
}

// begin registers a call; forget must follow.
func (c *conn) begin(w *call) *call {
	w.id = c.newID()
	w.reply = make(chan reply, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[w.id] = w
	return w
}

func (c *conn) forget(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, w.id)
}

// lock takes the right to write.
func (c *conn) lock(ctx context.Context) error {
	select {
	case <-c.writing:
		return nil
	case <-c.ended:
		return c.reason()
	case <-ctx.Done():
		return simplify(ctx.Err())
	}
}

func (c *conn) unlock() {
	if cap(c.out) > keepBuffer {
		c.out = nil
	}
	c.writing <- struct{}{}
}

// writeAll runs f, which writes one frame under the lock. When f fails or ctx ends during the
// write, writeAll ends the connection, because a partial frame cannot be undone. A ctx that ends
// after the last byte has no effect.
func (c *conn) writeAll(ctx context.Context, f func() error) error {
	mine := c.nextWrite(func() { c.writeDeadline(time.Time{}) })
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.writes == mine {
			c.writeDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	err := f()
	c.nextWrite(func() {})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	c.fail(err)
	return c.reason()
}

// writeDeadline sets the write deadline. It fails only on a connection whose writes fail too.
func (c *conn) writeDeadline(t time.Time) { _ = c.net.SetWriteDeadline(t) }

// nextWrite begins the next write, so that the previous write's ctx no longer has an effect, and
// runs f.
func (c *conn) nextWrite(f func()) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	f()
	return c.writes
}

// send writes one request. args appends its arguments and may be nil.
func (c *conn) send(ctx context.Context, id uint32, cmd periodic.Command, args func([]byte) []byte) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	c.out = periodic.BeginRequest(c.out[:0], c.framing)
	c.out = periodic.AppendMessage(c.out, id, cmd)
	if args != nil {
		c.out = args(c.out)
	}
	if payload := len(c.out) - c.framing.HeaderLen(); payload > periodic.MaxPayload {
		return fmt.Errorf("the request has %d bytes; the protocol carries at most %d", payload, periodic.MaxPayload)
	}
	periodic.End(c.out, 0, c.framing)
	return c.writeAll(ctx, func() error {
		_, err := c.net.Write(c.out)
		return err
	})
}

// await waits for the reply to w. It returns a reply that arrived before the connection ended.
func (c *conn) await(ctx context.Context, w *call) (reply, error) {
	select {
	case r := <-w.reply:
		return r, nil
	case <-ctx.Done():
		return reply{}, simplify(ctx.Err())
	case <-c.ended:
	}
	select {
	case r := <-w.reply:
		return r, nil
	default:
		return reply{}, c.reason()
	}
}

// ask sends a request and returns the body of its reply.
func (c *conn) ask(ctx context.Context, cmd periodic.Command, args func([]byte) []byte) ([]byte, error) {
	return c.answer(ctx, c.begin(&call{}), cmd, args)
}

// answer is ask for a registered call.
func (c *conn) answer(ctx context.Context, w *call, cmd periodic.Command, args func([]byte) []byte) ([]byte, error) {
	defer c.forget(w)
	if err := c.send(ctx, w.id, cmd, args); err != nil {
		return nil, err
	}
	r, err := c.await(ctx, w)
	return r.body, err
}

// expect sends a request, checks that the reply is the command want, and returns the reply's
// arguments.
func (c *conn) expect(ctx context.Context, cmd, want periodic.Command, args func([]byte) []byte) ([]byte, error) {
	body, err := c.ask(ctx, cmd, args)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 || periodic.Command(body[0]) != want {
		return nil, unexpected(body)
	}
	return body[1:], nil
}

// announce sends a request without a reply and waits for the PONG to a PING behind it. An UNKNOWN
// before the PONG is a refusal.
func (c *conn) announce(ctx context.Context, cmd periodic.Command, args func([]byte) []byte) error {
	w := c.begin(&call{})
	defer c.forget(w)
	if err := c.send(ctx, w.id, cmd, args); err != nil {
		return err
	}
	_, err := c.expect(ctx, periodic.Ping, periodic.Pong, nil)
	select {
	case r := <-w.reply:
		if isUnknown(r.body) {
			return ErrRefused
		}
	default:
	}
	return err
}

// describe names the failed operation and the server.
func (c *conn) describe(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot %s at %s: %w", what, c.address, err)
}

func isUnknown(body []byte) bool {
	return len(body) == 1 && periodic.Command(body[0]) == periodic.Unknown
}

func isNoWorker(body []byte) bool {
	return len(body) == 1 && periodic.Command(body[0]) == periodic.NoWorker
}

// unexpected returns the error for a reply that is not an answer to the request.
func unexpected(body []byte) error {
	switch {
	case isUnknown(body):
		return ErrRefused
	case isNoWorker(body):
		return ErrNoWorker
	}
	if len(body) == 0 {
		return errors.New("the server answered nothing where a command was expected")
	}
	return fmt.Errorf("the server answered %v, which is no reply to this request", periodic.Command(body[0]))
}

// checkName refuses a name that the protocol cannot carry.
func checkName(what, name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the %s has %d bytes; the protocol carries at most %d", what, len(name), maxName)
	}
	return nil
}
