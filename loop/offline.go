//go:build invariants

package loop

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/loop/disbatch/hub"
	"treadle/loop/disbatch/node"
	"treadle/loop/dwork"
	"treadle/loop/gloom"
	"treadle/loop/kts46"
	"treadle/sched"
)

// Surroundings are what an Offline server stands in. The zero value is one loop at a fixed
// time, without a disk.
type Surroundings struct {
	// Disk has the journal; nil: jobs live in memory alone. Nothing is committed but by
	// Commit and BeginCommit.
	Disk vfs.FS
	// LogSize is the size with which a log of the journal is full; 0: the usual one.
	LogSize int64
	// BatchSize is the size in bytes with which a part of a large group ends; 0: the usual one.
	BatchSize int
	// Now is what the clocks show at first; zero: some time in 2026.
	Now sched.Time
	// Seed says which queue is of which shard; zero: by chance.
	Seed maphash.Seed
	// SchedBatch is how many jobs the scheduler moves at once, see sched.Options; 0: as many as ever.
	SchedBatch int
	// Pick chooses which of n things goes on next: the event loops that have something to do,
	// and a long reply; nil: the first.
	Pick func(n int) int
}

// Offline is a server without sockets, timer and running clock: its peers are calls, and
// nothing happens between them. It is there in test builds only, for tests of other rooms
// that play whole conversations fast enough to fuzz them; the rest of the server is the
// same code as ever. One goroutine at a time may use it.
type Offline struct {
	server *Server
	loops  []*reactor
	pick   func(int) int
	time   sched.Time
	timer  mailSink

	mu        sync.Mutex
	pushed    sync.Cond       // a queue, rested or stopped has changed
	queues    [][]func()      // what the loops have to run
	announced uint64          // the last group whose commit the loops know of
	rested    uint64          // the same when the journal was last at rest
	stopped   bool            // the server wants to stop: its journal has failed, or a client has asked for it
	abandoned bool            // nobody waits for it any more
	handedOut uint64          // how often a job was, when the server began to stop
	connected int64           // peers that have not ended
	serves    bool            // on listeners, too
	later     []func()        // what the loops run when time has passed
	beside    []offlineReport // long replies that are not encoded yet
	calls     []*offlineCall  // of kts46 that wait for a commit, in the order of their coming
	calling   *offlineCall    // the one that runs
}

// NewOffline makes a server of one loop without a disk.
func NewOffline(settings Options) (*Offline, error) {
	settings.Loops = 1
	return NewOfflineIn(settings, Surroundings{})
}

// NewOfflineIn makes a server in its surroundings. Of the settings those of sockets and the
// journal's directory do not count. An error is the journal's.
func NewOfflineIn(settings Options, in Surroundings) (*Offline, error) {
	settings.Data = NoData
	if in.Disk != nil {
		settings.Data = "data"
	}
	s, err := newServerOn(settings, sched.Options{Seed: in.Seed, Batch: in.SchedBatch})
	if err != nil {
		return nil, err
	}
	if in.Now == (sched.Time{}) {
		in.Now = sched.Time{Wall: 1_795_239_475_000, Mono: 1000, Micros: 1_795_239_475_000_000}
	}
	o := &Offline{
		server: s, pick: in.Pick, time: in.Now,
		timer: mailSink{s, make([]bool, s.o.Loops)}, queues: make([][]func(), s.o.Loops),
	}
	o.pushed.L = &o.mu
	s.clock = func() sched.Time { return o.time }
	s.stop = func() { o.change(func() { o.stopped = true }) }
	s.runAside = func(turn chan struct{}, do func()) { o.beside = append(o.beside, offlineReport{turn, do}) }
	s.await = o.parkCall
	for i := range s.o.Loops {
		o.loops = append(o.loops, o.newLoop(i))
		s.reactors[i].Store(o.loops[i])
	}
	if in.Disk == nil {
		return o, nil
	}
	s.journal.manual = true
	s.journalOpts.FS, s.journalOpts.LogSize, s.journalOpts.BatchSize = in.Disk, in.LogSize, in.BatchSize
	s.journalOpts.LookEvery = time.Hour // Look is called
	s.journalOpts.Committed = func(group uint64) {
		s.committed(group)
		o.change(func() { o.announced = group })
	}
	s.journalOpts.Rested = func() { o.change(func() { o.rested = o.announced }) }
	return o, s.openJournal()
}

func (o *Offline) newLoop(i int) *reactor {
	r := newReactor(o.server, i)
	r.exec = func(fn func()) { o.change(func() { o.queues[i] = append(o.queues[i], fn) }) }
	r.closeConn = func(c connection) { c.(*OfflinePeer).end() }
	r.dupWriter = func(c connection) io.WriteCloser { return parted{c.(*OfflinePeer)} }
	r.after = func(_ time.Duration, fn func()) *time.Timer {
		o.later = append(o.later, fn)
		return nil
	}
	return r
}

// change makes a change that wait waits for.
func (o *Offline) change(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn()
	o.pushed.Broadcast()
}

// wait waits until something has happened that happens on other goroutines.
func (o *Offline) wait(happened func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !happened() {
		o.pushed.Wait()
	}
}

// Settle runs the loops until they have nothing to do, long replies included.
func (o *Offline) Settle() {
	for {
		for fn := o.next(); fn != nil; fn = o.next() {
			fn()
		}
		switch { // in this order, whatever else is ready
		case o.hub().Turn():
		case o.functions().Turn():
		case !o.resumeCalls():
			return
		}
	}
}

// Turn runs one thing that there is to do; false: there is nothing.
func (o *Offline) Turn() bool {
	fn := o.next()
	if fn != nil {
		fn()
	}
	return fn != nil
}

// peers counts those that are connected, and those that are still written to.
func (o *Offline) peers() (n int64) {
	n = o.connected
	for _, r := range o.loops {
		n += int64(len(r.halfClosed))
	}
	return n
}

// busy counts the loops that have something to do.
func (o *Offline) busy() (n int) {
	for _, q := range o.queues {
		if len(q) > 0 {
			n++
		}
	}
	return n
}

// offlineReport is a long reply that waits for its turn. In the simulated server it has no
// goroutine of its own: it is encoded between two things that the loops do.
type offlineReport struct {
	turn chan struct{}
	do   func()
}

// report is the first long reply whose turn it is; -1: there is none.
func (o *Offline) report() int {
	return slices.IndexFunc(o.beside, func(r offlineReport) bool { return len(r.turn) < cap(r.turn) })
}

// next takes what one of the loops has to run, a Tick that is asked for, or a long reply to encode;
// nil: there is nothing.
func (o *Offline) next() (fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, report := o.busy(), o.report()
	if report >= 0 {
		n++
	}
	ticks := len(o.server.alarm) > 0
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
		<-o.server.alarm
		return o.timeout
	}
	r := o.beside[report]
	o.beside = slices.Delete(o.beside, report, report+1)
	r.turn <- struct{}{}
	return r.do
}

// timeout is one Tick.
func (o *Offline) timeout() {
	if next := o.server.tick(&o.timer); next.Mono <= o.time.Mono || next.Wall <= o.time.Wall {
		o.server.ring()
	}
}

// Advance moves the clocks, and does what is due when it is due.
func (o *Offline) Advance(d time.Duration) {
	for left := d.Milliseconds(); ; {
		next := o.tick()
		step := min(max(min(next.Wall-o.time.Wall, next.Mono-o.time.Mono), 1), left)
		if left -= step; step == 0 {
			return
		}
		o.Jump(time.Duration(step) * time.Millisecond)
		o.time.Mono += step
	}
}

// Jump sets the clock on the wall forward or back; nothing is done yet.
func (o *Offline) Jump(d time.Duration) {
	o.time.Wall += d.Milliseconds()
	o.time.Micros += d.Microseconds()
}

// Now is what the clocks show.
func (o *Offline) Now() sched.Time { return o.time }

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
	later := o.later
	o.later = nil
	for _, fn := range later {
		fn()
	}
	for _, r := range o.loops {
		r.sweep()
	}
	o.Settle()
	return next
}

// Stopping says whether the server wants to stop.
func (o *Offline) Stopping() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped
}

// Commit has the journal commit all that has happened, and what waited for it go out; false:
// the disk has failed and the server wants to stop.
func (o *Offline) Commit() bool {
	<-o.BeginCommit()
	o.Settle()
	return o.server.failure.Load() == nil
}

// BeginCommit has the journal begin to commit what has happened. Until over is closed something
// may be asked of the server only when the disk keeps the journal waiting.
func (o *Offline) BeginCommit() (over <-chan struct{}) {
	done := make(chan struct{})
	group, waits := o.server.durableAll()
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

// OfflineSeed is a Seed under which the server's own queues are of the same shards in every
// process: what waits for a commit depends on what else is in its shard.
func OfflineSeed(shards int) maphash.Seed {
	own := append([][]byte{[]byte(dwork.Queue)}, kts46.Queues()...)
	for {
		seed, same := maphash.MakeSeed(), true
		s := sched.New(sched.Options{Shards: shards, Seed: seed, Rules: spaces.Rules()})
		for i, q := range own {
			same = same && s.ShardOf(q) == i%shards
		}
		if same {
			return seed
		}
	}
}

// ShardOf says which shard a queue is of.
func (o *Offline) ShardOf(queue string) int { return o.server.sched.ShardOf([]byte(queue)) }

// Look has the journal look at the free space of its disk.
func (o *Offline) Look() { o.server.journal.journal.Look() }

// Functions is the server's door for a Disbatch node. What it causes happens in a Settle.
func (o *Offline) Functions() node.Functions { return o.functions() }

func (o *Offline) functions() *hub.Hub {
	for h := range protocolsWith[*hub.Hub](o.server) {
		return h
	}
	panic("BUG: no Disbatch hub")
}

// Abandon ends a server that has crashed: nobody is told anything. The disk must let go of it.
func (o *Offline) Abandon() {
	o.change(func() { o.abandoned = true })
	for _, c := range o.calls {
		c.reply = func(int, []byte) {}
		c.goOn(errStopping)
	}
	o.calls = nil
	if o.server.journal != nil {
		_ = o.server.journal.journal.Close() // what it has to say is about a disk that is gone
	}
}

// Check returns the first thing that is wrong with the server: structures of the scheduler
// that disagree, an internal error, and, when nobody is connected, what peers left behind.
func (o *Offline) Check() error {
	if err := o.server.sched.Check(); err != nil {
		return err
	}
	if o.server.counters.closing(errPanic).n.Load() > 0 {
		return errPanic
	}
	if o.server.stopping.Load() && o.handOuts() != o.handedOut {
		return errors.New("a server that stops has handed out a job")
	}
	counted := int64(o.server.conns.count())
	if n := o.peers(); !o.serves && counted != n {
		return fmt.Errorf("%d are connected, and the server counts %d", n, counted)
	}
	if counted > 0 {
		return nil
	}
	for _, r := range o.loops {
		for _, s := range r.sessions {
			if s != nil {
				return fmt.Errorf("nobody is connected, and session %#x is open", uint64(s.ID))
			}
		}
	}
	if o.server.sched.Unfinished() > 0 {
		return errors.New("nobody is connected, and a job is running")
	}
	var err error
	o.server.sched.Status(func(q sched.QueueStatus) {
		kts := slices.ContainsFunc(kts46.Queues(), func(own []byte) bool { return string(own) == q.Name })
		if q.Name != dwork.Queue && !kts && (q.Workers != 0 || q.Running != 0) { // those workers need no connection
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
