//go:build invariants

package sim

import (
	"fmt"
	"math"
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// Network is everything between the peers and the server. A peer of Periodic, Gloom, beanstalkd or Faktory has a Conn:
// its requests, each a Request, arrive in their order, byte by byte. A peer of dwork, kts46 or HTTP makes calls, each a
// dworkCall, kts46Call or httpCall: a call has a connection of its own, and arrives whole and in any order.
type Network struct {
	conns      []*Conn
	halfClosed []*Conn // connections, also ended ones, whose peers have ended their side and wait for answers until a commit

	dwork dworkNetwork
	kts   kts46Network
	http  httpNetwork

	leaseHolders map[int]*Conn // holders of leases, by number: reserves over HTTP and workers of Faktory
	fetched      []*Lease      // leases that workers of Faktory know, also ended ones
}

// crashed drops all connections and calls: a server that has ended reads and answers none.
func (n *Network) crashed() {
	n.conns, n.halfClosed = nil, nil
	n.dwork.onWay, n.dwork.owed = nil, 0
	n.kts.onWay, n.kts.owed = nil, 0
	n.http.onWay, n.http.open = nil, nil
}

// take removes an element of a list and returns it.
func take[T any](list *[]T, i int) T {
	taken := (*list)[i]
	*list = slices.Delete(slices.Clone(*list), i, i+1)
	return taken
}

// Conn is one connection: the bytes on their way to the server, what the ledger has seen pass at the server's boundary,
// and what the peer at the far end has read and knows.
type Conn struct {
	id int
	peerKind
	peer *loop.OfflinePeer

	reset     bool // the connection was closed when nothing was under way
	slow      bool // the peer has read slowly: output may wait in the server
	garbled   bool // the peer ends with bytes that are no frame
	malformed int  // how many malformed messages of Gloom have arrived and have no answer

	toServer
	toPeer
	workerConn
	gloomConn
	lineConn
	leaseConn
}

// toServer is the direction of a connection to the server.
type toServer struct {
	outgoing    []byte     // bytes on their way
	passed      int        // number of bytes that have arrived
	marks       []mark     // the requests in outgoing
	next        uint32     // number of the last request: its message id
	recent      []*Request // requests that have arrived in this turn
	halfClosing bool       // the peer sends nothing more
	halfClosed  bool       // halfClosing, and all that the peer sent has arrived
}

// toPeer is the direction of a connection to the peer.
type toPeer struct {
	written   []byte              // output of the server that has not passed the ledger
	greeted   bool                // the answer to the hello has passed
	requests  map[uint32]*Request // requests that have arrived and have no answer, by message id
	undecoded []byte              // bytes that the peer has read and not decoded
	helloRead bool                // the peer has read the answer to its hello
}

// workerConn is the part of a connection whose peer does jobs: what it offers, asks for and has.
type workerConn struct {
	servedQueues   [queueCount]bool     // the queues that it serves
	stoppedServing [queueCount]pastTurn // turn of its CANT_DO, by queue
	broadcast      pastTurn             // turn of its BROADCAST
	grabs          int                  // number of GRAB_JOBs without an answer
	backlog        []*Job               // jobs that may have been broadcast to it since its SLEEP
	unreadRuns     []*Run               // runs whose assignments the peer has yet to read
	held           []heldJob            // jobs whose assignments the peer has read
	acquiring      map[uint32]heldJob   // jobs with an ACQUIRE, by its message id
	runs           []*Run               // runs that the peer was given and has not reported
}

// gloomConn is the part of a connection of a master or a slave.
type gloomConn struct {
	acks   []*Job   // the master's jobs without an answer
	acked  *Job     // the master's last job with an answer; an error may still follow
	busy   bool     // the slave has a job
	joined pastTurn // turn of the slave's last join
}

// lineConn is the part of a connection whose peer speaks in lines.
type lineConn struct {
	wroteBytes, readBytes int       // bytes of answers that the ledger has seen, and that the peer has read
	unread                []readJob // jobs in answers that the peer has not read
	adopted               bool      // the ledger knows of a job in an answer that was never written
}

// leaseConn is the part of a holder of leases.
type leaseConn struct {
	reserve *reserve        // the reserve of a worker over HTTP
	leases  map[*Job]*Lease // leases that the reserve, or a worker of Faktory, was given
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

// Request is a request on a Conn: what its arrival does to the server, and what its answer means.
type Request struct {
	id        uint32
	cmd       periodic.Command // of the Periodic protocol; in other protocols the one that means the same to the ledger
	silent    bool             // the request has no answer
	onArrival func()           // notes what the arrival does; nil: nothing
	turn      int              // turn in which the request arrived
	group     int              // the last group of changes that may have its effect

	refused  bool // the disk was full, or the request is malformed
	doubtful bool // the disk became full, or had room again, while the request arrived

	job     *Job
	loaded  []*Job // jobs of a LOAD
	jobs    []*Job // jobs of a removal
	acked   bool   // the SUCCESS of a GRAB_JOB has come
	at      int64  // Mono at which a RUN_JOB arrived
	crowded bool   // a STATUS of very many functions

	settingRequest
	crcRequest
	lineRequest
}

// settingRequest is the part of a CONFIG_GET or a CONFIG_SET.
type settingRequest struct {
	setting      *setting // setting of a CONFIG_GET
	from         int      // index of the value at the arrival of a CONFIG_GET
	acknowledged func()   // called at the answer to a CONFIG_SET
}

// crcRequest is the part of an ACQUIRE, a WORK_DATA or a RECV_DATA.
type crcRequest struct {
	lock        string    // name of the lock of an ACQUIRE
	limit       int       // number of jobs that may have that lock
	run         heldJob   // run that the lock is for
	lateAcquire bool      // the worker had lost the run before the ACQUIRE arrived
	chunk       *chunk    // chunk of a WORK_DATA
	receiver    *receiver // receiver of a RECV_DATA
}

// lineRequest is the part of a request in lines.
type lineRequest struct {
	word   string    // the answer when the request is carried out, or the beginning of its refusal
	effect certainty // whether it has an effect on the job
	synced int       // the group that must be on disk before the answer; 0: none
	until  int64     // Mono at which a request for a job is given up
	least  int       // number of jobs that a kick must find
}

// named are the roles with a name and a token, which the server treats as the roles without.
var named = map[peerKind]periodic.Role{crcClient: periodic.AuthClient, crcWorker: periodic.AuthWorker}

// connect opens a connection of a kind; its hello is on its way.
func (s *Simulator) connect(kind peerKind) *Conn {
	s.connsMade++
	c := &Conn{id: s.connsMade, peerKind: kind, peer: s.server.Connect(kind.port()), toPeer: toPeer{requests: map[uint32]*Request{}}}
	c.acquiring = map[uint32]heldJob{}
	c.peer.Written = func(b []byte) { s.ledger.written(c, b) }
	s.net.conns = append(s.net.conns, c)
	hello := kind.hello()
	if role, ok := named[kind]; ok && s.rng.IntN(4) == 0 {
		hello = periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: role, Name: []byte("me"), Token: []byte("token")})
	}
	c.outgoing = append(c.outgoing, hello...)
	s.trace.Logf("c%d opens as %v", c.id, kind)
	switch kind {
	case beanstalkPeer:
		s.reserve(c, 0) // the server counts it as a worker from then on
		s.watch(c, s.rng.IntN(workedQueues), true)
	case faktoryPeer:
		s.net.leaseHolders[c.id], c.leases = c, map[*Job]*Lease{}
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
	c.outgoing = append(c.outgoing, wire.PeriodicFrame(c.framing(), id, r.cmd, args)...)
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
		if r.onArrival != nil {
			r.onArrival()
		}
		s.ledger.underWay = true
	}
	chunk := slices.Clone(c.outgoing[:n])
	c.outgoing = c.outgoing[n:]
	c.peer.Feed(chunk)
	if len(c.outgoing) == 0 && c.halfClosing && !c.garbled {
		s.halfClose(c)
	}
}

// deliverAll has all bytes of a connection arrive.
func (s *Simulator) deliverAll(c *Conn) {
	s.deliver(c, math.MaxInt)
	s.settle()
}

// exchange has all bytes of a connection arrive, and its peer read what the server sends.
func (s *Simulator) exchange(c *Conn) {
	s.deliverAll(c)
	s.read(c, math.MaxInt)
}

// reap forgets the connections that have ended. When the server ended one, it may have read or dropped the requests
// that arrived on it in this turn.
func (l *Ledger) reap() {
	l.net.conns = slices.DeleteFunc(l.net.conns, func(c *Conn) bool {
		if !c.peer.Closed() {
			c.recent = c.recent[:0]
			return false
		}
		l.trace.Logf("c%d has ended", c.id)
		for _, r := range c.recent {
			if c.halfClosed {
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
			l.wrongSchedAt, l.behindRunning = "", nil
		}
		return true
	})
}
