// Package loop owns every socket and every clock of the server. It turns what
// peers send into the scheduler's verbs and the scheduler's deliveries into what
// peers read.
//
// # The way of a request
//
// An event loop (engine.go, the only file that knows gnet) reads what a socket
// has and gives it to the session's reactor. The session's conversation, one file
// per protocol, decodes whole messages in place and calls the scheduler, which
// answers in deliveries to this and to other sessions. A delivery for a session of
// the same reactor is encoded into that session's out buffer at once; one for
// another reactor goes into that reactor's mailbox. At the end of the turn each
// session that has something to send is written to, once.
//
// # Turns
//
// A turn is everything that one poll of the event loop brought. The clock is read
// once a turn, when it begins.
//
// # Ownership
//
// A session and its buffers belong to its reactor's goroutine. What crosses
// goroutines is the scheduler, the mailboxes and counters. Bytes that a
// conversation is given die when it returns.
package loop
