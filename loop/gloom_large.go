package loop

import "treadle/codec/gloom"

// largeFrame is from how many bytes on a Gloom frame is parsed beside the event loop: so many take
// ten milliseconds at the most.
const largeFrame = 1 << 20

// maxParses bounds the large frames that are parsed at a time.
const maxParses = 4

// gloomParse is a large frame that is parsed beside the loop. Its session is paused meanwhile.
type gloomParse struct {
	payload []byte
	message gloom.Message
	err     error
	over    bool // the loop's
}

// parsed returns the large frame at the front of in, behind n bytes that are handled, when it is
// parsed. nil: the session is paused until it is. A peer that closes its side behind it is not
// waited for.
func (g *gloomTalk) parsed(in []byte, n int, payload []byte) *gloomParse {
	s, p := g.s, g.parse
	switch {
	case p != nil && p.over:
		g.parse = nil
		return p
	case p != nil:
		return nil
	}
	s.paused, s.keeps = true, 2*s.r.server.o.GloomMaxFrame // it may send its next ones meanwhile
	if n > 0 || len(s.partial) == 0 || &s.partial[0] != &in[0] {
		s.r.paused = append(s.r.paused, s) // in the next turn it lies where it stays
		return nil
	}
	p = &gloomParse{payload: payload}
	g.parse = p
	s.begun = s.r.now.Mono
	r, id, turn := s.r, s.id, s.r.server.parses
	r.server.beside(turn, func() {
		p.err = r.server.parseGloom(p.payload, &p.message)
		<-turn
		r.exec(func() {
			r.begin()
			p.over = true
			if s := r.session(id); s != nil && s.open() {
				r.paused = append(r.paused, s)
			}
		})
	})
	return nil
}
