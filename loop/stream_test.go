package loop

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"treadle/codec/periodic"
	served "treadle/loop/periodic"
	"treadle/loop/protocol"
)

// fill submits jobs of a kibibyte.
func (c *memConn) fill(from, to int) {
	var b []byte
	for i := from; i < to; i++ {
		b = append(b, request(1, periodic.SubmitJob, job("big", fmt.Sprint(i), make([]byte, 1024)...))...)
	}
	c.send(b)
	c.frames()
}

// records counts the jobs of a DUMP's reply.
func records(t *testing.T, r periodic.Response) (names map[string]bool) {
	t.Helper()
	n, rest, _ := periodic.Int64(r.Body)
	names = map[string]bool{}
	for range n {
		var j periodic.Job
		k, err := periodic.ParseJob(rest, &j)
		if err != nil {
			t.Fatal(err)
		}
		names[string(j.Func)+"/"+string(j.Name)] = true
		rest = rest[k:]
	}
	if len(rest) > 0 || len(names) != int(n) {
		t.Errorf("a dump of %d jobs has %d names and %d bytes behind them", n, len(names), len(rest))
	}
	return names
}

// functions submits a job of each of n functions, named by their numbers.
func (c *memConn) functions(n int, name string) {
	c.w.t.Helper()
	for i := range n {
		c.send(request(1, periodic.SubmitJob, job(fmt.Sprintf(name, i), "n")))
	}
	c.frames()
}

// TestDumpInPieces: a DUMP is sent in pieces as the peer reads. Other output of its session follows
// it, and other peers are served meanwhile. A peer that makes progress is not too slow, whatever
// --max-outbound is.
func TestDumpInPieces(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 4096, Gloom: GloomOptions{MaxFrame: 4096}, MaxOutbound: 8192})
	client, reader := w.join(0, periodic.Client), w.join(0, periodic.Client)
	client.fill(0, 3000)
	reader.room = 100
	reader.send(request(7, periodic.Dump))
	reader.send(request(8, periodic.Ping), request(9, periodic.Status))
	steps := 0
	for reader.s.stream != nil {
		if n := len(reader.backlog); n > 2*protocol.PieceSize {
			t.Fatalf("%d bytes wait for a peer that reads slowly, want at most two pieces", n)
		}
		client.send(request(1, periodic.Ping))
		if got := client.frames(); len(got) != 1 {
			t.Fatal("another client is not served while a DUMP is sent")
		}
		reader.take(protocol.PieceSize / 3)
		reader.send(request(uint32(10+steps), periodic.Ping))
		w.runTimers()
		steps++
	}
	reader.take(1 << 40)
	w.runTimers()
	if reader.closed {
		t.Fatalf("the reader was closed: %v", reader.s.reason)
	}
	got := reader.frames()
	if len(got) != 3+steps || got[0].MsgID != 7 || got[1].MsgID != 8 || got[2].MsgID != 9 {
		t.Fatalf("%d frames, the first for %d, want %d, the first for 7", len(got), got[0].MsgID, 3+steps)
	}
	if n := len(records(t, got[0])); n != 3000 {
		t.Errorf("a dump of %d jobs, want 3000", n)
	}
	if steps < 20 {
		t.Errorf("3 MB went out in %d steps", steps)
	}
}

// TestDumpStuck: a peer that asks for a large DUMP and does not read is closed after --frame-timeout.
// It delays no other DUMP: it takes dumpSlot. A second such peer keeps the encoder, and is closed
// sooner when another peer waits for that.
func TestDumpStuck(t *testing.T) {
	t.Parallel()
	for jobs, places := range map[int]int{2000: 1, 5000: 2} {
		w := newMemServer(t, Options{FrameTimeout: 20 * time.Second, MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 1 << 20})
		client := w.join(0, periodic.Client)
		client.fill(0, jobs)
		var stuck []*memConn
		for n := range places {
			c := w.join(0, periodic.Client)
			c.room = 0
			c.send(request(1, periodic.Dump))
			stuck = append(stuck, c)
			w.await("a DUMP to be ready", func() bool { return c.s.stream != nil })
			client.send(request(2, periodic.Dump))
			w.advance(encoderPatience - 1)
			w.runTimers()
			if got := client.frames(); len(got) != 0 {
				t.Fatal("a DUMP does not wait for its turn")
			}
			w.advance(1)
			w.runTimers()
			if n == 1 {
				w.advance(maxEncoderStall - 1000)
				if c.closed {
					t.Fatal("it is closed too early")
				}
				w.advance(3000)
			}
			w.await("a DUMP while another is stuck", func() bool { return len(client.read) > jobs<<10 })
			if got := client.frames(); len(got) != 1 || len(records(t, got[0])) != jobs {
				t.Fatalf("%d frames while another is stuck, want a dump of %d", len(got), jobs)
			}
			if c.closed != (n == 1) {
				t.Errorf("stuck peer %d is closed: %v", n, c.closed)
			}
		}
		w.advance(20_000)
		for i, c := range stuck {
			if !c.closed {
				t.Errorf("stuck peer %d is never closed", i)
			}
		}
		if n := w.closedFor(errSlowReader); n != uint64(places) || len(w.dumpSlot)+len(w.encoders[protocol.Dump]) != 0 {
			t.Errorf("%d slow readers are counted; the places are taken: %d", n, len(w.dumpSlot)+len(w.encoders[protocol.Dump]))
		}
	}
}

// TestStatusDoesNotWaitForDump: a stuck DUMP delays no STATUS of another client, however long that is.
// A peer that asked for both gets both, in order.
func TestStatusDoesNotWaitForDump(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, slow := w.join(0, periodic.Client), w.join(0, periodic.Client)
	client.fill(0, 1000)
	client.functions(served.LongStatus+1, "f%d")
	slow.room = 0
	slow.send(request(1, periodic.Dump))
	client.send(request(2, periodic.Status))
	w.await("a STATUS while another's DUMP is stuck", func() bool { return len(client.read) > served.LongStatus })
	slow.send(request(2, periodic.Status), request(3, periodic.Ping))
	w.await("the STATUS to be ready", func() bool { return w.longReplies.Load() == 0 })
	slow.take(1 << 40)
	w.runTimers()
	w.runTimers()
	got := slow.frames()
	if len(got) != 3 || len(records(t, got[0])) != 1000+served.LongStatus+1 || got[1].MsgID != 2 || got[2].MsgID != 3 {
		t.Errorf("got %d frames, want DUMP, STATUS and PONG", len(got))
	}
}

// TestStatusDoesNotWaitForStatus: a peer that never reads a long STATUS delays no other. When too much
// is unread, the sessions whose peers have read nothing for the longest are ended.
func TestStatusDoesNotWaitForStatus(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 256 << 10})
	client := w.join(0, periodic.Client)
	client.functions(4000, "%0200d") // a STATUS of 900 KiB
	var stalled []*memConn
	for range 6 {
		c := w.join(0, periodic.Client)
		c.room = 0
		c.send(request(1, periodic.Status))
		stalled = append(stalled, c)
		w.await("a STATUS to be ready", func() bool { return w.longReplies.Load() == 0 })
		w.advance(1000)
	}
	for range 3 {
		client.send(request(2, periodic.Status))
		w.await("a STATUS while others' are stuck", func() bool { return len(client.read) > 800<<10 })
		if got := client.frames(); len(got) != 1 {
			t.Fatalf("got %d frames", len(got))
		}
	}
	w.runTimers()
	closed := closedFirst(t, stalled)
	if closed != 4 { // each has 400 KiB unread, the bound for all is 1 MiB, and the last one stays in any case
		t.Errorf("%d of %d peers are closed, want 4", closed, len(stalled))
	}
}

// closedFirst returns how many peers are closed, which must be the first ones.
func closedFirst(t *testing.T, peers []*memConn) (closed int) {
	t.Helper()
	for i, c := range peers {
		if !c.closed {
			continue
		}
		if closed++; i >= closed {
			t.Errorf("peer %d is closed, and not all before it", i)
		}
	}
	return closed
}

// TestDumpDoesNotWaitForDump: a DUMP within --max-outbound that is not read delays no other.
func TestDumpDoesNotWaitForDump(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 256 << 10, Gloom: GloomOptions{MaxFrame: 256 << 10}, MaxOutbound: 2 << 20})
	client := w.join(0, periodic.Client)
	client.fill(0, 1500)
	var stalled []*memConn
	for range 10 { // each has more than a MiB unread, and the bound for all is 8 MiB
		c := w.join(0, periodic.Client)
		c.room = 0
		c.send(request(1, periodic.Dump))
		stalled = append(stalled, c)
		w.await("a DUMP to be ready", func() bool { return w.longReplies.Load() == 0 })
		w.advance(1000)
	}
	client.send(request(2, periodic.Dump))
	w.await("a DUMP while others' are stuck", func() bool { return len(client.read) > 1500<<10 })
	if got := client.frames(); len(got) != 1 || len(records(t, got[0])) != 1500 {
		t.Fatalf("got %d frames", len(got))
	}
	w.runTimers()
	closed, unread := closedFirst(t, stalled), 0
	for _, c := range stalled {
		unread += c.s.stream.sharedBytes()
	}
	if closed < 2 || closed > 6 || unread > w.maxUnsent() {
		t.Errorf("%d of %d peers are closed, %d bytes are unread", closed, len(stalled), unread)
	}
}

// TestDumpAbandoned: a peer that leaves before its DUMP is encoded, or while it is sent, delays no
// other, and the session that gets its slot gets nothing of it.
func TestDumpAbandoned(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, first, second := w.join(0, periodic.Client), w.join(0, periodic.Client), w.join(0, periodic.Client)
	client.fill(0, 1000)
	first.room, second.room = 0, 0
	first.send(request(1, periodic.Dump), request(2, periodic.Dump))
	second.receive(request(1, periodic.Dump))
	second.end()
	heir := w.join(0, periodic.Client)
	client.send(request(2, periodic.Dump))
	first.close()
	// Replies of sessions that have ended are encoded off the event loops, too.
	w.await("the long replies to be over", func() bool { return w.longReplies.Load() == 0 && len(w.encoders[protocol.Dump]) == 0 })
	if got := client.frames(); len(got) != 1 || len(records(t, got[0])) != 1000 {
		t.Errorf("%d frames, want a dump", len(got))
	}
	if got := heir.frames(); len(got) != 0 {
		t.Errorf("the heir of a session got %d frames", len(got))
	}
}

// TestTooManyReports: long replies that a peer asks for without reading are bounded.
func TestTooManyReports(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c := w.join(0, periodic.Client)
	c.fill(0, 2000)
	c.room = 0
	c.send(request(1, periodic.Dump))
	c.send(bytes.Repeat(request(2, periodic.Dump), maxLongReplies+5))
	if n := w.refusedFor(periodic.ReasonReports); n != 5 {
		t.Errorf("%d of %d requests were refused, want 5", n, maxLongReplies+5)
	}
	c.room = 1 << 40
	c.take(0)
	for range 3 * (maxLongReplies + 1) {
		w.runTimers()
	}
	dumps, refusals := 0, 0
	for _, r := range c.frames() {
		if len(r.Body) > 1 {
			dumps++
		} else if r.Body[0] == byte(periodic.Unknown) {
			refusals++
		}
	}
	if dumps != 1+maxLongReplies || refusals != 5 {
		t.Errorf("%d dumps and %d refusals, want %d and 5", dumps, refusals, 1+maxLongReplies)
	}
}

// TestReportOfNobody: a long reply is not encoded when its session has ended before its turn.
func TestReportOfNobody(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c := w.join(0, periodic.Client)
	w.encoders[protocol.Dump] <- struct{}{}
	encoded := false
	c.s.Stream(protocol.Dump, func() [][]byte { encoded = true; return nil }, func() {})
	c.close()
	<-w.encoders[protocol.Dump]
	w.await("the turn to pass", func() bool { return w.longReplies.Load() == 0 })
	if encoded {
		t.Error("it is encoded")
	}
}

// TestLargeResult: one result of the largest size goes to a peer that reads slowly.
func TestLargeResult(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 1 << 20, Gloom: GloomOptions{MaxFrame: 1 << 20}})
	client, worker := w.join(0, periodic.Client), w.worker(0, "f")
	client.room = 0
	client.send(request(1, periodic.RunJob, job("f", "n", make([]byte, 1<<20-100)...)))
	worker.grabs(1, 1)
	handle, _ := assigned(t, worker.frames()[0])
	data := bytes.Repeat([]byte("x"), 1<<20-5-len(handle))
	worker.send(request(2, periodic.WorkDone, handle, data))
	client.take(1 << 40)
	if got := client.frames(); client.closed || len(got) != 1 || !bytes.Equal(got[0].Body, data) {
		t.Errorf("closed: %v; got %d frames", client.closed, len(got))
	}
}
