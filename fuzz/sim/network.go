//go:build invariants

package sim

import (
	"encoding/binary"
	"slices"

	"treadle/codec/gloom"
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
}

// heldJob is a job that a peer has read its assignment of.
type heldJob struct {
	job    *Job
	run    *Run
	handle []byte
	tag    uint32 // of the GRAB_JOB
}

// mark is a request that has arrived when so many bytes of its connection have.
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

// mark notes a request that ends so many bytes before the end of what is on its way.
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

// written decodes and checks what the server writes to a connection.
func (l *Ledger) written(c *Conn, b []byte) {
	c.written = append(c.written, b...)
	for len(c.written) > 0 {
		reply := l.periodicReply
		if c.gloom() {
			reply = l.gloomReply
		}
		n := reply(c)
		if n == 0 {
			return
		}
		c.written = c.written[n:]
	}
}

// periodicReply checks one frame of the Periodic protocol, and returns its size; 0: it is not complete.
func (l *Ledger) periodicReply(c *Conn) int {
	var r periodic.Response
	n, err := periodic.NextResponse(c.written, c.framing(), periodic.MaxPayload, &r)
	if err != nil {
		l.trace.Fail("c%d is sent %x: %v", c.id, c.written, err)
	}
	if n == 0 || !c.greeted {
		c.greeted = c.greeted || n > 0
		return n
	}
	q := c.requests[r.MsgID]
	if q == nil {
		l.trace.Fail("c%d is sent %x for message %d, which it does not wait for", c.id, r.Body, r.MsgID)
	}
	delete(c.requests, r.MsgID)
	is := func(cmd periodic.Command) bool { return len(r.Body) == 1 && r.Body[0] == byte(cmd) }
	if q.refused != is(periodic.Unknown) && !q.doubtful {
		l.trace.Fail("c%d is sent %x for a %v, refused: %v", c.id, r.Body, q.cmd, q.refused)
	} else if is(periodic.Unknown) {
		l.trace.Say("c%d hears that its %v is refused", c.id, q.cmd)
		return n
	}
	switch q.cmd {
	case periodic.GrabJob:
		if !l.grabbed(c, q, r.Body) {
			return n
		}
	case periodic.Sleep:
		l.woken(c, r.Body, q.turn)
	case periodic.RunJob:
		l.checkResult(c, q, r.Body)
	case periodic.Acquire:
		l.acquired(c, q, r.Body)
	case periodic.RecvData:
		if l.received(c, q, r.Body) {
			c.requests[r.MsgID] = q
		}
	case periodic.Status:
		if lines := statusLines(l.report(c.framing(), l.setup.era, r.Body)); q.crowded {
			l.checkMany(lines)
		}
	case periodic.Dump:
		l.checkDump(q.turn, l.report(c.framing(), l.setup.era, r.Body))
	case periodic.ConfigGet:
		l.checkSetting(c, q, r.Body)
	case periodic.Ping:
		if !is(periodic.Pong) {
			l.trace.Fail("c%d is sent %x for a PING", c.id, r.Body)
		}
	default:
		if !is(periodic.Success) {
			l.trace.Fail("c%d is sent %x for a %v", c.id, r.Body, q.cmd)
		}
		if q.job != nil {
			l.acknowledged(q.job)
		}
		for _, j := range q.loaded {
			l.acknowledged(j)
		}
		l.removed(q.jobs)
		if q.acknowledged != nil {
			q.acknowledged()
		}
	}
	l.trace.Say("c%d hears of its %v", c.id, q.cmd)
	return n
}

// grabbed checks the answer to a GRAB_JOB; false: the answer is no job.
func (l *Ledger) grabbed(c *Conn, q *Request, body []byte) bool {
	is := func(cmd periodic.Command) bool { return len(body) == 1 && body[0] == byte(cmd) }
	switch {
	case l.acksGrabs(c) && !q.acked:
		if !is(periodic.Success) {
			l.trace.Fail("c%d is sent %x for a GRAB_JOB that was not acknowledged", c.id, body)
		}
		c.requests[q.id], q.acked = q, true
		return false
	case is(periodic.NoJob):
		l.checkNoJob(c)
		return false
	case len(body) == 0 || body[0] != byte(periodic.JobAssign):
		l.trace.Fail("c%d is sent %x for a GRAB_JOB", c.id, body)
	}
	_, j, err := wire.Assigned(c.framing(), body)
	if err != nil {
		l.trace.Fail("c%d is sent %v", c.id, err)
	}
	k := l.exactJobOf(j.Workload, "an assignment")
	run := l.begun(c, k)
	if c.slow && q.turn < l.turn && k.queue != broadcastQueue {
		l.assignedLate(c, k, q)
		return true
	}
	k.run = run
	l.checkAssigned(c, k, &j)
	if k.queue == broadcastQueue {
		l.sent(c, k, q.turn)
	} else {
		if !l.serving(c, k.queue) {
			l.trace.Fail("c%d is given %v of q%d, which it does not do", c.id, k, k.queue)
		}
		l.assigned(c, k, string(j.Func), string(j.Name))
	}
	return true
}

// checkResult checks the answer to a RUN_JOB.
func (l *Ledger) checkResult(c *Conn, q *Request, body []byte) {
	j := q.job
	if c.framing() == periodic.CRC && l.setup.era != "2019-02" {
		if len(body) == 1 && body[0] == byte(periodic.NoWorker) {
			l.trace.Say("c%d hears that nobody does %v", c.id, j)
			j.owner = nil
			l.end(j)
			return
		}
		if len(body) == 0 || body[0] != byte(periodic.Data) {
			l.trace.Fail("c%d is sent %x as a result", c.id, body)
		}
		body = body[1:]
	}
	l.trace.Say("c%d has the result %s of %v", c.id, brief(body), j)
	if j.owner != c {
		l.trace.Fail("c%d is sent a result of %v, which it does not wait for", c.id, j)
	}
	j.owner = nil
	l.results++
	if l.today(c.framing()) && string(body) == "expired" {
		l.expired(c, q)
		return
	}
	failed, removed, failEnds := l.ends(c)
	for k := j; k != nil; k = k.next {
		if slices.Contains(k.results, string(body)) || failEnds && string(body) == failed && k.returned > 0 || string(body) == removed && k.now != sure && k.next == nil {
			return
		}
	}
	l.trace.Fail("c%d is sent %q as the result of %v, of which workers said %q", c.id, brief(body), j, j.results)
}

// expires is the Mono at which a RUN_JOB of the era of 2026 expires.
func (l *Ledger) expires(q *Request) int64 {
	limit := q.job.timeout
	if limit == 0 {
		limit = 60_000
	}
	return q.at + limit + grace
}

// expired notes that a RUN_JOB has expired: its job is removed, unless a later submission has replaced it.
func (l *Ledger) expired(c *Conn, q *Request) {
	if now := l.clock().Mono; now < l.expires(q) {
		l.trace.Fail("the RUN_JOB of %v by c%d expires %d ms early", q.job, c.id, l.expires(q)-now)
	}
	switch j := q.job; {
	case j.next == nil:
		l.end(j)
	case j.now != gone:
		l.doubt(j)
	}
}

// noteExpired notes, when time has passed, the RUN_JOBs that may have expired without an answer that their peer reads.
func (l *Ledger) noteExpired() {
	for _, c := range l.net.conns {
		if !l.today(c.framing()) || !c.slow && !c.peer.Broken {
			continue
		}
		for _, q := range c.requests {
			if q.cmd == periodic.RunJob && !q.refused && q.job.owner == c && q.job.now != gone && l.clock().Mono >= l.expires(q) {
				l.doubt(q.job)
			}
		}
	}
}

// checkExpired checks, when time has passed, that every RUN_JOB that is due to expire has; the server looks every second.
func (l *Ledger) checkExpired() {
	for _, c := range l.net.conns {
		if !l.today(c.framing()) || c.gloom() || c.slow || c.peer.Broken || c.peer.Closed() {
			continue
		}
		for _, q := range c.requests {
			if q.cmd == periodic.RunJob && !q.refused && l.clock().Mono > l.expires(q)+2000 {
				l.trace.Fail("the RUN_JOB of %v by c%d does not expire", q.job, c.id)
			}
		}
	}
}

// ends are the results that a RUN_JOB of c gets when its job fails and when it is removed, and whether a failure ends it.
func (l *Ledger) ends(c *Conn) (failed, removed string, failEnds bool) {
	if c.framing() == periodic.CRC && l.setup.era >= "2023" {
		return "failed", "removed", true
	}
	return "", "", c.framing() == periodic.CRC && l.setup.era != "2019-02"
}

// read has the peer read up to n bytes, and notes the jobs that it is assigned.
func (s *Simulator) read(c *Conn, n int) {
	c.heard = append(c.heard, c.peer.ReadUpTo(n)...)
	for len(c.heard) > 0 {
		if c.gloom() {
			payload, n, _ := gloom.Next(c.heard, 1<<20)
			if n == 0 {
				return
			}
			c.heard = c.heard[n:]
			var r gloom.Reply
			if gloom.ParseReply(payload, &r) == nil && r.Action != nil {
				c.held = append(c.held, heldJob{job: s.ledger.jobOf(r.Body, "a job"), run: c.hears()})
			}
			continue
		}
		var r periodic.Response
		n, _ := periodic.NextResponse(c.heard, c.framing(), periodic.MaxPayload, &r)
		if n == 0 {
			return
		}
		c.heard = c.heard[n:]
		if !c.met {
			c.met = true
		} else if len(r.Body) > 1 && r.Body[0] == byte(periodic.JobAssign) {
			handle, j, _ := wire.Assigned(c.framing(), r.Body) // the ledger has decoded it, too
			c.held = append(c.held, heldJob{s.ledger.jobOf(j.Workload, "a job"), c.hears(), handle, r.MsgID})
			c.grabs--
		} else if len(r.Body) == 2 && r.Body[0] == byte(periodic.Acquired) {
			if r.Body[1] == 1 {
				c.held = append(c.held, c.asking[r.MsgID])
			}
			delete(c.asking, r.MsgID)
		} else if len(r.Body) == 1 && r.Body[0] == byte(periodic.NoJob) {
			c.grabs--
		}
	}
}

func later(seconds int64, step uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, uint64(seconds)), step)
}
