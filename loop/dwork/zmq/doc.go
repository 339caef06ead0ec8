// Package zmq is a ZeroMQ ROUTER that tolerates hostile peers, and a client for it. It knows ZMTP alone: the caller
// decides what a payload means. No other package imports zmq4.
//
// zmq4's own ROUTER cannot face untrusted peers. A silent peer blocks all new ones, a false length can end the process
// or exhaust its memory, and a peer that never reads blocks all others. So zmq4 makes the handshake alone, under a
// deadline, with a limited reader and a recover. This package handles connections and frames.
//
// # The way of a request
//
// Each connection has one goroutine. It reads what the socket has, posts the complete messages in its buffer, sleeps
// until all of them are answered, writes all replies at once and reads on. The caller receives from Ready and takes
// what all connections have posted since the last Take: a batch. Only the goroutine of a connection writes to it. A
// peer that does not read blocks that goroutine alone, and has at most one buffer of requests and their replies in the
// server. Replies leave in the order of the requests.
//
// A turn of one connection is at most 2048 messages, and fewer while other connections wait, so that many flooding
// peers delay nobody for long.
//
// # Messages
//
// The envelope of a request is everything up to its first empty frame, the delimiter. It precedes the reply unchanged.
// The reply goes to the connection of the request: identities mean nothing. A message without a delimiter, or without
// exactly one frame behind it, is dropped and counted. A PING is answered with its PONG.
package zmq
