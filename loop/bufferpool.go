package loop

import (
	"slices"

	"treadle/sched"
)

// Bounds of the small buffers that a reactor keeps for reuse.
const (
	// maxSmall is the number of buffers.
	maxSmall = 256
	// outInitial is the size of a new buffer: enough for the replies of most turns.
	outInitial = 512
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

// bufferPool has buffers for reuse. The zero value is ready. It belongs to a reactor.
type bufferPool struct{ small, large [][]byte }

// get returns an empty small buffer.
func (p *bufferPool) get() []byte {
	if n := len(p.small); n > 0 {
		b := p.small[n-1]
		p.small = p.small[:n-1]
		return b
	}
	return make([]byte, 0, outInitial)
}

// put keeps a buffer for reuse.
func (p *bufferPool) put(b []byte) {
	if cap(b) > maxSmallBuffer {
		p.putLarge(b)
	} else if len(p.small) < maxSmall {
		p.small = append(p.small, b[:0])
	}
}

// putLarge keeps a buffer for reuse if it is large. A full pool drops the smallest.
func (p *bufferPool) putLarge(b []byte) {
	switch {
	case cap(b) <= maxSmallBuffer || cap(b) > maxPooled:
	case len(p.large) < poolSize:
		p.large = append(p.large, b[:0])
	default:
		least := 0
		for i := range p.large {
			if cap(p.large[i]) < cap(p.large[least]) {
				least = i
			}
		}
		if cap(b) > cap(p.large[least]) {
			p.large[least] = b[:0]
		}
	}
}

// grow returns b with room for n more bytes, in a larger buffer if it lacks the room.
func (p *bufferPool) grow(b []byte, n int) []byte {
	if b = p.reuse(b, n); cap(b)-len(b) >= n {
		return b
	}
	grown := slices.Grow(b, max(n, cap(b)))
	p.putLarge(b)
	return grown
}

// reuse returns b in a large buffer of the pool with room for n more bytes, or unchanged if the pool has none.
func (p *bufferPool) reuse(b []byte, n int) []byte {
	if cap(b)-len(b) >= n || len(b)+n <= maxSmallBuffer {
		return b
	}
	for i, spare := range p.large {
		if cap(spare) >= len(b)+n {
			p.large = slices.Delete(p.large, i, i+1)
			spare = append(spare, b...)
			p.putLarge(b)
			return spare
		}
	}
	return b
}

// shrink drops one large buffer. The server calls it every second; a buffer in use comes back at once.
func (p *bufferPool) shrink() {
	if n := len(p.large); n > 0 {
		p.large = slices.Delete(p.large, n-1, n)
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
