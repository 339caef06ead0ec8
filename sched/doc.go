// Package sched is the scheduler behind every protocol of the server: queues of
// jobs, the peers that wait for them and the rules between the two.
//
// It does no I/O, starts no goroutine, reads no clock and draws no random
// number. The caller says what time it is and receives the effects.
//
// # States
//
// A job is in one state and stands in one place for it (job.go). The table says under which word a
// state is shown: by the columns of `treadle status` and the keys of its JSON, by the gauge of the
// metrics, by the columns of Periodic's STATUS, by dwork's status and log, by the GET of kts46's
// version 2, and by the status of a Disbatch task that Periodic and Gloom workers do.
//
//	state         treadle status  JSON     metric        Periodic STATUS   Gloom  dwork           kts46         Disbatch
//	waiting       JOBS, WAITING   waiting  treadle_jobs  jobs              -      active          -             -
//	delayed       JOBS, DELAYED   delayed  treadle_jobs  jobs, schedat     -      active          -             0
//	ready         JOBS, READY     ready    treadle_jobs  jobs              -      active, Ready   waitingQueue  0
//	parked        JOBS, LOCKED    locked   treadle_jobs  jobs, locked      -      active          -             0
//	reserved      JOBS, RUNNING   running  treadle_jobs  jobs, processing  -      active, Stolen  runningTasks  0
//	broadcasting  JOBS, RUNNING   running  treadle_jobs  jobs, processing  -      -               -             0
//	remembered    -               -        -             -                 -      Done            -             -
//	ending        -               -        -             -                 -      -               -             -
//
// Waiting, remembered and ending are states of tasks alone. A waiting task has predecessors that are
// not complete. A complete task is remembered for a while, or ends as soon as its successors are
// freed. A parked job was refused a named lock and waits for it. A broadcasting job is being sent to
// all slots of its queue.
//
// Gloom shows no state: a master receives the end of its job alone. Of the ready tasks dwork's status
// counts those in line. Its Lookup finds tasks of every state but ending. A reserved task of kts46
// counts as waitingActivation until its worker accepts it. A job of Disbatch is submitted when its
// task runs.
//
// # Changes of state
//
// The counter is treadle_jobs_..._total of the metrics.
//
//	                         from      to                         counter
//	Submit, Extend           -         waiting, delayed, ready    submitted; replaced, ignored for a known name
//	the due time comes       delayed   ready
//	Reserve, Steal           ready     reserved                   assigned
//	a broadcast              ready     broadcasting, then gone    broadcast
//	Finish, Complete         reserved  gone; a task: remembered   done
//	Fail                     reserved  ready, or gone             released
//	Delay                    reserved  delayed                    released
//	Release, Transfer        reserved  ready; a task: waiting     released
//	a time-out               reserved  ready, or gone             timed_out
//	Forget                   reserved  ready, or gone             abandoned
//	Lock, refused            reserved  parked
//	Unlock, a lock time-out  parked    ready, delayed
//	a task gets predecessors ready     waiting
//	its last one completes   waiting   ready, delayed
//	Remove, Drop, Expire     any       gone                       removed
//
// # Verbs
//
// Verbs of clients:
//
//	Submit          add a job, or replace the pending job of its name
//	Expire          end a peer's await of a job; the job is removed with its last await
//	Remove          remove a job in any state
//	Withdraw        remove a job that no peer holds
//	Listen          receive the data that a job's worker publishes
//	Drop            remove a queue that no peer serves
//
// Verbs of peers that ask for jobs:
//
//	NewPeer         begin the scheduler's side of a session
//	Watch           serve a queue
//	Unwatch         stop serving a queue
//	Reserve         ask for a job, and wait for it
//	TryReserve      ask for a job that is ready now
//	Sleep           ask for one Wake when a job is ready
//	Flushed         say how many bytes are unsent, and receive what back-pressure kept back
//	Forget          end a peer
//
// Verbs of a peer that holds a job:
//
//	Finish          end the job with a result
//	Fail            give the job back as failed
//	Delay           give the job back, to be due later
//	Release         give the job back unstarted
//	Held            find the run of a job by its name
//	Report          find the run that a report by name ends
//	Lock            ask for a named lock
//	Unlock          release a named lock
//	Publish         send data to the job's listeners
//
// Verbs for tasks:
//
//	NewHolder       make a peer that is not connected
//	Extend          add tasks and predecessors
//	Steal           reserve the first tasks in line
//	Complete        end tasks as done
//	Transfer        release tasks, with more predecessors
//	RemoveTask      remove a task in any state
//	Touch           give a lease its next revision
//	ReleaseLease    release a task that is held under a lease
//	FinishLease     finish a task that is held under a lease
//	Head            read the place of the first task in line
//	Backlog         count the tasks of a queue
//	LookupTask      view a task
//	WalkTasks       view all tasks
//
// Verbs of the server:
//
//	Tick            do what is due, and a part of the deferred work
//	SetTimeout      set the default time-out of reservations
//	Timeout         read that default
//	SetLockTimeout  set how long a job waits for a lock
//	SetRemember     set how long a complete task is remembered
//	Restore         take back a record of the journal
//	Resume          end the restoration
//	ShardOf         return the number by which the journal knows a queue's shard
//	Status          view all queues
//	Stats           read the counters
//	Walk            view all jobs
//	NameOf          return the name of a run's job
//	Unfinished      count the jobs that a restart makes ready again
//	Halt            stop handing out jobs
//
// # Words
//
// One idea has one word, in names and in comments:
//
//	Scheduler    the shards, and the only door to them
//	shard        a mutex, the queues whose names hash to it, and their jobs
//	queue        one kind of work: a ready index, a sched-time index, a line of watches
//	job          a unit of work; it is pending while it is delayed or ready
//	task         a job that is part of a graph
//	graph        the tasks of a shard; edges say which task waits for which
//	Peer         a connected party: what it watches, asks for, holds and awaits
//	holder       the peer that has reserved a job; a peer of NewHolder is not connected
//	owner        the peer that awaits a job of an Owned space
//	watch        one peer that serves one queue
//	slot         one outstanding Reserve or Sleep of a peer; the first of the peer's
//	             queues that has a job serves it
//	line         the order of those that wait: a queue's watches by the age of their oldest slots,
//	             ready tasks, parked jobs by lock
//	run          one reservation of one job
//	lease        a hold on a task that is proved with a revision
//	await        one request of a peer for the end of a job
//	topic        a job's name under which its worker publishes to listeners
//	Delivery     an effect: what to tell which session
//	detached     in no index and held by no peer: a job that a verb is moving
//	revoked      a run that ended without its worker: by a time-out, by a removal or by a broadcast
//	unreported   a revoked run that its worker has not reported yet
//	suspended    a watch that is handed nothing, because its peer has too many unreported names
//	mixed        a queue in which not every ready job fits every watch
//	clash        two jobs that a Named peer cannot tell apart
//	withheld     a ready job whose name clashes for all Named peers in line
//	woken        a job that was made ready because its lock is free, and has not locked it yet
//	departed     a peer that has left; the Ticks reap its awaits, watches and jobs
//	exit         a departed holder's release of its tasks of one queue
//	charge       to count bytes against the quota that all peers share; refund takes them back
//	step         a unit of work under a shard's lock; countSteps counts them
//	batch        the steps under one hold of a shard's lock (Options.Batch)
//	deferred     work that a verb leaves to the Ticks
//
// # Concurrency
//
// Every verb may be called from any goroutine. Two goroutines must not call verbs for one Peer at
// once: a session belongs to one goroutine. Deliveries are made while the shard lock is held, see
// Sink.
//
// A goroutine takes locks in this order, and at most one lock of each line below the first:
//
//	1  the callers' own: of the kts46 hub, of Disbatch's functions
//	2  departures.reaping: the Tick that reaps departed peers
//	3  shard.mu: queues, jobs, tasks, watches, listeners, and who awaits a job
//	4  one of these, under which none is taken:
//	   Peer.mu          a peer's slots, awaits and topics, its part of the quota
//	   locks.mu         the named locks, and the jobs that wait for them
//	   idTable.mu       a part of the Global names
//	   departures.mu    the list of departed peers; not under a shard's
//	   of a Journal     the changes of a shard that are to be written
//	   of a Sink        the mailbox of an event loop, the endings of Disbatch's functions
//	   of TimedOut      the log lines to be written
//
// Work that reaches from one shard to another is done after the first shard is unlocked. An example
// is the next job of a freed lock.
//
// # Bounded work
//
// No verb does more steps under one hold of a shard's lock than a bound that does not depend on how
// much there is. No verb does more in all, but those that the second list names. The Ticks do the
// rest, a batch under each hold, and the state in between is stated. countSteps counts the steps of
// work that may be large. TestLongestHold bounds the count, with very much of everything.
//
// Deferred work, and the state until it is done:
//
//	a peer leaves        it serves nothing, asks for nothing and is told nothing; the jobs that it
//	                     holds are reserved, its awaits are there, and Submit takes a Global name
//	                     back at once (departed.go). A journal has reserved jobs as ready ones,
//	                     and a record for a holder that releases tasks (graph_exit.go)
//	a broadcast          its job stands in no index and counts as running; no other job of the
//	                     queue is matched (broadcast.go)
//	ready jobs, slots    both are there, in a queue that is in unmatched (match.go)
//	offers by name       a withheld job is offered to all watches in line by their numbers (mixed.go)
//	a task ends          it is complete, and its successors wait still; a journal that ends there
//	                     has no edges to it (graph_end.go)
//	a queue is dropped   it has no name; a record says which of its jobs are to go (tick.go)
//	locks become free    no job holds them, and jobs wait (locks.go)
//	a job ends           its name is free, and some awaits are not answered yet (notify.go)
//	what is due          it is late: time-outs, unreported names, remembered tasks
//
// Work that is done at once, and its bound:
//
//	answer a job's awaits        MaxAwaits, and notifyBatches by their bytes
//	publish to a job's listeners MaxAwaits; the Sink bounds the bytes
//	the slots of a peer          MaxSlots: to find a repeated tag, and the run of a Release
//	the watches of a peer        maxWatches, each under its own lock, once a request: TakeCost tells
//	                             the caller, which puts off the next request
//	jobs handed to one peer      maxServe; the rest follows with the next Flushed
//	jobs, peers that clash       maxClashes jobs for a peer, maxFitChecks peers for a job
//	locks of a job               maxJobLocks
//	due seconds, lines of a lock are kept in order: a few steps
//	tasks, edges of a request    those that it names: the caller bounds them; for their order
//	                             maxOrderSteps edges, else the request is refused
//	Steal, Complete              a batch of tasks under each hold, as many as are asked for
//	predecessors of a task       all of them, when its record is journaled
//	the log of a task            maxEvents
//	Walk, Status                 as many jobs as the caller says, and a batch of queues
//	growing slices               their elements are copied: a million in a few milliseconds
//	Restore, Resume              everything: no port is open yet
//
// # Memory
//
// Job records live in pointer-free slabs and their bytes in size-classed arenas,
// so that ten million jobs cost the garbage collector nothing. Empty chunks are
// freed.
package sched
