package loop

import (
	"sync/atomic"

	"treadle/loop/protocol"
)

// longReplies counts the long replies that a session has not begun to send.
type longReplies struct {
	pending int         // belongs to the reactor
	ended   atomic.Bool // the session has ended
}

// maxLongReplies bounds a session's long replies and maxPendingReplies those of all sessions. Each
// waits for its encoder in a goroutine.
const (
	maxLongReplies    = 8
	maxPendingReplies = 1024
)

// Stream implements protocol.Transport. There is one encoder of each kind. A Dump keeps it until the
// peer has read it, when it has more than --max-outbound bytes or when there is no room beside the
// shared streams. All other replies are sent as shared streams, see stream.
func (s *session) Stream(kind protocol.StreamKind, encode func() [][]byte, tooLarge func()) bool {
	if s.longReplies == nil {
		s.longReplies = &longReplies{}
	}
	r, id, replies := s.r, s.ID, s.longReplies
	if replies.pending >= maxLongReplies || r.server.longReplies.Load() >= maxPendingReplies {
		return false
	}
	replies.pending++
	r.server.longReplies.Add(1)
	encoder := r.server.encoders[kind]
	release := func() { <-encoder }
	r.server.runOffload(encoder, func() {
		var pieces [][]byte
		if !replies.ended.Load() {
			pieces = encode()
		}
		size := lengthOf(pieces)
		r.exec(func() {
			r.beginTurn()
			replies.pending--
			r.server.longReplies.Add(-1)
			s := r.sessions.get(id)
			keepsEncoder := s != nil && pieces != nil && kind == protocol.Dump && (size > r.server.o.MaxOutbound || !r.shedStreams(size, steadyRead))
			if !keepsEncoder {
				release()
			}
			switch {
			case s == nil:
			case pieces == nil:
				tooLarge()
			case keepsEncoder:
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

// goOffload runs do in a goroutine that has taken a slot; do frees the slot. If no slot is free before the event loops
// have ended, do does not run.
func (s *Server) goOffload(slots chan struct{}, do func()) {
	s.goroutines.Go(func() {
		select {
		case slots <- struct{}{}:
			do()
		case <-s.stopped:
		}
	})
}
