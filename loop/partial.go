package loop

// maxPartials is how many times the largest request all peers of a loop together may have
// sent of requests that are not whole, or not handled yet: each of thousands may send
// nearly one, and stop.
const maxPartialFactor = 8

func (s *Server) mostPartial() int {
	return maxPartialFactor * max(s.o.MaxFrame, s.o.GloomMaxFrame, maxPooled) // a short one may be in a spare buffer
}

// count takes note of how much the session has unhandled.
func (s *session) chargePartial() {
	if s.gone { // shut has taken it off
		return
	}
	n := cap(s.partial)
	if n <= maxSmallBuffer { // it is not kept to account
		n = 0
	}
	if n != s.partialCharged {
		s.r.partialBytes += n - s.partialCharged
		s.partialCharged = n
		s.r.shedPartials()
	}
}

// relievePartials ends the sessions whose requests have been unfinished for the longest, while
// there is too much of such requests: who sends all that he has begun is soon done with it.
func (r *reactor) shedPartials() {
	for r.partialBytes > r.server.mostPartial() {
		var oldest *session
		for _, s := range r.sessions {
			if s != nil && s.open() && s.partialCharged > 0 && (oldest == nil || s.waitingSince() < oldest.waitingSince()) {
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

// waitsSince is when what is unfinished of the session began.
func (s *session) waitingSince() int64 {
	if s.partialSince == 0 { // it is paused
		return s.lastReceived
	}
	return s.partialSince
}
