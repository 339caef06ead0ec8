package loop

import (
	"io"
	"slices"
	"sync/atomic"
)

// pendingAcks are a reactor's acknowledgements that wait for the journal.
type pendingAcks struct {
	sessions   []*session   // sessions with acks
	halfClosed []halfClosed // half-closed connections with acks
	any        atomic.Bool  // sessions or halfClosed is not empty; any goroutine may read it
}

// ackGroup names the group that the acks up to end wait for. Groups and ends of a session ascend.
type ackGroup struct {
	group uint64
	end   int
}

// SendAfterCommit implements protocol.Transport.
func (s *session) SendAfterCommit(group uint64, reply []byte) {
	if s.acks == nil {
		s.acks = s.r.pool.get()
		s.r.acks.sessions = append(s.r.acks.sessions, s)
		s.r.acks.any.Store(true)
	}
	s.r.turn.newAcks++
	s.acks = append(s.acks, reply...)
	if last := len(s.ackGroups) - 1; last >= 0 && s.ackGroups[last].group >= group {
		s.ackGroups[last].end = len(s.acks) // the order of replies holds: this one follows a later group's
	} else {
		s.ackGroups = append(s.ackGroups, ackGroup{group, len(s.acks)})
	}
}

// HasPendingAcks implements protocol.Transport.
func (s *session) HasPendingAcks() bool { return len(s.ackGroups) > 0 }

// releaseAcks sends the acknowledgements of committed groups. Every turn ends with it, because a commit wakes only the
// reactors whose acks.any is set. A commit may come after a conversation found its group uncommitted and before
// SendAfterCommit has set it.
func (r *reactor) releaseAcks() {
	if len(r.acks.sessions)+len(r.acks.halfClosed) == 0 {
		return
	}
	committed := r.server.journal.committed()
	kept := r.acks.sessions[:0]
	for _, s := range r.acks.sessions {
		if !s.gone && !s.sendAcks(committed) {
			kept = append(kept, s)
		}
	}
	clear(r.acks.sessions[len(kept):])
	r.acks.sessions = kept
	r.acks.halfClosed = slices.DeleteFunc(r.acks.halfClosed, func(p halfClosed) bool {
		if p.group > committed {
			return false
		}
		r.turn.written[p.protocol] += uint64(len(p.acks))
		_, _ = p.conn.Write(p.acks) // the connection closes after an error as well
		_ = p.conn.Close()
		r.server.conns.remove(p.protocol)
		return true
	})
	r.acks.any.Store(len(r.acks.sessions)+len(r.acks.halfClosed) > 0)
}

// halfClosed is a half-closed connection whose peer is still to receive acknowledgements.
type halfClosed struct {
	conn  io.WriteCloser
	acks  []byte
	group uint64

	protocol protocolID
}

// sendAcks moves the acknowledgements of groups up to committed to Out. It returns true when none
// are left.
func (s *session) sendAcks(committed uint64) bool {
	n := 0
	for n < len(s.ackGroups) && s.ackGroups[n].group <= committed {
		n++
	}
	if n > 0 {
		end := s.ackGroups[n-1].end
		s.OpenOut()
		s.Out = append(s.Out, s.acks[:end]...)
		s.acks = s.acks[:copy(s.acks, s.acks[end:])]
		s.ackGroups = s.ackGroups[:copy(s.ackGroups, s.ackGroups[n:])]
		for i := range s.ackGroups {
			s.ackGroups[i].end -= end
		}
		if len(s.acks) == 0 {
			s.r.pool.put(s.acks)
			s.acks, s.ackGroups = nil, nil
		}
	}
	return len(s.ackGroups) == 0
}
