package loop

import (
	"bytes"
	"testing"
)

// TestBufferPool: a buffer that grows keeps its bytes and comes from the pool. The pool keeps the largest buffers, of a
// bounded number and size, and drops all in time.
func TestBufferPool(t *testing.T) {
	t.Parallel()
	var s bufferPool
	small := []byte("small")
	if b := s.reuse(small, 10); &b[0] != &small[0] {
		t.Error("a small buffer was moved")
	}
	for _, size := range []int{10, maxSmallBuffer, maxSmallBuffer + 1, maxPooled, maxPooled + 1} {
		s.put(make([]byte, 7, size))
	}
	if len(s.large) != 2 {
		t.Fatalf("%d buffers wait instead of the two of the right size", len(s.large))
	}
	b := s.grow([]byte("front"), maxSmallBuffer+100)
	if string(b) != "front" || cap(b) != maxPooled || len(s.large) != 1 {
		t.Fatalf("%q in %d bytes, %d wait", b, cap(b), len(s.large))
	}
	b = s.grow(append(b, bytes.Repeat([]byte("x"), maxPooled-len(b))...), 1)
	if len(b) != maxPooled || string(b[:5]) != "front" || cap(b) < maxPooled+1 || len(s.large) != 2 {
		t.Fatalf("%d of %d bytes, %d wait", len(b), cap(b), len(s.large))
	}
	for size := range 3 * poolSize {
		s.put(make([]byte, 0, maxSmallBuffer+2+size))
	}
	if len(s.large) != poolSize {
		t.Fatalf("%d wait", len(s.large))
	}
	for _, b := range s.large {
		if cap(b) < maxSmallBuffer+2+2*poolSize {
			t.Errorf("one of %d bytes waits instead of a larger one", cap(b))
		}
	}
	for range poolSize {
		s.shrink()
	}
	if len(s.large) != 0 {
		t.Errorf("%d are never let go of", len(s.large))
	}
}
