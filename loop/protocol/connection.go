package protocol

import "treadle/sched"

// Connection is an open connection, as an operator sees it at one moment.
type Connection struct {
	ID       uint64 // no other connection of this run of the server ever has it
	Protocol string
	Role     Role
	Remote   string
	Since    int64  // Unix milliseconds of its opening
	Idle     int64  // milliseconds since the last byte from the peer
	Received uint64 // bytes
	Sent     uint64 // bytes
	Unsent   int    // bytes that wait for the peer to read
	Peer     sched.PeerView
}
