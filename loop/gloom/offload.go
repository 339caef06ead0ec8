package gloom

import codec "treadle/codec/gloom"

// LargeFrame is the size in bytes above which a frame is parsed off the event loop. Parsing this much takes at most ten
// milliseconds.
const LargeFrame = 1 << 20

// parsing is a large frame that is parsed off the event loop.
type parsing struct {
	message codec.Message
	err     error
	done    bool // belongs to the loop
}

// parsed returns the large frame at in[handled:] once it is parsed. Until then it returns nil and the session is
// paused; the peer may send its next frames.
func (g *conversation) parsed(in []byte, handled int, payload []byte) *parsing {
	p := g.parsing
	switch {
	case p != nil && p.done:
		g.parsing = nil
		return p
	case p != nil:
		return nil
	}
	p = new(parsing)
	if g.s.Offload(in, handled, 2*g.p.o.MaxFrame, func() { p.err = g.p.parse(payload, &p.message) }, func() { p.done = true }) {
		g.parsing = p
	}
	return nil
}
