// Package loop owns every socket and clock of the server. It turns the peers' messages into
// scheduler calls, and the scheduler's deliveries into messages.
//
// # The way of a request
//
// An event loop (engine.go, the only file that knows gnet) reads from a socket and passes the
// bytes to the session's reactor. The session's conversation, behind the seam of package
// protocol, decodes complete messages in place and calls the scheduler, which returns
// deliveries to this and other sessions. A delivery to a session of the same reactor is
// encoded into that session's out buffer at once. A delivery to another reactor goes into
// that reactor's mailbox. At the end of the turn each session with output is written to once.
//
// # Files
//
// In reading order:
//
//	options.go server.go              the settings; the life of a server from New to its end
//	protocols.go                      the list of protocols, and what the server does for them (protocol.Host)
//	listen.go socket.go               addresses and unix sockets
//	connshares.go service_conn.go     how many connections each protocol may have; connections of services
//	engine.go                         the event loops: the only file that knows gnet
//	reactor.go sessiontable.go        one event loop; its sessions by id
//	turn.go session.go                the turns of an event loop; one connection
//	mailbox.go bufferpool.go          deliveries from other loops; buffers for reuse
//	partial.go pause.go alarm.go      unfinished messages; expensive requests; calls at times that sessions ask for
//	stream.go long_reply.go           replies that are too large for one buffer
//	acks.go schedjournal.go           replies that wait for a commit; the journal's side
//	durable.go                        the start from a journal
//	attempts.go leases.go             fields of records, from the scheduler's form to the journal's and back
//	timer.go sweep.go overdue.go      Ticks, time-outs of sessions, jobs that run too long
//	cluster_options.go cluster_run.go cluster_state.go metrics_cluster.go
//	                                  a node of a cluster, which is a server only while it leads
//	node_ports.go forwarded.go        the ports of a node; connections that other nodes forward to it
//	forwarder.go follower_http.go     the connections and requests that a follower forwards to the leader
//	memory.go trim.go                 the limit of memory; unused memory that goes back to the system
//	stop.go reload.go                 the stop; settings that change while the server runs
//	metrics.go metrics_queues.go conn_metrics.go probes.go connections.go
//	                                  what operators see
//	blocking.go offline*.go           the same server in memory, without sockets, for the simulation (fuzz/sim)
//	invariants.go                     checks in builds with the tag invariants
//
// The server in memory uses the files of a real one. offline*.go replaces the engine, the clock and the disk: the
// caller decides when each of them does something.
//
// # Packages
//
// Each protocol has a package of its own behind the seam of package protocol:
//
//	periodic      client.go has the submits, worker.go GRAB_JOB and the reports, dump.go DUMP and LOAD
//	gloom         master.go has the submits, and reads a job's priority; slave.go has the joins and the responses
//	dwork         the hub; dwork/zmq is its ZeroMQ ROUTER
//	kts46         xml.go has the methods of version 1, json.go those of version 2; mongo_xml.go and mongo_json.go those
//	              with the site's MongoDB, which is in kts46/store
//	beanstalk     worker.go has the waits for jobs, tubes.go the tubes, held.go the reserved jobs
//	faktory       producer.go has PUSH, worker.go FETCH and reports, failure.go what is kept of a failure
//	disbatch      a node in a server; below it store is the site's MongoDB, config its settings, node runs tasks and
//	              web is the command interface, and the site as the HTTP API has it
//	admin         the HTTP API
//	page          its pages for a browser
//
// journal is the store of the data directory, cluster makes several servers one, web is a bounded HTTP server, budget
// the memory that peers share, client a blocking client of all protocols. setting makes flags, variables and keys of
// files from the tags of Options.
//
// # Turns
//
// A turn handles everything that one poll of the event loop brought. The clock is read once, at
// its beginning.
//
// # Bounded turns
//
// No request makes other peers wait for long. The work of one turn has a bound that does not depend on the number of
// jobs or the size of requests. The rest is done in later turns, off the event loops, or by the scheduler's Ticks, see
// package sched.
//
//	the bytes of a connection      turnTime and turnBytes; of all connections allConnsTime (engine.go)
//	expensive requests             maxTurnCost; their sessions are paused (pause.go)
//	mail, and jobs for peers that have read their output    turnDeliveries (turn.go)
//	output                         maxUnsent; beyond it, only for peers with little output (stream.go)
//	a long reply                   encoded off the event loop (long_reply.go), sched.WalkBatch slots per lock;
//	                               sent in pieces; a peer that does not read gives its encoder up (stream.go)
//	a request that takes long      handled off the event loop, its session paused (pause.go, Offload)
//	all sessions                   swept once a second (sweep.go), and walked to shed those with the
//	                               most unread or unfinished bytes (shedUnread, shedPartials)
//
// The package of each protocol says how it bounds its own requests. The budgets of stream.go and
// partial.go are not of package budget: each belongs to one loop, and so needs no mutex.
//
// Within these bounds, a message of at most --max-frame bytes is copied as a whole, once for each
// receiver. A job of another protocol becomes JSON in one piece for a Gloom slave.
//
// # Ownership
//
// A session and its buffers belong to its reactor's goroutine. The scheduler, mailboxes and
// counters are shared. A conversation keeps no view of the bytes that it is given.
//
// # Where the code has left the design
//
// The design wanted small packages with one way of doing each thing. A reader meets these exceptions: the kinds of
// protocol.Document are those of kts46 alone. The server in memory is files of this package, offline*.go, not a package
// loop/offline: about seventy names inside the server, its reactors, sessions, timer, journal and stop would have to be
// exported for it. protocol.Host has 26 methods; a protocol calls 3 to 17. The codecs have several shapes
// of Next, see package codec. This package and sched are the largest ones of the tree, and further parts of them could
// be packages.
package loop
