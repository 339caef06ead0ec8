// Package protocol is the seam between the server and the protocols that it speaks. The
// server, package loop, owns sockets, turns and clocks and knows no protocol's words; a
// protocol lives in a folder of its own beside this one, knows its words, and asks the
// server for all else. Protocols never import each other or package loop.
//
// What a protocol gives the server is a [Protocol]; what it may ask of the server is a
// [Host]. A protocol whose peers are served on the event loops has a [Conversation] for
// each [Session]. How a job that came in by one protocol is shown to the workers of all
// others is said once, in its [Space].
package protocol

import (
	"treadle/loop/web"
	"treadle/sched"
)

// Protocol is what the server asks of a protocol. The server calls all but Samples from
// one goroutine.
type Protocol interface {
	// Name is what logs and metrics call it; it never changes.
	Name() string
	// Ports are what the event loops serve of it.
	Ports() []Port
	// CloseReasons are the errors for which its conversations end a session.
	CloseReasons() []CloseReason
	// Samples are its rows of the metrics. It is called from any goroutine.
	Samples() []web.Sample
}

// Port is a setting with addresses of a protocol, and the conversation that is held at each.
type Port struct {
	Setting   string   // without dashes
	Addresses []string // tcp://host:port or unix:///path; may be none
	// Start makes the conversation of a new session, on the session's loop.
	Start func(*Session) Conversation
}

// CloseReason is an error that ends a session, and its label in the metrics. Protocols may
// share labels.
type CloseReason struct {
	Err   error
	Label string
}

// Host is what a protocol may ask of the server. Its methods may be called from any
// goroutine.
type Host interface {
	// Sched is the scheduler that all protocols share.
	Sched() *sched.Scheduler
	// Refused counts a request that the scheduler refused with err.
	Refused(err error)
}
