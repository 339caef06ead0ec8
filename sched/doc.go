// Package sched is the scheduler behind every protocol of the server: queues of
// jobs, the peers that wait for them and the rules between the two.
//
// It does no I/O, starts no goroutine, reads no clock and draws no random
// number. Whoever calls it says what time it is and receives the effects.
//
// # States
//
// A job is in one state, and stands in one place for it (job.go). People meet the states under these
// words: the columns of `treadle status` and the keys of its JSON, the gauge of the metrics, the columns
// of Periodic's STATUS, dwork's status and log, the GET of kts46's version 2, and the status of a task of
// Disbatch that Periodic and Gloom workers do.
//
//	state       treadle status  JSON     metric        Periodic STATUS   Gloom  dwork           kts46         Disbatch
//	waiting     JOBS, WAITING   waiting  treadle_jobs  jobs              -      active          -             -
//	delayed     JOBS, DELAYED   delayed  treadle_jobs  jobs, schedat     -      active          -             0
//	ready       JOBS, READY     ready    treadle_jobs  jobs              -      active, Ready   waitingQueue  0
//	parked      JOBS, LOCKED    locked   treadle_jobs  jobs, locked      -      active          -             0
//	reserved    JOBS, RUNNING   running  treadle_jobs  jobs, processing  -      active, Stolen  runningTasks  0
//	broadcastingJOBS, RUNNING   running  treadle_jobs  jobs, processing  -      -               -             0
//	remembered  -               -        -             -                 -      Done            -             -
//	ending      -               -        -             -                 -      -               -             -
//
// Waiting, remembered and ending are states of tasks alone: a task waits for its predecessors; when it
// is complete it is remembered for a while, or ends as soon as its successors are freed. Parked is a
// job that was refused a named lock and waits for it. Broadcasting is a job that is being broadcast.
//
// Gloom shows no state: a master is told the end. Of the ready tasks dwork's status counts those in
// line, and its Lookup those of all states but ending. A reserved task of kts46 stands in
// waitingActivation until its worker accepts it. A job of Disbatch is submitted when its task runs.
//
// # Changes of state
//
// The counter is treadle_jobs_..._total of the metrics.
//
//	                         from      to                         counter
//	Submit, Extend           -         waiting, delayed, ready    submitted; replaced, ignored for a known name
//	a time comes             delayed   ready
//	Reserve, Steal           ready     reserved                   assigned
//	a broadcast              ready     airing, then gone          broadcast
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
// Of clients:
//
//	Submit          add a job, or replace the pending one of its name
//	Expire          end a peer's await of a job; the job goes with the last one
//	Remove          remove a job in any state
//	Withdraw        remove a job that no peer holds
//	Listen          receive the data that a job's worker publishes
//	Drop            remove a queue that nobody serves
//
// Of peers, which ask for jobs:
//
//	NewPeer         begin the scheduler's side of a session
//	Watch           serve a queue
//	Unwatch         end that
//	Reserve         ask for a job, which comes now or later
//	TryReserve      ask for a job that is ready now
//	Sleep           ask for a wake when a job is ready
//	Flushed         tell how much is unsent; what was kept back for it follows
//	Forget          end a peer
//
// Of a peer that holds a job:
//
//	Finish          the job is done
//	Fail            it could not be done
//	Delay           it is to be done later
//	Release         it is handed back unstarted
//	Held            find the run of a job that is known by name
//	Report          the same for the report that ends the run
//	Lock            ask for a named lock
//	Unlock          end that
//	Publish         send data to the job's listeners
//
// Of tasks:
//
//	NewHolder       make a peer that is not connected
//	Extend          add tasks and predecessors
//	Steal           reserve the first tasks in line
//	Complete        tasks are done
//	Transfer        release tasks, with more predecessors
//	RemoveTask      remove a task in any state
//	Touch           give a lease its next revision
//	ReleaseLease    release a task that is held under a lease
//	FinishLease     it is done
//	Head            look at the place of the first task in line
//	Backlog         count the tasks of a queue
//	LookupTask      look at a task
//	WalkTasks       look at all tasks
//
// Of the server:
//
//	Tick            do what time brings, and a part of what verbs have left
//	SetTimeout      the default time-out of reservations
//	Timeout         that default
//	SetLockTimeout  how long a job waits for a lock
//	SetRemember     how long a complete task is remembered
//	Restore         take back what the journal has
//	Resume          end that
//	ShardOf         the number by which the journal knows a queue's shard
//	Status          look at all queues
//	Stats           read the counters
//	Walk            look at all jobs
//	NameOf          the name of the job that a run was of
//	Unfinished      count the jobs that a restart makes ready again
//	Halt            hand nothing out any more
//
// # Words
//
//	Scheduler  the shards, and the only door to them
//	shard      a mutex, the queues whose names hash to it, their jobs
//	queue      one kind of work: a ready index, a sched-time index, a line of watches
//	graph      the tasks of a shard, which wait for each other
//	Peer       a connected party: what it watches, asks for, holds and awaits
//	watch      one peer serving one queue
//	slot       one outstanding Reserve of a peer; served once, by whichever of the
//	           peer's queues has work first
//	run        one reservation of one job
//	Delivery   an effect: what to tell which session
//
// # Concurrency
//
// Every verb may be called from any goroutine. The verbs that take a Peer must
// not be called for one peer by two goroutines at once: a session belongs to one
// goroutine. Deliveries are made while the shard lock is held, see Sink.
//
// A goroutine takes locks in this order, and of those below the first line one of each at most:
//
//	1  the callers' own: of the kts46 hub, of Disbatch's functions
//	2  departures.reaping: the Tick that reaps departed peers
//	3  shard.mu: queues, jobs, tasks, watches, listeners, and who awaits a job
//	4  one of these, under which none is taken:
//	   Peer.mu          a peer's slots, what it awaits and listens to, its part of the quota
//	   locks.mu         the named locks, and the jobs that wait for them
//	   idTable.mu       a part of the Global names
//	   departures.mu    the list of departed peers; not under a shard's
//	   of a Journal     the changes of a shard that are to be written
//	   of a Sink        the mailbox of an event loop, the endings of Disbatch's functions
//	   of TimedOut      what the log is to say
//
// What reaches from one shard to another, as the next job of a lock that has become free, is done when
// the first is unlocked.
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
//	                     that the tasks of a holder are, it is told (graph_exit.go)
//	a broadcast          its job stands in no index and counts as running; nothing else of the
//	                     queue is matched (broadcast.go)
//	ready jobs, slots    both are there, in a queue that is in unmatched (match.go)
//	offers by name       a withheld job is offered to all in line by their numbers (mixed.go)
//	a task ends          it is complete, and those that wait for it wait still; a journal that
//	                     ends there has no edges to it (graph_end.go)
//	a queue is dropped   it has no name; a record says which of its jobs are to go (tick.go)
//	locks become free    they are held by nobody, and somebody waits (locks.go)
//	a job ends           its name is free, and some who await it are not told yet (notify.go)
//	what is due          it is late: time-outs, names to be reported, tasks to be forgotten
//
// Work that is done at once, and its bound:
//
//	tell who awaits a job        MaxAwaits, and notifyBatches by its bytes
//	tell who listens to a job    MaxAwaits; its bytes are bounded by what the Sink takes
//	the slots of a peer          MaxSlots: for a tag that waits already, and the run of a Release
//	the watches of a peer        maxWatches, each under its own lock, once a request: TakeCost tells
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
