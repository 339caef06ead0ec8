package loop

import (
	"slices"

	"treadle/sched"
)

// Bounds of the large buffers that a reactor keeps for the next large messages. Without
// them each message of megabytes is a fresh buffer, grown step by step, and the heap, which
// is small otherwise, is collected hundreds of times a second.
const (
	// spareBuffers is how many: some large messages come and go at a time.
	poolSize = 16
	// maxSpare is the largest: 32 MiB a reactor in all, for as long as they are in use.
	maxPooled = 2 << 20
)

// spares are the large buffers that wait to be used again. The zero value is ready; it
// belongs to a reactor.
type bufferPool struct{ all [][]byte }

// give keeps a buffer that is not used any more, if it is large. The largest are kept.
func (s *bufferPool) put(b []byte) {
	switch {
	case cap(b) <= maxSmallBuffer || cap(b) > maxPooled:
	case len(s.all) < poolSize:
		s.all = append(s.all, b[:0])
	default:
		least := 0
		for i := range s.all {
			if cap(s.all[i]) < cap(s.all[least]) {
				least = i
			}
		}
		if cap(b) > cap(s.all[least]) {
			s.all[least] = b[:0]
		}
	}
}

// room returns b with room for n more bytes, in another buffer if it must be.
func (s *bufferPool) grow(b []byte, n int) []byte {
	if b = s.reuse(b, n); cap(b)-len(b) >= n {
		return b
	}
	grown := slices.Grow(b, max(n, cap(b)))
	s.put(b)
	return grown
}

// move returns b in a spare buffer with room for n more bytes, if there is one.
func (s *bufferPool) reuse(b []byte, n int) []byte {
	if cap(b)-len(b) >= n || len(b)+n <= maxSmallBuffer {
		return b
	}
	for i, spare := range s.all {
		if cap(spare) >= len(b)+n {
			s.all = slices.Delete(s.all, i, i+1)
			spare = append(spare, b...)
			s.put(b)
			return spare
		}
	}
	return b
}

// fade lets go of one. It is called every second: what is needed comes back at once.
func (s *bufferPool) shrink() {
	if n := len(s.all); n > 0 {
		s.all = slices.Delete(s.all, n-1, n)
	}
}

// shrink lets go of what the last large messages have left behind. It is called every second, as
// fade is: large messages that go on find theirs in the spare buffers, or grow it once a second.
func (r *reactor) dropScratch() {
	r.delivery = sched.Delivery{} // its views keep the mail
	if cap(r.Scratch) > maxSmallBuffer {
		r.pool.put(r.Scratch)
		r.Scratch = nil
	}
}
