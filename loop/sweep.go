package loop

import "treadle/loop/protocol"

// sweepBudget bounds the deadlines that conversations handle in one sweep. They take a millisecond,
// or ten when each is the await of a job with the most awaits. The next sweep continues.
const sweepBudget = 1024

// sweep ends sessions whose time-outs have passed, and gives memory back.
func (r *reactor) sweep() {
	r.pool.shrink()
	r.dropScratch()
	r.beginTurn()
	o := &r.server.o
	now := r.Now.Mono
	r.swept.Store(now)
	handshake := r.server.handshakeLimit(now)
	room := sweepBudget
	for s := range r.sessions.all() {
		if s.reason != nil {
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
