package loop

// A request of a worker of very many functions may have each of them looked at, a status
// lists all that there are, data has very many listeners, and one read holds hundreds of requests.
// What such peers cost in one turn is bounded: beyond it the rest of what they ask waits for the
// next turn, behind everything that others have sent meanwhile.
const (
	// lookTurn is what they may cost: so many functions, held jobs or listeners are looked
	// through in some milliseconds.
	maxTurnCost = 32 << 10
	// fewLooks is what no request is put off for.
	freeCost = 256
	// keepPaused bounds what is kept of one that waits, since gnet reads on: more GRAB_JOBs
	// than a connection may have outstanding. Who asks for more is hung up on.
	maxPausedBytes = 256 << 10
	// lastTurns is how many turns' worth of requests are still answered to a peer that has
	// closed its side behind them.
	halfClosedTurns = 4
)

// Charge implements protocol.Transport.
func (s *session) Charge(cost int) bool {
	if cost < freeCost {
		return false
	}
	r := s.r
	if r.cost += cost; r.cost < maxTurnCost {
		return false
	}
	s.paused = true
	r.paused = append(r.paused, s)
	return true
}

// keep puts what a paused session has sent behind the rest.
func (s *session) bufferPaused(in []byte) {
	if s.pausedBytes += len(in); s.pausedBytes > max(maxPausedBytes, s.pausedLimit) {
		s.End(errTooExpensive)
		return
	}
	s.partial = append(s.partial, in...)
}

// resume goes on with what paused sessions have asked, the one that has waited longest first,
// as long as the turn's bound allows; that one always gets on.
func (r *reactor) resumePaused() {
	for n := len(r.paused); n > 0; n-- {
		s := r.paused[0]
		r.paused[0] = nil
		r.paused = r.paused[1:]
		r.resumeSession(s)
		if r.cost >= maxTurnCost {
			return
		}
	}
}

// resumeLater has another turn begin for those who are paused still, and for what else is left. What
// is run at once the loop runs before it looks for what others have sent; this it does not.
func (r *reactor) scheduleNextTurn() {
	if len(r.paused)+len(r.refill)+len(r.mail)+len(r.dirty) == 0 || r.resuming {
		return
	}
	r.resuming = true
	r.after(0, func() {
		r.exec(func() {
			r.resuming = false
			r.begin()
		})
	})
}

// goOn is resume for one session.
func (r *reactor) resumeSession(s *session) {
	s.paused, s.pausedLimit = false, 0
	if !s.open() {
		return
	}
	defer r.recoverSession(s)
	s.lastReceived = r.Now.Mono
	s.assemble()
	if s.pausedBytes = min(s.pausedBytes, len(s.partial)); !s.paused {
		s.pausedBytes = 0
	}
	s.chargePartial()
	if len(s.partial) > 0 && !s.paused && s.partialSince == 0 {
		s.partialSince = r.Now.Mono
	}
}

// hear goes on with a paused session whose peer has closed its side.
func (r *reactor) resumeHalfClosed(s *session) {
	if s.paused {
		r.cost -= halfClosedTurns * maxTurnCost
		r.resumeSession(s)
		r.cost += halfClosedTurns * maxTurnCost
	}
}

// maxOffloads bounds the messages that are worked on beside the loops at a time.
const maxOffloads = 4

// Offload implements protocol.Transport. Work waits for one of the places for such work. A peer that
// closes its side meanwhile is not waited for.
func (s *session) Offload(in []byte, handled, keeps int, work, done func()) bool {
	r, id, places := s.r, s.ID, s.r.server.offloads
	s.paused, s.pausedLimit = true, keeps
	if handled > 0 || len(s.partial) == 0 || &s.partial[0] != &in[0] {
		r.paused = append(r.paused, s) // in the next turn the bytes lie where they stay
		return false
	}
	s.partialSince = r.Now.Mono
	r.server.runAside(places, func() {
		work()
		<-places
		r.exec(func() {
			r.begin()
			done()
			if s := r.session(id); s != nil && s.open() {
				r.paused = append(r.paused, s)
			}
		})
	})
	return true
}
