// Package sched is the scheduler behind every protocol of the server: queues of
// jobs, the peers that wait for them and the rules between the two.
//
// It does no I/O, starts no goroutine, reads no clock and draws no random
// number. Whoever calls it says what time it is and receives the effects.
//
// # The life of a job
//
//	Submit ──▶ delayed ──Tick──▶ ready ──Reserve──▶ reserved ──Finish──▶ gone
//	              ▲                ▲                   │
//	              └────────────────┴──── Release ──────┘
//
// A job stands in exactly one place: its queue's sched-time index (delayed), its
// queue's ready index (ready), or its holder's list (reserved).
//
// # The words
//
//	Scheduler  the shards, and the only door to them
//	shard      a mutex, the queues whose names hash to it, their jobs
//	queue      one kind of work: a ready index, a sched-time index, a line of watches
//	Peer       a connected party: what it watches, asks for, holds and awaits
//	watch      one peer serving one queue
//	slot       one outstanding Reserve of a peer; served once, by whichever of the
//	           peer's queues has work first
//	Delivery   an effect: what to tell which session
//
// # Concurrency
//
// Every verb may be called from any goroutine. The verbs that take a Peer must
// not be called for one peer by two goroutines at once: a session belongs to one
// goroutine. A goroutine holds one shard lock at a time, and below it at most
// one of a peer's own lock and that of the named locks. Deliveries are made while the shard lock is held, see
// Sink.
//
// # Memory
//
// Job records live in pointer-free slabs and their bytes in size-classed arenas,
// so that ten million jobs cost the garbage collector nothing; chunks that
// empty are let go.
package sched
