package loop

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"treadle/loop/protocol"
	"treadle/sched"
)

// reactor is one event loop's part of the server: its sessions and their turns. Its fields belong to the loop's
// goroutine, except those that say otherwise.
type reactor struct {
	protocol.Loop
	eventLoop
	server      *Server
	index       int
	largeOutput int    // Server.largeOutput
	finishFn    func() // finishTurn as a func value, made once because each one allocates

	// Any goroutine may use these.
	inbox     mailbox
	swept     atomic.Int64 // Mono of the last sweep
	turnTimes delays

	turn         turn // the present one
	work         work
	sessions     sessionTable
	forwarded    map[*session]*forwardedClient // sessions of clients of other nodes
	slow         []*session                    // sessions with unsent bytes or a stream, see checkSlow
	acks         pendingAcks
	alarms       alarms
	partialBytes int // sum of the sessions' partialCharged

	pool       bufferPool
	delivery   sched.Delivery // of the mail, see deliverNext
	readBuffer [readMore]byte // see readOn
}

func newReactor(server *Server, index int) *reactor {
	r := &reactor{
		server: server, index: index, largeOutput: server.largeOutput(),
		eventLoop: eventLoop{after: time.AfterFunc}, turn: turn{toWake: make([]bool, server.o.Loops)},
		forwarded: make(map[*session]*forwardedClient),
	}
	r.swept.Store(server.now().Mono)
	r.finishFn = r.finishTurn
	r.Sink, r.Spaces = r, spaces
	return r
}

// open makes the session of a new connection.
func (r *reactor) open(c connection, port loopPort) *session {
	r.beginTurn()
	s := &session{r: r, conn: c, opened: r.Now.Wall, lastReceived: r.Now.Mono}
	s.ProtocolID, s.Loop, s.Transport, s.partialSince = port.protocol, &r.Loop, s, r.Now.Mono
	r.sessions.add(s, r.index)
	s.ConnectionID = connectionID(s.ID)
	if s.conv = port.Start(&s.Session); s.HandshakeDone { // the protocol has none, and its peers may be silent
		s.partialSince = 0
	}
	if s.delimited, _ = s.conv.(protocol.Delimited); s.delimited == nil {
		s.sized = s.conv.(protocol.Sized)
	}
	return s
}

// traffic passes the bytes read from a connection to its session. A panic ends this session only.
func (r *reactor) traffic(s *session, in []byte) {
	r.beginTurn()
	defer r.recoverSession(s)
	if s.open() {
		s.countReceived(len(in))
		s.receive(in)
		s.chargePartial()
		if s.Role != s.countedRole {
			s.countRole(s.Role)
		}
	}
}

// readIntoPartial tells a session that n bytes were read directly into its unfinished message.
func (r *reactor) readIntoPartial(s *session, n int) {
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
		r.server.log.Error("internal error, closing the session", "remote", s.Remote(),
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
		_ = s.write(s.Out) // the connection closes after an error as well
		s.Out = nil
	}
	if len(s.ackGroups) > 0 && r.dupWriter != nil {
		if conn := r.dupWriter(s.conn); conn != nil {
			r.server.conns.add(s.ProtocolID) // the second descriptor counts as a connection
			r.acks.halfClosed = append(r.acks.halfClosed, halfClosed{conn, s.acks, s.ackGroups[len(s.ackGroups)-1].group, s.ProtocolID})
			r.acks.any.Store(true)
		}
	}
}

// closeSession ends a session after its connection was closed.
func (r *reactor) closeSession(s *session) {
	r.beginTurn()
	if s.gone {
		return
	}
	s.gone = true
	r.sessions.remove(s)
	r.server.conns.remove(s.ProtocolID)
	r.partialBytes -= s.partialCharged
	r.dropAlarm(s)
	s.countRole(protocol.RoleNone)
	r.server.countClosed(s)
	for ; s.stream != nil; s.stream = s.stream.next {
		s.stream.end()
	}
	if s.longReplies != nil {
		s.longReplies.ended.Store(true)
	}
	defer r.recoverSession(s)
	s.conv.Closed()
	if s.SchedPeer != nil {
		r.server.sched.Disconnect(r.Now, s.SchedPeer, r)
	}
	s.Out, s.partial, s.acks, s.ackGroups = nil, nil, nil, nil
	delete(r.forwarded, s)
}

// hasUnsent reports whether a session or a half-closed connection has output left to send.
func (r *reactor) hasUnsent() bool {
	if len(r.acks.halfClosed) > 0 {
		return true
	}
	for s := range r.sessions.all() {
		if s.stream != nil || s.unsent() > 0 {
			return true
		}
	}
	return false
}

// endAll ends all sessions, because the server stops.
func (r *reactor) endAll() {
	for s := range r.sessions.all() {
		s.End(errStopping)
	}
}

// Deliver implements sched.Sink.
func (r *reactor) Deliver(d *sched.Delivery) {
	if loop := loopOf(d.To); loop != r.index {
		if r.server.post(loop, d) {
			r.turn.toWake[loop] = true
		}
		return
	}
	r.turn.delivered += 1 + deliverySize(d)>>deliveryShift
	s := r.sessions.get(d.To)
	switch {
	case s == nil || s.gone:
		r.server.counters.lateDeliveries.Add(1)
	case d.Effect == effectOverflow || r.overBudget(s, d):
		s.End(errSlowReader)
	default:
		s.OpenOut()
		before := len(s.Out)
		s.conv.Deliver(d)
		r.turn.unwritten += len(s.Out) - before
	}
}

// overBudget reports whether a delivery does not fit into its session's budget before the next
// write, since one request can cause thousands of large deliveries. A session has the budget that
// it has between turns. When the loop's budget is used up, only sessions with little output get more.
func (r *reactor) overBudget(s *session, d *sched.Delivery) bool {
	return len(s.Out) >= r.largeOutput && s.outboundFull() || r.turn.unwritten > r.server.maxUnsent() && s.outbound()+deliverySize(d) > r.largeOutput
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
	if r.server.sched.Flushed(r.Now, s.SchedPeer, s.unsent(), r) {
		r.work.refill = append(r.work.refill, s)
	}
}

// write writes to the connection, unless another node of the cluster may lead by now.
func (s *session) write(b []byte) error {
	if !s.r.server.mayAnswer() {
		return errStopping
	}
	_, err := s.conn.Write(b)
	return err
}

// write sends a session's output, unless a stream is under way. An error may close the connection.
func (r *reactor) write(s *session) {
	if s.gone || s.stream != nil || s.Out == nil {
		return
	}
	out := s.Out
	s.Out = nil
	r.turn.unwritten = max(0, r.turn.unwritten-len(out))
	if len(out) > 0 {
		s.countSent(len(out))
		if err := s.write(out); err != nil && !s.gone {
			s.End(err)
		}
	}
	r.pool.put(out)
	if s.dirty && s.Out == nil && !s.gone {
		s.Out = r.pool.get() // the session is still dirty: more output follows
	}
}
