// Package zmq is a ZeroMQ ROUTER that is safe to face users, and a client for it. It is the only room that imports
// zmq4, and a room of its own because all it knows is ZMTP: what a payload means is decided by the conversation that
// takes the requests.
//
// zmq4's own ROUTER must not face users: one silent peer blocks all new ones, lying lengths end the process or take its
// memory, one peer that never reads stops everybody. So zmq4 makes the handshake alone, under a deadline, with a
// limited reader and a recover; connections and frames are handled here.
//
// # The way of a request
//
// Each connection has one goroutine: it reads what the socket has, finds the complete messages in its buffer, posts
// them, sleeps until all of them are answered, writes all replies at once and reads on. One goroutine, the hub's,
// selects on Ready and takes what all connections have posted since it last did: that is a batch. Nobody else writes to
// a connection, so nothing interleaves with a reply; a peer that does not read blocks its own goroutine and nobody
// else's; and a peer has no more in the server than one buffer of requests and their replies, which leave in the order
// of the requests whatever the order in which they are given.
//
// A turn of one connection is at most 2048 messages, fewer the more connections wait with it, so that many flooding
// peers make nobody wait for long.
//
// # Messages
//
// A request's envelope, everything up to its first empty frame, is returned in front of its reply as it came, and the
// reply goes to the connection it came by: identities mean nothing. What has no delimiter, or not exactly one frame
// behind it, is dropped and counted. A PING is answered with its PONG.
package zmq
