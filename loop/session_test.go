package loop

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// TestOneWriteATurn: a turn writes to a peer once, however much output it has and however often it was
// read from. Only large output is written in parts.
func TestOneWriteATurn(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	a, b := w.join(0, periodic.Client), w.join(0, periodic.Client)
	for range 10 {
		a.receive(pings(10))
		b.receive(pings(7))
	}
	w.settle()
	if a.writes != 1 || b.writes != 1 || len(a.frames()) != 100 || len(b.frames()) != 70 {
		t.Errorf("%d and %d writes, want one for each", a.writes, b.writes)
	}
	worker := w.worker(0, "f")
	worker.grabs(0, 100)
	worker.writes = 0
	for i := range 50 {
		a.receive(request(1, periodic.SubmitJob, job("f", fmt.Sprint("a", i))))
		b.receive(request(1, periodic.SubmitJob, job("f", fmt.Sprint("b", i))))
	}
	w.settle()
	if worker.writes != 1 || len(worker.frames()) != 100 {
		t.Errorf("%d writes of 100 jobs, want one", worker.writes)
	}
	a.writes = 0
	a.frames()
	a.send(pings(1 << 20 / 13)) // as many bytes of replies
	if n := len(a.frames()); a.writes < 2 || a.writes > 5 || n != 1<<20/13 {
		t.Errorf("%d replies in %d writes, want some of at least %d bytes", n, a.writes, maxLargeOutput)
	}
	for _, c := range []*memConn{a, b, worker} {
		if c.s.Out != nil || c.s.partial != nil {
			t.Errorf("an idle session keeps buffers of %d and %d bytes", cap(c.s.Out), cap(c.s.partial))
		}
	}
}

// TestFailedWrite: a failed write ends the session within the write, as with gnet. Nothing is written
// afterwards, the rest of the read is not handled, and the worker's jobs go to others.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	f := func(what string, send func(c *memConn)) {
		t.Helper()
		w := newMemServer(t, Options{})
		client := w.join(0, periodic.Client)
		c := w.worker(0, "f")
		client.send(request(1, periodic.SubmitJob, job("f", "mine")))
		c.grabs(10, 1)
		other := w.worker(0, "f")
		other.grabs(1, 1)
		c.failing = true
		send(c)
		if got := names(t, other.frames()); len(got) != 1 || got[0] != "mine" {
			t.Errorf("%s: the other worker got %q, want the job that was left behind", what, got)
		}
		for _, q := range statusOf(w.Server) {
			if q.Name != "f" || q.Workers != 1 {
				t.Errorf("%s: after the end its requests were still done: %+v", what, q)
			}
		}
		if w.closedFor(errPanic) != 0 {
			t.Errorf("%s: an internal error", what)
		}
	}
	much := pings(maxLargeOutput/13 + 1) // so much that the turn writes early
	after := request(1, periodic.CanDo, str8("after"))
	f("at the end of a turn", func(c *memConn) { c.send(pings(3)) })
	f("in mid-turn", func(c *memConn) { c.send(append(bytes.Clone(much), after...)) })
	f("in mid-turn, more read in the same turn", func(c *memConn) {
		c.receive(much)
		c.receive(after)
		c.w.settle()
	})
	f("in mid-turn, behind an unfinished request", func(c *memConn) {
		cut := len(much) - 5
		c.receive(much[:cut-13*1000])
		c.receive(much[cut-13*1000 : cut]) // ends inside a request
		c.receive(append(bytes.Clone(much[cut:]), after...))
		c.w.settle()
	})
}

// TestFailedWriteInsideARequest: the request that completes an unfinished one causes the failing write.
func TestFailedWriteInsideARequest(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client := w.join(0, periodic.Client)
	for i := range 900 {
		client.send(request(1, periodic.SubmitJob, job(fmt.Sprint(strings.Repeat("f", 250), i), "n")))
	}
	client.frames()
	status := request(2, periodic.Status)
	client.receive(status)
	client.receive(status[:7])
	client.failing = true
	client.receive(append(bytes.Clone(status[7:]), request(3, periodic.SubmitJob, job("after", "n"))...))
	w.settle()
	if n := w.closedFor(errPanic); !client.closed || n != 0 {
		t.Errorf("closed: %v, internal errors: %d", client.closed, n)
	}
	for _, q := range statusOf(w.Server) {
		if q.Name == "after" {
			t.Error("a request of an ended session was done")
		}
	}
}

// TestStaleSession: a delivery to a session that has ended does not reach the session that got its slot.
func TestStaleSession(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Loops: 2})
	worker := w.worker(0, "f")
	worker.grabs(7, 1)
	client := w.join(1, periodic.Client)
	client.receive(request(1, periodic.SubmitJob, job("f", "n"))) // its mail is not read yet
	old := worker.s.ID
	worker.end()
	heir := w.open(0)
	if heir.s.ID == old || heir.s.ID>>slotShift != old>>slotShift {
		t.Fatalf("the session %x does not have the place of %x", heir.s.ID, old)
	}
	w.settle()
	if len(heir.read) > 0 || w.counters.lateDeliveries.Load() != 1 {
		t.Errorf("the heir got %x; %d deliveries were late, want 1", heir.read, w.counters.lateDeliveries.Load())
	}
	if q := statusOf(w.Server)[0]; q.Jobs != 1 || q.Running != 0 {
		t.Errorf("the job is not ready again: %+v", q)
	}
}

// TestWindow: a worker that does not read is given no more than its window, other workers get the rest,
// and it gets jobs again when it reads.
func TestWindow(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		w := newMemServer(t, Options{Loops: loops})
		client := w.join(loops-1, periodic.Client)
		stalled, good := w.worker(0, "f"), w.worker(loops-1, "f")
		stalled.room = 1000
		stalled.grabs(1000, 1000)
		workload := make([]byte, 4096)
		submit := func(from, to int) {
			for i := from; i < to; i++ {
				client.send(request(1, periodic.SubmitJob, job("f", fmt.Sprint(i), workload...)))
			}
		}
		submit(0, 200)
		given := len(stalled.backlog) / len(workload)
		if most := sched.DefaultWindow/len(workload) + 2; given < 10 || given > most {
			t.Errorf("%d loops: %d jobs wait for a worker that does not read, want at most %d", loops, given, most)
		}
		good.grabs(0, 1000)
		if n := len(good.frames()); n < 200-given-2 {
			t.Errorf("%d loops: the other worker got %d of %d jobs", loops, n, 200-given)
		}
		submit(200, 300)
		if n := len(good.frames()); n != 100 {
			t.Errorf("%d loops: the other worker got %d of 100 jobs", loops, n)
		}
		good.close()
		w.ticks()
		stalled.take(1 << 40)
		w.runTimers()
		if n := len(stalled.frames()); n != 300 {
			t.Errorf("%d loops: the worker that reads again has got %d jobs in all, want 300", loops, n)
		}
	}
}

// TestSlowReader: a peer with more unread output than --max-outbound is closed, whether its own
// requests or the results of its jobs cause the output.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 16 << 10, Gloom: GloomOptions{MaxFrame: 16 << 10}, MaxOutbound: 64 << 10})
	client := w.join(0, periodic.Client)
	client.room = 0
	for range 2 {
		client.send(pings(100))
	}
	if client.closed {
		t.Fatal("closed with 2.6 KB unread")
	}
	client.send(pings(64<<10/13 + 1))
	if !client.closed || client.s.reason != errSlowReader {
		t.Errorf("closed: %v, because %v", client.closed, client.s.reason)
	}

	runner, worker := w.join(0, periodic.Client), w.worker(0, "f")
	runner.room = 0
	for i := range 10 {
		runner.send(request(uint32(i), periodic.RunJob, job("f", fmt.Sprint(i))))
	}
	worker.grabs(0, 10)
	done := 0
	for _, r := range worker.frames() {
		if runner.closed {
			break
		}
		handle, _ := assigned(t, r)
		worker.send(request(1, periodic.WorkDone, handle, make([]byte, 10<<10)))
		done++
	}
	if !runner.closed || done != 7 {
		t.Errorf("closed: %v, after %d results of 10 KiB, want 7", runner.closed, done)
	}
	if n := w.closedFor(errSlowReader); n != 2 {
		t.Errorf("%d slow readers are counted, want 2", n)
	}
}

// TestManySlowReaders: when a loop's peers have too much unread output together, the sessions with the
// most are closed until it fits, and no others.
func TestManySlowReaders(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{MaxFrame: 16 << 10, Gloom: GloomOptions{MaxFrame: 16 << 10}, MaxOutbound: 64 << 10})
	var stalled []*memConn
	for i := range 2 * maxUnreadFactor {
		c := w.join(0, periodic.Client)
		c.room = 0
		c.send(pings((40<<10 + i<<10) / 13)) // 40 KiB to 47 KiB, each within its own bound
		stalled = append(stalled, c)
	}
	w.runTimers()
	for i, c := range stalled {
		// They have 348 KiB unread and the bound is 256: the last two are closed.
		if last := i >= len(stalled)-2; c.closed != last {
			t.Errorf("peer %d of %d is closed: %v", i, len(stalled), c.closed)
		}
	}
	if n := w.closedFor(errSlowReader); n != 2 {
		t.Errorf("%d slow readers are counted, want 2", n)
	}
}

// TestManyResults: one result for very many requests takes no more memory than the bound of unread
// output, whatever peers and loops it goes to. A peer with little unread output gets it.
func TestManyResults(t *testing.T) {
	t.Parallel()
	const size, outbound = 290 << 10, 300 << 10 // the results are larger than one write
	for loops := 1; loops <= 2; loops++ {
		w := newMemServer(t, Options{MaxFrame: outbound, Gloom: GloomOptions{MaxFrame: outbound}, MaxOutbound: outbound, Loops: loops})
		worker, client := w.worker(loops-1, "f", "g"), w.join(0, periodic.Client)
		f := func(what string, most int, runners ...*memConn) {
			t.Helper()
			client.send(request(1, periodic.RunJob, job("g", "client")))
			worker.grabs(0, 2)
			frames := worker.frames()
			large, _ := assigned(t, frames[0])
			small, _ := assigned(t, frames[1])
			worker.send(slices.Concat(request(1, periodic.WorkDone, large, make([]byte, size)), request(1, periodic.WorkDone, small, []byte("small"))))
			got, closed := 0, 0
			for _, r := range runners {
				got += len(r.read)
				if r.closed {
					closed++
				}
			}
			if got > most+size || closed == 0 || closed == len(runners) {
				t.Errorf("%d loops, %s: %d bytes were written, of which %d may wait; %d of %d peers are hung up on", loops, what, got, most, closed, len(runners))
			}
			if got := client.frames(); len(got) != 1 || string(got[0].Body) != "small" {
				t.Errorf("%d loops, %s: the client got %d frames", loops, what, len(got))
			}
		}
		modest, greedy := w.join(0, periodic.Client), w.join(0, periodic.Client)
		modest.send(request(1, periodic.RunJob, job("f", "a")))
		greedy.send(bytes.Repeat(request(1, periodic.RunJob, job("f", "a")), 20))
		f("a peer that asks again and again", 2*outbound, modest, greedy)
		var many []*memConn
		for range 20 {
			c := w.join(0, periodic.Client)
			c.send(request(1, periodic.RunJob, job("f", "b")))
			many = append(many, c)
		}
		f("many peers", maxUnreadFactor*outbound, many...)
	}
}

// panicky is a conversation that panics.
type panicky struct {
	protocol.Conversation
	consuming, delivering bool
}

func (p *panicky) Consume(in []byte) (int, error) {
	if p.consuming {
		panic("a fault in consume")
	}
	return p.Conversation.Consume(in)
}

func (p *panicky) Deliver(d *sched.Delivery) {
	if p.delivering {
		panic("a fault in deliver")
	}
	p.Conversation.Deliver(d)
}

// TestPanic: a panic ends the session in whose turn it happens, and nothing else.
func TestPanic(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Loops: 2})
	client, worker, other := w.join(0, periodic.Client), w.worker(1, "f"), w.worker(0, "f")
	client.s.conv = &panicky{Conversation: client.s.conv, consuming: true}
	client.send(pings(1))
	if !client.closed {
		t.Error("the session with a fault is not closed")
	}
	worker.grabs(0, 1)
	worker.s.conv = &panicky{Conversation: worker.s.conv, delivering: true}
	client = w.join(0, periodic.Client)
	client.send(request(1, periodic.SubmitJob, job("f", "n"))) // goes to worker by mail
	if !worker.closed || client.closed {
		t.Errorf("closed: %v, want the worker; the client: %v", worker.closed, client.closed)
	}
	other.grabs(0, 1)
	if got := names(t, other.frames()); len(got) != 1 {
		t.Errorf("the job did not come back: %q", got)
	}
	if n := w.closedFor(errPanic); n != 2 {
		t.Errorf("%d internal errors are counted, want 2", n)
	}
	client.send(request(2, periodic.Ping))
	if got := client.frames(); len(got) != 2 {
		t.Errorf("the client got %d replies, want 2", len(got))
	}
}

// TestAnnouncedSize: an announced size alone takes no memory.
func TestAnnouncedSize(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	for _, head := range []string{"\x00REQ\x04\x00\x00\x00aaaa\x0d\x01f", "\x00REQ\x7f\xff\xff\xffaaaa\x13\x00\x00\x00\x00\x00\x00\x00\x02\x01f\x01n\x03\xff\x00\x00"} {
		c := w.join(0, periodic.Client)
		for i := range len(head) {
			c.send([]byte(head[i : i+1]))
		}
		if c.closed || cap(c.s.partial) > 1024 {
			t.Errorf("closed: %v; %d bytes for the announcement %q", c.closed, cap(c.s.partial), head)
		}
	}
}

// nopCloser is the second descriptor of a half-closed connection.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestHalfCloseWaitsForAll: of two acknowledgements on a half-closed connection, the later may wait for
// an earlier group of the journal. Both wait for the later group.
func TestHalfCloseWaitsForAll(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c := w.join(0, periodic.Client)
	c.r.dupWriter = func(connection) io.WriteCloser { return nopCloser{io.Discard} }
	for _, group := range []uint64{8, 7} {
		c.s.SendAfterCommit(group, []byte{'x'})
	}
	c.r.halfClose(c.s)
	if got := c.r.acks.halfClosed; len(got) != 1 || got[0].group != 8 || string(got[0].acks) != "xx" {
		t.Errorf("what is owed: %+v", got)
	}
	c.r.acks.halfClosed, c.r.acks.sessions = nil, nil // there is no journal
	w.Server.conns.remove(w.Server.conns.id("periodic"))
}

// TestConnectionIDs: no two open connections are told the same id, whatever loops they are on.
func TestConnectionIDs(t *testing.T) {
	t.Parallel()
	seen := map[uint32]sched.SessionID{}
	for loop := range uint64(maxLoops) {
		for _, slot := range []uint64{0, 1, 4, 1 << 19, 1<<20 - 1} {
			id := sched.SessionID(loop<<loopShift | slot<<slotShift | 7)
			if other, taken := seen[connectionID(id)]; taken {
				t.Fatalf("sessions %x and %x are both told %x", id, other, connectionID(id))
			}
			seen[connectionID(id)] = id
		}
	}
}
