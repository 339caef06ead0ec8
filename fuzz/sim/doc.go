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
//     calls instead (dworkCall, ktsCall, httpCall): each has a connection of its own, and they arrive in any order.
//   - Ledger (ledger.go) judges. It sees each message pass at the server's boundary, knows what the server has promised
//     by it, and fails the play when a promise is broken. Job (job.go) is what it knows of one job. What it knows apart
//     from jobs is in types of its own: serverState, turnState, streams, ktsSaved and the models.
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
// Clusters: TestClusterHistories of cmd/treadle kills and splits built servers. Sockets and gnet: TestHostile attacks
// a built server. Several servers on one Disbatch database: package site plays them, PlayServer does not.
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
// beanstalkd's protocol and Faktory's with Conn.askLine. A call is put on its way by dworkAsk, ktsAsk or httpAsk, and
// arrives by Simulator.deliverCall; hubAnswered, ktsAnswered or httpAnswered checks its answer.
//
// # To add an operation
//
//  1. Write the act beside the others of its protocol, as submit in periodic_client.go: it asks, with an arrive that
//     tells the ledger.
//  2. Write what the ledger must know: an event (submitted, finished) that changes the Job, and a check of the answer,
//     which periodicReply or its like calls.
//  3. Give the act its share in the table of its peer (clientActs, workerActs, crcActs, beanstalkActs, faktoryActs,
//     graphActs, httpActs, ktsActs, policyActs), or in serverSteps if it is no peer's.
//  4. Plant a bug that the new check must find, in ../canary_table_test.go, and list it in ../README.md. A check that
//     has found no bug proves nothing.
//  5. Name new files below.
//
// # Files
//
// In reading order; the beginning of a name is its family:
//
//	play/                                                       the record, the tables of dice, and shorter plays
//	simulator.go step.go                                        the setup, the beginning and the end; the steps
//	server_crash.go server_stop.go                              starts, crashes, wear; orderly stops
//	disk/ disk_slow.go                                          the disk and its faults; syncs and checkpoints that last
//	network.go network_kind.go malformed.go wire/               connections; their kinds; bytes that make no sense; frames
//	job.go ledger.go ledger_turn.go                             a job; what is known of jobs; the checks of a turn
//	ledger_reserved.go ledger_runs.go                           holders of jobs; their runs
//	ledger_broadcast.go                                         jobs for all waiting workers
//	periodic_client.go periodic_work.go                         clients; workers and their reports
//	periodic_worker.go periodic_crc.go                          workers: queues and waiting; locks and streams
//	periodic_reply.go periodic_expiry.go                        answers; a RUN_JOB that expires
//	periodic_dump.go periodic_load.go                           DUMP and STATUS; LOAD
//	periodic_settings.go periodic_crowd.go                      CONFIG; very many functions
//	gloom.go                                                    masters and slaves
//	lines.go                                                    what beanstalkd's and Faktory's peers share
//	beanstalk.go beanstalk_ledger.go                            clients; what their requests and answers come to
//	faktory.go faktory_ledger.go                                the same of Faktory
//	dwork.go dwork_answers.go dwork_graph.go                    calls; answers; tasks and their predecessors
//	kts46.go kts46_workers.go kts46_look.go                     calls; workers; what the server shows
//	kts46_calls.go kts46_orders.go kts46_finish.go              what calls of workers and users come to; the end
//	kts46_model.go kts46_check.go                               the model; its checks
//	http.go http_submit.go                                      calls of the HTTP API; submitters
//	http_worker.go http_report.go lease.go                      workers; their reports; the leases of the server
//	http_operator.go operation.go                               operators: some jobs; all jobs, in slices
//	disbatch.go                                                 the node beside the server
//	policy.go policy_rule.go policy_model.go policy_fate.go     steps; rules and what they come to; the model; its jobs
//	policy_hand.go policy_workers.go policy_client.go           hand-outs; peers of the model
//	policy_operator.go                                          the operator
//	policy_done.go policy_lock.go policy_turns.go               ended jobs; the lock; turns of keys
//	cron.go                                                     cron entries
//	site/                                                       the play of a Disbatch site
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
//	look      to ask the server for its state and compare it with the ledger, as in cronLook and ktsLook
//	fate      what the server may know of a job of the queue with a policy: its place, failures and times
//	crowd     very many jobs or functions that come and go within one step
//	boundary  the place between a connection and the server at which the ledger sees all messages
//	probe     a client or a request of the simulation itself, which asks while nothing else happens
//
// A trace names its parts by a letter and a number: c3 a connection, h7 a call of the HTTP API, j12 a job or a dwork
// task, q1 a queue, w0 a worker of dwork, kts46 or the queue with a policy, b:p0 a job of that queue.
//
// # Names
//
// The form of a method's name says which part acts:
//
//   - An imperative is an act of the play. With a Conn as its first argument the act is that peer's, as in submit,
//     serve and reportJob; without one it is the simulator's, as in pass, commit and crash. The few imperatives of
//     Ledger, as end and doubt, change the ledger alone.
//   - A past participle is an event that the ledger is told of, as submitted, finished and crashed. It fails the play
//     when the event must not happen, and else notes it.
//   - checkX fails the play when X is not so. noteX of Ledger records a fact without judging it. Other names stand for
//     what the method returns, as holds, mayHold and live.
//
// Within a turn the order of events may be unknown; then the ledger doubts (see certainty and Ledger.doubt) instead of
// guessing. The files that need the server in memory (loop.Offline) are in builds with the invariants tag alone.
package sim
