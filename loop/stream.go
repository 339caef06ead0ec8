package loop

import (
	"cmp"
	"slices"
	"time"

	"treadle/loop/protocol"
)

// slowPeriod is how often checkSlow looks at connections with unsent bytes. gnet does not report
// that a socket has drained.
const slowPeriod = 2 * time.Millisecond

// stream is one reply too large for the out buffer. It is sent in pieces as the peer reads. The
// session's other output waits behind it.
type stream struct {
	pieces [][]byte
	// release frees the stream's encoder, or dumpSlot, once the peer has read the stream or its session has ended.
	// It is nil for a shared stream, which holds no encoder. The bytes of a shared stream count against the loop's
	// maxUnsent.
	release  func()
	parked   bool  // release frees dumpSlot
	progress int64 // Mono when the peer last read some of it
	unread   int   // unread bytes then, of the pieces that were written
	next     *stream
}

// end releases the encoder or dumpSlot, if the stream has one.
func (st *stream) end() {
	if st.release != nil {
		st.release()
	}
}

// sharedBytes returns how many bytes of the shared streams from st on are left to write.
func (st *stream) sharedBytes() (n int) {
	for ; st != nil; st = st.next {
		if st.release == nil {
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

// send starts a stream behind the output that the session has already.
func (s *session) send(pieces [][]byte, release func()) {
	st := &stream{pieces: pieces, release: release, progress: s.r.Now.Mono}
	if s.stream != nil {
		last := s.stream
		for last.next != nil {
			last = last.next
		}
		last.next = st
		return
	}
	s.OpenOut()
	s.r.write(s)
	if s.gone {
		st.end()
		return
	}
	s.stream = st
	s.pump()
}

// pump writes as many pieces as the peer takes.
func (s *session) pump() {
	st := s.stream
	if left := s.conn.OutboundBuffered(); left < st.unread {
		st.progress, st.unread = s.r.Now.Mono, left // one piece may be a job of 64 MiB
	}
	for len(st.pieces) > 0 && s.conn.OutboundBuffered() < protocol.PieceSize {
		piece := st.pieces[0]
		st.pieces[0] = nil
		st.pieces = st.pieces[1:]
		st.progress = s.r.Now.Mono
		s.countSent(len(piece))
		if err := s.write(piece); err != nil && !s.gone {
			s.End(err)
			break
		}
		if s.gone {
			return
		}
	}
	if st.unread = s.conn.OutboundBuffered(); s.reason == nil && (len(st.pieces) > 0 || st.unread > 0) {
		return
	}
	s.lastReceived = s.r.Now.Mono
	if s.stream = st.next; s.stream != nil {
		s.stream.progress = s.lastReceived
	}
	st.end()
	s.OpenOut()
}

// watchSlow lists a session for checkSlow until it has nothing unsent.
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

// checkSlow writes the next pieces of streams and tells the scheduler which peers have caught up.
func (r *reactor) checkSlow() {
	r.beginTurn()
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
		if s.SchedPeer != nil {
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
	r.shedStreams(0, 0)
	if len(kept) > 0 {
		r.checkSlowLater()
	}
}

// maxUnreadFactor times --max-outbound is the bound of the unread output of all peers of a loop
// together. Thousands of peers with --max-outbound each would take all memory.
const maxUnreadFactor = 4

func (s *Server) maxUnsent() int {
	return min(maxUnreadFactor*s.o.MaxOutbound, max(s.peerMemory, s.o.MaxOutbound))
}

// largeOutput is the size in bytes from which a peer's output is large: a turn writes it early, and
// what the peer has not read counts against maxUnsent.
func (s *Server) largeOutput() int { return min(maxLargeOutput, s.o.MaxOutbound) }

// shedUnread ends the sessions with the most unread output while the loop has more than maxUnsent.
func (r *reactor) shedUnread() {
	unread := 0
	for _, s := range r.slow {
		unread += s.outbound()
	}
	if unread <= r.server.maxUnsent() {
		return
	}
	open := slices.DeleteFunc(slices.Clone(r.slow), func(s *session) bool { return !s.open() })
	slices.SortStableFunc(open, func(a, b *session) int { return cmp.Compare(b.outbound(), a.outbound()) })
	for i := 0; i < len(open) && unread > r.server.maxUnsent(); i++ {
		unread -= open[i].outbound()
		open[i].End(errSlowReader)
	}
}

// shedStreams makes room for more bytes of shared streams within maxUnsent. It ends sessions whose peers have read
// nothing for at least stale milliseconds, and begins with the peer that has read nothing for the longest. shedStreams
// returns false when there is no room. With more = 0 it never ends the loop's only shared stream, which may be of any
// size.
func (r *reactor) shedStreams(more int, stale int64) bool {
	unread := more + r.sharedUnsent()
	for unread > r.server.maxUnsent() {
		var stalest *session
		streams := 0
		for _, s := range r.slow {
			if s.open() && s.stream.sharedBytes() > 0 {
				if streams += s.stream.sharedCount(); stalest == nil || s.stream.progress < stalest.stream.progress {
					stalest = s
				}
			}
		}
		if streams == 0 || streams < 2 && more == 0 || r.Now.Mono-stalest.stream.progress < stale {
			return false
		}
		unread -= stalest.stream.sharedBytes()
		stalest.End(errSlowReader)
	}
	return true
}

// sharedUnsent returns how many bytes of shared streams are left to write.
func (r *reactor) sharedUnsent() (n int) {
	for _, s := range r.slow {
		n += s.stream.sharedBytes()
	}
	return n
}

// encoderPatience is how long, in milliseconds, a peer may read nothing and keep an encoder from
// other sessions.
const encoderPatience = 20

// releaseEncoders frees the encoders of peers that do not read while other long replies wait. Their
// streams become shared, if there is room, or take dumpSlot, if it is free. Otherwise they keep
// the encoder for up to maxEncoderStall.
func (r *reactor) releaseEncoders() {
	for _, s := range r.slow {
		if r.server.longReplies.Load() == 0 {
			return
		}
		if !s.open() || s.stream == nil || r.Now.Mono-s.stream.progress < encoderPatience {
			continue
		}
		for st := s.stream; st != nil; st = st.next {
			if st.release != nil && !st.parked {
				r.releaseEncoder(st)
			}
		}
	}
}

// releaseEncoder frees the encoder of a stream before its peer has read it, if the stream fits among the shared ones,
// or if no other dump is parked.
func (r *reactor) releaseEncoder(st *stream) {
	release, parkedDump := st.release, r.server.dumpSlot
	if r.sharedUnsent()+lengthOf(st.pieces) <= r.server.maxUnsent() {
		st.release = nil
	} else {
		select {
		case parkedDump <- struct{}{}:
			st.release, st.parked = func() { <-parkedDump }, true
		default:
			return
		}
	}
	release()
}

// sharedCount returns how many streams from st on are shared.
func (st *stream) sharedCount() (n int) {
	for ; st != nil; st = st.next {
		if st.release == nil {
			n++
		}
	}
	return n
}

// steadyRead is the longest time in milliseconds between two reads of a peer that reads steadily.
const steadyRead = 5000

// maxEncoderStall is how long, in milliseconds, a peer may read nothing and keep an encoder while
// other long replies wait.
const maxEncoderStall = 10_000

// readLimit returns how long, in milliseconds, a peer may read nothing of a stream.
func (r *reactor) readLimit(st *stream) int64 {
	limit := r.server.o.FrameTimeout.Milliseconds()
	if r.server.longReplies.Load() > 0 {
		for ; st != nil; st = st.next { // a stream with an encoder may be behind shared ones
			if st.release != nil && !st.parked {
				return min(limit, maxEncoderStall)
			}
		}
	}
	return limit
}
