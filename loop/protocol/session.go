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
	ID   sched.SessionID
	Loop *Loop
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
}

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
