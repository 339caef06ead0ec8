package loop

// Some requests are expensive: a worker's request may look at each of thousands of functions, a status lists all
// functions, and data may go to many listeners. One read may have hundreds of such requests. The cost of one turn is
// bounded. Beyond the bound a session is paused, and continues in the next turn behind the requests
// that other peers have sent meanwhile.
const (
	// maxTurnCost is the cost of one turn: looking at this number of functions, held jobs or listeners takes some
	// milliseconds.
	maxTurnCost = 32 << 10
	// freeCost is the cost below which a request pauses no session.
	freeCost = 256
	// maxPausedBytes bounds the bytes that a paused session receives, since gnet reads on. They
	// hold more GRAB_JOBs than a connection may have outstanding.
	maxPausedBytes = 256 << 10
	// halfClosedTurns times maxTurnCost is what the remaining requests of a peer that has closed
	// its side may cost.
	halfClosedTurns = 4
)

// AddCost implements protocol.Transport.
func (s *session) AddCost(cost int) bool {
	if cost < freeCost {
		return false
	}
	r := s.r
	if r.turn.cost += cost; r.turn.cost < maxTurnCost {
		return false
	}
	s.paused = true
	r.work.paused = append(r.work.paused, s)
	return true
}

// bufferPaused appends bytes that a paused session has received.
func (s *session) bufferPaused(in []byte) {
	if s.pausedBytes += len(in); s.pausedBytes > max(maxPausedBytes, s.pausedLimit) {
		s.End(errTooExpensive)
		return
	}
	s.partial = append(s.partial, in...)
}

// resumePaused resumes paused sessions in the order of their waiting until the turn's cost is used up. The first
// session always continues.
func (r *reactor) resumePaused() {
	for n := len(r.work.paused); n > 0; n-- {
		s := r.work.paused[0]
		r.work.paused[0] = nil
		r.work.paused = r.work.paused[1:]
		r.resumeSession(s)
		if r.turn.cost >= maxTurnCost {
			return
		}
	}
}

// resumeSession handles the requests that a paused session has in partial.
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

// resumeHalfClosed handles the requests of a paused session whose peer has closed its side. There is
// no next turn for them, so they may cost halfClosedTurns turns beyond the cost of this one.
func (r *reactor) resumeHalfClosed(s *session) {
	if s.paused {
		r.turn.cost -= halfClosedTurns * maxTurnCost
		r.resumeSession(s)
		r.turn.cost += halfClosedTurns * maxTurnCost
	}
}

// Suspend implements protocol.Transport.
func (s *session) Suspend() {
	s.paused, s.suspended = true, true
	s.partialSince = 0 // the peer waits for the server, and not the other way round
}

// Resume implements protocol.Transport.
func (s *session) Resume() {
	if !s.suspended {
		return
	}
	s.suspended = false
	if len(s.partial) > 0 {
		s.r.work.paused = append(s.r.work.paused, s)
		return
	}
	s.paused, s.pausedBytes = false, 0
}

// maxOffloads bounds the messages that are handled off the event loops at a time.
const maxOffloads = 4

// Offload implements protocol.Transport. work runs when fewer than maxOffloads others run. When the peer closes its
// side meanwhile, the session ends at once.
func (s *session) Offload(in []byte, handled, backlog int, work, done func()) bool {
	r, id, slots := s.r, s.ID, s.r.server.offloads
	s.paused, s.pausedLimit = true, backlog
	if handled > 0 || len(s.partial) == 0 || &s.partial[0] != &in[0] {
		r.work.paused = append(r.work.paused, s) // by the next turn the message is in partial
		return false
	}
	s.partialSince = r.Now.Mono
	r.server.runOffload(slots, func() {
		work()
		<-slots
		r.exec(func() {
			r.beginTurn()
			done()
			if s := r.sessions.get(id); s != nil && s.open() {
				r.work.paused = append(r.work.paused, s)
			}
		})
	})
	return true
}
