// Package protocol is the seam between the server and its protocols. The server, package
// loop, owns sockets, turns and clocks and knows no protocol's words. Each protocol is a
// package beside this one. Protocols never import each other or package loop.
//
// A protocol implements [Protocol] and calls the server through [Host]. A protocol that the
// event loops serve is a [LoopServed], with a [Conversation] for each [Session]. A protocol
// with sockets or goroutines of its own is a [Service]. A [Space] says how the workers of other
// protocols see a protocol's jobs.
//
// An acknowledgement waits for the journal. A goroutine with one request blocks in [Host].Await; a
// goroutine with the requests of many peers keeps the reply and is woken as an [Acknowledger]. A
// Conversation has [Transport].SendAfterCommit, by which the event loop does the same.
package protocol

import (
	"log/slog"
	"net"
	"time"

	"treadle/loop/web"
	"treadle/sched"
)

// Protocol is a protocol in one server.
type Protocol interface {
	// Name returns the protocol's name in logs and metrics. It never changes.
	Name() string
	// Samples returns the protocol's rows of the metrics. It is called from any goroutine.
	Samples() []web.Sample
}

// LoopServed is a Protocol that the event loops serve.
type LoopServed interface {
	Protocol
	// Ports returns the ports of the protocol.
	Ports() []Port
	// CloseReasons returns the errors for which conversations end a session.
	CloseReasons() []CloseReason
}

// SettingsRestorer is a Protocol with settings in the journal.
type SettingsRestorer interface {
	// Restore takes a setting from the journal and ignores settings of other protocols. The server
	// calls it for each setting at the start, before Ports.
	Restore(key string, value []byte) error
}

// JobHook is a Protocol that learns of the hand-outs and ends of jobs of its spaces.
type JobHook interface {
	// JobChanged is called as sched.Options.JobHook is: under a lock of the scheduler, for jobs of Traits.Hooked.
	JobChanged(j *sched.Job, e sched.Effect)
	// JobRestored is called for each job of the journal that has not ended. started reports whether it was handed
	// out before. JobRestored keeps no view of j.
	JobRestored(j *sched.Job, started bool)
}

// Omitted is a Protocol with records that are neither jobs nor settings, which no dump of jobs has.
type Omitted interface {
	// Omitted returns the number of these records. It is called from any goroutine.
	Omitted() int
}

// Port is a setting that lists addresses, and the conversation that each of them speaks.
type Port struct {
	Setting   string   // the flag, without dashes
	Addresses []string // tcp://host:port or unix:///path; may be none
	// Start makes the conversation of a new session. It runs on the session's loop.
	Start func(*Session) Conversation
	// StopsServer reports whether any peer of the port may stop the server.
	StopsServer bool
}

// CloseReason is an error that ends a session, and its label in the metrics. Several errors
// may share a label.
type CloseReason struct {
	Err   error
	Label string
}

// Limits are the server's settings that bound every protocol.
type Limits struct {
	MaxFrame    int // bytes of one request, in a protocol without a setting of its own
	MaxOutbound int // unread bytes of one peer
	LargeOutput int // unread bytes of one peer from which they count against MaxUnsent
	MaxUnsent   int // unread bytes of all peers of an event loop together
	PeerMemory  int // bytes that any other budget of peers may have, or one largest request

	HandshakeTimeout time.Duration // from a connection to its handshake
	FrameTimeout     time.Duration // from a request's first byte to its last
	Drain            time.Duration // how long a stopping server waits for running jobs; a reload may change it
}

// Health is the state of a server at one moment.
type Health struct {
	Started     int64 // Unix milliseconds
	Version     string
	Ready       bool
	Text        string // what /readyz says
	Memory      int64  // bytes in use, of MemoryLimit
	MemoryLimit int64
	Journal     *JournalHealth    // nil: the server has none
	Connections []Connected       // of each protocol that is served
	CertsExpire time.Time         // when the first certificate of an address expires; zero: no address has one
	Cluster     string            // of which the server is a node; empty: it is alone
	Unreachable map[string]string // the other nodes that cannot be reached, each with why
}

// Connected are the open connections of a protocol, by role.
type Connected struct {
	Protocol string
	Open     [Roles]int
}

// JournalHealth is the state of a journal at one moment.
type JournalHealth struct {
	Unacknowledged int64  // changes that are not committed
	Bytes          uint64 // of the data directory
	Free           uint64 // bytes on its disk
	MinFree        uint64 // below it, new jobs are refused
	Sync           string // the setting
}

// Host is the server as a protocol sees it; admin.Host is wider. Its methods may be called from any goroutine.
type Host interface {
	// Sched returns the scheduler that all protocols share.
	Sched() *sched.Scheduler
	// Now reads both clocks.
	Now() sched.Time
	// Log returns the server's log.
	Log() *slog.Logger
	// LogLimited logs an event that a hostile peer can cause. All protocols together log at most
	// one such line a second.
	LogLimited(level slog.Level, message string, args ...any)
	// CountRefusal counts a refused request of a protocol.
	CountRefusal(protocol string, why Reason)
	// CheckCapacity returns why new jobs must be refused now, ErrMaxMemory or ErrDisk, or nil. A caller whose jobs are
	// not journaled ignores ErrDisk. Everything else must continue.
	CheckCapacity() error
	// Stopping reports whether the server stops: it hands out no jobs any more, and takes results.
	Stopping() bool
	// Health returns the state of the server.
	Health() Health
	// RoomFor reports whether the disk has room for n bytes.
	RoomFor(bytes int) bool
	// CommitGroup returns the journal's group of the last change in a queue. wait reports whether an acknowledgement of
	// that change must wait until the group is committed.
	CommitGroup(queue []byte) (group uint64, wait bool)
	// CommitGroupAll is CommitGroup for all queues and settings.
	CommitGroupAll() (group uint64, wait bool)
	// Committed returns the last committed group. It may be called only after CommitGroup said wait.
	Committed() uint64
	// Flush ends a turn: the journal commits its changes. acknowledgements is how many replies
	// began to wait in the turn.
	Flush(acknowledgements int)
	// FlushLater is Flush for a turn without acknowledgements, whose changes a loss of power may undo.
	FlushLater()
	// Await blocks until a group is committed, or returns an error because it never will be. It is
	// for a goroutine that has one request, see Acknowledger.
	Await(group uint64) error
	// PutSetting journals a setting. SettingsRestorer.Restore takes it at the next start.
	PutSetting(key string, value []byte)
	// PutDocument journals a new or changed document.
	PutDocument(*Document)
	// DropDocument journals that a document is removed.
	DropDocument(*Document)
	// NewSink makes a sink for the scheduler calls of one goroutine.
	NewSink() Sink
	// NewLocalPeer makes a peer without a connection, which submits and awaits jobs. deliver
	// takes its deliveries under a lock of the scheduler: it copies what it keeps and must not
	// block. NewLocalPeer is called before Listen.
	NewLocalPeer(deliver func(*sched.Delivery)) *sched.Peer
	// Omitted returns the sum of all protocols' Omitted records.
	Omitted() int
	// Fail stops the server, which ends with the error.
	Fail(err error)
	// Limits returns the server's limits.
	Limits() Limits
	// Guard returns the guard of all HTTP ports.
	Guard() *web.Guard
	// Listen opens an address of a setting. Accepted connections count against the protocol's
	// share of --max-connections; the listener closes those beyond it.
	Listen(protocol, setting, address string) (net.Listener, error)
	// Quit stops the server as SIGTERM does.
	Quit()
}
