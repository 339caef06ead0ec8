package zmq

import (
	"errors"
	"io"
	"sync/atomic"
)

const (
	// smallBuffer is what a connection begins with: most have one short request at a time.
	smallBuffer = 4 << 10
	// readBuffer is what a connection that keeps its buffer full is given. More is only for a larger message.
	readBuffer = 64 << 10
)

var errBuffered = errors.New("zmq: unfinished messages of all connections take too much memory")

// memoryBudget bounds the bytes of all large buffers, without the first readBuffer bytes of each.
type memoryBudget struct {
	used  atomic.Int64
	limit int64
}

// take asks for n bytes more, or gives bytes back.
func (b *memoryBudget) take(n int) bool {
	if used := b.used.Add(int64(n)); n > 0 && used > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

// stream is the buffer between a socket and the messages in it. It grows as bytes arrive, never because a peer says
// that they will, and shrinks when a large message is done with.
type stream struct {
	from   io.Reader
	limit  int // bytes it may have to hold
	memory *memoryBudget

	buf      []byte
	consumed int // bytes at the start of buf
}

// buffered returns the bytes that were read and not consumed. They are valid until fill.
func (s *stream) buffered() []byte { return s.buf[s.consumed:] }

// consume removes the first n bytes of buffered.
func (s *stream) consume(n int) { s.consumed += n }

// fill reads more bytes. buffered must be shorter than the limit.
func (s *stream) fill() error {
	buffered := s.buffered()
	size := cap(s.buf)
	switch {
	case size == 0:
		size = smallBuffer
	case size > readBuffer && len(buffered) <= readBuffer/2 && s.consumed > 0:
		size = readBuffer
	case len(s.buf) == size && (s.consumed == 0 || size < readBuffer):
		size = min(2*size, max(s.limit, readBuffer))
	}
	if size != cap(s.buf) {
		if !s.memory.take(large(size) - large(cap(s.buf))) {
			return errBuffered
		}
		s.buf = append(make([]byte, 0, size), buffered...)
	} else {
		s.buf = s.buf[:copy(s.buf, buffered)]
	}
	s.consumed = 0
	n, err := s.from.Read(s.buf[len(s.buf):size])
	s.buf = s.buf[:len(s.buf)+n]
	if n > 0 {
		return nil
	}
	return err
}

// release gives the buffer up.
func (s *stream) release() {
	s.memory.take(-large(cap(s.buf)))
	s.buf, s.consumed = nil, 0
}

// large returns how much of a buffer's size counts.
func large(size int) int { return max(size-readBuffer, 0) }
