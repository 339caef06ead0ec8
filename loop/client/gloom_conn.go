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
	"time"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
)

// ErrNotGloom reports a peer whose bytes are not frames of the Gloom protocol.
var ErrNotGloom = errors.New("the peer does not speak Gloom")

// GloomError is an error reply of a Gloom server.
type GloomError struct {
	Name   string // for example gloom.JobFailed
	Reason string // JSON
}

// Error implements error. It explains the names that a user can do something about.
func (e *GloomError) Error() string {
	switch e.Name {
	case gloom.JobFailed:
		return "the job failed (the server answered job_failed)"
	case gloom.IDExists:
		return "a job with this id exists already (the server answered id_exists)"
	case gloom.SizeError:
		return "it is larger than the server's --gloom-max-frame (the server answered size_error)"
	case gloom.InvalidAction:
		return fmt.Sprintf("that is the port of the other role (the server answered invalid_action: %s)", e.Reason)
	}
	return fmt.Sprintf("the server answered %s: %s", e.Name, e.Reason)
}

func newGloomError(r *gloom.Reply) error {
	name, _ := jsontext.Text(nil, r.Error)
	return &GloomError{string(name), string(r.Reason)}
}

// gloomConn is one connection. One goroutine reads frames and passes each to the caller.
type gloomConn struct {
	address string
	net     net.Conn
	in      *bufio.Reader    // owned by the reading goroutine
	frames  chan gloom.Reply // the receiver owns the views
	out     []byte           // owned by the caller

	mu    sync.Mutex
	err   error // why the connection ended
	ended chan struct{}
	done  sync.WaitGroup
}

// dialGloom connects to a Gloom port and starts to read its frames. setting is the address's setting, for errors.
func dialGloom(ctx context.Context, address, setting string) (*gloomConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := connectTo(ctx, address, setting)
	if err != nil {
		return nil, err
	}
	c := &gloomConn{
		address: name, net: nc, in: bufio.NewReaderSize(nc, readBuffer),
		frames: make(chan gloom.Reply), ended: make(chan struct{}),
	}
	c.done.Go(func() {
		for heard := false; ; heard = true {
			r, err := c.readFrame()
			if err != nil {
				if !heard && errors.Is(simplify(err), ErrClosed) || errors.Is(err, ErrNotGloom) {
					err = &PeerError{name, setting, simplify(err)}
				}
				c.fail(err)
				return
			}
			select {
			case c.frames <- r:
			case <-c.ended:
				return
			}
		}
	})
	return c, nil
}

// readFrame reads one frame. The buffer grows with the bytes that arrive, not with the size in the
// header.
func (c *gloomConn) readFrame() (r gloom.Reply, err error) {
	head, err := c.in.Peek(gloom.HeaderLen + 1)
	if err != nil {
		return r, mapEOF(err)
	}
	size := int64(binary.BigEndian.Uint32(head))
	if head[gloom.HeaderLen] != '{' || size > math.MaxInt32 {
		if other := guessProtocol(head); other != "" {
			return r, fmt.Errorf("%w, it looks like %s", ErrNotGloom, other)
		}
		return r, ErrNotGloom
	}
	var frame bytes.Buffer
	if _, err := io.CopyN(&frame, c.in, gloom.HeaderLen+size); err != nil {
		return r, mapEOF(err)
	}
	if err := gloom.ParseReply(frame.Bytes()[gloom.HeaderLen:], &r); err != nil {
		return r, ErrNotGloom
	}
	return r, nil
}

func mapEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrClosed
	}
	return err
}

// fail ends the connection. The first error is kept.
func (c *gloomConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = simplify(err)
	c.net.Close()
	close(c.ended)
}

func (c *gloomConn) close() {
	c.fail(errClosedHere)
	c.done.Wait()
}

// next waits for a frame.
func (c *gloomConn) next(ctx context.Context) (gloom.Reply, error) {
	select {
	case r := <-c.frames:
		return r, nil
	case <-ctx.Done():
		return gloom.Reply{}, simplify(ctx.Err())
	case <-c.ended:
		return gloom.Reply{}, c.reason()
	}
}

// send writes the frame that encode appends. When ctx ends during the write, send ends the
// connection, because a partial frame cannot be undone.
func (c *gloomConn) send(ctx context.Context, encode func(dst []byte) []byte) error {
	if err := ctx.Err(); err != nil {
		return simplify(err)
	}
	if c.out = encode(c.out[:0]); cap(c.out) > keepBuffer {
		defer func() { c.out = nil }()
	}
	// Setting a deadline fails only on a connection whose writes fail too.
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.net.Write(c.out)
	if err == nil && stop() {
		return nil
	}
	if err == nil {
		err = ctx.Err() // ctx ended after the last byte; the deadline may fail the next write
	} else if r, readErr := c.next(ctx); readErr == nil && r.Error != nil {
		c.fail(err)
		return newGloomError(&r) // the server's refusal is the cause
	}
	c.fail(err)
	return c.reason()
}

func (c *gloomConn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// await waits for the server's "ok" and passes every other message to other, which reports whether
// it expects the message. A nil other expects none.
func (c *gloomConn) await(ctx context.Context, other func(r *gloom.Reply) bool) error {
	for {
		r, err := c.next(ctx)
		switch {
		case err != nil:
			return err
		case r.OK:
			return nil
		case r.Error != nil && (other == nil || !other(&r)):
			return newGloomError(&r)
		case r.Error == nil && (other == nil || !other(&r)):
			return errors.New("the server sent an unexpected message")
		}
	}
}

func (c *gloomConn) describe(what string, err error) error {
	if err == nil {
		return nil
	}
	var peer *PeerError
	if errors.As(err, &peer) {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	return fmt.Errorf("cannot %s at %s: %w", what, c.address, err)
}
