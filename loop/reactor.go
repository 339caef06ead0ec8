package loop

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"treadle/loop/protocol"
	"treadle/sched"
)

// A session id has a loop, a slot and a generation, from the highest bits to the lowest.
const (
	loopShift = 56
	slotShift = 32
	slotMask  = 1<<(loopShift-slotShift) - 1
)

// loopOf returns the number of a session's loop.
func loopOf(id sched.SessionID) int { return int(uint64(id) >> loopShift) }

// slotOf returns the session's slot in its loop's table.
func slotOf(id sched.SessionID) uint32 { return uint32(uint64(id) >> slotShift & slotMask) }

const (
	// maxBuffers is the number of small buffers that a reactor keeps for reuse.
	maxBuffers = 256
	// outInitial is the size of a new out buffer: enough for the replies of most turns.
	outInitial = 512
)

// reactor is one event loop's part of the server: its sessions and their turns. Its fields belong to the loop's
// goroutine, except those under "Read by other goroutines".
type reactor struct {
	protocol.Loop
	server *Server
	index  int

	// Calls into the event loop.
	exec      func(func())     // runs a function on the loop, from any goroutine
	finishFn  func()           // finish as a func value, made once because each one allocates
	closeConn func(connection) // closes a connection, on the loop
	// dupWriter opens a second descriptor of a connection, for writing; nil: it has failed.
	dupWriter func(connection) io.WriteCloser
	after     func(time.Duration, func()) *time.Timer

	// Read by other goroutines.
	inbox    mailbox
	swept    atomic.Int64 // Mono of the last sweep
	turns    delays       // how long turns took
	acksWait atomic.Bool  // awaitCommit or halfClosed is not empty

	// The present turn.
	read, written [protocol.MaxProtocols]uint64 // bytes of this turn, by protocolID
	turning       bool                          // a turn is on, and Now has been read
	armed         bool                          // finish is queued
	allUntil      time.Time                     // end of this turn's allTime; zero: it has not begun
	mailed        []bool                        // by loop: this turn's first delivery found its mailbox empty
	delivered     int                           // cost of this turn's deliveries, see turnDeliveries
	cost          int                           // cost of this turn's expensive requests, see pause.go
	newAcks       int                           // acknowledgements that began to wait in this turn
	unwritten     int                           // bytes of this turn's deliveries that are not written yet
	delivery      sched.Delivery
	readBuffer    [readMore]byte // see readOn

	// The sessions.
	sessions     []*session
	gens         []uint32 // by slot: the generation of its next session
	free         []uint32 // slots without a session
	partialBytes int      // sum of the sessions' partialCharged
	largeOutput  int      // Server.largeOutput

	// Sessions with work to come.
	mail        []byte       // deliveries from other loops that this turn had no room for
	refill      []*session   // sessions that get more jobs in the next turn
	dirty       []*session   // sessions to flush at the end of the turn
	slow        []*session   // sessions with unsent bytes or a stream, see checkSlow
	paused      []*session   // sessions that continue in the next turn, longest wait first
	resuming    bool         // scheduleNextTurn has queued a turn
	awaitCommit []*session   // sessions with acks
	halfClosed  []halfClosed // half-closed connections with acks
	alarms      alarms       // sessions whose conversations asked for a call
	alarmTime   int64        // Mono at which alarmClock runs; 0: it does not
	alarmClock  *time.Timer

	// Buffers for reuse.
	buffers [][]byte
	pool    bufferPool
}

func newReactor(server *Server, index int) *reactor {
	r := &reactor{
		server: server, index: index, after: time.AfterFunc, mailed: make([]bool, server.o.Loops),
		largeOutput: server.largeOutput(),
	}
	r.swept.Store(server.now().Mono)
	r.finishFn = r.finish
	r.Sink, r.Spaces = r, spaces
	return r
}

// requestTurn has the event loop take and end a turn. Any goroutine may call it.
func (r *reactor) requestTurn() { r.exec(r.finishFn) }

// begin starts a turn, unless one is on, and has the event loop end it.
func (r *reactor) begin() {
	r.startTurn()
	if !r.armed {
		r.armed = true
		r.requestTurn()
	}
}

// startTurn reads Now, unless a turn is on.
func (r *reactor) startTurn() {
	if !r.turning {
		r.turning = true
		r.Now = r.server.now()
	}
}

// finish ends a turn. It delivers the mail and writes once to every session with output.
func (r *reactor) finish() {
	r.armed = false
	r.startTurn()
	r.resumePaused()
	r.readMail()
	for _, s := range r.refill {
		if !s.gone {
			s.Assigned = true
			s.Touch()
		}
	}
	clear(r.refill)
	r.refill = r.refill[:0]
	r.server.journal.flush(r.newAcks)
	r.newAcks = 0
	r.releaseAcks()
	r.flushAll()
	r.unwritten, r.cost, r.delivered = 0, 0, 0
	r.server.wake(r.mailed)
	r.countTurn()
	r.turning = false
	r.allUntil = time.Time{}
	r.scheduleNextTurn()
}

// countTurn adds the turn to the metrics.
func (r *reactor) countTurn() {
	for p, one := range r.server.conns.protocols {
		if r.Frames[p]+r.read[p]+r.written[p] > 0 {
			one.frames.Add(r.Frames[p])
			one.read.Add(r.read[p])
			one.written.Add(r.written[p])
			r.Frames[p], r.read[p], r.written[p] = 0, 0, 0
		}
	}
	r.turns.observe(r.server.now().Micros - r.Now.Micros)
}

// turnDeliveries bounds the deliveries of one turn that may wait: mail, and jobs for peers that
// have read their output. That many deliveries of at most 4 KiB take some milliseconds.
const (
	turnDeliveries = 8 << 10
	deliveryShift  = 12
)

// readMail delivers the mail of other loops, up to turnDeliveries.
func (r *reactor) readMail() {
	for r.delivered < turnDeliveries {
		if len(r.mail) == 0 {
			if r.mail = r.inbox.take(); len(r.mail) == 0 {
				return
			}
		}
		r.mail = r.deliverNext(r.mail)
	}
}

// flushAll flushes the dirty sessions. A write may hand out jobs and so make more sessions dirty.
// When turnDeliveries is reached, those wait for the next turn.
func (r *reactor) flushAll() {
	i := 0
	for first := len(r.dirty); i < len(r.dirty) && (i < first || r.delivered < turnDeliveries); i++ {
		r.flush(r.dirty[i])
	}
	n := copy(r.dirty, r.dirty[i:])
	clear(r.dirty[n:])
	r.dirty = r.dirty[:n]
}

// deliverNext delivers the first delivery of the mail and returns the rest.
func (r *reactor) deliverNext(mail []byte) (rest []byte) {
	rest = nextDelivery(mail, &r.delivery)
	if s := r.session(r.delivery.To); s != nil {
		defer r.recoverSession(s)
	}
	r.Deliver(&r.delivery)
	return rest
}

// open makes the session of a new connection.
func (r *reactor) open(c connection, by loopPort) *session {
	r.begin()
	s := &session{r: r, conn: c, opened: r.Now.Wall, lastReceived: r.Now.Mono}
	s.Protocol, s.Loop, s.Transport, s.partialSince = by.protocol, &r.Loop, s, r.Now.Mono
	var slot uint32
	if n := len(r.free); n > 0 {
		slot = r.free[n-1]
		r.free = r.free[:n-1]
		r.sessions[slot] = s
	} else {
		slot = uint32(len(r.sessions))
		r.sessions = append(r.sessions, s)
		r.gens = append(r.gens, 0)
	}
	s.ID = sched.SessionID(uint64(r.index)<<loopShift | uint64(slot)<<slotShift | uint64(r.gens[slot]))
	s.ConnectionID = connectionID(s.ID)
	if s.conv = by.Start(&s.Session); s.HandshakeDone { // the protocol has none, and its peers may be silent
		s.partialSince = 0
	}
	if s.delimited, _ = s.conv.(protocol.Delimited); s.delimited == nil {
		s.sized = s.conv.(protocol.Sized)
	}
	return s
}

// connectionID folds a session id into the four bytes of a handshake's answer. It has 8 bits of
// the loop, 20 of the slot, which is the most descriptors there can be, and 4 of the generation.
func connectionID(id sched.SessionID) uint32 {
	return uint32(loopOf(id))<<24 | slotOf(id)<<4&(1<<24-1) | uint32(id)&0xf
}

// session returns the session of an id; nil when it has ended.
func (r *reactor) session(id sched.SessionID) *session {
	if slot := slotOf(id); int(slot) < len(r.sessions) {
		if s := r.sessions[slot]; s != nil && s.ID == id {
			return s
		}
	}
	return nil
}

// traffic passes the bytes read from a connection to its session. A panic ends this session only.
func (r *reactor) traffic(s *session, in []byte) {
	r.begin()
	defer r.recoverSession(s)
	if s.open() {
		s.countReceived(len(in))
		s.receive(in)
		s.chargePartial()
		if s.Role != s.counted {
			s.countRole(s.Role)
		}
	}
}

// filled tells a session that n bytes were read into its window.
func (r *reactor) filled(s *session, n int) {
	defer r.recoverSession(s)
	s.countReceived(n)
	need := s.sized.Need(s.partial)
	if s.partial = s.partial[:len(s.partial)+n]; len(s.partial) == need {
		s.assemble()
	}
	s.chargePartial()
}

func (r *reactor) recoverSession(s *session) {
	if p := recover(); p != nil {
		r.server.log.Error("internal error, closing the session", "remote", s.conn.RemoteAddr(),
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		s.End(errPanic)
	}
}

// halfClose sends the remaining output to a peer that has closed its side, which may be its
// writing side only. Acknowledgements follow on a second descriptor when the journal commits.
func (r *reactor) halfClose(s *session) {
	r.resumeHalfClosed(s)
	if s.gone || s.stream != nil {
		return
	}
	if len(s.Out) > 0 {
		s.countSent(len(s.Out))
		_, _ = s.conn.Write(s.Out) // the connection closes after an error as well
		s.Out = nil
	}
	if len(s.ackGroups) > 0 && r.dupWriter != nil {
		if conn := r.dupWriter(s.conn); conn != nil {
			r.server.conns.add(s.Protocol) // the second descriptor counts as a connection
			r.halfClosed = append(r.halfClosed, halfClosed{conn, s.acks, s.ackGroups[len(s.ackGroups)-1].group, s.Protocol})
			r.acksWait.Store(true)
		}
	}
}

// closeSession ends a session after its connection was closed.
func (r *reactor) closeSession(s *session) {
	r.begin()
	if s.gone {
		return
	}
	s.gone = true
	slot := slotOf(s.ID)
	r.sessions[slot] = nil
	r.gens[slot]++
	r.free = append(r.free, slot)
	r.server.conns.remove(s.Protocol)
	r.partialBytes -= s.partialCharged
	r.dropAlarm(s)
	s.countRole(protocol.RoleNone)
	r.server.closed(s)
	for ; s.stream != nil; s.stream = s.stream.next {
		s.stream.end()
	}
	if s.longReplies != nil {
		s.longReplies.ended.Store(true)
	}
	defer r.recoverSession(s)
	s.conv.Closed()
	if s.Scheduled != nil {
		r.server.sched.Disconnect(r.Now, s.Scheduled, r)
	}
	s.Out, s.partial, s.acks, s.ackGroups = nil, nil, nil, nil
}

// hasUnsent reports whether a session or a half-closed connection has output left to send.
func (r *reactor) hasUnsent() bool {
	return len(r.halfClosed) > 0 || slices.ContainsFunc(r.sessions, func(s *session) bool {
		return s != nil && (s.stream != nil || s.unsent() > 0)
	})
}

// endAll ends all sessions, because the server stops.
func (r *reactor) endAll() {
	for _, s := range r.sessions {
		if s != nil {
			s.End(errStopping)
		}
	}
}

// Deliver implements sched.Sink.
func (r *reactor) Deliver(d *sched.Delivery) {
	if loop := loopOf(d.To); loop != r.index {
		if r.server.post(loop, d) {
			r.mailed[loop] = true
		}
		return
	}
	r.delivered += 1 + deliverySize(d)>>deliveryShift
	s := r.session(d.To)
	switch {
	case s == nil || s.gone:
		r.server.counters.lateDeliveries.Add(1)
	case d.Effect == effectOverflow || r.overBudget(s, d):
		s.End(errSlowReader)
	default:
		s.Touch()
		before := len(s.Out)
		s.conv.Deliver(d)
		r.unwritten += len(s.Out) - before
	}
}

// overBudget reports whether a delivery does not fit into its session's budget before the next
// write, since one request can cause thousands of large deliveries. A session has the budget that
// it has between turns. When the loop's budget is used up, only sessions with little output get more.
func (r *reactor) overBudget(s *session, d *sched.Delivery) bool {
	return len(s.Out) >= r.largeOutput && s.outboundFull() || r.unwritten > r.server.maxUnsent() && s.outbound()+deliverySize(d) > r.largeOutput
}

// deliverySize returns about how many bytes a delivery takes in a buffer.
func deliverySize(d *sched.Delivery) int { return len(d.Job.Workload) + len(d.Data) }

// flush writes a session's output at the end of a turn, and closes a session that has ended.
func (r *reactor) flush(s *session) {
	defer r.recoverSession(s)
	s.dirty = false
	r.write(s)
	if s.gone {
		return
	}
	if s.reason == nil && s.outboundFull() {
		s.reason = errSlowReader
	}
	if s.reason != nil {
		r.closeConn(s.conn)
		return
	}
	if s.Assigned {
		s.Assigned = false
		r.fill(s)
	}
	if s.stream != nil || s.conn.OutboundBuffered() > 0 {
		r.watchSlow(s)
	}
}

// fill hands the peer the jobs that were held back until it had read enough.
func (r *reactor) fill(s *session) {
	if r.server.sched.Flushed(r.Now, s.Scheduled, s.unsent(), r) {
		r.refill = append(r.refill, s)
	}
}

// write sends a session's output, unless a stream is under way. An error may close the connection.
func (r *reactor) write(s *session) {
	if s.gone || s.stream != nil || s.Out == nil {
		return
	}
	out := s.Out
	s.Out = nil
	r.unwritten = max(0, r.unwritten-len(out))
	if len(out) > 0 {
		s.countSent(len(out))
		if _, err := s.conn.Write(out); err != nil && !s.gone {
			s.End(err)
		}
	}
	r.recycle(out)
	if s.dirty && s.Out == nil && !s.gone {
		s.Out = r.buffer() // the session is still dirty: more output follows
	}
}

// recycle keeps a buffer for reuse.
func (r *reactor) recycle(b []byte) {
	if cap(b) > maxSmallBuffer {
		r.pool.put(b)
	} else if len(r.buffers) < maxBuffers {
		r.buffers = append(r.buffers, b[:0])
	}
}

// buffer returns an empty buffer.
func (r *reactor) buffer() []byte {
	if n := len(r.buffers); n > 0 {
		b := r.buffers[n-1]
		r.buffers = r.buffers[:n-1]
		return b
	}
	return make([]byte, 0, outInitial)
}
