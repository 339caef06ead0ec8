package loop

// A request of a worker of very many functions may have each of them looked at, a status
// lists all that there are, data has very many listeners, and one read holds hundreds of requests.
// What such peers cost in one turn is bounded: beyond it the rest of what they ask waits for the
// next turn, behind everything that others have sent meanwhile.
const (
	// lookTurn is what they may cost: so many functions, held jobs or listeners are looked
	// through in some milliseconds.
	lookTurn = 32 << 10
	// fewLooks is what no request is put off for.
	fewLooks = 256
	// keepPaused bounds what is kept of one that waits, since gnet reads on: more GRAB_JOBs
	// than a connection may have outstanding. Who asks for more is hung up on.
	keepPaused = 256 << 10
	// lastTurns is how many turns' worth of requests are still answered to a peer that has
	// closed its side behind them.
	lastTurns = 4
)

// Charge implements protocol.Transport.
func (s *session) Charge(cost int) bool {
	if cost < fewLooks {
		return false
	}
	r := s.r
	if r.looked += cost; r.looked < lookTurn {
		return false
	}
	s.paused = true
	r.paused = append(r.paused, s)
	return true
}

// keep puts what a paused session has sent behind the rest.
func (s *session) keep(in []byte) {
	if s.behind += len(in); s.behind > max(keepPaused, s.keeps) {
		s.End(errHasty)
		return
	}
	s.partial = append(s.partial, in...)
}

// resume goes on with what paused sessions have asked, the one that has waited longest first,
// as long as the turn's bound allows; that one always gets on.
func (r *reactor) resume() {
	for n := len(r.paused); n > 0; n-- {
		s := r.paused[0]
		r.paused[0] = nil
		r.paused = r.paused[1:]
		r.goOn(s)
		if r.looked >= lookTurn {
			return
		}
	}
}

// resumeLater has another turn begin for those who are paused still, and for what else is left. What
// is run at once the loop runs before it looks for what others have sent; this it does not.
func (r *reactor) resumeLater() {
	if len(r.paused)+len(r.behind)+len(r.mail)+len(r.dirty) == 0 || r.resuming {
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
func (r *reactor) goOn(s *session) {
	s.paused, s.keeps = false, 0
	if !s.open() {
		return
	}
	defer r.rescue(s)
	s.last = r.Now.Mono
	s.assemble()
	if s.behind = min(s.behind, len(s.partial)); !s.paused {
		s.behind = 0
	}
	s.count()
	if len(s.partial) > 0 && !s.paused && s.begun == 0 {
		s.begun = r.Now.Mono
	}
}

// hear goes on with a paused session whose peer has closed its side.
func (r *reactor) hear(s *session) {
	if s.paused {
		r.looked -= lastTurns * lookTurn
		r.goOn(s)
		r.looked += lastTurns * lookTurn
	}
}

// maxOffloads bounds the messages that are worked on beside the loops at a time.
const maxOffloads = 4

// Offload implements protocol.Transport. Work waits for one of the places for such work. A peer that
// closes its side meanwhile is not waited for.
func (s *session) Offload(in []byte, handled, keeps int, work, done func()) bool {
	r, id, places := s.r, s.ID, s.r.server.offloads
	s.paused, s.keeps = true, keeps
	if handled > 0 || len(s.partial) == 0 || &s.partial[0] != &in[0] {
		r.paused = append(r.paused, s) // in the next turn the bytes lie where they stay
		return false
	}
	s.begun = r.Now.Mono
	r.server.beside(places, func() {
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
