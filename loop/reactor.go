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

// A session id is loop, slot and generation.
const (
	slotShift  = 32
	loopShift  = 56
	slotMask   = 1<<(loopShift-slotShift) - 1
	maxBuffers = 256 // buffers kept for whoever needs one
	outInitial = 512
)

// reactor is one event loop's part of the server: its sessions and their turns.
// Everything in it belongs to the loop's goroutine, except box.
type reactor struct {
	protocol.Loop
	server    *Server
	index     int
	exec      func(func())     // runs a function on the loop, from anywhere
	end       func()           // finish, made once: a method value costs an allocation
	closeConn func(connection) // closes a connection, on the loop
	// part keeps a connection that is about to be closed open for writing, nil: it cannot.
	dupWriter func(connection) io.WriteCloser
	after     func(time.Duration, func()) *time.Timer

	box mailbox

	turning      bool      // Now has been read
	armed        bool      // finish is queued
	allUntil     time.Time // when allTime of this turn is over; zero: nobody has had more to say
	sessions     []*session
	gens         []uint32   // by slot: the generation of its next session
	mail         []byte     // letters that are left for the next turn
	delivered    int        // what was delivered this turn, see turnDeliveries
	refill       []*session // those that get more jobs in the next turn
	free         []uint32
	dirty        []*session
	slow         []*session // unsent bytes or a stream: looked at every slowPeriod
	mailed       []bool     // by loop: its box was empty before this turn's first put
	buffers      [][]byte
	pool         bufferPool
	partialBytes int          // bytes of requests that are not whole, or not handled
	paused       []*session   // those whose requests go on in the next turn
	resuming     bool         // there is to be a turn for them
	cost         int          // what costly requests have looked through this turn, see pause.go
	awaitCommit  []*session   // those with late acknowledgements
	halfClosed   []halfClosed // those of peers that have closed their side
	acksWait     atomic.Bool  // there are some
	newAcks      int          // acknowledgements that this turn has added to those
	delivery     sched.Delivery
	more         [readMore]byte // see readOn
	flushAt      int            // below this much for one peer, nothing is written in mid-turn
	unwritten    int            // bytes of this turn's deliveries that are not written yet
}

func newReactor(server *Server, index int) *reactor {
	r := &reactor{
		server: server, index: index, after: time.AfterFunc, mailed: make([]bool, server.o.Loops),
		flushAt: server.largeOutput(),
	}
	r.end = r.finish
	r.Sink, r.Spaces = r, spaces
	return r
}

// begin starts a turn, unless one is on.
func (r *reactor) begin() {
	if !r.turning {
		r.turning = true
		r.Now = r.server.now()
	}
	if !r.armed {
		r.armed = true
		r.exec(r.end)
	}
}

// finish ends a turn: it takes the mail and writes to every session that has
// something to send, each once.
func (r *reactor) finish() {
	r.armed = false
	if !r.turning {
		r.turning = true
		r.Now = r.server.now()
	}
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
	if r.Frames > 0 {
		r.server.counters.frames.Add(r.Frames)
		r.Frames = 0
	}
	r.turning = false
	r.allUntil = time.Time{}
	r.scheduleNextTurn()
}

// turnDeliveries is how much is delivered in one turn, of what may be put off: so many letters, or
// jobs for peers that have taken what they had, each of at most 4 KiB, are some milliseconds.
const (
	turnDeliveries = 8 << 10
	deliveryShift  = 12
)

// readMail delivers what other loops have sent, as far as the turn's bound allows.
func (r *reactor) readMail() {
	for r.delivered < turnDeliveries {
		if len(r.mail) == 0 {
			if r.mail = r.box.take(); len(r.mail) == 0 {
				return
			}
		}
		r.mail = r.deliverNext(r.mail)
	}
}

// flushAll writes to the sessions that have something to send. Writing may hand out more work, and
// so make more sessions dirty: those that are too many wait for the next turn.
func (r *reactor) flushAll() {
	i := 0
	for first := len(r.dirty); i < len(r.dirty) && (i < first || r.delivered < turnDeliveries); i++ {
		r.flush(r.dirty[i])
	}
	n := copy(r.dirty, r.dirty[i:])
	clear(r.dirty[n:])
	r.dirty = r.dirty[:n]
}

// unpack delivers the first letter of the mail and returns the rest.
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
	s := &session{r: r, conn: c, lastReceived: r.Now.Mono, protocol: by.protocol}
	s.Loop, s.Transport, s.partialSince = &r.Loop, s, r.Now.Mono
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
	s.conv = by.Start(&s.Session)
	return s
}

// connectionID folds a session id to the four bytes of the handshake's answer: eight bits of the
// loop, twenty of the slot, as many as there may be connections, and four of the generation.
func connectionID(id sched.SessionID) uint32 {
	slot := uint64(id) >> slotShift & slotMask
	return uint32(uint64(id)>>loopShift)<<24 | uint32(slot)<<4&(1<<24-1) | uint32(id)&0xf
}

// session returns the session of an id, nil when it has ended.
func (r *reactor) session(id sched.SessionID) *session {
	slot := uint64(id) >> slotShift & slotMask
	if slot < uint64(len(r.sessions)) {
		if s := r.sessions[slot]; s != nil && s.ID == id {
			return s
		}
	}
	return nil
}

// traffic gives a session what its connection has read. A panic in there is this
// session's end, not the server's.
func (r *reactor) traffic(s *session, in []byte) {
	r.begin()
	defer r.recoverSession(s)
	if s.open() {
		s.receive(in)
		s.chargePartial()
	}
}

// filled tells a session that n bytes were read to its window.
func (r *reactor) filled(s *session, n int) {
	defer r.recoverSession(s)
	need := s.conv.Need(s.partial)
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

// farewell sends what a peer that has closed its side is still to read: it may have
// closed only its writing side, behind its last request. The acknowledgements that wait
// for the journal follow when it has what they speak of.
func (r *reactor) halfClose(s *session) {
	r.resumeHalfClosed(s)
	if s.gone || s.stream != nil {
		return
	}
	if len(s.Out) > 0 {
		_, _ = s.conn.Write(s.Out) // nobody is left to hear of an error
		s.Out = nil
	}
	if len(s.ackGroups) > 0 && r.dupWriter != nil {
		if conn := r.dupWriter(s.conn); conn != nil {
			r.server.conns.add(s.protocol) // a descriptor is still taken
			r.halfClosed = append(r.halfClosed, halfClosed{conn, s.acks, s.ackGroups[len(s.ackGroups)-1].group, s.protocol})
			r.acksWait.Store(true)
		}
	}
}

// shut ends a session whose connection is closed.
func (r *reactor) closeSession(s *session) {
	r.begin()
	if s.gone {
		return
	}
	s.gone = true
	slot := uint64(s.ID) >> slotShift & slotMask
	r.sessions[slot] = nil
	r.gens[slot]++
	r.free = append(r.free, uint32(slot))
	r.server.conns.remove(s.protocol)
	r.partialBytes -= s.partialCharged
	if s.reason != nil {
		r.server.closed(s)
	}
	for ; s.stream != nil; s.stream = s.stream.next {
		s.stream.end()
	}
	if s.longReplies != nil {
		s.longReplies.abandoned.Store(true)
	}
	defer r.recoverSession(s)
	s.conv.Closed()
	if s.Scheduled != nil {
		r.server.sched.Forget(r.Now, s.Scheduled, r)
	}
	s.Out, s.partial, s.acks, s.ackGroups = nil, nil, nil, nil
}

// owes says whether one of its peers has not been sent all that there is for it.
func (r *reactor) hasUnsent() bool {
	return len(r.halfClosed) > 0 || slices.ContainsFunc(r.sessions, func(s *session) bool {
		return s != nil && (s.stream != nil || s.unsent() > 0)
	})
}

// dismiss ends all sessions because the server stops.
func (r *reactor) endAll() {
	for _, s := range r.sessions {
		if s != nil {
			s.End(errStopping)
		}
	}
}

// Deliver implements sched.Sink.
func (r *reactor) Deliver(d *sched.Delivery) {
	if loop := int(uint64(d.To) >> loopShift); loop != r.index {
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

// crowded says whether a delivery is too much for its session before what there is has been
// written: one request can cause thousands of the largest. A peer has the bound that it has
// between turns; beyond the one for all peers only those for whom little waits get more.
func (r *reactor) overBudget(s *session, d *sched.Delivery) bool {
	return len(s.Out) >= r.flushAt && s.outboundFull() || r.unwritten > r.server.mostUnsent() && s.outbound()+deliverySize(d) > r.flushAt
}

// sizeOf is about what a delivery takes in a buffer.
func deliverySize(d *sched.Delivery) int { return len(d.Job.Workload) + len(d.Data) }

// flush is a session's part in the end of a turn.
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

// fill hands the peer what was kept back while it had not taken enough.
func (r *reactor) fill(s *session) {
	if r.server.sched.Flushed(r.Now, s.Scheduled, s.unsent(), r) {
		r.refill = append(r.refill, s)
	}
}

// write sends what a session has, unless a stream is under way: then it waits.
// The connection may be closed by it.
func (r *reactor) write(s *session) {
	if s.gone || s.stream != nil || s.Out == nil {
		return
	}
	out := s.Out
	s.Out = nil
	r.unwritten = max(0, r.unwritten-len(out))
	if len(out) > 0 {
		if _, err := s.conn.Write(out); err != nil && !s.gone {
			s.End(err)
		}
	}
	r.recycle(out)
	if s.dirty && s.Out == nil && !s.gone {
		s.Out = r.buffer() // written in mid-turn: there is more to come
	}
}

// recycle keeps a buffer that is not used any more for whoever needs one.
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
