// Package loop owns every socket and every clock of the server. It turns what
// peers send into the scheduler's verbs and the scheduler's deliveries into what
// peers read.
//
// # The way of a request
//
// An event loop (engine.go, the only file that knows gnet) reads what a socket
// has and gives it to the session's reactor. The session's conversation (package
// protocol is the seam to it) decodes whole messages in place and calls the scheduler, which
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
// # Bounded turns
//
// Nobody waits for what one peer asks. What is done in one turn of an event loop has a bound that does
// not depend on how much there is; the rest is done in the turns that follow, beside the loops, or by
// the scheduler's Ticks, see package sched.
//
//	what a connection has sent     turnTime and turnBytes, all together allTime (engine.go)
//	requests that look through much    lookTurn; their sessions are paused (pause.go)
//	letters, jobs for who has caught up    turnDeliveries (reactor.go); the rest in the next turn
//	bytes for sessions             mostUnsent, then only for whom little waits (reactor.go)
//	a LOAD                         job by job, as it comes (dump.go of loop/periodic)
//	a DUMP, a long STATUS          encoded beside the loop (long_reply.go), sched.WalkBatch slots a hold, sent
//	                               piece by piece; who does not read it passes the turn on (stream.go)
//	a Gloom frame over LargeFrame  parsed beside the loop, its session paused (pause.go, Offload)
//	ids and types of Gloom         MaxName of loop/gloom
//	dwork                          a goroutine of its own; hubSlice a turn, maxParts and
//	                               --dwork-max-steal a request, maxNames a Lookup (loop/dwork)
//	kts46                          a goroutine of its own for long lists (kts46/large.go)
//	all sessions                   looked through once a second (sweep), and to hang up on those
//	                               for whom most waits (relieve, relievePartials)
//
// Inside of these bounds a message is copied as a whole, at most --max-frame bytes, and once for each
// who is sent it; a job of another protocol that a Gloom peer is handed is made JSON in one piece.
//
// # Ownership
//
// A session and its buffers belong to its reactor's goroutine. What crosses
// goroutines is the scheduler, the mailboxes and counters. Bytes that a
// conversation is given die when it returns.
package loop
