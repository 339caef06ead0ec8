package zmq

import "time"

// Options are the settings of a Listener. The zero value of each stands for the default that it names.
type Options struct {
	// MaxConnections is the most connections at a time; default 1024. Further ones are closed when they are accepted.
	MaxConnections int
	// MaxFrame is the most bytes of a frame; default 16 MiB. A larger frame ends its connection before anything is
	// allocated for it. A whole message may have 64 KiB more, for its envelope.
	MaxFrame int
	// MaxFrames is the most frames of a message, with its envelope; default 32.
	MaxFrames int
	// MaxBuffered is the most bytes of unfinished large messages of all connections; default DefaultMaxBuffered. A
	// connection that would exceed it is closed.
	MaxBuffered int
	// MaxOutbound is the most bytes of a connection's replies in one turn; default 64 MiB. One reply may be larger. The
	// connection is closed when its replies exceed it.
	MaxOutbound int
	// MaxUnsent is the most bytes of unread replies of all connections; default 256 MiB. Beyond it the connections that
	// have not read for the longest time are closed.
	MaxUnsent int
	// Unasked, when set, is the payload of a reply that is sent once to a REQ that is silent after it has connected: it
	// may wait for a reply from a server that was killed. See unasked.go.
	Unasked []byte
	// UnaskedAfter is the silence before Unasked is sent; default 2 s.
	UnaskedAfter time.Duration
	// HandshakeTimeout bounds the handshake; default 10 s.
	HandshakeTimeout time.Duration
	// FrameTimeout bounds a message from its first byte to its last; default 100 s.
	FrameTimeout time.Duration
	// WriteTimeout bounds the time in which a peer accepts 256 KiB of replies; default 10 s.
	WriteTimeout time.Duration
	// OnFault is called for each failed accept, refused connection and connection closed for a fault of its peer. Any
	// goroutine may call it, often: it must not block, and should limit its rate.
	OnFault func(error)
}

// DefaultMaxBuffered is the default of MaxBuffered.
const DefaultMaxBuffered = 512 << 20

// withDefaults returns the settings with the defaults in place of zero values.
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
	if o.OnFault == nil {
		o.OnFault = func(error) {}
	}
	return o
}

func (o *Options) limits() limits { return limits{frame: o.MaxFrame, frames: o.MaxFrames} }
