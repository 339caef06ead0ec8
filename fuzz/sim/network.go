//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// Network is everything between the peers and the server: connections with the bytes that are on their way,
// and the calls of dwork and kts46, which have no lasting connections and arrive in any order.
type Network struct {
	conns      []*Conn
	halfClosed []*Conn // of conns, or ended: peers that have said all, and are owed what waits for a commit

	flights []*flight         // of dwork
	hubOwed int               // how many of its calls wait for a commit
	stolen  map[string][]*Job // by location: the tasks that its worker has heard of

	ktsPeers   []*ktsPeer
	ktsFlights []*ktsFlight
	ktsOwed    int // how many calls wait for a commit

	httpCalls   int           // so many were made
	httpFlights []*httpCall   // on their way
	httpOpen    []*httpCall   // that have arrived, and have no answer
	reserves    map[int]*Conn // by number
	granted     []*Lease      // that may be on disk or hold their jobs
	leases      []*Lease      // that workers have heard of, also ended ones
}

// Conn is one connection: the bytes on their way to the server, what the ledger has seen pass at the server's door,
// and what the peer at the far end has read and knows.
type Conn struct {
	id int
	peerKind
	peer *loop.OfflinePeer

	outgoing []byte // on its way to the server
	passed   int    // bytes that have arrived
	marks    []mark // the requests in outgoing
	fin      bool   // the peer sends nothing more
	finished bool   // and everything it sent has arrived
	recent   []*Request
	reset    bool // it was closed when nothing was under way
	slow     bool // the peer has read slowly: output may wait in the server

	written  []byte              // at the server's door
	greeted  bool                // the answer to the hello has passed
	requests map[uint32]*Request // arrived and not answered, by message id
	busy     bool                // the slave has a job
	acks     []*Job              // submitted by the master, without an answer
	acked    *Job                // the last one that was answered; an error may still follow
	joined   int                 // 1 + the turn of its last join
	odd      int                 // how many malformed messages have arrived and have no answer
	garbled  bool                // the last thing it sends is no frame

	heard []byte               // read by the peer, and not decoded
	met   bool                 // the peer has read the answer to its hello
	next  uint32               // message id
	grabs int                  // GRAB_JOBs without an answer
	tuned int                  // 1 + the turn of its BROADCAST; 0: it has sent none
	does  [graphQueue + 1]bool // the queues that it serves
	quit  [graphQueue + 1]int  // 1 + the turn of its CANT_DO
	kept  []*Job               // jobs that may have been broadcast to it since its SLEEP
	held  []heldJob
	runs  []*Run // of jobs that it was given and has not reported
	told  []*Run // whose assignments it has yet to read

	asking map[uint32]heldJob // jobs with an ACQUIRE, by its message id

	reserve *reserve        // of a worker over HTTP
	leases  map[*Job]*Lease // that it was given
}

// heldJob is a job that a peer has read its assignment of.
type heldJob struct {
	job    *Job
	run    *Run
	handle []byte
	tag    uint32 // of the GRAB_JOB
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
	turn   int // in which it arrived
	group  int // the group of changes that its effect is in, at the latest
	job    *Job
	loaded []*Job // of a LOAD
	jobs   []*Job // of a removal
	arrive func()
	silent bool  // it has no answer
	acked  bool  // a GRAB_JOB whose SUCCESS has come
	at     int64 // Mono when a RUN_JOB came

	refused  bool // the disk was full, or it is malformed
	doubtful bool // the disk became full, or had room again, while it arrived

	setting      *setting // of a CONFIG_GET
	from         int      // the value that it had then
	acknowledged func()   // by the answer to a CONFIG_SET

	crowded bool // a STATUS of very many functions

	lock     string // of an ACQUIRE, for one of limit jobs
	limit    int
	late     bool // the run was taken from it before
	run      heldJob
	chunk    *chunk    // of a WORK_DATA
	receiver *receiver // of a RECV_DATA
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
	s.trace.Say("c%d opens as %d", c.id, kind)
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
	r.silent = true // which answer is whose is seen by its content
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
		s.ledger.mixed = true
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
				if j != nil && j.by != ofDwork {
					l.doubt(j)
				}
			}
		}
		l.left(c)
		if !c.reset {
			l.mayHaveHeld()
			l.misdated, l.behind = "", nil
		}
		return true
	})
}
