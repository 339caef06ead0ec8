package loop

import (
	"testing"

	"treadle/codec/periodic"
)

// pieces is receive in reads of a few KiB.
func (c *memConn) pieces(in []byte) {
	for at := 0; at < len(in); at += readBuffer {
		c.receive(in[at:min(at+readBuffer, len(in))])
	}
}

// submitOf returns the submission of a job of so many bytes.
func submitOf(n int) []byte {
	return request(1, periodic.SubmitJob, job("f", "large", make([]byte, n)...))
}

// TestPartials: all unfinished requests together are bounded. Beyond the bound the sessions with the
// oldest are closed. A peer that finishes its request is served.
func TestPartials(t *testing.T) {
	const frame = maxPooled
	w := newMemServer(t, Options{MaxFrame: frame, Gloom: GloomOptions{MaxFrame: frame}})
	r := w.loops[0]
	submit := submitOf(frame - 100)
	small := w.join(0, periodic.Client) // the oldest, but below the size that counts
	small.receive(submit[:100])
	var guilty []*memConn
	for range 4 * maxPartialFactor {
		c := w.join(0, periodic.Client)
		guilty = append(guilty, c)
		w.manual.advance(1, w.tick)
		c.pieces(submit[:len(submit)-10])
		w.settle()
		if r.partialBytes > maxPartialFactor*frame {
			t.Fatalf("%d bytes", r.partialBytes)
		}
	}
	w.manual.advance(1, w.tick)
	good := w.join(0, periodic.Client)
	good.send(submit)
	if got := good.frames(); len(got) != 1 {
		t.Errorf("%d answers to who finishes his request", len(got))
	}
	open, held := 0, 0
	for i, c := range guilty {
		if !c.closed {
			open++
		}
		if held += cap(c.s.partial); c.closed && i > 0 && !guilty[i-1].closed {
			t.Errorf("%d was ended before %d, which began before", i, i-1)
		}
	}
	if small.closed || open < maxPartialFactor/2 || open > maxPartialFactor || held != r.partialBytes {
		t.Errorf("%d of %d are open; they hold %d bytes, %d are counted; small: %v", open, len(guilty), held, r.partialBytes, small.closed)
	}
	for _, c := range w.conns {
		c.close()
	}
	if r.partialBytes != 0 {
		t.Errorf("%d bytes are counted at the end", r.partialBytes)
	}
}

// TestPartialsOver: the buffers of sessions that end within a request of their own no longer count.
func TestPartialsOver(t *testing.T) {
	w := newMemServer(t, Options{})
	c := w.join(0, periodic.Client)
	submit := submitOf(200_000)
	c.pieces(submit[:150_000])
	if w.loops[0].partialBytes == 0 {
		t.Fatal("nothing is counted")
	}
	c.failing = true
	c.receive(append(submit[150_000:], pings(40_000)...)) // with so many replies that the turn writes early
	if w.settle(); !c.closed || w.loops[0].partialBytes != 0 {
		t.Errorf("closed: %v; %d bytes are counted", c.closed, w.loops[0].partialBytes)
	}
}

// TestPartialsIdle: peers whose requests are finished leave room for others, whatever buffers they keep.
// A short request may be in any buffer.
func TestPartialsIdle(t *testing.T) {
	const frame = 128 << 10
	w := newMemServer(t, Options{MaxFrame: frame, Gloom: GloomOptions{MaxFrame: frame}})
	r := w.loops[0]
	for range 4 { // as earlier requests and replies leave them behind
		r.pool.put(make([]byte, 0, maxPooled/2))
	}
	for range 100 {
		c := w.join(0, periodic.Client)
		c.pieces(submitOf(40_000))
		if w.settle(); len(c.frames()) != 1 || r.partialBytes != 0 {
			t.Fatalf("%d bytes are counted of peers of whom nothing is unfinished", r.partialBytes)
		}
	}
	var all []*memConn
	for range 4 {
		c := w.join(0, periodic.Client)
		c.pieces(submitOf(100_000)[:90_000])
		all = append(all, c)
	}
	for i, c := range all {
		if c.pieces(submitOf(100_000)[90_000:]); c.closed {
			t.Errorf("%d is hung up on", i)
		}
	}
	w.settle()
}
