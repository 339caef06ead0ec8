package loop

// maxPartials is how many times the largest request all peers of a loop together may have
// sent of requests that are not whole, or not handled yet: each of thousands may send
// nearly one, and stop.
const maxPartials = 8

func (s *Server) mostPartial() int {
	return maxPartials * max(s.o.MaxFrame, s.o.GloomMaxFrame, maxSpare) // a short one may be in a spare buffer
}

// count takes note of how much the session has unhandled.
func (s *session) count() {
	if s.gone { // shut has taken it off
		return
	}
	n := cap(s.partial)
	if n <= keepBuffer { // it is not kept to account
		n = 0
	}
	if n != s.counted {
		s.r.partials += n - s.counted
		s.counted = n
		s.r.relievePartials()
	}
}

// relievePartials ends the sessions whose requests have been unfinished for the longest, while
// there is too much of such requests: who sends all that he has begun is soon done with it.
func (r *reactor) relievePartials() {
	for r.partials > r.server.mostPartial() {
		var oldest *session
		for _, s := range r.sessions {
			if s != nil && s.open() && s.counted > 0 && (oldest == nil || s.waitsSince() < oldest.waitsSince()) {
				oldest = s
			}
		}
		if oldest == nil {
			return
		}
		oldest.End(errUnfinished)
		r.partials -= oldest.counted
		oldest.partial, oldest.counted = nil, 0
	}
}

// waitsSince is when what is unfinished of the session began.
func (s *session) waitsSince() int64 {
	if s.begun == 0 { // it is paused
		return s.last
	}
	return s.begun
}
