package loop

// maxPartialFactor times the largest request is the bound of the unfinished and unhandled requests of all peers of a
// loop together. Thousands of peers could each send nearly all of a request, and stop.
const maxPartialFactor = 8

func (s *Server) maxPartial() int {
	one := max(s.o.largestFrame(), maxPooled) // a short request may be in a buffer of the pool
	return min(maxPartialFactor*one, max(s.peerMemory, one))
}

// chargePartial updates the reactor's count of unfinished bytes after a change of partial.
func (s *session) chargePartial() {
	if s.gone { // closeSession has subtracted the charge
		return
	}
	n := cap(s.partial)
	if n <= maxSmallBuffer { // small buffers are not counted
		n = 0
	}
	if n != s.partialCharged {
		s.r.partialBytes += n - s.partialCharged
		s.partialCharged = n
		s.r.shedPartials()
	}
}

// shedPartials ends the sessions with the oldest unfinished requests while the loop has more than
// maxPartial bytes of them. A peer that sends a whole request at once is soon done with it.
func (r *reactor) shedPartials() {
	for r.partialBytes > r.server.maxPartial() {
		var oldest *session
		for s := range r.sessions.all() {
			if s.open() && s.partialCharged > 0 && (oldest == nil || s.waitingSince() < oldest.waitingSince()) {
				oldest = s
			}
		}
		if oldest == nil {
			return
		}
		oldest.End(errUnfinished)
		r.partialBytes -= oldest.partialCharged
		oldest.partial, oldest.partialCharged = nil, 0
	}
}

// waitingSince returns the Mono time when the session's unfinished or unhandled request began.
func (s *session) waitingSince() int64 {
	if s.partialSince == 0 { // the session is paused
		return s.lastReceived
	}
	return s.partialSince
}
