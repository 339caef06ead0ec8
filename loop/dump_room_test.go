package loop

import (
	"fmt"
	"testing"

	"treadle/codec/periodic"
	served "treadle/loop/periodic"
)

// dumps makes peers that each have asked for a DUMP of 1.5 MiB. 8 MiB of them together may be unread.
func dumps(w *memServer, n int) (all []*memConn) {
	w.t.Helper()
	client := w.join(0, periodic.Client)
	client.fill(0, 1500)
	for range n {
		c := w.join(0, periodic.Client)
		c.room = 0
		c.send(request(1, periodic.Dump))
		all = append(all, c)
	}
	return all
}

func dumpsRoom(t *testing.T) *memServer {
	return newMemServer(t, Options{MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 2 << 20})
}

// TestDumpSteadily: a peer that reads its DUMP without a pause gets it whole, however many there are.
// DUMPs without room wait.
func TestDumpSteadily(t *testing.T) {
	t.Parallel()
	w := dumpsRoom(t)
	all := dumps(w, 10)
	got := 0
	for turn := 0; got < len(all) && turn < 10_000; turn++ {
		for i, c := range all {
			if c.closed {
				t.Fatalf("turn %d: reader %d is hung up on", turn, i)
			}
			if c.take(20 << 10); len(c.backlog) == 0 && c.s.stream == nil && len(c.read) > 1<<20 {
				got += len(c.frames())
			}
		}
		w.advance(100)
		w.runTimers()
	}
	if got != len(all) {
		t.Errorf("%d of %d have their DUMP", got, len(all))
	}
}

// keepsTurn reports whether one of the peer's long replies keeps an encoder.
func (c *memConn) keepsTurn() bool {
	for st := c.s.stream; st != nil; st = st.next {
		if st.release != nil {
			return true
		}
	}
	return false
}

// TestDumpHoard: one peer that asks for one DUMP after the other, and reads none, has at most the bound
// of all peers unread.
func TestDumpHoard(t *testing.T) {
	t.Parallel()
	w := dumpsRoom(t)
	c := dumps(w, 1)[0]
	for i := 0; i < 40 && !c.closed; i++ {
		w.await("the DUMP to be ready", func() bool { return c.closed || w.longReplies.Load() == 0 || c.keepsTurn() })
		if n := c.s.stream.sharedBytes(); n > w.maxUnsent() {
			t.Fatalf("%d bytes are unread, more than %d", n, w.maxUnsent())
		}
		c.send(request(1, periodic.Dump))
		w.advance(1000)
		w.runTimers()
	}
	if !c.closed || w.closedFor(errSlowReader) != 1 {
		t.Error("it is not hung up on")
	}
}

// TestStatusHoard: the same for one STATUS after the other, which delay no other peer.
func TestStatusHoard(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 64 << 10, Gloom: GloomOptions{MaxFrame: 64 << 10}, MaxOutbound: 256 << 10})
	client, c := w.join(0, periodic.Client), w.join(0, periodic.Client)
	client.functions(served.LongStatus+1, "%0200d")
	c.room = 0
	for i := 0; i < 40 && !c.closed; i++ {
		c.send(request(1, periodic.Status))
		w.await("the STATUS to be ready", func() bool { return c.closed || w.longReplies.Load() == 0 })
		w.runTimers()
		if n := c.s.stream.sharedBytes(); n > w.maxUnsent() {
			t.Fatalf("%d bytes are unread, more than %d", n, w.maxUnsent())
		}
	}
	if !c.closed || w.closedFor(errSlowReader) != 1 {
		t.Error("it is not hung up on")
	}
}

// TestDumpOfLargeJobs: a peer that now and then reads a part of a large job reads its DUMP, and keeps it
// while others wait for theirs.
func TestDumpOfLargeJobs(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 8 << 20, Gloom: GloomOptions{MaxFrame: 8 << 20}, MaxOutbound: 8 << 20})
	client, c := w.join(0, periodic.Client), w.join(0, periodic.Client)
	for i := range 3 {
		client.send(request(1, periodic.SubmitJob, job("big", fmt.Sprint(i), make([]byte, 4<<20)...)))
	}
	client.frames()
	c.room = 0
	c.send(request(1, periodic.Dump))
	w.await("a DUMP to be ready", func() bool { return c.s.stream != nil })
	client.send(request(2, periodic.Dump))
	for second := range 60 {
		c.take(300 << 10)
		w.runTimers()
		w.advance(1000)
		client.send(pings(1))
		if c.closed {
			t.Fatalf("it is hung up on in second %d", second)
		}
	}
	if got := c.frames(); len(got) != 1 || len(records(t, got[0])) != 3 {
		t.Errorf("%d frames", len(got))
	}
}

// TestDumpStuckBehind: a DUMP that keeps its encoder behind another reply, of a peer that reads neither,
// keeps it no longer than one alone.
func TestDumpStuckBehind(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 1 << 20})
	client, c := w.join(0, periodic.Client), w.join(0, periodic.Client)
	client.fill(0, 2000)
	client.functions(served.LongStatus+1, "f%d")
	c.room = 0
	c.send(request(1, periodic.Status))
	w.await("a STATUS to be ready", func() bool { return c.s.stream != nil })
	c.send(request(2, periodic.Dump))
	w.await("a DUMP to be behind it", func() bool { return c.s.stream.next != nil })
	client.send(request(2, periodic.Dump))
	w.advance(maxEncoderStall + 2000)
	if !c.closed {
		t.Error("others wait for it longer than ten seconds")
	}
}
