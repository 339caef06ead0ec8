//go:build invariants

package loop

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/loop/admin"
	"treadle/loop/disbatch"
	"treadle/loop/disbatch/node"
	"treadle/loop/dwork"
	"treadle/loop/gloom"
	"treadle/loop/kts46"
	"treadle/sched"
)

// Environment are the disk, clocks and chances of an Offline server. The zero value is one loop at a
// fixed time, without a disk.
type Environment struct {
	// Disk has the journal; nil: jobs live in memory alone. Only Commit and BeginCommit commit.
	Disk vfs.FS
	// LogSize is the size in bytes of a full log of the journal; 0: the default.
	LogSize int64
	// BatchSize is the size in bytes of the parts of a large group; 0: the default.
	BatchSize int
	// Now is the first time of the clocks; zero: some time in 2026.
	Now sched.Time
	// FirstRun is where the numbers of runs begin, see sched.Options: no other server of the disk had them.
	FirstRun uint64
	// SchedBatch is how many jobs the scheduler moves at once, see sched.Options, and how many an operation looks at;
	// 0: the defaults.
	SchedBatch int
	// Pick chooses which of n things runs next: a loop with queued functions, a Tick or work off the event loops; nil:
	// the first.
	Pick func(n int) int
}

// Offline is a server without sockets, timers and running clocks, for test builds. Its peers are method calls, and
// nothing happens between two calls. Tests of other packages can so play whole conversations fast enough to fuzz them.
// All other code is the server's. One goroutine at a time may use it.
type Offline struct {
	server *Server
	loops  []*reactor
	pick   func(int) int
	time   sched.Time
	timer  mailSink

	mu        sync.Mutex
	changed   sync.Cond        // after each change
	queues    [][]func()       // functions to run, by loop
	announced uint64           // the last group that the loops know to be committed
	rested    uint64           // announced when the journal was last at rest
	stopped   bool             // the journal has failed, or a client has asked the server to stop
	abandoned bool             // Abandon was called
	handedOut uint64           // jobs handed out before BeginStop
	connected int64            // peers that have not ended
	listens   bool             // Serve was called
	timers    []func()         // functions that run when time has passed
	pending   []pendingOffload // work off the event loops that has not run
	works     []*offlineWork   // works that wait, in the order in which they began to
	working   *offlineWork     // the work that runs
	begun     []func()         // work that has not started
	closing   bool             // no work waits for tokens any more
}

// NewOffline makes a server of one loop without a disk.
func NewOffline(settings Options) (*Offline, error) {
	settings.Loops = 1
	return NewOfflineIn(settings, Environment{})
}

// NewOfflineIn makes a server in its surroundings. It ignores the settings of sockets and the
// journal's directory. An error is the journal's.
func NewOfflineIn(settings Options, in Environment) (*Offline, error) {
	settings.Data, settings.Admin.Slice, settings.Admin.NoHistory = NoData, in.SchedBatch, true
	if in.Disk != nil {
		settings.Data = "data"
	}
	s, err := newServerWith(settings, sched.Options{FirstRun: in.FirstRun, Batch: in.SchedBatch})
	if err != nil {
		return nil, err
	}
	if in.Now == (sched.Time{}) {
		in.Now = sched.Time{Wall: 1_795_239_475_000, Mono: 1000, WallMicros: 1_795_239_475_000_000}
	}
	o := &Offline{
		server: s, pick: in.Pick, time: in.Now,
		timer: mailSink{s, make([]bool, s.o.Loops)}, queues: make([][]func(), s.o.Loops),
	}
	o.changed.L = &o.mu
	s.clock = func() sched.Time { return o.time }
	s.stop = func() { o.change(func() { o.stopped = true }) }
	s.runOffload = func(slots chan struct{}, do func()) { o.pending = append(o.pending, pendingOffload{slots, do}) }
	s.blocking = o.newBlockingCalls()
	for i := range s.o.Loops {
		o.loops = append(o.loops, o.newLoop(i))
		s.reactors[i].Store(o.loops[i])
	}
	if in.Disk == nil {
		return o, nil
	}
	s.journal.manual = true
	s.journalOpts.FS, s.journalOpts.LogSize, s.journalOpts.BatchSize = in.Disk, in.LogSize, in.BatchSize
	s.journalOpts.SpaceCheckInterval = time.Hour // tests call CheckSpace
	s.journalOpts.Committed = func(group uint64) {
		s.onCommit(group)
		o.change(func() { o.announced = group })
	}
	s.journalOpts.Idle = func() { o.change(func() { o.rested = o.announced }) }
	if err := s.openJournal(); err != nil {
		return o, err
	}
	return o, o.operators().Begin()
}

func (o *Offline) newLoop(i int) *reactor {
	r := newReactor(o.server, i)
	r.exec = func(fn func()) { o.change(func() { o.queues[i] = append(o.queues[i], fn) }) }
	r.closeConn = func(c connection) { c.(*OfflinePeer).end() }
	r.dupWriter = func(c connection) io.WriteCloser { return halfClosedPeer{c.(*OfflinePeer)} }
	r.after = func(_ time.Duration, fn func()) *time.Timer {
		o.timers = append(o.timers, fn)
		return nil
	}
	return r
}

// change runs fn and has wait check again.
func (o *Offline) change(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn()
	o.changed.Broadcast()
}

// wait blocks until other goroutines have made a condition true.
func (o *Offline) wait(happened func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !happened() {
		o.changed.Wait()
	}
}

// Settle runs the loops, and the work beside them, until nothing is left to do.
func (o *Offline) Settle() {
	for {
		for fn := o.next(); fn != nil; fn = o.next() {
			fn()
		}
		switch { // always in this order
		case o.hub().Turn():
		case o.functions().Turn():
		case !o.resumeNext():
			return
		}
	}
}

// RunNext runs the next thing. It returns false if nothing is left to run.
func (o *Offline) RunNext() bool {
	fn := o.next()
	if fn != nil {
		fn()
	}
	return fn != nil
}

// peers returns how many peers are connected or half-closed.
func (o *Offline) peers() (n int64) {
	n = o.connected
	for _, r := range o.loops {
		n += int64(len(r.acks.halfClosed))
	}
	return n
}

// busy returns how many loops have functions to run.
func (o *Offline) busy() (n int) {
	for _, q := range o.queues {
		if len(q) > 0 {
			n++
		}
	}
	return n
}

// pendingOffload is work off the event loops that waits for a place. The simulated server runs it between two functions
// of the loops instead of in a goroutine.
type pendingOffload struct {
	slots chan struct{}
	do    func()
}

// nextOffload returns the index of the first work with a free place; -1: none.
func (o *Offline) nextOffload() int {
	return slices.IndexFunc(o.pending, func(a pendingOffload) bool { return len(a.slots) < cap(a.slots) })
}

// next takes the next function of a loop, a Tick that wakeTimer asks for, or work off the event loops. It returns nil
// if there is nothing to do.
func (o *Offline) next() (fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, offload := o.busy(), o.nextOffload()
	if offload >= 0 {
		n++
	}
	ticks := len(o.server.timerWake) > 0
	if ticks {
		n++
	}
	if n == 0 {
		return nil
	}
	chosen := 0
	if o.pick != nil && n > 1 {
		chosen = o.pick(n)
	}
	for i, q := range o.queues {
		if len(q) == 0 {
			continue
		}
		if chosen == 0 {
			o.queues[i] = q[1:]
			return q[0]
		}
		chosen--
	}
	if ticks && chosen == 0 {
		<-o.server.timerWake
		return o.tickOnce
	}
	next := o.pending[offload]
	o.pending = slices.Delete(o.pending, offload, offload+1)
	next.slots <- struct{}{}
	return next.do
}

// tickOnce ticks the scheduler once.
func (o *Offline) tickOnce() {
	if next := o.server.tick(&o.timer); next.Mono <= o.time.Mono || next.Wall <= o.time.Wall {
		o.server.wakeTimer()
	}
}

// Advance moves the clocks and runs each timer at its time.
func (o *Offline) Advance(d time.Duration) {
	for left := d.Milliseconds(); ; {
		next := o.tick()
		step := min(max(min(next.Wall-o.time.Wall, next.Mono-o.time.Mono, o.nextWork()-o.time.Mono), 1), left)
		if left -= step; step == 0 {
			return
		}
		o.Jump(time.Duration(step) * time.Millisecond)
		o.time.Mono += step
	}
}

// Jump steps the wall clock forward or back. It runs nothing.
func (o *Offline) Jump(d time.Duration) {
	o.time.Wall += d.Milliseconds()
	o.time.WallMicros += d.Microseconds()
}

// Now returns the time of the clocks.
func (o *Offline) Now() sched.Time { return o.time }

// tick runs the Ticks that are due, and the time-outs of kts46 and dwork. It returns when the next Tick is due.
func (o *Offline) tick() (next sched.Time) {
	for next = o.server.tick(&o.timer); next.Mono <= o.time.Mono || next.Wall <= o.time.Wall; {
		next = o.server.tick(&o.timer)
	}
	if o.server.o.Kts46.RestartAfter > 0 {
		o.kts46().Expire()
	}
	if o.server.o.Dwork.Lease > 0 {
		o.hub().Expire()
	}
	o.Settle()
	later := o.timers
	o.timers = nil
	for _, fn := range later {
		fn()
	}
	for _, r := range o.loops {
		r.sweep()
	}
	o.Settle()
	return next
}

// Stopping reports whether the server wants to stop.
func (o *Offline) Stopping() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped
}

// Commit commits all changes and sends the acknowledgements. It returns false when the disk has
// failed.
func (o *Offline) Commit() bool {
	<-o.BeginCommit()
	o.Settle()
	return o.server.failure.Load() == nil
}

// BeginCommit begins to commit all changes. Until over is closed, the server may be used only while
// the disk keeps the journal waiting.
func (o *Offline) BeginCommit() (over <-chan struct{}) {
	done := make(chan struct{})
	group, waits := o.server.journal.commitGroupAll()
	if !waits {
		close(done)
		return done
	}
	o.server.journal.manual = false
	o.server.journal.flush(1)
	o.server.journal.manual = true
	go func() {
		defer close(done)
		o.wait(func() bool { return o.rested >= group || o.abandoned || o.server.failure.Load() != nil })
	}()
	return done
}

// ShardOf returns the shard of a queue.
func (o *Offline) ShardOf(queue string) int { return o.server.sched.ShardOf([]byte(queue)) }

// CheckSpace makes the journal look at the free space of its disk.
func (o *Offline) CheckSpace() { o.server.journal.checkSpace() }

// Functions returns the server as a Disbatch node sees it. The effects of a call come with the next
// Settle.
func (o *Offline) Functions() node.Functions { return o.functions() }

func (o *Offline) functions() *disbatch.Protocol { return protocolOf[*disbatch.Protocol](o) }

func (o *Offline) operators() *admin.API { return protocolOf[*admin.API](o) }

// protocolOf returns the server's protocol of type T.
func protocolOf[T any](o *Offline) T {
	for p := range protocolsWith[T](o.server) {
		return p
	}
	panic("BUG: the server lacks a protocol")
}

// Abandon ends a server as a crash does: no peer is told anything. The disk must release it.
func (o *Offline) Abandon() {
	o.change(func() { o.abandoned = true })
	o.operators().Drain()
	o.endWork()
	if o.server.journal != nil {
		_ = o.server.journal.close() // its error is about a disk that is gone
	}
}

// servesUnconnected reports whether a worker over HTTP holds a job or waits for one, or a worker of Faktory's protocol
// holds one: neither needs a connection.
func (o *Offline) servesUnconnected() bool {
	l, err := sched.NewListing(&sched.Match{}, nil, true, "")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	held := len(o.works) > 0
	for done := false; !done && !held; {
		done = o.server.sched.List(o.time, l, sched.WalkBatch, func(v *sched.JobView) bool {
			leased := strings.HasPrefix(v.Worker, "http:") || strings.HasPrefix(v.Worker, "faktory")
			held = held || leased && v.State == sched.JobRunning
			return true
		})
	}
	return held
}

// Check returns the first fault of the server: inconsistent structures of the scheduler, an internal
// error, or state left behind when no peer is connected.
func (o *Offline) Check() error {
	if err := o.server.sched.Check(); err != nil {
		return err
	}
	for i := range o.server.conns.protocols {
		if o.server.counters.closeCounter(errPanic).n[i].Load() > 0 {
			return errPanic
		}
	}
	if o.server.stopping.Load() && o.handOuts() != o.handedOut {
		return errors.New("a server that stops has handed out a job")
	}
	counted := int64(o.server.conns.count())
	if n := o.peers(); !o.listens && counted != n {
		return fmt.Errorf("%d are connected, and the server counts %d", n, counted)
	}
	if counted > 0 || o.servesUnconnected() {
		return nil
	}
	for _, r := range o.loops {
		for s := range r.sessions.all() {
			return fmt.Errorf("nobody is connected, and session %#x is open", uint64(s.ID))
		}
	}
	if o.server.sched.CountInterruptible() > 0 {
		return errors.New("nobody is connected, and a job is running")
	}
	var err error
	o.server.sched.Status(func(q sched.QueueStatus) {
		kts := slices.ContainsFunc(kts46.Queues(), func(own []byte) bool { return string(own) == q.Name })
		if q.Name != dwork.Queue && !kts && (q.Workers != 0 || q.Running != 0) { // workers of these queues need no connection
			err = fmt.Errorf("nobody is connected, but %+v", q)
		}
	})
	for cursor, done := (sched.Cursor{}), false; !done; {
		cursor, done = o.server.sched.Walk(cursor, sched.WalkBatch, func(j *sched.Job) {
			if j.Space == gloom.TextSpace || j.Space == gloom.ValueSpace {
				err = fmt.Errorf("the Gloom job %q outlives its master", j.Name)
			}
		})
	}
	return err
}
