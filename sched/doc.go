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
// # Bounded work
//
// No verb does more under one hold of a shard's lock than a bound that does not depend on how much
// there is, and no verb but those that the list below names does more in all. What is more the Ticks
// do, a batch under each hold (Options.Batch), in a stated state in between. Steps of what may be
// very much are counted with op; TestLongestHold bounds the count, over a world with very much of
// everything.
//
// Work that the Ticks go on with, and the state in between:
//
//	a peer leaves        it serves nothing, asks for nothing, and is told nothing; what it holds
//	                     is reserved, what it awaits is there, and Submit takes a Global name
//	                     back at once (departed.go). A journal has reserved jobs as ready ones;
//	                     that the tasks of a holder are, it is told (exit.go)
//	a broadcast          its job stands in no index and counts as running; nothing else of the
//	                     queue is matched (broadcast.go)
//	ready jobs, slots    both are there, in a queue that is in unmatched (match.go)
//	offers by name       a withheld job is offered to all in line by their numbers (mixed.go)
//	a task ends          it is complete, and those that wait for it wait still; a journal that
//	                     ends there has no edges to it (graph_end.go)
//	a queue is dropped   it has no name; a record says which of its jobs are to go (tick.go)
//	locks become free    they are held by nobody, and somebody waits (locks.go)
//	a job ends           its name is free, and some who await it are not told yet (told.go)
//	what is due          it is late: time-outs, names to be reported, tasks to be forgotten
//
// Work that is done at once, and its bound:
//
//	tell who awaits a job        MaxAwaits, and toldBatches by its bytes
//	tell who listens to a job    MaxAwaits; its bytes are bounded by what the Sink takes
//	the slots of a peer          MaxSlots: for a tag that waits already, and the run of a Release
//	the watches of a peer        maxWatches, each under its own lock, once a request: Looked tells
//	                             the caller, who puts off the next
//	jobs handed to one peer      serveRoom, the rest with the next Flushed
//	jobs, peers that a name keeps apart   maxClashes jobs for a peer, maxFit peers for a job
//	locks of a job               maxJobLocks
//	due seconds, lines of a lock are kept in order: a few steps
//	tasks, edges of a request    those that it names: the caller bounds them; for their order
//	                             maxLooks edges, else the request is refused
//	Steal, Complete              a batch of tasks under each hold, as many as are asked for
//	what a task waits for        all of it, when its record is journaled
//	the log of a task            maxEvents
//	Walk, Status                 so many as the caller says, and a batch of queues
//	growing slices               those that they have are copied: of a million a few milliseconds
//	Restore, Resume              all that there is: no port is open yet
//
// # Memory
//
// Job records live in pointer-free slabs and their bytes in size-classed arenas,
// so that ten million jobs cost the garbage collector nothing; chunks that
// empty are let go.
package sched
