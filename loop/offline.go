//go:build invariants

package loop

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"treadle/sched"
)

// Offline is a server of one loop without sockets, disk, timer and running clock: its
// peers are calls, and nothing happens between them. It is there in test builds only, for
// tests of other rooms that play whole conversations fast enough to fuzz them; the rest of
// the server is the same code as ever. One goroutine at a time may use it.
type Offline struct {
	server *Server
	r      *reactor
	time   sched.Time
	timer  timerSink

	mu     sync.Mutex
	pushed sync.Cond
	queue  []func() // what the loop has to run
}

// NewOffline makes a server at a fixed time. Of the settings those of sockets, loops and
// the journal do not count.
func NewOffline(settings Options) (*Offline, error) {
	settings.Data, settings.Loops = NoData, 1
	s, err := newServer(settings)
	if err != nil {
		return nil, err
	}
	o := &Offline{server: s, time: sched.Time{Wall: 1_795_239_475_000, Mono: 1000}, timer: timerSink{s, make([]bool, 1)}}
	o.pushed.L = &o.mu
	s.clock = func() sched.Time { return o.time }
	s.stop = func() {}
	o.r = newReactor(s, 0)
	o.r.exec = func(fn func()) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.queue = append(o.queue, fn)
		o.pushed.Signal()
	}
	o.r.hangUp = func(c connection) { c.(*OfflinePeer).end() }
	o.r.after = func(time.Duration, func()) *time.Timer { return nil } // every peer reads at once
	s.reactors[0].Store(o.r)
	return o, nil
}

// settle runs the loop until it has nothing to do, long replies included.
func (o *Offline) settle() {
	for fn := o.next(); fn != nil; fn = o.next() {
		fn()
	}
}

// next waits for what the loop has to run; nil: nothing will come.
func (o *Offline) next() (fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 {
		if o.server.reports.Load() == 0 {
			return nil
		}
		o.pushed.Wait()
	}
	fn = o.queue[0]
	o.queue = o.queue[1:]
	return fn
}

// Advance moves the clock, and does what is due when it is due.
func (o *Offline) Advance(d time.Duration) {
	for left := d.Milliseconds(); ; {
		next := o.tick()
		step := min(max(min(next.Wall-o.time.Wall, next.Mono-o.time.Mono), 1), left)
		if left -= step; step == 0 {
			return
		}
		o.time.Wall += step
		o.time.Mono += step
	}
}

func (o *Offline) tick() (next sched.Time) {
	select {
	case <-o.server.alarm:
	default:
	}
	next = o.server.sched.Tick(o.time, &o.timer)
	o.server.wake(o.timer.mailed)
	o.settle()
	o.r.sweep()
	o.settle()
	return next
}

// Check returns the first thing that is wrong with the server: structures of the scheduler
// that disagree, an internal error, and, when nobody is connected, what peers left behind.
func (o *Offline) Check() error {
	if err := o.server.sched.Check(); err != nil {
		return err
	}
	for i, reason := range closeReasons {
		if reason.err == errPanic && o.server.counters.closed[i].Load() > 0 {
			return errPanic
		}
	}
	if o.server.conns.Load() > 0 {
		return nil
	}
	if o.server.sched.Awaited() {
		return errors.New("nobody is connected, and a running job is awaited")
	}
	var err error
	o.server.sched.Status(func(q sched.QueueStatus) {
		if q.Workers != 0 || q.Running != 0 {
			err = fmt.Errorf("nobody is connected, but %+v", q)
		}
	})
	for cursor, done := (sched.Cursor{}), false; !done; {
		cursor, done = o.server.sched.Walk(cursor, walkBatch, func(j *sched.Job) {
			if isGloom(j.Space) {
				err = fmt.Errorf("the Gloom job %q outlives its master", j.Name)
			}
		})
	}
	return err
}

// OfflinePeer is a connection to an Offline server, whose other end reads at once.
type OfflinePeer struct {
	server  *Offline
	session *session
	read    []byte
	closed  bool
}

// Connect connects a peer to a port, named as the setting with its addresses: periodic,
// gloom-masters or gloom-slaves. It panics for any other.
func (o *Offline) Connect(port string) *OfflinePeer {
	talk := map[string]talker{"periodic": newPeriodic, "gloom-masters": newGloomMaster, "gloom-slaves": newGloomSlave}[port]
	if talk == nil {
		panic("no port is called " + port)
	}
	p := &OfflinePeer{server: o}
	o.server.conns.Add(1)
	p.session = o.r.open(p, talk)
	return p
}

// Send hands the server what the peer sends, and ends the turn. b is not kept, and not
// readable as it was when Send returns.
func (p *OfflinePeer) Send(b []byte) {
	if !p.closed && len(b) > 0 {
		p.server.r.traffic(p.session, b)
		for i := range b {
			b[i] = 0xdb
		}
	}
	p.server.settle()
}

// Read returns all that the peer has been sent since the last Read.
func (p *OfflinePeer) Read() []byte {
	read := p.read
	p.read = nil
	return read
}

// Closed says whether the connection has ended.
func (p *OfflinePeer) Closed() bool { return p.closed }

// Close is the peer's leaving.
func (p *OfflinePeer) Close() {
	p.end()
	p.server.settle()
}

func (p *OfflinePeer) end() {
	if !p.closed {
		p.closed = true
		p.server.r.shut(p.session)
	}
}

// Write implements connection.
func (p *OfflinePeer) Write(b []byte) (int, error) {
	if p.closed {
		panic("BUG: written to after its end, when another peer may have its descriptor")
	}
	p.read = append(p.read, b...)
	return len(b), nil
}

// OutboundBuffered implements connection.
func (p *OfflinePeer) OutboundBuffered() int { return 0 }

// RemoteAddr implements connection.
func (p *OfflinePeer) RemoteAddr() net.Addr { return nil }
