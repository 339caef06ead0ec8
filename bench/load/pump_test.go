package load

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// talker opens with a long request and waits until it was echoed.
type talker struct {
	request []byte
	heard   []byte
}

func (c *talker) open(_ int64, out []byte) []byte { return append(out, c.request...) }

func (c *talker) turn(_ int64, in, out []byte) (int, []byte, error) {
	c.heard = append(c.heard, in...)
	return len(in), out, nil
}

func (c *talker) reached() bool { return len(c.heard) >= len(c.request) }
func (c *talker) progress() int { return len(c.heard) }

// TestPumpKeepsWhatTheSocketDoesNotTake sends far more than a socket buffer holds to a peer that echoes it.
func TestPumpKeepsWhatTheSocketDoesNotTake(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[1]), "peer")
	peer, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	defer peer.Close()
	go func() {
		request := make([]byte, 4<<20)
		_, _ = io.ReadFull(peer, request) // all of it, before the first byte goes back
		_, _ = peer.Write(request)
	}()
	c := &talker{request: bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)}
	p, err := newPump([]*connection{{fd: pair[0], conversation: c}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	if err := p.run(c, new(atomic.Bool), StallLimit); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.heard, c.request) {
		t.Error("the echo is not what was sent")
	}
}

// TestPollingWorker leads a worker of a protocol in which an empty queue answers through its states.
func TestPollingWorker(t *testing.T) {
	g := letters{Traits{Sleep: letter(nil, 'Z', 0)}}
	grab, sleep := string(g.AppendGrab(nil, 0)), string(g.traits.Sleep)
	none, noop := string(letter(nil, 'e', 0)), string(letter(nil, 'w', 0))
	job := func(id uint64) string {
		workload := Workload(WorkloadLen)
		PutWorkload(workload, id, 0)
		return string(append(letter(nil, 'j', id), workload...))
	}
	done := func(id uint64) string { return string(g.AppendDone(nil, &Event{ID: id})) }
	w := &worker{side: newWorkerSide(g, 10), depth: 2}
	if got := string(w.open(0, nil)); got != grab+grab {
		t.Fatalf("opens with %q", got)
	}
	f := func(when, in, want string) {
		t.Helper()
		n, out, err := w.turn(1, []byte(in), nil)
		if err != nil || n != len(in) || string(out) != want {
			t.Fatalf("%s: got %q, %d of %d bytes, %v; want %q", when, out, n, len(in), err, want)
		}
	}
	f("the first grab finds nothing", none, "")
	f("nor does the second", none, sleep)
	f("woken", noop, grab+grab)
	f("one job, one empty answer: work goes on", job(0)+none, done(0)+grab+grab)
	f("two jobs", job(1)+job(2), done(1)+grab+done(2)+grab)
	f("nothing left", none+none, sleep)
	if w.side.arrived.received != 3 {
		t.Errorf("%d jobs arrived, want 3", w.side.arrived.received)
	}
}

// TestBacklog checks when producers must wait, and when the bell rings for them.
func TestBacklog(t *testing.T) {
	p, err := newPump(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	b, err := newBacklog(p, Load{Connections: 25, Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	rung := func(taken int) bool {
		t.Helper()
		if err := b.arrived(taken); err != nil {
			t.Fatal(err)
		}
		n, err := p.serve(0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	if got := b.room(70); got != 30 {
		t.Errorf("room for %d after 70 submits, want 30", got)
	}
	if !b.wait(100) {
		t.Error("100 jobs wait, and the producers need not")
	}
	if rung(49) {
		t.Error("the bell rang before half of the backlog was gone")
	}
	if !rung(50) {
		t.Error("the bell did not ring")
	}
	if rung(60) {
		t.Error("the bell rang for nobody")
	}
	if b.wait(110) {
		t.Error("half of the backlog is gone already, and the producers wait")
	}
}

// TestProducerUsesSlotsInOrder fills, holds back at the backlog's limit, and goes on with the slots that were freed
// first.
func TestProducerUsesSlotsInOrder(t *testing.T) {
	b := &backlog{limit: 3}
	f := newProducerSide(letters{}, 100)
	f.backlog = b
	p := newProducer(f, 4, false)
	p.open(10, nil)
	if f.next != 3 || len(p.free) != 1 {
		t.Fatalf("%d submits, free slots %v; want 3 and one slot", f.next, p.free)
	}
	b.taken.Store(2)
	if _, _, err := p.turn(20, letter(letter(nil, 's', 0), 's', 0), nil); err != nil {
		t.Fatal(err)
	}
	// Slot 3 was free first, then slots 0 and 1 were freed: 3 and 0 are used, 1 waits.
	if f.next != 5 || p.sent[3] != 20 || p.sent[0] != 20 || p.sent[1] != 10 || len(p.free) != 1 || p.free[0] != 1 {
		t.Errorf("%d submits, sent at %v, free slots %v", f.next, p.sent, p.free)
	}
	if _, _, err := p.turn(30, bytes.Repeat(letter(nil, 's', 0), 20), nil); err == nil {
		t.Error("more acknowledgements than submits were accepted")
	}
}

// TestMasterKeepsItsBound fills to the bound, and goes on by one for each answer.
func TestMasterKeepsItsBound(t *testing.T) {
	s := newProducerSide(letters{Traits{Answers: true}}, 10)
	m := newProducer(s, 3, false)
	m.open(10, nil)
	f := func(kind byte, next int) {
		t.Helper()
		if _, _, err := m.turn(20, letter(nil, kind, 0), nil); err != nil || s.next != next {
			t.Fatalf("%c: %d submits, %v; want %d", kind, s.next, err, next)
		}
	}
	f('s', 3)
	f('a', 4)
	if _, _, err := m.turn(30, letter(nil, 's', 4), nil); err == nil {
		t.Error("a job was acknowledged that was not submitted")
	}
	if _, _, err := m.turn(30, letter(nil, 'f', 0), nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("a master was told of a completion: %v", err)
	}
}
