package loop

import (
	"bytes"
	"testing"
)

// A buffer that must grow keeps its bytes, and comes from those that wait; the largest wait,
// a bounded number of a bounded size, and all are let go of in time.
func TestSpares(t *testing.T) {
	var s spares
	small := []byte("small")
	if b := s.move(small, 10); &b[0] != &small[0] {
		t.Error("a small buffer was moved")
	}
	for _, size := range []int{10, keepBuffer, keepBuffer + 1, maxSpare, maxSpare + 1} {
		s.give(make([]byte, 7, size))
	}
	if len(s.all) != 2 {
		t.Fatalf("%d buffers wait instead of the two of the right size", len(s.all))
	}
	b := s.room([]byte("front"), keepBuffer+100)
	if string(b) != "front" || cap(b) != maxSpare || len(s.all) != 1 {
		t.Fatalf("%q in %d bytes, %d wait", b, cap(b), len(s.all))
	}
	b = s.room(append(b, bytes.Repeat([]byte("x"), maxSpare-len(b))...), 1)
	if len(b) != maxSpare || string(b[:5]) != "front" || cap(b) < maxSpare+1 || len(s.all) != 2 {
		t.Fatalf("%d of %d bytes, %d wait", len(b), cap(b), len(s.all))
	}
	for size := range 3 * spareBuffers {
		s.give(make([]byte, 0, keepBuffer+2+size))
	}
	if len(s.all) != spareBuffers {
		t.Fatalf("%d wait", len(s.all))
	}
	for _, b := range s.all {
		if cap(b) < keepBuffer+2+2*spareBuffers {
			t.Errorf("one of %d bytes waits instead of a larger one", cap(b))
		}
	}
	for range spareBuffers {
		s.fade()
	}
	if len(s.all) != 0 {
		t.Errorf("%d are never let go of", len(s.all))
	}
}
