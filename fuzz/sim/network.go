//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// Network is everything between the peers and the server: connections with the bytes that are on their way, and the
// requests of dwork, kts46 and HTTP, which have no lasting connections and arrive in any order.
type Network struct {
	conns      []*Conn
	halfClosed []*Conn // connections, also ended ones, whose peers have ended their side and wait for answers until a commit

	dworkRequests []*dworkRequest   // requests to the dwork hub that are on their way
	hubOwed       int               // number of requests that have arrived at the hub and wait for a commit
	stolen        map[string][]*Job // tasks that a location's worker knows to have stolen, by location

	ktsPeers []*ktsPeer
	ktsCalls []*ktsCall // calls that are on their way
	ktsOwed  int        // number of calls that have arrived and wait for a commit

	httpCalls   int           // so many were made
	httpFlights []*httpCall   // on their way
	httpOpen    []*httpCall   // calls that have arrived and have no answer
	reserves    map[int]*Conn // connections of reserves and of workers of Faktory, by number
	granted     []*Lease      // leases that may be on disk or hold their jobs
	leases      []*Lease      // leases that workers know, also ended ones
	fetched     []*Lease      // leases that workers of Faktory know, also ended ones
}

// crashed drops all connections and requests: a server that has ended reads and answers none.
func (n *Network) crashed() {
	n.conns, n.halfClosed = nil, nil
	n.dworkRequests, n.hubOwed = nil, 0
	n.ktsCalls, n.ktsOwed = nil, 0
	n.httpFlights, n.httpOpen = nil, nil
}

// Conn is one connection: the bytes on their way to the server, what the ledger has seen pass at the server's door,
// and what the peer at the far end has read and knows.
type Conn struct {
	id int
	peerKind
	peer *loop.OfflinePeer

	outgoing []byte // bytes on their way to the server
	passed   int    // number of bytes that have arrived
	marks    []mark // the requests in outgoing
	fin      bool   // the peer sends nothing more
	finished bool   // fin, and all that the peer sent has arrived
	recent   []*Request
	reset    bool // the connection was closed when nothing was under way
	slow     bool // the peer has read slowly: output may wait in the server

	written   []byte              // output of the server that has not passed the ledger
	greeted   bool                // the answer to the hello has passed
	requests  map[uint32]*Request // requests that have arrived and have no answer, by message id
	busy      bool                // the slave has a job
	acks      []*Job              // the master's jobs without an answer
	acked     *Job                // the master's last job with an answer; an error may still follow
	joined    pastTurn            // turn of its last join
	malformed int                 // how many malformed messages have arrived and have no answer
	garbled   bool                // the peer ends with bytes that are no frame

	undecoded []byte                   // bytes that the peer has read and not decoded
	helloRead bool                     // the peer has read the answer to its hello
	next      uint32                   // next message id
	grabs     int                      // number of GRAB_JOBs without an answer
	broadcast pastTurn                 // turn of its BROADCAST
	does      [graphQueue + 1]bool     // the queues that it serves
	quit      [graphQueue + 1]pastTurn // turn of its CANT_DO, by queue
	backlog   []*Job                   // jobs that may have been broadcast to it since its SLEEP
	held      []heldJob
	runs      []*Run // runs that the peer was given and has not reported
	told      []*Run // runs whose assignments the peer has yet to read

	asking map[uint32]heldJob // jobs with an ACQUIRE, by its message id

	reserve *reserve        // the reserve of a worker over HTTP
	leases  map[*Job]*Lease // leases that the reserve, or a worker of Faktory, was given

	wroteBytes, readBytes int       // of a peer that speaks in lines: bytes of answers that the ledger has seen, and the peer read
	unread                []readJob // jobs in answers that the peer has not read
	adopted               bool      // the ledger knows of a job in an answer that was never written
}

// heldJob is a job whose assignment a peer has read.
type heldJob struct {
	job    *Job
	run    *Run
	handle []byte
	tag    uint32 // message id of the GRAB_JOB
}

// mark is a request that has arrived when at bytes of its connection have arrived.
type mark struct {
	at      int
	request *Request
}

// Request is what the ledger knows of a request: what its arrival does to the server, and what its answer means.
type Request struct {
	id     uint32
	cmd    periodic.Command
	turn   int // turn in which the request arrived
	group  int // the last group of changes that may have its effect
	job    *Job
	loaded []*Job // jobs of a LOAD
	jobs   []*Job // jobs of a removal
	arrive func()
	silent bool  // the request has no answer
	acked  bool  // the SUCCESS of a GRAB_JOB has come
	at     int64 // Mono at which a RUN_JOB arrived

	refused  bool // the disk was full, or the request is malformed
	doubtful bool // the disk became full, or had room again, while the request arrived

	setting      *setting // setting of a CONFIG_GET
	from         int      // index of the value at the arrival of a CONFIG_GET
	acknowledged func()   // called at the answer to a CONFIG_SET

	crowded bool // a STATUS of very many functions

	lock        string // name of the lock of an ACQUIRE
	limit       int    // number of jobs that may have that lock
	lateAcquire bool   // the worker had lost the run before the ACQUIRE arrived
	run         heldJob
	chunk       *chunk    // chunk of a WORK_DATA
	receiver    *receiver // receiver of a RECV_DATA

	word   string    // of a request in lines: the answer when it is carried out, or the beginning of its refusal
	effect certainty // whether it has an effect on the job
	synced int       // the group that must be on disk before the answer; 0: none
	until  int64     // Mono at which a request for a job is given up
	least  int       // number of jobs that a kick must find
}

// named are the roles with a name and a token, which the server treats as the roles without.
var named = map[peerKind]periodic.Role{crcClient: periodic.AuthClient, crcWorker: periodic.AuthWorker}

// connect opens a connection of a kind; its hello is on its way.
func (s *Simulator) connect(kind peerKind) *Conn {
	s.made++
	c := &Conn{id: s.made, peerKind: kind, peer: s.server.Connect(kind.port()), requests: map[uint32]*Request{}, asking: map[uint32]heldJob{}}
	c.peer.Written = func(b []byte) { s.ledger.written(c, b) }
	s.net.conns = append(s.net.conns, c)
	hello := kind.hello()
	if role, ok := named[kind]; ok && s.rng.IntN(4) == 0 {
		hello = periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: role, Name: []byte("me"), Token: []byte("token")})
	}
	c.outgoing = append(c.outgoing, hello...)
	s.trace.Say("c%d opens as %v", c.id, kind)
	switch kind {
	case beanstalkPeer:
		s.reserve(c, 0) // the server counts it as a worker from then on
		s.watch(c, s.rng.IntN(workedQueues), true)
	case faktoryPeer:
		s.net.reserves[c.id], c.leases = c, map[*Job]*Lease{}
		c.askLine(&Request{cmd: periodic.CanDo}, fmt.Sprintf("HELLO {\"v\":2,\"wid\":\"c%d\"}\r\n", c.id))
	}
	return c
}

// ask puts a request of the Periodic protocol on its way.
func (c *Conn) ask(r *Request, args []byte) {
	c.next++
	c.askAs(c.next, r, args)
}

// askAs is ask with a given message id.
func (c *Conn) askAs(id uint32, r *Request, args []byte) {
	r.id = id
	c.outgoing = append(c.outgoing, wire.Frame(c.framing(), id, r.cmd, args)...)
	c.mark(r, 0)
}

// mark notes a request that ends the given number of bytes before the end of what is on its way.
func (c *Conn) mark(r *Request, before int) {
	c.marks = append(c.marks, mark{c.passed + len(c.outgoing) - before, r})
}

// tell puts a frame of the Gloom protocol on its way.
func (c *Conn) tell(r *Request, frame []byte) {
	c.outgoing = append(c.outgoing, frame...)
	r.silent = true // the content of an answer shows its request
	c.mark(r, 0)
}

// deliver has up to n bytes of a connection arrive at the server.
func (s *Simulator) deliver(c *Conn, n int) {
	if c.peer.Closed() {
		return
	}
	n = min(n, len(c.outgoing))
	c.passed += n
	for len(c.marks) > 0 && c.marks[0].at <= c.passed {
		r := c.marks[0].request
		c.marks = c.marks[1:]
		c.recent = append(c.recent, r)
		r.turn, r.group = s.ledger.turn, s.ledger.group()
		if !r.silent {
			c.requests[r.id] = r
		}
		if r.arrive != nil {
			r.arrive()
		}
		s.ledger.underWay = true
	}
	chunk := slices.Clone(c.outgoing[:n])
	c.outgoing = c.outgoing[n:]
	c.peer.Feed(chunk)
	if len(c.outgoing) == 0 && c.fin && !c.garbled {
		s.halfClose(c)
	}
}

// reap forgets the connections that have ended. When the server ended one, it may have read or dropped the requests
// that arrived on it in this turn.
func (l *Ledger) reap() {
	l.net.conns = slices.DeleteFunc(l.net.conns, func(c *Conn) bool {
		if !c.peer.Closed() {
			c.recent = c.recent[:0]
			return false
		}
		l.trace.Say("c%d has ended", c.id)
		for _, r := range c.recent {
			if c.finished {
				break // all of it was
			}
			if r.chunk != nil {
				r.chunk.sure = false
			}
			for _, j := range append(r.jobs, r.job) {
				handed := j != nil && j.owner == c && j.holder != nil // its submission was read
				if j != nil && j.by != ofDwork && !(handed && j.by == ofGloom) {
					l.doubt(j)
				}
			}
		}
		l.left(c)
		if !c.reset {
			l.mayHaveHeld(c)
			l.misdated, l.behind = "", nil
		}
		return true
	})
}
