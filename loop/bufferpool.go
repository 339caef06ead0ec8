package loop

import (
	"slices"

	"treadle/sched"
)

// Bounds of the large buffers that a reactor keeps for reuse. Without reuse each message of
// megabytes grows a new buffer step by step, and the small heap is collected hundreds of times a
// second.
const (
	// poolSize is the number of buffers: some large messages come and go at a time.
	poolSize = 16
	// maxPooled is the largest capacity: a reactor keeps up to 32 MiB.
	maxPooled = 2 << 20
)

// bufferPool has large buffers for reuse. The zero value is ready. It belongs to a reactor.
type bufferPool struct{ buffers [][]byte }

// put keeps a buffer for reuse if it is large. A full pool drops the smallest.
func (s *bufferPool) put(b []byte) {
	switch {
	case cap(b) <= maxSmallBuffer || cap(b) > maxPooled:
	case len(s.buffers) < poolSize:
		s.buffers = append(s.buffers, b[:0])
	default:
		least := 0
		for i := range s.buffers {
			if cap(s.buffers[i]) < cap(s.buffers[least]) {
				least = i
			}
		}
		if cap(b) > cap(s.buffers[least]) {
			s.buffers[least] = b[:0]
		}
	}
}

// grow returns b with room for n more bytes, in a larger buffer if it lacks the room.
func (s *bufferPool) grow(b []byte, n int) []byte {
	if b = s.reuse(b, n); cap(b)-len(b) >= n {
		return b
	}
	grown := slices.Grow(b, max(n, cap(b)))
	s.put(b)
	return grown
}

// reuse returns b in a buffer of the pool with room for n more bytes, or unchanged if the pool has none.
func (s *bufferPool) reuse(b []byte, n int) []byte {
	if cap(b)-len(b) >= n || len(b)+n <= maxSmallBuffer {
		return b
	}
	for i, spare := range s.buffers {
		if cap(spare) >= len(b)+n {
			s.buffers = slices.Delete(s.buffers, i, i+1)
			spare = append(spare, b...)
			s.put(b)
			return spare
		}
	}
	return b
}

// shrink drops one buffer. The server calls it every second; a buffer in use comes back at once.
func (s *bufferPool) shrink() {
	if n := len(s.buffers); n > 0 {
		s.buffers = slices.Delete(s.buffers, n-1, n)
	}
}

// dropScratch drops the memory that the last large messages left in the reactor. The server calls
// it every second; the next large message takes a buffer of the pool.
func (r *reactor) dropScratch() {
	r.delivery = sched.Delivery{} // its views keep the mail in memory
	if cap(r.Scratch) > maxSmallBuffer {
		r.pool.put(r.Scratch)
		r.Scratch = nil
	}
}
