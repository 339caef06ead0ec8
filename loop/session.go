package loop

import (
	"errors"
	"net"

	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a session's buffers, each a matter of memory per connection.
const (
	// flushAt is how much a turn may pile up for one peer before it is written
	// in mid-turn: one large write is as good as several.
	flushAt = 256 << 10
	// keepBuffer is the largest buffer that is kept for the next who needs one; an idle
	// connection keeps none.
	maxSmallBuffer = 64 << 10
)

// connection is what a session sends through: a gnet connection, or a test's.
type connection interface {
	Write(p []byte) (int, error)
	// OutboundBuffered is how much of what was written the kernel did not take.
	OutboundBuffered() int
	RemoteAddr() net.Addr
}

// session is one connected peer.
type session struct {
	protocol.Session
	r              *reactor
	conn           connection
	conv           protocol.Conversation
	partial        []byte       // an unfinished message
	partialCharged int          // of it, in the reactor's partials
	pausedBytes    int          // of it, what has come while it was paused
	pausedLimit    int          // how much of that is kept, when it is more than keepPaused
	acks           []byte       // acknowledgements that wait for the journal, see durable.go
	ackGroups      []ackGroup   // for what
	longReplies    *longReplies // long replies under way, nil: it has never asked for one
	stream         *stream      // a long reply being sent in pieces, see stream.go
	lastReceived   int64        // Mono of the last read
	partialSince   int64        // Mono when the unfinished message began, 0: there is none
	reason         error        // why it is to be closed, nil: it is not

	paused bool // more of what it asks is in partial, see pause.go
	dirty  bool // in the reactor's dirty list
	slow   bool // in the reactor's slow list
	gone   bool // the connection is closed; nothing may be written

	protocol protocolID // that it is counted under
}

// Reasons for which the server closes a session. Each is a row of the metrics.
var (
	errHandshake    = errors.New("no handshake, or not a byte of a request, within --handshake-timeout")
	errUnfinished   = errors.New("a message stayed unfinished")
	errIdle         = errors.New("silent for longer than keepalive")
	errTooExpensive = errors.New("it asks for much that takes long, and does not wait for answers")
	errSlowReader   = errors.New("it does not read what it is sent")
	errPanic        = errors.New("an internal error")
	errStopping     = errors.New("the server stops")
)

// receive takes what was read. in is the caller's again when it returns.
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
			if s.partialSince == 0 {
				s.partialSince = s.r.Now.Mono
			}
			if s.partial == nil {
				s.partial = s.r.buffer()
			}
			s.partial = append(s.r.pool.reuse(s.partial, s.conv.Need(in)), in...)
			return
		}
	}
}

// open says whether what the peer sends still counts.
func (s *session) open() bool { return s.reason == nil && !s.gone }

// complete moves bytes from in to the unfinished message until it can go on, and
// no more: what follows is read where it lies. It returns the rest of in.
func (s *session) complete(in []byte) []byte {
	need := s.conv.Need(s.partial)
	take := min(need-len(s.partial), len(in))
	if need > cap(s.partial) {
		// What a peer announces gets a spare buffer at most, and no new one.
		s.partial = s.r.pool.reuse(s.partial, need-len(s.partial))
	}
	s.partial = append(s.partial, in[:take]...)
	if len(s.partial) == need {
		s.assemble()
	}
	return in[take:]
}

// window returns where the next bytes of a large unfinished message are to be read to,
// none if they are to be read as any others. They are announced to filled.
func (s *session) window() []byte {
	have := len(s.partial)
	if have < readBuffer || s.paused {
		return nil
	}
	need := s.conv.Need(s.partial)
	if need > cap(s.partial) {
		// It grows with what has come, not with what was announced.
		s.partial = s.r.pool.grow(s.partial, min(need-have, have))
	}
	return s.partial[have:min(need, cap(s.partial))]
}

// assemble handles what is whole of the unfinished message.
func (s *session) assemble() {
	n, err := s.conv.Consume(s.partial)
	if err != nil {
		s.End(err)
	}
	if !s.open() {
		return
	}
	if n > 0 { // else it may be read beside the loop already
		s.partialSince = 0
		s.partial = s.partial[:copy(s.partial, s.partial[n:])]
	}
	if len(s.partial) == 0 {
		s.r.recycle(s.partial)
		s.partial = nil
	}
}

// touch says that the session is about to have something to write, and gives it
// the buffer to write it to.
func (s *session) Touch() {
	if !s.dirty {
		s.dirty = true
		s.r.dirty = append(s.r.dirty, s)
	}
	if s.Out == nil {
		s.Out = s.r.buffer()
	}
}

// end closes the session after this turn's last write. Only the first reason counts.
func (s *session) End(why error) {
	if s.reason == nil {
		s.reason = why
		s.Touch()
	}
}

// congested says whether the peer has to read before it is answered further;
// it ends the session of one that lets too much pile up.
func (s *session) Congested() bool {
	if s.stream == nil && !s.slow && len(s.Out)+len(s.acks) < s.r.flushAt { // nearly always
		return !s.open()
	}
	if s.stream == nil && (len(s.Out) >= flushAt || s.outboundFull()) {
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

// piledUp says whether more waits for the peer than may.
func (s *session) outboundFull() bool { return s.outbound() > s.r.server.o.MaxOutbound }

// piled is how many bytes wait for the peer and count against its bound. A stream has
// bounds of its own.
func (s *session) outbound() int {
	if s.stream != nil {
		return len(s.Out)
	}
	return s.unsent()
}

// unsent is how many bytes wait for the peer to read.
func (s *session) unsent() int { return len(s.Out) + len(s.acks) + s.conn.OutboundBuffered() }

// NewPeer implements protocol.Transport.
func (s *session) NewPeer() *sched.Peer {
	p := s.r.server.sched.NewPeer(s.ID, s.Skills)
	p.SetLabel(s.Label)
	return p
}

// Grow implements protocol.Transport.
func (s *session) Grow(n int) { s.Out = s.r.pool.grow(s.Out, n) }

// Remote implements protocol.Transport.
func (s *session) Remote() string { return addressOf(s.conn) }
