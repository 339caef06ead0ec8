package protocol

import (
	"context"
	"net"

	"treadle/loop/web"
	"treadle/sched"
)

// Service is a Protocol with sockets or goroutines of its own. The server calls its methods in
// this order, from one goroutine; Close may come at any time behind New.
type Service interface {
	Protocol
	// Listen opens its sockets; the server prints what listens where.
	Listen() ([]Listening, error)
	// Serve starts its goroutines. The context ends when the server begins to stop.
	Serve(ctx context.Context)
	// Drain lets nobody new in and hands nothing new out.
	Drain()
	// Owes says whether a peer waits for an answer. It is called from any goroutine.
	Owes() bool
	// Close ends its connections and goroutines, and waits for them.
	Close()
}

// Holders is a Protocol whose workers hold jobs across a restart.
type Holders interface {
	// Holder returns the side of a worker by the name that the journal has, nil when nobody holds
	// its jobs any more. The server calls it before Listen.
	Holder(name string) *sched.Peer
}

// Acknowledger is a Protocol that keeps acknowledgements back until the journal has committed
// what they tell.
type Acknowledger interface {
	// Committed is called when a group was committed. It must not block.
	Committed()
}

// Pager is a Protocol with pages at the port of metrics and health.
type Pager interface{ Pages() []web.Page }

// Sink is where a goroutine outside of the event loops has the scheduler deliver.
type Sink interface {
	sched.Sink
	// Wake has the event loops send what was delivered. It must follow the verbs.
	Wake()
}

// Listening is one open address.
type Listening struct {
	Protocol string // its setting: periodic, http
	Address  string // tcp://host:port, unix:///path or http://host:port
}

// ListeningOn is the address of a listener of a setting.
func ListeningOn(setting string, l net.Listener) Listening {
	return Listening{Protocol: setting, Address: l.Addr().Network() + "://" + l.Addr().String()}
}
