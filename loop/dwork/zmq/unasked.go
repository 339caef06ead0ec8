package zmq

import (
	"errors"
	"os"
	"time"
)

// A REQ waits forever for the reply to its request, even if the server that owed it was killed: libzmq reconnects,
// repeats no request, and does not treat a closed connection as an answer. With libzmq 4.3.4 an unasked message frees
// such a REQ, which takes it for the reply. A REQ that waits for nothing drops the message with its next request, and
// REQ_CORRELATE ignores it. Other sockets would take each later reply for the one before, so they get none.
//
// A REQ that is silent after it has connected may wait for such a reply and gets Options.Unasked, once. Its first
// request may cross that message. Then the REQ takes the message for its reply, and the real reply would answer its
// next request. A REQ sends no second request before a reply. So the real reply is delayed for crossPause, and dropped
// if another request comes meanwhile.

const (
	// mayCross is how long after the unasked message a request may have been sent before that was read.
	mayCross = 10 * time.Second
	// crossPause is how long the reply to such a request is held back: a REQ that has taken the unasked message for it
	// asks on at once, or much later, when it drops the reply.
	crossPause = 100 * time.Millisecond
)

// delimiter is the envelope of a REQ's reply.
var delimiter = []byte{moreFlag, 0}

// sendUnasked frees a REQ that may wait for a reply that it was owed by another server.
func (c *conn) sendUnasked() error {
	c.mayAwaitReply, c.unaskedAt = false, time.Now()
	c.l.counters.unasked.Add(1)
	if err := c.SetWriteDeadline(c.unaskedAt.Add(c.l.o.WriteTimeout)); err != nil {
		return err
	}
	_, err := c.Write(appendReply(nil, delimiter, c.l.o.Unasked))
	return err
}

// noteCrossing notes, with a connection's first request, that it may have crossed the unasked message.
func (c *conn) noteCrossing() {
	c.mayAwaitReply = false
	c.mayHaveCrossed = !c.unaskedAt.IsZero() && time.Since(c.unaskedAt) < mayCross
	c.unaskedAt = time.Time{}
}

// awaitNextRequest waits for the peer's next request, and reports whether it came: then the one before crossed the
// unasked message.
func (c *conn) awaitNextRequest() (bool, error) {
	c.mayHaveCrossed = false
	if err := c.SetReadDeadline(time.Now().Add(crossPause)); err != nil {
		return false, err
	}
	for {
		if m, n, err := next(c.in.buffered(), c.l.o.limits()); err != nil || n > 0 {
			return n > 0 && m.kind == request, c.clearReadDeadline(err)
		}
		if err := c.in.fill(); errors.Is(err, os.ErrDeadlineExceeded) {
			return false, c.clearReadDeadline(nil)
		} else if err != nil {
			return false, err
		}
	}
}

// clearReadDeadline ends the connection's read deadline, unless there is an error.
func (c *conn) clearReadDeadline(err error) error {
	if err != nil {
		return err
	}
	c.readFor = forRequest
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	return c.quitting() // Close's own deadline may just have been overwritten
}
