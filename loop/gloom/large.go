package gloom

import codec "treadle/codec/gloom"

// LargeFrame is the size in bytes from which a frame is parsed beside the event loop: parsing
// as much takes ten milliseconds at the most.
const LargeFrame = 1 << 20

// parsing is a large frame that is parsed beside the loop.
type parsing struct {
	message codec.Message
	err     error
	over    bool // the loop's
}

// parsed returns the large frame that lies in in behind handled bytes, when it is parsed. nil: the
// session is paused until it is. The peer may send its next frames meanwhile.
func (g *conversation) parsed(in []byte, handled int, payload []byte) *parsing {
	p := g.parsing
	switch {
	case p != nil && p.over:
		g.parsing = nil
		return p
	case p != nil:
		return nil
	}
	p = new(parsing)
	if g.s.Offload(in, handled, 2*g.p.o.MaxFrame, func() { p.err = g.p.parse(payload, &p.message) }, func() { p.over = true }) {
		g.parsing = p
	}
	return nil
}
