// Package sched is the scheduler behind every protocol of the server: queues of
// jobs, the peers that wait for them and the rules between the two.
//
// It does no I/O, starts no goroutine, reads no clock and draws no random
// number. The caller says what time it is and receives the effects, as Deliveries to a Sink.
//
// # One job
//
// A worker waits, and a client submits a job. This is the way of the job, by function and file; the words come next:
//
//	Watch (watch.go)       the worker's peer serves the queue: it has a watch
//	Reserve (reserve.go)   the peer asks for a job: it has a slot
//	enter (watch.go)       the watch is in the queue's line, at the age of the slot
//	Submit (submit.go)     newJob makes a record with a name, placeSubmission gives it a place
//	enqueue (shard.go)     the job is ready; one that is not due is delayed until promoteDue (tick.go)
//	save (journal.go)      the Journal has it
//	matchOne (match.go)    the first ready job meets the oldest slot in line, which takeSlotFor (queue.go) takes
//	assign (match.go)      hold (held.go) makes the job reserved; the Sink gets an Assign with its Run
//	Finish (finish.go)     findHeld (held.go) finds the job of the Run, unhold (held.go) takes it back
//	end (shard.go)         the awaits of the job get a Result; journal, names and slab forget it
//
// A job that is not finished comes to fail (shard.go), which makes it ready again or ends it: from Fail (finish.go),
// timeOut (tick.go) or abandonOne (departed.go). There are two short cuts, where allowsShortCut (match.go) finds them
// right: assignDirectly (match.go) skips the ready index, and reserve (reserve.go) skips the line.
//
// # Words
//
// One idea has one word, in names and in comments. These are the words that many files use; the others are told where
// they are defined. Of jobs:
//
//	Scheduler    the shards; it has all queues and jobs
//	shard        a mutex, the queues whose names hash to it, and their jobs
//	space        a namespace of jobs: the same name in two spaces of a queue means two jobs; each protocol has its own
//	queue        one kind of work: a ready index, a delayed index, a line of watches
//	job          a unit of work; it is pending while it is delayed or ready
//	task         a job that is part of a graph, whose edges say which task waits for which
//	record       a job in the slab; its number is called job in the code, and Record in a JobRef and a Run
//	detached     in no index and held by no peer: a job that a verb is moving
//	kept         failed or finished: a job that has ended, and operators view
//	lane         the ready jobs of one key of a queue, and the count of those that were taken from it
//	mixed        a queue in which not every ready job fits every watch: two jobs clash when a NameOnly peer cannot tell
//	             them apart, and a job is withheld while it clashes for all NameOnly peers in line
//
// Of peers:
//
//	Peer         a connected party: what it watches, asks for, holds and awaits
//	watch        one peer that serves one queue
//	slot         one outstanding Reserve or Sleep of a peer; a job of any queue that the peer watches may answer it
//	hold         a peer holds a job that is reserved for it
//	holder       the peer that holds a job; a peer of NewHolderPeer is not connected
//	run          one reservation of one job; its number is the seq of the slot that it answers
//	lease        a reservation of a job that outlives connections; its worker proves it with a token
//	await        one request of a peer for the end of a job
//	owner        the peer that awaits a job of an Owned space
//	tag          a number that a caller gives to a request, such as a Reserve or an await; the answers have it
//	revoked      a run that ended without its worker; it is unreported until the worker has reported it
//	departed     a peer that has left; the Ticks reap its awaits, watches and jobs
//
// Of order:
//
//	seq          a sequence number: of a job, or of a slot, whose age it is
//	line         the order of those that wait: a queue's watches by the age of their oldest slots, ready tasks,
//	             parked jobs by lock
//	sort key     what orders the jobs of an index, which calls it key
//	standing     the sort key by which a ready job is compared with jobs of other indexes and queues
//	rank         the order of ready jobs of several queues: their standing, then their seq
//
// Of bounded work:
//
//	step         a unit of work under a shard's lock; countSteps counts them
//	batch        the steps under one hold of a shard's lock (Options.Batch)
//	budget       the steps that a function may still do; most return what is left
//	stepLimit    the value of the shard's step counter at which a function stops; the counter never goes back
//	deferred     work that a verb leaves to the Ticks
//
// # States
//
// A job is in one state and stands in one place for it (job.go). Waiting, remembered and freeing are states of tasks
// alone. A waiting task has predecessors that are not complete. A complete task is remembered for a while, or, if
// nobody may look it up, freeing until its successors are free. A parked job was refused a named lock and waits for it.
// A woken job was parked, was made ready because the lock is free, and has not locked it yet. A broadcasting job is
// being sent to all slots of its queue.
//
// The table says under which word a state is shown: by the columns of `treadle status` and the keys of its JSON, by
// the gauge of the metrics, by the columns of Periodic's STATUS, by dwork's status and log, by the GET of kts46's
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
//	freeing       -               -        -             -                 -      -               -             -
//	failed        FAILED          failed   treadle_jobs  -                -      -               -             -
//	finished      -               -        treadle_jobs, treadle_remembered_names  -  -  -  -                  -
//
// Gloom shows no state: a master receives the end of its job alone. dwork's status is two counts, of
// the active tasks and of the ready ones among them. Its Lookup finds tasks of every state but freeing.
// A reserved task of kts46 counts as waitingActivation until its worker accepts it. A job of Disbatch
// is submitted when its task runs.
//
// # Changes of state
//
// The counter is treadle_jobs_..._total of the metrics; done, expired, removed and given_up are outcomes of
// treadle_jobs_finished_total.
//
//	                           from                    to                                     counter
//	Submit, AddTasks           -                       waiting, delayed, ready                submitted; replaced, ignored for a known name
//	the due time comes         delayed                 ready
//	Reserve, Steal             ready                   reserved                               assigned
//	a broadcast                ready                   broadcasting, then gone                broadcast
//	one that reaches nobody    broadcasting            ready
//	Finish, Complete           reserved                gone; a task: remembered               done
//	Fail                       reserved                ready, delayed, or gone                released
//	Delay                      reserved                delayed, or ready                      released
//	ReleaseNewest, Transfer    reserved                ready; a task: waiting                 released
//	a time-out                 reserved                ready, delayed, or gone                timed_out
//	FinishLeased               reserved                gone; a task: remembered               done
//	FailLeased                 reserved                ready, delayed, or gone                released
//	ReleaseLeased              reserved                ready, or gone                         released
//	Disconnect of the holder   reserved                ready, delayed, or gone                abandoned
//	Disconnect of the owner    any                     gone; reserved: at the end of its run  removed
//	AcquireLock, refused       reserved                parked
//	ReleaseLock, a time-out    parked                  ready, delayed
//	a task gets predecessors   ready                   waiting
//	its last one completes     waiting                 ready, delayed
//	its successors are free    freeing                 gone
//	remembered long enough     remembered              gone
//	too many failures          reserved                failed                                 given_up
//	Release                    reserved                ready, delayed                         released
//	Bury                       reserved                failed                                 given_up
//	ReserveNumber              ready, delayed, failed  reserved                               assigned
//	Kick, KickNumber           failed, delayed         ready                                  retried; of a delayed job none
//	RemoveNumber               any but reserved        gone                                   removed
//	too many, too old          failed                  gone                                   evicted
//	Finish, keep-done          reserved                finished                               done
//	job-ttl has passed         ready                   gone, or finished                      expired
//	too many, too old          finished                finished with less, gone               -; forgotten for a name alone
//	a dead-letter queue        failed                  ready, in that queue                   moved, submitted
//	RetryJobs, RunJobs         failed                  ready                                  retried
//	RunJobs                    delayed                 ready
//	SetPriority, SetDue        delayed, ready          delayed, ready
//	GiveUpJobs                 delayed, ready          failed                                 given_up
//	MoveJobs                   failed                  ready, in another queue                moved, submitted
//	MoveJobs                   delayed, ready          the same, in another queue             moved, submitted
//	RemoveJobs                 any                     gone                                   removed; not of a finished job
//	Remove, Drop, TimeOutAwait  any                     gone                                   removed
//
// RetryJobs and so on are the verbs of ChangeJobs. A state that is not in the rows of such a verb is refused.
//
// # Files
//
// In reading order. policy.go, lease.go, numbered.go and cron.go each begin with the rules of their subject:
//
//	scheduler.go deliver.go                       limits, errors, rules, options; jobs, runs and effects
//	job.go queue.go peer.go watch.go              a record and its states; indexes and lines; slots; watches
//	ready.go                                      the indexes of ready jobs, and the order among them
//	shard.go held.go                              the steps that all verbs share; those of reserved jobs
//	submit.go reserve.go match.go finish.go       the verbs of the walk above
//	return.go remove.go                           further verbs of a worker; jobs and queues that are removed
//	tick.go                                       what is due, and deferred work
//
// This is the whole of a plain job, but for how it is stored. The rest is for special jobs, peers and queues, for
// operators, and for storage:
//
//	notify.go                                     answers to the awaits of jobs that end
//	listen.go broadcast.go                        the data of topics; jobs that go to all slots of a queue
//	mixed.go unreported.go                        jobs that do not fit every peer
//	locks.go                                      named locks
//	departed.go quota.go                          peers that leave; the memory that all peers take
//	global.go halt.go status.go                   Global names; the stop; counters and views
//	measure.go                                    what the metrics show: tallies, durations, sums of queues
//	policy.go policy_text.go size.go              what an operator wants of a queue, and how it is written
//	policy_apply.go limiter.go                    how queues get their policies; what a policy refuses and holds back
//	key.go lanes.go lanes_change.go               keys of jobs: limits for each, and fair order among them
//	lease.go lease_verbs.go lease_name.go         jobs under leases, whose workers need no connection
//	failed.go failed_move.go move.go              attempts and retries, jobs that were given up; dead letters; moves
//	done.go ttl.go                                jobs that are done and kept, their names; jobs that expire
//	kept.go kept_index.go                         the lines of all kept jobs, and their retries
//	list.go list_place.go list_match.go           the jobs that match, in parts; where a walk goes on; what matches
//	view.go why.go                                one job: a view, its bytes; why it does not run
//	operate.go                                    what operators do with jobs of any state
//	numbered.go numbered_verbs.go                 jobs that are known by their numbers; verbs by number
//	cron_schedule.go                              the times of a schedule, in a time zone
//	cron.go cron_run.go                           entries whose jobs are submitted at times; their verbs
//	journal.go                                    what survives the process
//	graph.go graph_edit.go graph_order.go         tasks: new ones and their predecessors, without cycles
//	graph_line.go graph_steal.go graph_end.go     tasks: in line, reserved, complete
//	graph_revision.go graph_exit.go graph_view.go tasks: revisions, holders that leave, views
//	graph_edges.go graph_journal.go graph_log.go  tasks: how they are stored
//	slab.go arena.go hash_index.go                where records, bytes and names are stored
//	hash.go hash_seeded.go hash_fixed.go          hashes of names and keys; those of the simulation
//	index.go sorter.go, package heap              how jobs and queues are kept in order
//	step_mutex*.go invariants*.go                 the count of steps; the checks of the tests
//
// # Six ways to hand out a job
//
// A ready job is handed out in one of six ways. All of them hand out nothing while the scheduler is halted, and all
// but the last while the queue is throttled. A reserve by number is refused by a pause and by a full concurrency, and
// not by a rate. The first job of a queue is the first of its ready index, its index by number and its lanes (head in
// ready.go). In a mixed queue each watch has a first job of its own, which may also be withheld or have a long name
// (jobFor in mixed.go).
//
//	way                    asked for by               looks at                                   file
//	a match                Reserve, whose slot waits  the first job of the queue                 match.go, mixed.go
//	a reserve at once      Reserve, TryReserve        the first jobs of all queues of the peer   reserve.go
//	a request for several  TryReserveUpTo             the same, up to n times                    lease_verbs.go
//	a steal                Steal                      the tasks of one queue, private ones too   graph_steal.go, graph_line.go
//	a broadcast            no peer                    the slots in line, for the first job       broadcast.go
//	a reserve by number    ReserveNumber              the job of the number                      numbered_verbs.go
//
// # Steps in and out
//
// A verb takes a job out of its place, which detaches it, and then puts it into another place or ends it. These are
// all steps. Out of a place:
//
//	dequeue         ready, delayed -> detached    leaves its index
//	take            ready -> detached             leaves its index; its lane counts it as taken
//	unhold          reserved -> detached          leaves its holder; frees its locks and its lease
//	removeHeld      reserved -> reserved          a part of unhold: leaves the held jobs of its watch and its deadline
//	unpark          parked -> detached            leaves the line of its lock
//	unkeep          failed, finished -> detached  leaves the line of kept jobs
//	detach          any -> detached               the one of these that fits the state
//
// Into a place:
//
//	enqueue         detached -> ready, delayed    by its due time
//	pushReady       detached -> ready             at an end of the jobs of its key
//	relane          ready -> ready                to the lane of the present rules
//	hold            detached -> reserved          by a watch; assign also tells the peer
//	startLease      detached -> reserved          by a lease; grant makes a lease of a run
//	park            reserved -> parked            behind its lock
//	keep            detached -> failed, finished  in the line of its use
//
// To the end:
//
//	end                 frees the record, answers the awaits and tells the journal; retire is its first part
//	endByPolicy         end, unless the policy keeps the job; counts the end
//	endRemoved          end of a job that is removed; counts it
//	removeLive          detach and endRemoved, for all states but those of kept jobs; a task ends by its graph
//	removeInAnyState    removeLive, or removeKept
//	removeKept          unkeep and freeKept
//	freeKept            frees the record of a kept job
//	discardUnused       frees a queue of a long name that has no jobs and no workers
//
// A job that is not done comes back by fail (counts a failure), failWithRetries (by the retries of its policy or of
// Rules.RetryRules) or release (no failure).
//
// # Concurrency
//
// Every verb may be called from any goroutine. Two goroutines must not call verbs for one Peer at
// once: a session belongs to one goroutine. Deliveries are made while the shard lock is held, see
// Sink.
//
// A goroutine takes locks in this order, and at most one lock of each line below the first:
//
//	1  the callers' own: of the kts46 registry, of Disbatch's functions, of the HTTP API
//	2  departures.reaping: the Tick that reaps departed peers
//	3  shard.mu: queues, jobs, tasks, watches, listeners, and who awaits a job; a move takes those of two
//	   shards, the smaller number first
//	4  of a Journal, between Begin and End of changes that survive together
//	5  one of these, under which none is taken:
//	   Peer.mu          a peer's slots, awaits and topics, its part of the quota
//	   locks.mu         the named locks, and the jobs that wait for them
//	   globalNames.mu   a part of the Global names
//	   leaseTable.mu    a part of the leases
//	   moves.mu         where moved jobs are
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
// The steps of a verb under one hold of a shard's lock have a bound that does not depend on how much
// there is. All steps of a verb together have such a bound too, except in the work of the second list
// below. The Ticks do the rest, a batch under each hold. countSteps counts the steps of work that may
// be large. TestLongestHold bounds the count, with very much of everything.
//
// The first list is the deferred work, with the state that callers see until it is done:
//
//	a peer leaves        it serves nothing, asks for nothing and is told nothing; the jobs that it
//	                     holds are reserved, and its awaits are there; a Submit that finds the
//	                     Global name of such an await taken reaps the await first (departed.go).
//	                     A journal has reserved jobs as ready ones, and a record for a holder
//	                     that releases tasks (graph_exit.go)
//	a broadcast          its job stands in no index and counts as running; no other job of the
//	                     queue is matched (broadcast.go)
//	ready jobs, slots    both are there, in a queue that is in deferredMatches (match.go)
//	other keys           jobs stand where the earlier rules have put them; the first of all is next, and
//	                     those that run are not counted by their keys yet (lanes_change.go)
//	offers by name       a withheld job is offered to all watches in line by their numbers (mixed.go)
//	a task ends          it is complete, and its successors still wait; a journal that ends there
//	                     has no edges to it (graph_end.go)
//	a queue is dropped   it has no name; a record says which of its jobs are to go (tick.go)
//	locks become free    no job holds them, and jobs wait (locks.go)
//	other policies       a queue follows the earlier policies; SetPolicies begins again (limiter.go)
//	old jobs             a ready job has expired, and was not handed out; the sweep begins with the first second of each
//	                     priority, and a cursor says where it goes on (ttl.go)
//	kept jobs            there are more or older ones than the policy keeps, or failed ones that are to move
//	                     to a dead-letter queue; a cursor says where the moves go on (failed_move.go)
//	a job ends           its name is free, and some awaits are not answered yet (notify.go)
//	cron entries         their times have come and their jobs are not submitted, in order (cron_run.go)
//	what is due          it is late: time-outs, unreported names, remembered tasks
//
// The second list is the work that is done at once, with its bound:
//
//	answer a job's awaits        MaxAwaits, and notifyBatches by their bytes
//	publish to a job's listeners MaxAwaits; the Sink bounds the bytes
//	the slots of a peer          MaxSlots: a Reserve scans them for its tag
//	the place of a number        256 jobs of its bucket; Kick and Peek look at a batch of delayed jobs
//	the jobs of a watch          maxNewest: ReleaseNewest scans them for its tag
//	the watches of a peer        maxWatches, each under its own lock, once a request: TakeCost tells
//	                             the caller, which puts off the next request
//	jobs handed to one peer      maxServe; the rest follows with the next Flushed
//	jobs, peers that clash       maxClashes jobs for a peer, heap.MaxInOrder levels of keys, heap.MaxInOrder peers for a job
//	the key of a job             maxKeyScan bytes of its workload
//	locks of a job               maxJobLocks
//	due seconds, lines of a lock are kept in order: a few steps
//	tasks, edges of a request    those that it names: the caller bounds them; for their order
//	                             maxOrderSteps edges, else the request is refused
//	Steal, Complete              a batch of tasks under each hold, as many as are asked for
//	TryReserveUpTo, Grant        MaxRequestJobs, a batch under each hold
//	ChangeJobs                   as many jobs as the caller names, a batch under each hold
//	predecessors of a task       all of them, when its record is journaled
//	the log of a task            maxEvents
//	WalkCron, DropOldCron        MaxCronEntries, at a start as many again; a batch, and all, under a hold
//	the time of a cron entry     the search for the next one, of cronHorizon at most
//	List                         about as many steps as the caller says, and maxSearched or maxPatternWork of one job
//	Walk, Status, Measure        as many jobs as the caller says, and a batch of queues
//	the oldest ready job         maxOldest priorities and keys
//	growing slices               their elements are copied: a million in a few milliseconds
//	Restore, Resume              everything: no port is open yet
//
// # Memory
//
// Job records live in pointer-free slabs and their bytes in size-classed arenas,
// so that ten million jobs cost the garbage collector nothing. Empty chunks are
// freed.
//
// # Verbs
//
// These are the methods of Scheduler and of Peer, by subject and file. `go doc` prints each with its contract.
//
//	clients      submit.go Submit; notify.go TimeOutAwait; listen.go Listen, Publish; remove.go Remove, Withdraw, Drop
//	by number    numbered_verbs.go FindNumber, RemoveNumber, Kick, KickNumber, Peek, ReserveNumber
//	peers        peer.go NewPeer, SetLabel, Session, View, TakeCost, Flushed, Blocked; departed.go Disconnect
//	ask          watch.go Watch, Unwatch; reserve.go Reserve, TryReserve, TryReserveOf, StopReserve, Sleep
//	give back    finish.go Finish, Fail, Delay; return.go Release, Bury, Touch, ReleaseNewest
//	by name      held.go Held; unreported.go Report; status.go NameOf
//	locks        locks.go AcquireLock, ReleaseLock; view.go HeldLocks
//	requests     lease_verbs.go NewRequestPeer, TryReserveUpTo, Grant
//	leases       lease_verbs.go FinishLeased, FailLeased, ReleaseLeased, ExtendLease, PublishLeased, ViewLeased
//	             lease_verbs.go LeaseTo; lease_name.go FindLease
//	policies     policy_apply.go SetPolicies, ApplyPolicies, ApplyKeys; limiter.go PauseFor, CheckSubmits
//	cron         cron_run.go SetCron, MoveCron, RemoveCron, DropOldCron, RunCron, PauseCron, ResumeCron, WalkCron
//	operators    list.go List, SizeOf; view.go View, Find, NewReader; why.go Why; operate.go ChangeJobs
//	tasks        graph_edit.go AddTasks, Transfer; graph_steal.go NewHolderPeer, Steal, Complete; remove.go RemoveTask
//	             graph_revision.go ReviseTask, ReleaseTask, FinishTask; graph_end.go SetRemember
//	             graph_line.go Head; graph_view.go LookupTask, Backlog, WalkTasks
//	server       tick.go Tick; scheduler.go SetTimeout, Timeout, SetLockTimeout; halt.go Halt, CountInterruptible
//	             journal.go Restore, Resume, ShardOf
//	counts       status.go Status, StatusSome, StatusOf, Stats, Memory, Walk; measure.go Measure, StatsOf
package sched
