package loop

import (
	"cmp"
	"slices"
	"time"

	"treadle/loop/protocol"
)

// slowPeriod is how often connections with unsent bytes are looked at: gnet does
// not say when a socket has drained.
const slowPeriod = 2 * time.Millisecond

// stream is one reply too large for the out buffer, sent piece by piece as the
// peer reads. What else the session has to say waits until all of it is on its way.
type stream struct {
	pieces   [][]byte
	done     func() // called once, when it is sent or its session has ended; nil: nobody waits for that
	parked   bool   // what waits for that is the place aside, see passTurn
	progress int64  // Mono of when the peer has last taken some of it
	left     int    // unsent then
	next     *stream
}

// end tells whoever waits that nothing is left of a stream.
func (st *stream) end() {
	if st.done != nil {
		st.done()
	}
}

// bytes is what is left of the streams from here on whose end nobody waits for.
func (st *stream) bytes() (n int) {
	for ; st != nil; st = st.next {
		if st.done == nil {
			n += lengthOf(st.pieces)
		}
	}
	return n
}

func lengthOf(pieces [][]byte) (n int) {
	for _, p := range pieces {
		n += len(p)
	}
	return n
}

// send starts a stream behind what the session has to send already.
func (s *session) send(pieces [][]byte, done func()) {
	st := &stream{pieces: pieces, done: done, progress: s.r.Now.Mono}
	if s.stream != nil {
		last := s.stream
		for last.next != nil {
			last = last.next
		}
		last.next = st
		return
	}
	s.Touch()
	s.r.write(s)
	if s.gone {
		st.end()
		return
	}
	s.stream = st
	s.pump()
}

// pump sends as many pieces as the peer takes.
func (s *session) pump() {
	st := s.stream
	if left := s.conn.OutboundBuffered(); left < st.left {
		st.progress, st.left = s.r.Now.Mono, left // a piece may be a job of 64 MiB
	}
	for len(st.pieces) > 0 && s.conn.OutboundBuffered() < protocol.PieceSize {
		piece := st.pieces[0]
		st.pieces[0] = nil
		st.pieces = st.pieces[1:]
		st.progress = s.r.Now.Mono
		if _, err := s.conn.Write(piece); err != nil && !s.gone {
			s.End(err)
			break
		}
		if s.gone {
			return
		}
	}
	if st.left = s.conn.OutboundBuffered(); s.reason == nil && (len(st.pieces) > 0 || st.left > 0) {
		return
	}
	s.lastReceived = s.r.Now.Mono
	if s.stream = st.next; s.stream != nil {
		s.stream.progress = s.lastReceived
	}
	st.end()
	s.Touch()
}

// watchSlow has a session looked at until it has nothing unsent.
func (r *reactor) watchSlow(s *session) {
	if s.slow {
		return
	}
	s.slow = true
	r.slow = append(r.slow, s)
	if len(r.slow) == 1 {
		r.checkSlowLater()
	}
}

func (r *reactor) checkSlowLater() {
	r.after(slowPeriod, func() { r.exec(r.checkSlow) })
}

// look gives streams their next pieces and tells the scheduler who has caught up.
func (r *reactor) checkSlow() {
	r.begin()
	kept := r.slow[:0]
	for _, s := range r.slow {
		if s.gone {
			continue
		}
		if s.stream != nil {
			s.pump()
		}
		if s.gone {
			continue
		}
		if s.Scheduled != nil {
			r.fill(s)
		}
		if s.stream != nil || s.conn.OutboundBuffered() > 0 {
			kept = append(kept, s)
		} else {
			s.slow = false
		}
	}
	clear(r.slow[len(kept):])
	r.slow = kept
	r.releaseEncoders()
	r.shedUnread()
	r.relieveStreams()
	if len(kept) > 0 {
		r.checkSlowLater()
	}
}

// maxDeaf is how many times --max-outbound may wait for all peers of a loop together: each
// may let that much wait, and thousands that do would take all memory.
const maxUnreadFactor = 4

func (s *Server) mostUnsent() int { return maxUnreadFactor * s.o.MaxOutbound }

// large is how much may wait for one peer when that is too much already.
func (s *Server) largeOutput() int { return min(flushAt, s.o.MaxOutbound) }

// relieve ends the sessions for whose peers most waits, while too much waits for all.
func (r *reactor) shedUnread() {
	waits := 0
	for _, s := range r.slow {
		waits += s.outbound()
	}
	if waits <= r.server.mostUnsent() {
		return
	}
	open := slices.DeleteFunc(slices.Clone(r.slow), func(s *session) bool { return !s.open() })
	slices.SortStableFunc(open, func(a, b *session) int { return cmp.Compare(b.outbound(), a.outbound()) })
	for i := 0; i < len(open) && waits > r.server.mostUnsent(); i++ {
		waits -= open[i].outbound()
		open[i].End(errSlowReader)
	}
}

// relieveStreams is relieve for the streams whose end nobody waits for. Each may be as large
// as it is, so while there are others the sessions are ended that have read nothing for the
// longest.
func (r *reactor) relieveStreams() { r.shedStreams(0, 0) }

// makeRoom is relieveStreams for so many bytes more, of those that have taken nothing for so
// long. It says whether there is room.
func (r *reactor) shedStreams(more int, stale int64) bool {
	waits := more + r.unreadStreams()
	for waits > r.server.mostUnsent() {
		var stalest *session
		streams := 0
		for _, s := range r.slow {
			if s.open() && s.stream.bytes() > 0 {
				if streams += s.stream.count(); stalest == nil || s.stream.progress < stalest.stream.progress {
					stalest = s
				}
			}
		}
		if streams == 0 || streams < 2 && more == 0 || r.Now.Mono-stalest.stream.progress < stale {
			return false
		}
		waits -= stalest.stream.bytes()
		stalest.End(errSlowReader)
	}
	return true
}

// unread is how many bytes are left of the streams whose end nobody waits for.
func (r *reactor) unreadStreams() (n int) {
	for _, s := range r.slow {
		n += s.stream.bytes()
	}
	return n
}

// turnPatience is how long, in milliseconds, a peer may take none of its stream and keep the turn
// from others.
const encoderPatience = 20

// passTurns takes the turn from those who do not read while another may wait for it. Their streams
// stay: among those whose end nobody waits for, when there is room, or in the one place aside, when
// it is free. Else they keep the turn, see stuckTurn.
func (r *reactor) releaseEncoders() {
	for _, s := range r.slow {
		if r.server.longReplies.Load() == 0 {
			return
		}
		if !s.open() || s.stream == nil || r.Now.Mono-s.stream.progress < encoderPatience {
			continue
		}
		for st := s.stream; st != nil; st = st.next {
			if st.done != nil && !st.parked {
				r.releaseEncoder(st)
			}
		}
	}
}

func (r *reactor) releaseEncoder(st *stream) {
	done, aside := st.done, r.server.parkedDump
	if r.unreadStreams()+lengthOf(st.pieces) <= r.server.mostUnsent() {
		st.done = nil
	} else {
		select {
		case aside <- struct{}{}:
			st.done, st.parked = func() { <-aside }, true
		default:
			return
		}
	}
	done()
}

// count is how many streams there are from here on whose end nobody waits for.
func (st *stream) count() (n int) {
	for ; st != nil; st = st.next {
		if st.done == nil {
			n++
		}
	}
	return n
}

// steadily is within how many milliseconds a peer that reads its stream takes some of it.
const steadyRead = 5000

// stuckTurn is how long, in milliseconds, a peer may take none of its stream
// when another long reply may be waiting for its turn.
const maxEncoderStall = 10_000

// patienceWith is how long, in milliseconds, a peer may take nothing of a stream.
func (r *reactor) readLimit(st *stream) int64 {
	limit := r.server.o.FrameTimeout.Milliseconds()
	if r.server.longReplies.Load() > 0 {
		for ; st != nil; st = st.next { // the one that keeps the turn may stand behind others
			if st.done != nil && !st.parked {
				return min(limit, maxEncoderStall)
			}
		}
	}
	return limit
}

// mostSwept bounds what conversations do in one sweep, and so in one turn: a millisecond, or ten when each of as many
// awaits expires of a job that as many wait for as may. The next sweep goes on.
const sweepBudget = 1024

// sweep closes sessions that have kept the server waiting too long, and lets go of memory.
func (r *reactor) sweep() {
	r.pool.shrink()
	r.dropScratch()
	r.begin()
	o := &r.server.o
	now := r.Now.Mono
	handshake := r.server.handshakeLimit(now)
	room := sweepBudget
	for _, s := range r.sessions {
		if s == nil || s.reason != nil {
			continue
		}
		if c, ok := s.conv.(protocol.Sweeper); ok {
			room = c.Sweep(room)
		}
		idle := s.conv.IdleLimit()
		last := s.lastReceived
		if s.stream != nil {
			last = max(last, s.stream.progress)
		}
		switch {
		case s.stream != nil && now-s.stream.progress > r.readLimit(s.stream):
			s.End(errSlowReader)
		case !s.HandshakeDone && now-s.partialSince > handshake:
			s.End(errHandshake)
		case s.HandshakeDone && s.partialSince > 0 && now-s.partialSince > o.FrameTimeout.Milliseconds():
			s.End(errUnfinished)
		case s.HandshakeDone && idle > 0 && now-last > idle:
			s.End(errIdle)
		}
	}
}
