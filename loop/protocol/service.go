package protocol

import (
	"context"
	"net"

	"treadle/loop/web"
	"treadle/sched"
)

// Service is a Protocol with sockets or goroutines of its own. The server calls HasPending from any goroutine. It calls
// the other methods from one goroutine, in the order of their declaration. It calls Close once, possibly without the
// calls between.
type Service interface {
	Protocol
	// Listen opens the sockets and returns their addresses. After an error, Close closes those
	// that are open.
	Listen() ([]Listening, error)
	// Serve starts the goroutines. ctx ends when the server begins to stop.
	Serve(ctx context.Context)
	// Drain stops taking in and handing out work.
	Drain()
	// HasPending reports whether a peer waits for a reply.
	HasPending() bool
	// Close ends the connections and goroutines, and waits for them.
	Close()
}

// HolderRestorer is a Protocol whose workers hold jobs across a restart.
type HolderRestorer interface {
	// Holder returns the worker of a name from the journal; nil makes its jobs ready. The server
	// calls it before Listen.
	Holder(name string) *sched.Peer
}

// Acknowledger is a Protocol with a goroutine that handles the requests of many peers. It keeps a
// reply until the journal has committed the change, instead of blocking the other requests in
// Host.Await.
type Acknowledger interface {
	// Committed is called after each commit, by the journal's goroutine. It must not block.
	Committed()
}

// RouteProvider is a Protocol with routes on the --http port.
type RouteProvider interface{ Routes() []web.Route }

// Sink takes the deliveries that a goroutine outside of the event loops causes.
type Sink interface {
	sched.Sink
	// Wake makes the event loops send the deliveries. It must follow the scheduler calls.
	Wake()
}

// Listening is one open address.
type Listening struct {
	Setting     string // periodic, http
	Address     string // tcp://host:port, unix:///path or http://host:port
	StopsServer bool   // any peer may stop the server
}

// ListeningOn returns the Listening of a setting's listener.
func ListeningOn(setting string, l net.Listener) Listening {
	return Listening{Setting: setting, Address: l.Addr().Network() + "://" + l.Addr().String()}
}
