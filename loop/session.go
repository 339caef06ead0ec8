package loop

import (
	"errors"
	"io"
	"net"

	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a session's buffers.
const (
	// maxLargeOutput bounds Server.largeOutput. One write of this size costs no more per byte than a
	// larger one.
	maxLargeOutput = 256 << 10
	// maxSmallBuffer is the capacity up to which buffers are small: they are kept for reuse and
	// need no accounting.
	maxSmallBuffer = 64 << 10
)

// connection is the session's connection: one of gnet, or a test's.
type connection interface {
	Write(p []byte) (int, error)
	// OutboundBuffered returns how many written bytes the kernel has not taken.
	OutboundBuffered() int
	RemoteAddr() net.Addr
}

// session is one connected peer. It belongs to its reactor's goroutine.
type session struct {
	protocol.Session
	r              *reactor
	conn           connection
	conv           protocol.Conversation
	sized          protocol.Sized     // conv, when its messages say their length; else nil
	delimited      protocol.Delimited // conv, when its messages end with a delimiter; else nil
	partial        []byte             // the unfinished message, or the requests of a paused session
	partialCharged int                // the bytes of partial that partialBytes of the reactor counts
	pausedBytes    int                // the bytes of partial that came during the pause
	pausedLimit    int                // the bound of pausedBytes when it is above maxPausedBytes
	acks           []byte             // acknowledgements that wait for the journal, see acks.go
	ackGroups      []ackGroup         // the groups of the journal that acks wait for
	longReplies    *longReplies       // nil: the session has never asked for one
	stream         *stream            // the long reply that is being sent, see stream.go
	opened         int64              // Wall of the connection's opening
	received, sent uint64             // bytes
	lastReceived   int64              // Mono since when the peer is idle: its last bytes, or the end of what it waited for
	partialSince   int64              // Mono when partial, or at first the connection, began; 0: nothing is unfinished
	reason         error              // the reason to close the session; nil: it stays open

	alarm sessionAlarm

	paused    bool // partial has requests for a later turn, see pause.go
	suspended bool // it is paused until its conversation resumes it
	dirty     bool // listed in the reactor's work
	slow      bool // listed in the reactor's slow
	gone      bool // the connection is closed, nothing may be written

	countedRole protocol.Role // the role under which Server.conns counts the connection
}

// Reasons for which the server closes a session. The metrics have a row for each.
var (
	errHandshake    = errors.New("no handshake, or not a byte of a request, within --handshake-timeout")
	errUnfinished   = errors.New("a request stayed unfinished, see --frame-timeout")
	errIdle         = errors.New("silent for longer than keepalive")
	errTooExpensive = errors.New("too many expensive requests without reading the replies")
	errSlowReader   = errors.New("the peer does not read its replies, see --max-outbound")
	errPanic        = errors.New("an internal error")
	errStopping     = errors.New("the server stops")
	errByOperator   = errors.New("an operator closed it")
)

// errPeerClosed stands for the end of a session that the peer has closed.
var errPeerClosed = io.EOF

// receive handles bytes from the peer and keeps no view of in.
func (s *session) receive(in []byte) {
	s.lastReceived = s.r.Now.Mono
	for len(in) > 0 && s.open() {
		if s.paused {
			s.bufferPaused(in)
			return
		}
		if len(s.partial) > 0 {
			in = s.complete(in)
			continue
		}
		silent := !s.HandshakeDone
		n, err := s.conv.Consume(in)
		if err != nil {
			s.End(err)
			return
		}
		if n > 0 || silent && s.HandshakeDone {
			s.partialSince = 0
		}
		in = in[n:]
		if len(in) > 0 && s.open() {
			if s.partialSince == 0 && !s.suspended {
				s.partialSince = s.r.Now.Mono
			}
			if s.partial == nil {
				s.partial = s.r.pool.get()
			}
			s.partial = append(s.r.pool.reuse(s.partial, s.need(in)), in...)
			return
		}
	}
}

// need returns the length of the unfinished message in, as far as it is known.
func (s *session) need(in []byte) int {
	if s.delimited != nil {
		return len(in)
	}
	return s.sized.Need(in)
}

// open reports whether requests of the peer still count.
func (s *session) open() bool { return s.reason == nil && !s.gone }

// complete moves bytes from in to the unfinished message, as many as Consume needs to continue. It
// returns the rest of in, which is decoded in place.
func (s *session) complete(in []byte) []byte {
	if s.delimited != nil {
		n := s.delimited.Rest(in)
		s.partial = append(s.r.pool.grow(s.partial, n), in[:n]...)
		s.assemble()
		return in[n:]
	}
	need := s.sized.Need(s.partial)
	take := min(need-len(s.partial), len(in))
	if need > cap(s.partial) {
		// An announced size alone allocates nothing: it gets a buffer of the pool at most.
		s.partial = s.r.pool.reuse(s.partial, need-len(s.partial))
	}
	s.partial = append(s.partial, in[:take]...)
	if len(s.partial) == need {
		s.assemble()
	}
	return in[take:]
}

// window returns where the next bytes of a large unfinished message are to be read. The reader reports them by
// readIntoPartial. It returns nil when the bytes are to be read as any other bytes.
func (s *session) window() []byte {
	have := len(s.partial)
	if have < readBuffer || s.paused || s.delimited != nil {
		return nil
	}
	need := s.sized.Need(s.partial)
	if need > cap(s.partial) {
		// The buffer grows with the bytes that have come, not with the announced size.
		s.partial = s.r.pool.grow(s.partial, min(need-have, have))
	}
	return s.partial[have:min(need, cap(s.partial))]
}

// assemble handles the complete requests at the front of partial.
func (s *session) assemble() {
	n, err := s.conv.Consume(s.partial)
	if err != nil {
		s.End(err)
	}
	if !s.open() {
		return
	}
	if n > 0 { // n is 0 when the message was offloaded
		s.partialSince = 0
		s.partial = s.partial[:copy(s.partial, s.partial[n:])]
	}
	if len(s.partial) == 0 {
		s.r.pool.put(s.partial)
		s.partial = nil
	}
}

func (s *session) countReceived(n int) {
	s.received += uint64(n)
	s.r.turn.read[s.ProtocolID] += uint64(n)
}

func (s *session) countSent(n int) {
	s.sent += uint64(n)
	s.r.turn.written[s.ProtocolID] += uint64(n)
}

// countRole counts the connection under a role.
func (s *session) countRole(role protocol.Role) {
	roles := &s.r.server.conns.protocols[s.ProtocolID].roles
	roles[s.countedRole].Add(-1)
	roles[role].Add(1)
	s.countedRole = role
}

// OpenOut implements protocol.Transport.
func (s *session) OpenOut() {
	if !s.dirty {
		s.dirty = true
		s.r.work.dirty = append(s.r.work.dirty, s)
	}
	if s.Out == nil {
		s.Out = s.r.pool.get()
	}
}

// End implements protocol.Transport.
func (s *session) End(reason error) {
	if s.reason == nil {
		s.reason = reason
		s.OpenOut()
	}
}

// FlushLarge implements protocol.Transport.
func (s *session) FlushLarge() (ended bool) {
	if s.stream == nil && !s.slow && len(s.Out)+len(s.acks) < s.r.largeOutput { // fast path
		return !s.open()
	}
	if s.stream == nil && (len(s.Out) >= s.r.largeOutput || s.outboundFull()) {
		s.r.write(s)
		if !s.gone && s.conn.OutboundBuffered() > 0 {
			s.r.watchSlow(s)
		}
	}
	if s.open() && s.outboundFull() {
		s.End(errSlowReader)
	}
	return !s.open()
}

// outboundFull reports whether more output waits for the peer than --max-outbound.
func (s *session) outboundFull() bool { return s.outbound() > s.r.server.o.MaxOutbound }

// outbound returns how many bytes of output count against --max-outbound. The bytes of a stream do not: streams have
// bounds of their own.
func (s *session) outbound() int {
	if s.stream != nil {
		return len(s.Out)
	}
	return s.unsent()
}

// unsent returns how many bytes of output wait for the peer to read.
func (s *session) unsent() int { return len(s.Out) + len(s.acks) + s.conn.OutboundBuffered() }

// NewPeer implements protocol.Transport.
func (s *session) NewPeer() *sched.Peer {
	p := s.r.server.sched.NewPeer(s.ID, s.Capabilities)
	p.SetLabel(s.Label, s.Label+" "+s.Remote())
	return p
}

// Grow implements protocol.Transport.
func (s *session) Grow(n int) { s.Out = s.r.pool.grow(s.Out, n) }

// Remote implements protocol.Transport.
func (s *session) Remote() string {
	if client := s.r.forwarded[s]; client != nil {
		return addressOf(&forwardedConn{client: client})
	}
	return addressOf(s.conn)
}
