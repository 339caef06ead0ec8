package zmq

import "time"

// Options are the settings of a Listener. The zero value of each stands for the default that it names.
type Options struct {
	// MaxConnections are served at once, 1024 when it is 0; further ones are closed as soon as they are accepted.
	MaxConnections int
	// MaxFrame is the size of the largest frame, in bytes, 16 MiB when it is 0. A larger one ends its connection before
	// anything is allocated for it. It limits whole messages too, with 64 KiB more for their envelopes.
	MaxFrame int
	// MaxFrames is how many frames a message may have, its envelope's among them, 32 when it is 0.
	MaxFrames int
	// MaxBuffered is what unfinished large messages of all connections may take together, in bytes, DefaultMaxBuffered
	// when it is 0. The connection that would exceed it is closed.
	MaxBuffered int
	// MaxOutbound is what a connection's replies of one turn may take, in bytes, 64 MiB when it is 0; one reply alone
	// may be larger. Beyond it the connection is closed: it asked for much at once and for little with each request.
	MaxOutbound int
	// MaxUnsent is what the replies to all connections may take together, in bytes, 256 MiB when it is 0. Beyond it the
	// peers are hung up on that have read nothing of theirs for the longest.
	MaxUnsent int
	// Unasked is the payload that a REQ is sent, once, which has asked nothing since it connected: it may wait for a
	// reply that it is owed by a server that was killed. nil: nothing is.
	Unasked []byte
	// UnaskedAfter is how long such a peer must be silent, 2 s when it is 0.
	UnaskedAfter time.Duration
	// HandshakeTimeout is how long a peer may take to become one, 10 s when it is 0.
	HandshakeTimeout time.Duration
	// FrameTimeout is how long a message may take from its first byte to its last, 100 s when it is 0.
	FrameTimeout time.Duration
	// WriteTimeout is how long a peer may take to accept 256 KiB of replies, 10 s when it is 0.
	WriteTimeout time.Duration
	// Trouble is told of every failed accept, every connection turned away and every one closed for its peer's fault.
	// Any goroutine calls it, as often as peers like: it must be quick, and drop most of what it hears.
	Trouble func(error)
}

// DefaultMaxBuffered is the default of MaxBuffered.
const DefaultMaxBuffered = 512 << 20

// withDefaults returns the settings with nothing left open.
func (o Options) withDefaults() Options {
	number := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	duration := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	number(&o.MaxConnections, 1024)
	number(&o.MaxFrame, 16<<20)
	number(&o.MaxFrames, 32)
	number(&o.MaxBuffered, DefaultMaxBuffered)
	number(&o.MaxOutbound, 64<<20)
	number(&o.MaxUnsent, 256<<20)
	duration(&o.UnaskedAfter, 2*time.Second)
	duration(&o.HandshakeTimeout, 10*time.Second)
	duration(&o.FrameTimeout, 100*time.Second)
	duration(&o.WriteTimeout, 10*time.Second)
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	return o
}

func (o *Options) limits() limits { return limits{frame: o.MaxFrame, frames: o.MaxFrames} }
