package loop

import (
	"encoding/binary"
	"testing"

	"treadle/codec/periodic"
	"treadle/sched"
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

// TestSmallMemory: with a small --max-memory the peers' unfinished requests, unread output and watches have a part of
// it, one large request and reply at least, and what they had before without a limit.
func TestSmallMemory(t *testing.T) {
	t.Parallel()
	const frame = 4 << 20
	for most, want := range map[int64][2]int{
		0: {maxPartialFactor * frame, maxUnreadFactor * 2 * frame}, 1 << 40: {maxPartialFactor * frame, maxUnreadFactor * 2 * frame},
		64 << 20: {8 << 20, 8 << 20}, 16 << 20: {frame, 2 * frame},
	} {
		w := newMemServer(t, Options{Loops: 1, MaxFrame: frame, MaxMemory: most, Gloom: GloomOptions{MaxFrame: frame}})
		if got := [2]int{w.maxPartial(), w.maxUnsent()}; got != want {
			t.Errorf("--max-memory %d: %v bytes of unfinished requests and unread output, want %v", most, got, want)
		}
	}
	w := newMemServer(t, Options{Loops: 1, MaxFrame: frame, MaxMemory: 64 << 20, Gloom: GloomOptions{MaxFrame: frame}})
	submit := submitOf(frame - 100)
	for range 4 * maxPartialFactor {
		w.manual.advance(1, w.tick)
		w.join(0, periodic.Client).pieces(submit[:len(submit)-10])
		w.settle()
		if n := w.loops[0].partialBytes; n > 64<<20/peerPart {
			t.Fatalf("%d bytes of unfinished requests", n)
		}
	}
	name := make([]byte, 8)
	var peers []*sched.Peer
	refused := 0
	for range 200 { // each may watch some 340 queues, all together 8 MiB more
		p := w.sched.NewPeer(1)
		peers = append(peers, p)
		for i := range 1000 {
			binary.BigEndian.PutUint64(name, uint64(i))
			if err := w.sched.Watch(w.now(), p, name, false, nil); err != nil {
				refused++
				break
			}
		}
	}
	if refused < 100 {
		t.Errorf("%d of 200 peers that watch 1000 queues each are refused some", refused)
	}
	for _, p := range peers {
		w.sched.Disconnect(w.now(), p, nil)
	}
	for _, c := range w.conns {
		c.close()
	}
}

// TestPartials: all unfinished requests together are bounded. Beyond the bound the sessions with the
// oldest are closed. A peer that finishes its request is served.
func TestPartials(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
