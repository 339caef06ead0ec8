// Package sim simulates Treadle: whole servers in memory. Everything around the servers is simulated, and a seed alone
// decides what happens and in which order. A seed that finds a bug finds it every time.
//
// There are two plays. PlayServer has one server: the real sessions, codecs, scheduler and journal. Around it are peers
// of Periodic in both framings, of Gloom, of beanstalkd's protocol, of Faktory's, of dwork, of both versions of kts46
// and of the HTTP API, and a Disbatch node.
// The play of package site has three hosts of a Disbatch site around a fake MongoDB. Each host is a
// server with its node and the driver.
//
//   - Simulator (simulator.go) acts. It draws the next step from the seed and the step's number, moves bytes and calls
//     through the Network, lets time pass, fills, slows and breaks the disk, and kills, stops and starts the server.
//   - Network (network.go) is all that lies between the peers and the server. Conn is one connection and the peer at
//     its end, Request one of the requests on it, which arrive in their order. A peer of dwork, kts46 or HTTP makes
//     calls instead (dworkCall, kts46Call, httpCall): each has a connection of its own, and they arrive in any order.
//   - Ledger (ledger.go) judges. It sees each message pass at the server's boundary, knows what the server has promised
//     by it, and fails the play when a promise is broken. Job (job.go) is what it knows of one job. What it knows apart
//     from jobs is in types of its own: serverState, turnState, streams, kts46Saved and the models.
//   - Kts46Model (kts46_model.go) is the ledger's part for kts46: projects, jobs and tasks as the server must show
//     them.
//   - PolicyModel (policy_model.go) is the ledger's part for a queue with a policy: its rules, failed, done and expired
//     jobs, dead letters, names that are still taken, limits, rates, pauses, turns of keys, and a lock.
//   - CronModel (cron.go) is the ledger's part for cron entries: their times, and the jobs of each.
//   - disk.Disk (disk/disk.go) is a disk in memory that knows what a crash leaves of it.
//   - play.Trace (play/trace.go) is the record of a play. Two plays of a seed have the same trace, in two processes
//     too, or something is not simulated. For that, package sched hashes names alike in all builds with the invariants
//     tag.
//
// # Not simulated
//
// Clusters, sockets, gnet and some requests: ../README.md lists them under "Not played", with the tests that have them
// instead.
//
// # A step
//
// PlayServer starts the server, plays the steps, and then has all peers behave until everything promised has come true
// (Simulator.finish). For each step it
//
//  1. seeds the dice with the seed and the step's number, so that leaving out a step changes the others little;
//  2. draws the step from serverSteps in step.go: a peer sends something, bytes arrive, a peer reads, the journal
//     commits, time passes, a connection breaks, the server crashes;
//  3. lets the server work until nothing is under way (settle): the turn ends, and Ledger.endTurn makes the checks that
//     need the whole of it;
//  4. checks the structures of the server (loop.Offline.Check).
//
// A request of Periodic passes four places. Conn.ask puts its bytes on their way, with a Request. When the last of
// them arrives, Simulator.deliver calls Request.onArrival, which tells the ledger what the request does to the server.
// The server's answer passes Ledger.written, which finds the Request and checks the answer. Simulator.read hands the
// bytes to the peer, which then knows of its job or result. Gloom goes the same way with Conn.tell,
// beanstalkd's protocol and Faktory's with Conn.askLine. A call is put on its way by dworkAsk, kts46Ask or httpAsk, and
// arrives by Simulator.deliverCall; dworkAnswered, kts46Answered or httpAnswered checks its answer.
//
// # Rules
//
// The promises are in ../README.md. These functions fail the play when a rule is broken:
//
//	never early, one holder at a time   Ledger.assigned (ledger_reserved.go), taskGiven, checkNext (dwork_answers.go)
//	the order of a queue                noteInversions (ledger_reserved.go) notes, endTurn (ledger_turn.go) judges
//	acknowledged is on disk             checkOnDisk (ledger.go), called where a peer is told of a change
//	survives a crash                    Simulator.recovered (server_crash.go), audit (simulator.go), checkDump
//	                                    (periodic_dump.go), leasesRecovered (lease.go), kts46Crashed (kts46_check.go)
//	no worker waits beside a ready job  checkIdle, checkNoJob (periodic_worker.go), checkReserved (http_worker.go),
//	                                    checkUnreserved (beanstalk_ledger.go), PolicyModel.checkIdle (policy_hand.go)
//	a result goes to its owner          checkResult (periodic_reply.go), gloomReply (gloom.go),
//	                                    checkEnding (http_submit.go), nodeAnswered (disbatch.go)
//	a late report changes nothing       finished, returned (ledger_reserved.go), checkUnreported (ledger_runs.go),
//	                                    checkReport (http_report.go), fetchedReported (faktory_ledger.go)
//	every request has its answer        checkAnswered (ledger_turn.go), Simulator.finish (simulator.go)
//	a broadcast, a stream               checkBroadcasts (ledger_broadcast.go); received, checkMissed (periodic_crc.go)
//	a lock                              acquired (periodic_crc.go), lockRequested (policy_lock.go)
//	limits, rates, pauses, turns        PolicyModel.handedOut (policy_hand.go), checkTurns (policy_turns.go)
//	kept and expired jobs               checkFailed (policy_operator.go), checkDone, checkSwept (policy_done.go)
//	tasks and predecessors              predict, checkPredecessors (dwork_graph.go)
//	kts46, cron                         Kts46Model.agrees (kts46_check.go), checkCron (cron.go)
//	a stop owes nothing                 checkOwesNothing, checkAllAnswered, checkHalfClosed (server_stop.go)
//	a Disbatch site                     checkTasks with allowed and checkOrder, given (site/ledger.go); checkEnded,
//	                                    stopInOrder (site/host.go)
//
// # To add an operation
//
//  1. Write the act beside the others of its protocol, as submit in periodic_client.go: it asks, with an onArrival
//     that tells the ledger.
//  2. Write what the ledger must know: an event (submitted, finished) that changes the Job, and a check of the answer,
//     which periodicReply or its like calls.
//  3. Give the act its share in the table of its peer (clientActs, workerActs, crcActs, beanstalkActs, faktoryActs,
//     dworkActs, httpActs, kts46Acts, policyActs), or in serverSteps if it is no peer's.
//  4. Plant a bug that the new check must find, in ../canary_table_test.go, and list it in ../README.md. A check that
//     has found no bug proves nothing.
//  5. Name new files below.
//
// # Files
//
// In reading order; the beginning of a name is its family. The files that need the server in memory (loop.Offline) are
// in builds with the invariants tag alone.
//
//	play/                the record of a play, tables of dice, and shorter plays: Trace, Table, Explain
//	simulator.go         the setup, the beginning and the end: Simulator, Setup, PlayServer, audit, finish
//	step.go              the steps: serverSteps, settle, commit, pass, act
//	server_crash.go      starts, crashes and wear: start, crash, wear, recovered
//	server_stop.go       orderly stops: stop, checkOwesNothing
//	disk/                the disk in memory and its faults: Disk, Fault
//	disk_slow.go         syncs that last: commitSlowly
//	network.go           connections and their requests: Network, Conn, Request
//	network_kind.go      the kinds of peers: peerKind
//	malformed.go         bytes that make no sense: sendMalformed, sendGarbage, loadBadly
//	wire/                what peers send, and the assignments that they read: PeriodicFrame, ParseAssign
//	job.go               what is known of one job: Job, certainty
//	ledger.go            what is known of all jobs: Ledger, submitted, acknowledged, checkOnDisk, committed, crashed
//	ledger_turn.go       the checks at the end of a turn: endTurn
//	ledger_reserved.go   the holder of a job: assigned, finished, returned, left
//	ledger_runs.go       the runs of a job, and late reports: Run, checkUnreported
//	ledger_broadcast.go  jobs for all waiting workers: checkBroadcasts
//	periodic_client.go   clients: actAsClient, submit
//	periodic_work.go     workers and their reports: actAsWorker, reportJob
//	periodic_worker.go   workers: the queues that they serve, and their waits: serve, woken, checkIdle
//	periodic_crc.go      locks and streams: acquired, received
//	periodic_reply.go    the answers, and what peers read: periodicReply, checkResult, read
//	periodic_expiry.go   a RUN_JOB that expires: checkExpired
//	periodic_dump.go     DUMP and STATUS: checkDump, checkStatus
//	periodic_load.go     LOAD: loadAs, loadCopy
//	periodic_settings.go CONFIG_GET and CONFIG_SET: setting, checkSetting
//	periodic_crowd.go    very many jobs and functions: offerMany
//	gloom.go             masters and slaves: actAsMaster, actAsSlave, gloomReply
//	lines.go             what the peers of beanstalkd's protocol and of Faktory's share: lineStep, checkEffect
//	beanstalk.go         clients of beanstalkd's protocol: actAsBeanstalk
//	beanstalk_ledger.go  what their requests and answers come to: doByID, beanstalkReply
//	faktory.go           clients of Faktory's protocol: actAsFaktory
//	faktory_ledger.go    what their requests and answers come to: fetchedReported, faktoryReply
//	dwork.go             calls of dwork: dworkStep, dworkArrive
//	dwork_answers.go     their answers: dworkAnswered, taskGiven
//	dwork_graph.go       tasks and their predecessors: predict, lookup
//	kts46.go             calls of kts46: kts46Step
//	kts46_workers.go     its workers: kts46Work, kts46Report
//	kts46_look.go        what the server shows: kts46Look
//	kts46_calls.go       what the calls of workers come to: kts46Arrive, kts46Answered
//	kts46_orders.go      what the calls of users come to: kts46Ordered
//	kts46_finish.go      the end: kts46Finish
//	kts46_model.go       the model: Kts46Model
//	kts46_check.go       the model against the server: agrees, kts46Settled, kts46Crashed
//	http.go              calls of the HTTP API: httpStep, httpAnswered, probeHTTP
//	http_submit.go       submitters: httpSubmit, checkEnding
//	http_worker.go       workers: httpReserve, httpReserved, checkReserved
//	http_report.go       their reports: httpReport, checkReport
//	lease.go             the leases of the server: Lease, lookAtReserves
//	http_operator.go     operators that change some jobs: httpOperate
//	operation.go         operators that change all jobs of a queue, in slices: operation
//	disbatch.go          the node beside the server: disbatchStep, nodeAnswered
//	policy.go            steps of the queue with a policy: policyStep
//	policy_rule.go       its rules, and what they come to: policyRule, effectivePolicy
//	policy_model.go      the model of the queue: PolicyModel
//	policy_fate.go       a job of the model: policyJob, fate
//	policy_hand.go       hand-outs: handedOut, readyFor
//	policy_workers.go    workers of the model: policyWorker
//	policy_client.go     its client: policyClient
//	policy_operator.go   its operator: policyChange, policyPause, policyLook
//	policy_done.go       ended jobs: runDone, checkDone
//	policy_lock.go       the lock: policyLock
//	policy_turns.go      turns of keys: checkTurns
//	cron.go              cron entries: CronModel, cronStep
//	site/                the play of a Disbatch site
//
// # Words
//
//	doubt     the ledger does not know whether the server has a job: the job may have been done, removed or replaced
//	sure      of a job: the server has it (see certainty: no, maybe, sure); of a request: its effect is known
//	moment    the two clocks of the server at one point of a play: Mono, which never steps, and Wall, which may be set
//	turn      the time from one moment at which nothing is under way in the server to the next
//	step      one act of the play, drawn from the seed and the step's number
//	group     changes that the journal writes and syncs together; a crash leaves whole groups
//	wear      to write to the journal until an injected fault hits
//	look      to ask the server for its state and compare it with the ledger, as in cronLook and kts46Look
//	fate      what the server may know of a job of the queue with a policy: its place, failures and times
//	crowd     very many jobs or functions that come and go within one step
//	boundary  the place between a connection and the server at which the ledger sees all messages
//	probe     a client or a request of the simulation itself, which asks while nothing else happens
//
// A trace names its parts by a letter and a number: c3 a connection or a reserve over HTTP, h7 a call of the HTTP API,
// j12 a job or a dwork task, q1 a queue, w0 a worker of dwork, kts46 or the queue with a policy, b:p0 a job of that
// queue. In the play of a site h0.1 is a process of host h0, and t3 a task.
//
// # Names
//
// The form of a method's name says which part acts:
//
//   - An imperative is an act of the play. With a Conn as its first argument the act is that peer's, as in submit,
//     serve and reportJob; without one it is the simulator's, as in pass, commit and crash. Exceptions are deliver,
//     deliverSome, deliverAll, exchange, breakConn and replace: these are the network's acts on the Conn. The few
//     imperatives of Ledger, as end and doubt, change the ledger alone.
//   - A past participle is an event that the ledger is told of, as submitted, finished and crashed. It fails the play
//     when the event must not happen, and else notes it.
//   - checkX fails the play when X is not so. noteX of Ledger records a fact without judging it. Other names stand for
//     what the method returns, as holds, mayHold and live.
//
// Within a turn the order of events may be unknown; then the ledger doubts (see certainty and Ledger.doubt) instead of
// guessing.
package sim
