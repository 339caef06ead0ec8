package admin

import (
	"context"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Host is the server as the API sees it. Its methods may be called from any goroutine.
type Host interface {
	protocol.Host
	// Spaces returns the table of all name spaces.
	Spaces() *protocol.Spaces
	// Wait blocks until woken has a token, and takes it. It returns false when the limit is over first, or ctx ends, or
	// closed is closed. It is for a goroutine that has one request.
	Wait(ctx context.Context, closed, woken <-chan struct{}, limit time.Duration) bool
	// Backup copies the data of the server with every change that was made before, while the server goes on. There is
	// one at a time. The error wraps ErrNoBackup if there can be none now.
	Backup() (Backup, error)
	// Go runs work that outlasts its request, in a goroutine.
	Go(work func())
	// Yield is called between two parts of long work, with the start of the last part. After a long part it sleeps for
	// as long, so that other goroutines get the scheduler's locks. It returns the start of the next part.
	Yield(began time.Time) time.Time
	// Cluster asks the nodes of the server's cluster for their state. A server that is alone has no nodes.
	Cluster(ctx context.Context) *codec.Cluster
	// Connections returns up to n open connections, in the order of their ids, from one of that id on. Connections that
	// an HTTP server of the host's own admits are not among them.
	Connections(from uint64, n int) []Connection
	// CloseConnection ends a connection for an operator. It returns false if no connection has that id.
	CloseConnection(id uint64) bool
	// QuietConnection calls protocol.Quieted.Quiet of a connection for an operator. able is its result, and false for a
	// conversation that is not Quieted.
	QuietConnection(id uint64, end bool) (found, able bool)
}

// Connection is an open connection, as an operator sees it at one moment.
type Connection struct {
	ID       uint64 // no other connection of this run of the server ever has it
	Protocol string
	Role     protocol.Role
	Remote   string
	Since    int64  // Unix milliseconds of its opening
	Idle     int64  // milliseconds since the last byte from the peer
	Received uint64 // bytes
	Sent     uint64 // bytes
	Unsent   int    // bytes that wait for the peer to read
	Peer     sched.PeerView
}
