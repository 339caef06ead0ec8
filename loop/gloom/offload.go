package gloom

import codec "treadle/codec/gloom"

// LargeFrame is the size in bytes above which a frame is parsed off the event loop. Parsing this much takes at most ten
// milliseconds.
const LargeFrame = 1 << 20

// offloadWork is a large frame that is parsed off the event loop.
type offloadWork struct {
	message codec.Message
	err     error
	done    bool // belongs to the loop
}

// parse parses a frame's payload. It may run off the event loop.
func (p *Protocol) parse(payload []byte, m *codec.Message) error {
	if p.o.JSON == strict {
		return codec.Parse(payload, m)
	}
	return codec.ParseLax(payload, p.o.MaxFrame, m)
}

// parsed returns the large frame at in[at:] once it is parsed. Until then it returns nil and the session is
// paused; the peer may send its next frames.
func (c *conversation) parsed(in []byte, at int, payload []byte) *offloadWork {
	p := c.offloaded
	switch {
	case p != nil && p.done:
		c.offloaded = nil
		return p
	case p != nil:
		return nil
	}
	p = new(offloadWork)
	if c.s.Offload(in, at, 2*c.p.o.MaxFrame, func() { p.err = c.p.parse(payload, &p.message) }, func() { p.done = true }) {
		c.offloaded = p
	}
	return nil
}
