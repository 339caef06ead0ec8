package protocol

import "treadle/sched"

// Conversation is one protocol spoken with one peer on an event loop. All of its methods
// run on the session's loop.
type Conversation interface {
	// Consume handles the whole messages at the front of in and returns how many bytes
	// they took. An error ends the session after what it has to send. in is the caller's
	// again when Consume returns.
	Consume(in []byte) (n int, err error)
	// Need is how many bytes in, the front of an unfinished message, must hold before
	// Consume can do more; more than len(in).
	Need(in []byte) int
	// Deliver encodes one delivery into the session's Out. It runs under a scheduler lock.
	Deliver(d *sched.Delivery)
	// IdleLimit is how long, in milliseconds, the peer may be silent between messages;
	// 0 for ever.
	IdleLimit() int64
	// Closed gives back what the conversation holds.
	Closed()
}

// Session is one connected peer, as its conversation sees it. It belongs to the goroutine
// of its loop.
type Session struct {
	ID     sched.SessionID
	Number uint32 // unique among the open sessions of the server
	Loop   *Loop
	Transport
	// Skills and Label are set before the first call of Peer: what jobs the peer can be given, and
	// what people are told that it is.
	Skills sched.Skills
	Label  string

	Out     []byte // encoded, not yet written; appended to after a Touch
	Given   bool   // the peer was handed a job in this turn
	Looked  int    // what its requests have looked through beside the scheduler's Peer.Looked
	Settled bool   // the handshake is over, or, where there is none, the first byte has come
	Begun   int64  // Mono when the unfinished message began, 0: there is none
}

// Loop is what the sessions of one event loop share. It belongs to the loop's goroutine.
type Loop struct {
	Now     sched.Time // read once a turn
	Sink    sched.Sink // of the verbs that conversations call
	Spaces  *Spaces
	Scratch []byte // for what a conversation puts together, within one request
	Frames  uint64 // requests read in this turn
	Kept    int    // bytes that conversations keep for their peers beside Out
}

// Room makes room for n more bytes in Out.
func (s *Session) Room(n int) {
	if cap(s.Out)-len(s.Out) < n {
		s.Grow(n)
	}
}

// Sweeper is a Conversation with deadlines of its own. The server calls Sweep about once a second.
type Sweeper interface {
	// Sweep does what is due, at most room things, and returns how much of room is left.
	Sweep(room int) int
}

// StreamKind is a kind of long reply. The server encodes one reply of each kind at a time.
type StreamKind int

// The kinds. A Listing is sent at once. A Dump that is large, or for which there is no room beside the
// replies that other peers are reading, delays the next Dump until its peer has read it.
const (
	Listing     StreamKind = iota // a line for each queue
	Dump                          // all jobs
	StreamKinds                   // one more than the last
)

// PieceSize is about how many bytes a piece of a long reply has.
const PieceSize = 256 << 10

// Transport is what the server does for a session.
type Transport interface {
	// Touch says that the session is about to have something to send in Out. Out is
	// written at the end of the turn.
	Touch()
	// Congested says whether Consume has to stop: the peer has to read before it is answered
	// further, or the session has ended.
	Congested() bool
	// End closes the session after this turn's last write. The first reason counts.
	End(why error)
	// Peer is the scheduler's side of the session, made by the first call.
	Peer() *sched.Peer
	// Grow moves Out to a buffer with room for n more bytes. Session.Room calls it when it must.
	Grow(n int)
	// Pause says whether Consume has to stop before the next request, since the requests of this turn
	// have looked through much. Consume is called again in the next turn.
	Pause() bool
	// After sends a copy of reply once a group of the journal is committed. What is in Out does not
	// wait for it.
	After(group uint64, reply []byte)
	// Stream has encode write a long reply beside the loop and sends its pieces as the peer reads.
	// When encode returns nil, which says that no frame can hold the reply, tooLarge is called on the
	// loop. false: too many long replies are under way, and nothing is called.
	Stream(kind StreamKind, encode func() [][]byte, tooLarge func()) bool
	// Remote is the peer's address, for logs.
	Remote() string
	// Late logs, a line a second at most, that the peer has reported on a job that it does
	// not hold; names says on which.
	Late(report string, names func() (queue, name string))
	// Offload pauses the session and runs work beside the loop, for a message that lies at
	// in[handled:]: the bytes stay where they are until done has been called on the loop and
	// Consume is called again, with them at the front. Meanwhile the peer may send keeps bytes
	// more. false: nothing was begun, since the bytes do not lie where they can stay; Consume
	// is called again with them in the next turn, and asks again.
	Offload(in []byte, handled, keeps int, work, done func()) bool
}
