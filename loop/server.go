package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/cluster"
	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// Server is a running server: the scheduler, the event loops, the listeners and the timer.
type Server struct {
	o       Options
	log     *slog.Logger
	started time.Time

	// Seams: the tests and Offline replace these functions before anything runs.
	clock      func() sched.Time
	runOffload func(slots chan struct{}, do func())                // goOffload
	blocking   blockingCalls                                       // newBlockingCalls
	listenOn   func(setting, address string) (net.Listener, error) // tlsPorts.openPort
	stop       context.CancelFunc                                  // of Run's context

	// The event loops, and what they serve.
	sched      *sched.Scheduler
	reactors   []atomic.Pointer[reactor] // by loop; nil until the loop's first connection
	engine     *engine
	protocols  []protocol.Protocol
	localPeers []func(*sched.Delivery) // by slot of their ids
	timerWake  chan struct{}           // wakes the timer before its time

	// Connections, and the HTTP port.
	conns       *connShares
	listeners   []listener
	listening   []Listening
	web         *web.Server // nil: HTTP is off
	httpAddress string      // with the scheme
	guard       *web.Guard  // of all HTTP ports
	tls         *tlsPorts
	serving     atomic.Bool            // the journal is read, and all ports are open
	progress    atomic.Pointer[string] // how far the start is
	swept       atomic.Int64           // Mono of the timer's last sweep

	// Metrics and the log.
	counters    counters
	logLimit    throttle // of log lines that hostile peers can cause
	overdue     overdue  // jobs that exceeded their time-out
	lateReports throttle // of log lines about reports that came too late

	// Long replies and large requests.
	encoders    []chan struct{} // by protocol.StreamKind: a semaphore, see Stream
	dumpSlot    chan struct{}   // a semaphore: one Dump that its peer does not read, and that has no encoder
	offloads    chan struct{}   // a semaphore, see Offload
	longReplies atomic.Int64    // long replies that nothing has been sent of yet

	memory     *memoryLimit // nil: no limit
	peerMemory int          // bytes that a budget of the peers of an event loop may have, or one largest request or reply

	drainNanos atomic.Int64 // nanoseconds of --drain, see drain
	reloads    sync.Mutex   // held during a Reload

	// The journal.
	journal     *schedJournal   // nil: jobs live in memory alone
	journalOpts journal.Options // for journal.Open
	commits     *sync.Cond      // signals a commit or the journal's failure
	failure     atomic.Pointer[journalError]
	failedAt    atomic.Int64  // Unix milliseconds of failure; 0: it has not failed
	holdsLease  func() bool   // whether no other node of the cluster can lead yet; nil: the server is alone
	node        *cluster.Node // nil: the server is alone

	// The end.
	stopping        atomic.Bool           // no job is handed out any more
	stopped         chan struct{}         // closed when the event loops have ended
	protocolFailure atomic.Pointer[error] // the error of a protocol that stopped the server
	accepters       sync.WaitGroup
	goroutines      sync.WaitGroup // timer, encoders, HTTP
}

// Run serves until ctx ends or a peer shuts the server down. It then waits up to Options.Drain for
// running jobs and unsent replies, and returns nil. A wrong setting is an *OptionError.
func Run(ctx context.Context, o Options) error {
	s, err := newServer(o)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// New makes a server, which does nothing before Run. A wrong setting is an *OptionError, or several are joined.
func New(o Options) (*Server, error) { return newServer(o) }

// Run serves as the function Run does.
func (s *Server) Run(ctx context.Context) (err error) {
	ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()
	if err := s.openHTTP(); err != nil {
		return err
	}
	if s.journal != nil {
		if err := s.openJournal(); err != nil {
			s.closeHTTP()
			return err
		}
		defer func() { err = s.closeJournal(err) }()
	}
	if err = s.listen(); err == nil {
		s.engine, err = newEngine(s)
	}
	if err != nil {
		s.closeListeners()
		s.closeServices()
		s.closeHTTP()
		return err
	}
	s.serve(ctx)
	<-ctx.Done()
	return s.shutdown()
}

func newServer(o Options) (*Server, error) { return newServerWith(o, sched.Options{}) }

// newServerWith makes a server whose scheduler takes FirstRun and Batch from overrides.
func newServerWith(o Options, overrides sched.Options) (_ *Server, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		o: o, log: o.Log, started: time.Now(), // a reload leaves o as it is
		reactors:   make([]atomic.Pointer[reactor], o.Loops),
		timerWake:  make(chan struct{}, 1),
		dumpSlot:   make(chan struct{}, 1),
		offloads:   make(chan struct{}, maxOffloads),
		stopped:    make(chan struct{}),
		commits:    sync.NewCond(new(sync.Mutex)),
		peerMemory: o.peerMemory(),
	}
	s.drainNanos.Store(int64(o.Drain))
	s.tls = newTLSPorts(&s.o)
	for range protocol.StreamKinds {
		s.encoders = append(s.encoders, make(chan struct{}, 1))
	}
	s.clock, s.runOffload, s.blocking, s.listenOn = s.readClocks, s.goOffload, newBlockingCalls(s), s.tls.openPort
	if s.guard, err = o.newGuard(); err != nil {
		return nil, err
	}
	if err := s.makeJournal(); err != nil {
		return nil, err
	}
	s.sched = sched.New(s.schedOptions(overrides)) // needs the journal
	s.memory = newMemoryLimit(o.MaxMemory, s.sched, s.refusedAtMemory, o.Log)
	if s.protocols, err = newProtocols(s); err != nil { // need the scheduler and the guard
		return nil, err
	}
	s.conns = newConnShares(s) // counts by protocol
	s.counters.closed = s.closeCounters()
	s.setProgress("starting")
	return s, nil
}

// peerMemory returns Server.peerMemory.
func (o *Options) peerMemory() int {
	if o.MaxMemory <= 0 {
		return math.MaxInt
	}
	return int(o.MaxMemory) / peerPart / o.Loops
}

// makeJournal makes the journal, which openJournal opens. It makes none when jobs live in memory alone.
func (s *Server) makeJournal() (err error) {
	if s.o.Data == NoData {
		return nil
	}
	s.journal = &schedJournal{records: make([]journal.Record, s.o.Shards)}
	s.journalOpts, err = s.newJournalOptions()
	return err
}

// schedOptions returns the scheduler's options. It takes FirstRun and Batch from overrides.
func (s *Server) schedOptions(overrides sched.Options) sched.Options {
	o := sched.Options{
		Shards: s.o.Shards, FirstRun: overrides.FirstRun, Batch: overrides.Batch,
		Alarm: s.wakeTimer, TimedOut: s.overdue.add, JobHook: s.jobHook, CheckCapacity: s.checkCapacity,
		MaxTallies: s.o.MetricsMaxQueues, Tallied: hasLabel, PeerMemory: s.o.MaxMemory / peerPart,
	}
	o.Rules, o.Grace = s.o.rules()
	if s.journal != nil { // an interface with a nil *schedJournal is not nil
		o.Journal = s.journal
	}
	return o
}

// now returns the time of both clocks.
func (s *Server) now() sched.Time { return s.clock() }

// readClocks reads the system's clocks. Mono counts from started and never steps.
func (s *Server) readClocks() sched.Time {
	t := time.Now()
	return sched.Time{Wall: t.UnixMilli(), Mono: t.Sub(s.started).Milliseconds(), WallMicros: t.UnixMicro()}
}

// serve starts the goroutines that serve until ctx ends.
func (s *Server) serve(ctx context.Context) {
	if s.memory != nil {
		s.memory.check(s.now().Mono) // the journal may have held more than there may be
		s.goroutines.Go(func() { s.watchMemory(ctx) })
	}
	for _, l := range s.listeners {
		s.accepters.Go(func() { s.accept(l) })
	}
	for service := range protocolsWith[protocol.Service](s) {
		service.Serve(ctx)
	}
	s.swept.Store(s.now().Mono)
	s.goroutines.Go(func() { s.runTimer(ctx) })
	s.serving.Store(true)
	s.announce()
}

// announce logs the version, the limits and the open addresses.
func (s *Server) announce() {
	var memory any = "none"
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		memory = journal.Size(limit)
	}
	var most any = "off"
	if s.memory != nil {
		most = journal.Size(s.memory.limit)
	}
	s.log.Info("treadle is ready", "version", s.o.Version, "data", s.o.Data, "loops", s.o.Loops, "shards", s.o.Shards,
		"max-connections", s.o.MaxConnections, "max-frame", journal.Size(s.o.MaxFrame), "max-memory", most, "memory-limit", memory)
	for _, l := range s.listening {
		s.log.Info("listening", "protocol", l.Setting, "address", l.Address)
	}
	s.warnOpen()
	if s.o.Started != nil {
		s.o.Started(s.listening)
	}
}

// drainPeriod is how often a stopping server checks hasPending.
const drainPeriod = 10 * time.Millisecond

// shutdown stops accepting, waits up to Drain until nothing is pending, and stops.
func (s *Server) shutdown() error {
	s.reloads.Lock() // a reload ends first, and none begins any more
	s.halt()
	s.reloads.Unlock()
	s.closeListeners()
	s.accepters.Wait() // a loop that has ended would never handle a connection
	if n := s.sched.CountInterruptible(); n > 0 && s.drain() > 0 {
		s.log.Info("no job is handed out any more; waiting for those that are running", "jobs", n, "drain", s.drain())
	}
	deadline := time.Now().Add(s.drain())
	for s.failure.Load() == nil && s.hasPending() && time.Now().Before(deadline) {
		time.Sleep(drainPeriod)
	}
	if s.failure.Load() == nil && s.hasPending() {
		s.logUnfinished()
	}
	s.eachReactor((*reactor).endAll)
	err := s.engine.stop()
	s.closeServices()
	close(s.stopped)
	if s.web != nil {
		_ = s.web.Close() // a peer that reads a page this slowly retries elsewhere
	}
	s.goroutines.Wait()
	if s.node == nil { // the connections of a node go on
		s.tls.wait(max(time.Until(deadline), tlsLinger))
	}
	if why := s.protocolFailure.Load(); why != nil {
		err = errors.Join(*why, err)
	}
	s.log.Info("treadle has stopped")
	return err
}

// hasPending reports whether a job is running, a reply is unsent or a long reply is being encoded.
func (s *Server) hasPending() bool {
	pending := s.hasPendingOffLoop()
	s.eachReactor(func(r *reactor) { pending = pending || r.hasUnsent() })
	return pending
}

// hasPendingOffLoop is hasPending without the output of the event loops.
func (s *Server) hasPendingOffLoop() bool {
	for service := range protocolsWith[protocol.Service](s) {
		if service.HasPending() {
			return true
		}
	}
	return s.sched.CountInterruptible() > 0 || s.longReplies.Load() > 0
}

func (s *Server) closeServices() {
	for service := range protocolsWith[protocol.Service](s) {
		service.Close()
	}
}

// eachReactor runs fn on every reactor's loop, one after the other, and waits.
func (s *Server) eachReactor(fn func(*reactor)) {
	for i := range s.reactors {
		s.onReactor(i, fn)
	}
}

// onReactor runs fn in a turn of a reactor's loop and waits. It returns false when the loop has ended before.
func (s *Server) onReactor(i int, fn func(*reactor)) bool {
	r := s.reactors[i].Load()
	if r == nil {
		return false
	}
	done := make(chan struct{}, 1)
	r.exec(func() {
		defer func() { done <- struct{}{} }()
		r.beginTurn()
		fn(r)
	})
	return s.blocking.awaitToken(context.Background(), s.stopped, done, math.MaxInt64)
}

// localLoop stands in the session ids of local peers for the number of an event loop. A local peer
// belongs to no event loop.
const localLoop = maxLoops

// post puts a delivery into another reactor's mailbox. It returns true when the caller has to wake
// that reactor.
func (s *Server) post(loop int, d *sched.Delivery) bool {
	if loop == localLoop {
		s.localPeers[uint64(d.To)&(1<<loopShift-1)](d)
		return false
	}
	if part := spaces[d.Job.Space].ReplyPart; part != nil && d.Effect != sched.Assign {
		d.Job.Workload = part(d.Job.Workload)
	}
	limit := math.MaxInt
	if deliverySize(d) > s.largeOutput() {
		limit = s.maxUnsent()
	}
	return s.reactors[loop].Load().inbox.put(d, limit)
}

// wake wakes the marked reactors and clears the marks.
func (s *Server) wake(marked []bool) {
	for i, m := range marked {
		if m {
			marked[i] = false
			s.reactors[i].Load().requestTurn()
		}
	}
}

// wakeTimer wakes the timer. It never blocks.
func (s *Server) wakeTimer() {
	select {
	case s.timerWake <- struct{}{}:
	default:
	}
}

// quit stops the server as SIGTERM does.
func (s *Server) quit() { s.stop() }

// fail stops the server. Run returns the error.
func (s *Server) fail(err error) {
	s.protocolFailure.Store(&err)
	s.stop()
}

// countClosed counts the end of a session, and logs it when the server has ended it. Probes of TCP ports come often and
// close at once.
func (s *Server) countClosed(session *session) {
	s.counters.closeCounter(cmp.Or(session.reason, errPeerClosed)).n[session.ProtocolID].Add(1)
	if session.reason == nil {
		return
	}
	if errors.Is(session.reason, errHandshake) {
		s.conns.protocols[session.ProtocolID].silent.Add(1)
	}
	if s.logLimit.allow(s.now().Mono) {
		s.log.Info("closing a connection", "remote", session.Remote(), "reason", session.reason.Error())
	}
}

func addressOf(c interface{ RemoteAddr() net.Addr }) string {
	if a := c.RemoteAddr(); a != nil {
		return fmt.Sprintf("%s://%s", a.Network(), a)
	}
	return "unknown"
}

// throttle limits log lines to one a second.
type throttle struct {
	last atomic.Int64 // Mono of the last line; 0: there was none
}

// allow reports whether a line may be logged at mono. Of concurrent callers one gets true.
func (t *throttle) allow(mono int64) bool {
	last := t.last.Load()
	if last != 0 && mono-last < 1000 {
		return false
	}
	return t.last.CompareAndSwap(last, max(mono, 1))
}
