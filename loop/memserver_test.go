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

	"treadle/codec/periodic"
	"treadle/sched"
)

// rewrite makes the golden tests write their results instead of comparing them.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

// TestMain checks that no test leaves a goroutine behind.
func TestMain(m *testing.M) {
	scribble = true
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet starts a pool of its own
}

// patience bounds a test that hangs. No other wait depends on it.
const patience = 2 * time.Minute

// manualClock is a clock that a test moves.
type manualClock struct {
	mu   sync.Mutex
	time sched.Time
}

func (c *manualClock) now() sched.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.WallMicros = c.time.Wall * 1000
	return c.time
}

func (c *manualClock) add(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.Wall += ms
	c.time.Mono += ms
}

// set steps the wall clock alone, as people and daemons do.
func (c *manualClock) set(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time.Wall += ms
}

// advance moves the clock by ms and stops at each time that tick returns, as the server's timer does.
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

// memServer is a server without sockets. The test chooses when its reactors run and in which order.
// Their output stays in memory.
type memServer struct {
	t *testing.T
	*Server
	manual  *manualClock
	loops   []*reactor
	conns   []*memConn
	rng     *rand.Rand // chooses the loop that runs next; nil: the lowest
	stopped bool       // a client has asked the server to stop
	timer   mailSink

	mu      sync.Mutex
	pushed  sync.Cond
	queues  [][]func() // by loop: functions to run
	delayed []func()   // functions that run after slowPeriod
}

// newMemServer makes a server at a fixed time, in memory alone unless o says otherwise. One shard keeps
// the order of STATUS. prepare may change the server before it begins.
func newMemServer(t *testing.T, o Options, prepare ...func(*Server)) *memServer {
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
	w := &memServer{t: t, Server: s, manual: &manualClock{time: sched.Time{Wall: 1_795_239_475_000, Mono: 1000}}}
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
			if err := s.journal.close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(w.finish)
	return w
}

func (w *memServer) push(loop int, fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[loop] = append(w.queues[loop], fn)
	w.pushed.Signal()
}

// step runs one function of one reactor. It returns false when there is none.
func (w *memServer) step() bool {
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

// settle runs the reactors, and the long replies, until nothing is left to do.
func (w *memServer) settle() {
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

// await runs the reactors until a condition is true.
func (w *memServer) await(what string, happened func() bool) {
	w.t.Helper()
	for w.settle(); !happened(); w.settle() {
		if !w.waitForPush() {
			w.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// waitForPush waits until a reactor has a function to run. It returns false when none will have one.
func (w *memServer) waitForPush() bool {
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

// reporting reports whether a long reply is being encoded or will be without further events.
func (w *memServer) reporting() bool {
	open := 0
	for _, r := range w.loops {
		for s := range r.sessions.all() {
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

// ticks ticks the scheduler until nothing is due.
func (w *memServer) ticks() sched.Time {
	for {
		if next := w.Server.tick(&w.timer); next.Mono > w.now().Mono && next.Wall > w.now().Wall {
			return next
		}
	}
}

// tick does the timer's work of a Tick.
func (w *memServer) tick() sched.Time {
	next := w.ticks()
	w.settle()
	for _, r := range w.loops {
		r.exec(r.sweep)
	}
	w.settle()
	return next
}

func (w *memServer) advance(ms int64) { w.manual.advance(ms, w.tick) }

// runTimers makes the reactors check their slow connections.
func (w *memServer) runTimers() {
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
func (w *memServer) finish() {
	for _, c := range w.conns {
		c.close()
	}
	w.await("the last long reply", func() bool { return w.longReplies.Load() == 0 })
	w.goroutines.Wait()
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

// counterSum returns the value of the counters of a name.
func (s *Server) counterSum(name string, label ...string) (n uint64) {
	for _, sample := range s.samples() {
		if sample.Name == name && (len(label) == 0 || sample.Second[1] == label[0]) {
			n += uint64(sample.Value)
		}
	}
	return n
}

// refusedFor returns how many requests of Periodic were refused for a reason.
func (s *Server) refusedFor(why periodic.Reason) uint64 {
	return s.conns.protocols[s.conns.id("periodic")].refusals[why].Load()
}

// closedFor returns how many sessions were closed for a reason.
func (s *Server) closedFor(why error) uint64 {
	var n uint64
	for i := range s.conns.protocols {
		n += s.counters.closeCounter(why).n[i].Load()
	}
	return n
}

// memConn is a connection in memory with gnet's contract: bytes that the kernel does not take are
// buffered, and a failed write ends the connection inside Write.
type memConn struct {
	w       *memServer
	r       *reactor
	s       *session
	read    []byte // bytes that the peer has read
	backlog []byte // bytes that the kernel has not taken
	room    int    // how many more bytes the kernel takes
	failing bool   // the next Write fails
	writes  int    // number of Writes
	closed  bool
}

var errBroken = errors.New("broken pipe")

// open connects a peer to a loop.
func (w *memServer) open(loop int) *memConn {
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

// take lets the peer read n more bytes.
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

// close closes the peer's end.
func (c *memConn) close() {
	c.end()
	c.w.settle()
}

// receive passes bytes from the peer to the reactor without ending the turn. It scribbles over them
// afterwards.
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
