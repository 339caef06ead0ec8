package loop

import (
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"treadle/sched"
)

// rewrite makes the golden tests write what they got instead of comparing it.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

// No test may leave a goroutine behind: neither a real server's nor a journal's.
func TestMain(m *testing.M) {
	scribble = true
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet starts a pool of its own
}

// patience bounds a test that hangs; nothing waits for it otherwise.
const patience = 2 * time.Minute

// manualClock is a clock that a test moves.
type manualClock struct {
	mu   sync.Mutex
	time sched.Time
}

func (c *manualClock) now() sched.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *manualClock) add(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.Wall += ms
	c.time.Mono += ms
}

// set moves the clock on the wall alone, as people and daemons do.
func (c *manualClock) set(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.Wall += ms
}

// advance moves the clock by ms and stops wherever tick says that something is
// due, as the server's timer does.
func (c *manualClock) advance(ms int64, tick func() sched.Time) {
	for {
		now := c.now()
		next := tick()
		step := max(min(next.Wall-now.Wall, next.Mono-now.Mono), 1)
		if step > ms {
			c.add(ms)
			tick()
			return
		}
		c.add(step)
		ms -= step
	}
}

// world is a server without sockets: its reactors run when the test says so, in an
// order the test chooses, and what they write stays in memory.
type world struct {
	t *testing.T
	*Server
	manual  *manualClock
	loops   []*reactor
	conns   []*memConn
	rng     *rand.Rand // chooses who runs next; nil: the lowest loop
	stopped bool       // a client has asked for it
	timer   mailSink

	mu      sync.Mutex
	pushed  sync.Cond
	queues  [][]func() // what the reactors have to run, by loop
	delayed []func()   // what runs after slowPeriod
}

// newWorld makes a server at a fixed time, in memory alone unless o says otherwise. One
// shard keeps the order of STATUS. prepare may change it before it begins.
func newWorld(t *testing.T, o Options, prepare ...func(*Server)) *world {
	t.Helper()
	if o.Data == "" {
		o.Data = NoData
	}
	o.Shards = max(o.Shards, 1)
	o.Loops = max(o.Loops, 1)
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, Server: s, manual: &manualClock{time: sched.Time{Wall: 1_795_239_475_000, Mono: 1000}}}
	w.pushed.L = &w.mu
	w.queues = make([][]func(), o.Loops)
	w.timer = mailSink{s, make([]bool, o.Loops)}
	s.clock = w.manual.now
	s.stop = func() { w.stopped = true }
	for i := range o.Loops {
		r := newReactor(s, i)
		r.exec = func(fn func()) { w.push(i, fn) }
		r.closeConn = func(c connection) { c.(*memConn).end() }
		r.after = func(_ time.Duration, fn func()) *time.Timer {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.delayed = append(w.delayed, fn)
			return nil
		}
		s.reactors[i].Store(r)
		w.loops = append(w.loops, r)
	}
	for _, f := range prepare {
		f(s)
	}
	if s.journal != nil {
		if err := s.openJournal(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.journal.journal.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(w.finish)
	return w
}

func (w *world) push(loop int, fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[loop] = append(w.queues[loop], fn)
	w.pushed.Signal()
}

// step runs one function of one reactor; false when there is none.
func (w *world) step() bool {
	w.mu.Lock()
	var ready []int
	for i, q := range w.queues {
		if len(q) > 0 {
			ready = append(ready, i)
		}
	}
	if len(ready) == 0 {
		w.mu.Unlock()
		return false
	}
	i := ready[0]
	if w.rng != nil {
		i = ready[w.rng.IntN(len(ready))]
	}
	fn := w.queues[i][0]
	w.queues[i] = w.queues[i][1:]
	w.mu.Unlock()
	fn()
	return true
}

// settle runs the reactors until nothing is left to do, long replies included.
func (w *world) settle() {
	for {
		for w.step() {
		}
		if !w.reporting() {
			return
		}
		if !w.waitForPush() {
			w.t.Fatal("a long reply is never ready")
		}
	}
}

// await runs the reactors until something has happened.
func (w *world) await(what string, happened func() bool) {
	w.t.Helper()
	for w.settle(); !happened(); w.settle() {
		if !w.waitForPush() {
			w.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// waitForPush waits until a reactor has something to do; false when none has.
func (w *world) waitForPush() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := false
	timer := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.pushed.Signal()
	})
	defer timer.Stop()
	for !over {
		for _, q := range w.queues {
			if len(q) > 0 {
				return true
			}
		}
		w.pushed.Wait()
	}
	return false
}

// reporting says whether a long reply is being encoded that nothing stands in the
// way of.
func (w *world) reporting() bool {
	open := 0
	for _, r := range w.loops {
		for _, s := range r.sessions {
			if s == nil {
				continue
			}
			if s.stream != nil {
				return false
			}
			if s.longReplies != nil {
				open += s.longReplies.pending
			}
		}
	}
	return open > 0
}

// ticks is Tick until nothing is left to do now.
func (w *world) ticks() sched.Time {
	for {
		if next := w.Server.tick(&w.timer); next.Mono > w.now().Mono && next.Wall > w.now().Wall {
			return next
		}
	}
}

// tick does what the timer does when something is due.
func (w *world) tick() sched.Time {
	next := w.ticks()
	w.settle()
	for _, r := range w.loops {
		r.exec(r.sweep)
	}
	w.settle()
	return next
}

func (w *world) advance(ms int64) { w.manual.advance(ms, w.tick) }

// look lets the reactors look at their slow connections.
func (w *world) look() {
	w.mu.Lock()
	due := w.delayed
	w.delayed = nil
	w.mu.Unlock()
	for _, fn := range due {
		fn()
	}
	w.settle()
}

// finish ends every connection and checks that nothing stays behind.
func (w *world) finish() {
	for _, c := range w.conns {
		c.close()
	}
	w.await("the last long reply", func() bool { return w.longReplies.Load() == 0 })
	w.workers.Wait()
	w.ticks()
	w.settle()
	if n := w.Server.conns.count(); n != 0 {
		w.t.Errorf("%d connections are counted after the last has ended", n)
	}
	for _, q := range statusOf(w.Server) {
		if q.Workers != 0 || q.Running != 0 {
			w.t.Errorf("nobody is connected, but %+v", q)
		}
	}
}

func statusOf(s *Server) (all []sched.QueueStatus) {
	s.sched.Status(func(q sched.QueueStatus) { all = append(all, q) })
	return all
}

// counted returns what the counters of a name have counted.
func (s *Server) counted(name string) (n uint64) {
	for _, sample := range s.samples() {
		if sample.Name == name {
			n += uint64(sample.Value)
		}
	}
	return n
}

// closedFor is how many sessions were closed for a reason.
func (s *Server) closedFor(why error) uint64 {
	return s.counters.closing(why).n.Load()
}

// memConn is a connection in memory, on gnet's terms: what the kernel does not take
// is buffered, and a failed write ends the connection inside Write.
type memConn struct {
	w       *world
	r       *reactor
	s       *session
	read    []byte // what the peer has read
	backlog []byte // what the kernel has not taken
	room    int    // how many bytes it takes
	failing bool   // the next Write fails
	writes  int    // how many there were
	closed  bool
}

var errBroken = errors.New("broken pipe")

// open connects a peer to a loop.
func (w *world) open(loop int) *memConn {
	c := &memConn{w: w, r: w.loops[loop], room: 1 << 40}
	w.Server.conns.add(w.Server.conns.id("periodic"))
	c.s = c.r.open(c, c.r.server.loopPort("periodic"))
	w.conns = append(w.conns, c)
	return c
}

// Write implements connection.
func (c *memConn) Write(p []byte) (int, error) {
	if c.closed {
		c.w.t.Error("written to after its end, when another client may have its descriptor")
		return 0, errBroken
	}
	c.writes++
	if c.failing {
		c.end()
		return 0, errBroken
	}
	c.backlog = append(c.backlog, p...)
	c.take(0)
	return len(p), nil
}

// take lets the peer read n bytes more.
func (c *memConn) take(n int) {
	c.room += n
	n = min(c.room, len(c.backlog))
	c.room -= n
	c.read = append(c.read, c.backlog[:n]...)
	c.backlog = append([]byte(nil), c.backlog[n:]...)
}

// OutboundBuffered implements connection.
func (c *memConn) OutboundBuffered() int { return len(c.backlog) }

// RemoteAddr implements connection.
func (c *memConn) RemoteAddr() net.Addr { return nil }

// end closes the connection from within a turn.
func (c *memConn) end() {
	if !c.closed {
		c.closed = true
		c.r.closeSession(c.s)
	}
}

// close is the peer's leaving.
func (c *memConn) close() {
	c.end()
	c.w.settle()
}

// receive hands the reactor what the peer has sent, in a buffer that is not
// readable any more afterwards, and leaves the end of the turn to settle.
func (c *memConn) receive(in []byte) {
	if c.closed || len(in) == 0 {
		return
	}
	buffer := append([]byte(nil), in...)
	c.r.traffic(c.s, buffer)
	for i := range buffer {
		buffer[i] = 0xdb
	}
}

// send is receive and the end of the turn.
func (c *memConn) send(in ...[]byte) {
	for _, b := range in {
		c.receive(b)
	}
	c.w.settle()
}
