// Package protocol is the seam between the server and the protocols that it speaks. The
// server, package loop, owns sockets, turns and clocks and knows no protocol's words; a
// protocol lives in a folder of its own beside this one, knows its words, and asks the
// server for all else. Protocols never import each other or package loop.
//
// What a protocol gives the server is a [Protocol]; what it may ask of the server is a
// [Host]. A protocol whose peers are served on the event loops has a [Conversation] for
// each [Session]; one with sockets or goroutines of its own is a [Service]. How a job that
// came in by one protocol is shown to the workers of all others is said once, in its [Space].
package protocol

import (
	"log/slog"
	"net"

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

// Restorer is a Protocol with settings in the journal.
type Restorer interface {
	// Restore takes a setting and ignores those of other protocols. The server calls it for each
	// setting at the start, before Ports.
	Restore(key string, value []byte) error
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
	// Now is the time by both clocks.
	Now() sched.Time
	// Log is the server's log.
	Log() *slog.Logger
	// LogLimited logs what hostile peers can cause, a line a second at most for all protocols together.
	LogLimited(level slog.Level, message string, args ...any)
	// Refused counts a refused request.
	Refused(Reason)
	// Full says that the disk takes no new jobs.
	Full() bool
	// RoomFor says that the disk takes so many bytes.
	RoomFor(bytes int) bool
	// Durable says what an acknowledgement has to wait for: the group of the journal that covers what was
	// changed last in a queue; false: nothing.
	Durable(queue []byte) (group uint64, wait bool)
	// DurableAll is Durable for the changes of all queues and settings.
	DurableAll() (group uint64, wait bool)
	// Committed is the last group of the journal that is committed. Only a group of Durable may be
	// compared with it.
	Committed() uint64
	// Flush ends a turn in which so many acknowledgements began to wait: the journal commits what was
	// changed. FlushLater is Flush for a turn without any whose changes a loss of power may undo.
	Flush(acknowledgements int)
	FlushLater()
	// Await returns when a group is committed; an error says that it never will be.
	Await(group uint64) error
	// PutSetting journals a setting. Restorer.Restore takes it at the next start.
	PutSetting(key string, value []byte)
	// PutDocument journals a document that is new or has changed, DropDocument that it is gone.
	PutDocument(*Document)
	DropDocument(*Document)
	// NewSink makes a sink for the verbs of one goroutine.
	NewSink() Sink
	// NewInsider makes the side of a peer inside of the server, which submits and awaits jobs.
	// What it is sent goes to deliver, which is called under a lock of the scheduler: it copies
	// what it keeps and must not block. It is called before Listen.
	NewInsider(deliver func(*sched.Delivery)) *sched.Peer
	// Fail stops the server, which ends with the error.
	Fail(err error)
	// MostUnsent is how many bytes may wait for all peers of an event loop together.
	MostUnsent() int
	// Listen opens an address of a setting. What it accepts counts among the connections of the
	// protocol, and is turned away when that has too many.
	Listen(protocol, setting, address string) (net.Listener, error)
	// Quit stops the server as SIGTERM does.
	Quit()
}
