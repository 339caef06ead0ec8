package protocol

import "treadle/sched"

// Conversation is a protocol's state of one session. Its methods run on the session's loop. It implements Sized or
// Delimited, too.
type Conversation interface {
	// Consume handles the complete messages at the front of in and returns their length. It
	// keeps no view of in. An error ends the session after Out is sent.
	Consume(in []byte) (n int, err error)
	// Deliver encodes a delivery into the session's Out. It runs under a scheduler lock.
	Deliver(d *sched.Delivery)
	// IdleLimit returns how many milliseconds the peer may be silent between messages; 0: no limit.
	IdleLimit() int64
	// Closed releases the conversation's share of its Loop's budgets.
	Closed()
}

// Role is what a peer does, in the metrics.
type Role uint8

// The roles.
const (
	RoleNone   Role = iota // not known yet, or the protocol has none
	RoleClient             // submits jobs
	RoleWorker             // does jobs
	Roles                  // the number of roles
)

var roleLabels = [Roles]string{"none", "client", "worker"}

// String returns the role's label in the metrics.
func (r Role) String() string { return roleLabels[r] }

// MaxProtocols is the most protocols of a server.
const MaxProtocols = 16

// Session is a connected peer, as its conversation sees it. It belongs to its loop's goroutine.
type Session struct {
	ID           sched.SessionID
	ConnectionID uint32 // unique among the open sessions of the server
	Loop         *Loop
	Transport
	// Capabilities are what the peer's protocol can express. Label names the protocol where a worker is shown.
	// Both are set before the first call of Peer.
	Capabilities sched.Capabilities
	Label        string
	SchedPeer    *sched.Peer // the peer in the scheduler; nil before the first call of Peer

	Role       Role  // set when it is known
	ProtocolID uint8 // the number of the protocol in Loop.Frames

	Out      []byte // encoded and not written yet; OpenOut comes before an append
	Assigned bool   // the peer was handed a job in this turn
	Cost     int    // queues and jobs that its requests looked at, beside the scheduler's Peer.TakeCost
	// HandshakeDone ends the time limit of the handshake. From then on IdleLimit counts. A protocol without a
	// handshake sets HandshakeDone in Start, if its peers may be silent at first, or with the first bytes of the peer.
	HandshakeDone bool
}

// Loop is the state that the sessions of one event loop share. It belongs to the loop's goroutine.
type Loop struct {
	Now     sched.Time // read once a turn
	Sink    sched.Sink // for scheduler calls of conversations
	Spaces  *Spaces
	Scratch []byte               // a buffer for one request
	Frames  [MaxProtocols]uint64 // requests read in this turn, by protocol
	Backlog int                  // bytes of jobs that conversations hold for their peers beside Out
}

// Result returns the result for the submitter of a job of a space, from the bytes that a worker of another protocol
// answered. It may be in Scratch.
func (l *Loop) Result(space sched.Space, data []byte) []byte {
	convert := l.Spaces[space].FromResult
	if convert == nil {
		return data
	}
	l.Scratch = convert(l.Scratch[:0], data)
	return l.Scratch
}

// Peer returns the session's peer in the scheduler. The first call makes it.
func (s *Session) Peer() *sched.Peer {
	if s.SchedPeer == nil {
		s.SchedPeer = s.NewPeer()
	}
	return s.SchedPeer
}

// PauseIfCostly reports whether Consume has to stop before the next request, because the requests of this turn cost too
// much. The session is paused then: Consume is called again in the next turn.
func (s *Session) PauseIfCostly() bool {
	cost := s.Cost
	if s.SchedPeer != nil {
		cost += s.SchedPeer.TakeCost()
	}
	s.Cost = 0
	return cost > 0 && s.AddCost(cost)
}

// EnsureRoom grows Out so that n more bytes fit.
func (s *Session) EnsureRoom(n int) {
	if cap(s.Out)-len(s.Out) < n {
		s.Grow(n)
	}
}

// Reply sends a copy of reply after the replies of earlier requests, which may wait for the journal. It is for a
// protocol that replies in the order of the requests.
func (s *Session) Reply(reply []byte) {
	if s.HasPendingAcks() {
		s.SendAfterCommit(0, reply)
		return
	}
	s.OpenOut()
	s.Out = append(s.Out, reply...)
}

// ReplyAfter is Reply. With wait, it sends once the group is committed. Host.CommitGroup and CommitGroupAll return
// both.
func (s *Session) ReplyAfter(group uint64, wait bool, reply []byte) {
	if wait {
		s.SendAfterCommit(group, reply)
	} else {
		s.Reply(reply)
	}
}

// Sweeper is a Conversation with deadlines of its own.
type Sweeper interface {
	// Sweep handles at most budget deadlines that are due and returns the rest of the budget.
	// The server calls it about once a second.
	Sweep(budget int) int
}

// Sized is a Conversation whose messages say their length.
type Sized interface {
	// Need returns the length, more than len(in), that the unfinished message in must reach before Consume can
	// continue.
	Need(in []byte) int
}

// Delimited is a Conversation whose messages end with a delimiter. Consume is called for all bytes of an unfinished
// message each time that more have come, and bounds its length.
type Delimited interface {
	// Rest returns how many bytes at the front of in belong to the unfinished message before them: those up to its
	// delimiter, or all.
	Rest(in []byte) int
}

// Alarmed is a Conversation that asks for calls at times of its own.
type Alarmed interface {
	// Alarm is called when the time of Transport.Alarm has come, a little later at most.
	Alarm()
}

// StreamKind is a kind of long reply. The server encodes one reply of each kind at a time.
type StreamKind int

// The kinds. A Listing is sent at once. A large Dump, or a Dump beyond the budget of unread replies,
// delays the next Dump until its peer has read it.
const (
	Listing     StreamKind = iota // a line for each queue
	Dump                          // all jobs
	StreamKinds                   // the number of kinds
)

// PieceSize is about the size in bytes of a piece of a long reply.
const PieceSize = 256 << 10

// Quieted is a Conversation whose worker can be asked to stop.
type Quieted interface {
	// Quiet asks the worker to take no more jobs, and with end to end its process, too. It returns false when the
	// connection has no worker.
	Quiet(end bool) bool
}

// Transport is the server's half of a session.
type Transport interface {
	// OpenOut gives Out a buffer, which is written at the end of the turn.
	OpenOut()
	// FlushLarge writes output that is already large, and ends the session of a peer with more unread output than
	// --max-outbound. It returns true if the session has ended: Consume stops then.
	FlushLarge() (ended bool)
	// End closes the session after this turn's last write. The first reason counts.
	End(reason error)
	// NewPeer makes a peer in the scheduler, with Capabilities and Label. It is for Session.Peer.
	NewPeer() *sched.Peer
	// Grow moves Out to a buffer with room for n more bytes. It is for Session.EnsureRoom.
	Grow(n int)
	// AddCost counts the cost of a request and pauses the session when this turn's requests cost
	// too much. It is for Session.PauseIfCostly.
	AddCost(cost int) (paused bool)
	// SendAfterCommit sends a copy of reply once a group of the journal is committed, and after the replies of earlier
	// calls. Group 0 counts as committed: such a reply waits only for those before it. Out does not wait.
	SendAfterCommit(group uint64, reply []byte)
	// HasPendingAcks reports whether replies of the session wait for the journal. See Session.Reply.
	HasPendingAcks() bool
	// Alarm sets when Alarmed.Alarm is called, by the clock of Loop.Now.Mono. It replaces the time that was
	// set before; 0: never.
	Alarm(at int64)
	// Suspend stops the session until Resume: Consume must return before the next request. The peer may send 256 KiB
	// meanwhile.
	Suspend()
	// Resume ends a Suspend. Consume is called again in the next turn when the peer has sent something. Deliver may
	// call it.
	Resume()
	// Stream runs encode off the event loop and sends the pieces that it returns as the peer reads. When encode returns
	// nil, because no frame can hold the reply, tooLarge is called on the loop. Stream returns false, and calls
	// neither, when too many long replies are under way.
	Stream(kind StreamKind, encode func() [][]byte, tooLarge func()) bool
	// Remote returns the peer's address, for logs.
	Remote() string
	// LogLate logs, at most once a second, that the peer reported on a job that it does not hold.
	// names returns that job's names.
	LogLate(report string, names func() (queue, name string))
	// Offload pauses the session and runs work off the event loop, for the message at in[handled:]. The message stays
	// in place until done was called on the loop and Consume was called again, with the message at the front. Meanwhile
	// the peer may send backlog bytes more. Offload returns false, and starts nothing, when the message is not in a
	// buffer that stays; Consume is called again in the next turn and may retry.
	Offload(in []byte, handled, backlog int, work, done func()) bool
}
