package zmq

import (
	"errors"
	"fmt"
	"net"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	// greetingSize is what each side sends first, in bytes.
	greetingSize = 64
	// maxReady is the size of the largest READY command: a socket type, an identity and what applications add.
	maxReady = 8 << 10
)

var errReady = errors.New("zmq: no READY command follows the greeting, or it is too long")

// handshake makes c a ZMTP 3 connection without security, and returns its peer's socket type. It reads through in,
// which may hold messages behind the handshake afterwards. c must have a deadline.
func handshake(c net.Conn, in *stream, as zmq4.SocketType, server bool) (peer zmq4.SocketType, err error) {
	defer func() {
		if fault := recover(); fault != nil { // zmq4 trusts the lengths in a READY
			err = fmt.Errorf("zmq: a broken handshake: %v", fault)
		}
	}()
	opened, err := zmq4.Open(&handshaker{Conn: c, in: in}, null.Security(), as, nil, server, nil)
	if err != nil {
		return "", err
	}
	return zmq4.SocketType(opened.Peer.Meta["Socket-Type"]), nil
}

// handshaker is the connection that zmq4 sees: it ends behind the handshake, and refuses a command for which zmq4 would
// allocate what its header says.
type handshaker struct {
	net.Conn
	in   *stream
	step int // 0 before the greeting, 1 before the command, 2 in it
	left int // bytes of the step that zmq4 has not read
}

// Read implements io.Reader for the library's handshake: it reads one frame at a time and nothing beyond it.
func (h *handshaker) Read(p []byte) (int, error) {
	if h.left == 0 {
		if err := h.begin(); err != nil {
			return 0, err
		}
	}
	for len(h.in.buffered()) == 0 {
		if err := h.in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, h.in.buffered()[:min(h.left, len(h.in.buffered()))])
	h.in.consume(n)
	h.left -= n
	return n, nil
}

// begin starts the next step.
func (h *handshaker) begin() error {
	h.step++
	switch h.step {
	case 1:
		h.left = greetingSize
		return nil
	case 2:
		for {
			flags, size, head := header(h.in.buffered())
			if head > 0 {
				if flags&^longFlag != commandFlag || size > maxReady {
					return errReady
				}
				h.left = head + int(size)
				return nil
			}
			if err := h.in.fill(); err != nil {
				return err
			}
		}
	}
	return errReady
}
