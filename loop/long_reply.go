package loop

import (
	"sync/atomic"

	"treadle/loop/protocol"
)

// reports counts the long replies that one session has asked for.
type longReplies struct {
	open      int         // the reactor's
	abandoned atomic.Bool // the session has ended
}

// maxReports bounds them, and maxWaiting those of all sessions: each waits for its
// turn with a goroutine of its own.
const (
	maxLongReplies    = 8
	maxPendingReplies = 1024
)

// Stream implements protocol.Transport. One long reply of each kind is encoded at a time. A Dump of
// more than --max-outbound bytes, or for which there is no room beside those that are being read,
// keeps the turn until the peer has read it; the others have a bound together, see relieveStreams.
func (s *session) Stream(kind protocol.StreamKind, encode func() [][]byte, tooLarge func()) bool {
	if s.longReplies == nil {
		s.longReplies = &longReplies{}
	}
	r, id, mine := s.r, s.ID, s.longReplies
	if mine.open >= maxLongReplies || r.server.longReplies.Load() >= maxPendingReplies {
		return false
	}
	mine.open++
	r.server.longReplies.Add(1)
	turn := r.server.encoders[kind]
	release := func() { <-turn }
	r.server.runAside(turn, func() {
		var pieces [][]byte
		if !mine.abandoned.Load() {
			pieces = encode()
		}
		size := lengthOf(pieces)
		r.exec(func() {
			r.begin()
			mine.open--
			r.server.longReplies.Add(-1)
			s := r.session(id)
			there := s != nil && pieces != nil
			keeps := there && kind == protocol.Dump && (size > r.server.o.MaxOutbound || !r.shedStreams(size, steadyRead))
			if !keeps {
				release()
			}
			switch {
			case s == nil:
			case pieces == nil:
				tooLarge()
			case keeps:
				s.send(pieces, release)
			default:
				s.send(pieces, nil)
			}
			if s != nil && s.stream != nil && !s.gone {
				r.watchSlow(s)
			}
		})
	})
	return true
}

// besideLoops does something on a goroutine of its own, when it is its turn.
func (s *Server) goAside(turn chan struct{}, do func()) {
	s.workers.Go(func() {
		select {
		case turn <- struct{}{}:
			do()
		case <-s.stopped:
		}
	})
}
