//go:build invariants

package fuzz

import (
	"encoding/binary"
	"fmt"
	"slices"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/loop"
)

// The kinds of the simulation's connections: those of a Periodic script, see periodicPeers.
// A peer of the CRC framing is client and worker in one.

// simConn is one connection: the peer on its far end, what is on its way there and back,
// and what the ledger sees pass at the server's door.
type simConn struct {
	id   int
	kind int
	peer *loop.OfflinePeer

	outgoing []byte // sent, not arrived
	passed   int    // bytes that have arrived
	marks    []mark // what is complete when so many have
	fin      bool   // nothing more is sent
	finished bool   // and all that was has arrived
	recent   []*simRequest
	reset    bool // it ends when nothing is under way
	slow     bool // it has read slowly: what it is sent may wait in the server

	written  []byte                 // at the server's door
	greeted  bool                   // the answer to the hello has passed
	requests map[uint32]*simRequest // arrived and not answered, by message id
	busy     bool                   // a slave has a job
	acks     []*simJob              // that a master has submitted, and has no answer to
	acked    *simJob                // the last that it was answered, and may yet hear more of
	joined   int                    // 1 + the turn in which it said last whose jobs it does
	odd      int                    // so much of what has arrived made no sense, and was not answered yet
	garbled  bool                   // the last that it sends is no frame

	heard []byte          // what the peer has read
	met   bool            // it has read the answer to its hello
	next  uint32          // message id
	grabs int             // outstanding
	tuned int             // 1 + the turn in which it asked for what is broadcast; 0: it has not
	does  [graph + 1]bool // the queues of which it does jobs
	quit  [graph + 1]int  // 1 + the turn in which it said that it does not any more
	kept  []*simJob       // what may be broadcast to it since it slept
	held  []heldJob
	runs  []*simRun // those of jobs that it was given, and that it has not reported
	told  []*simRun // those that it has yet to read of

	asking map[uint32]heldJob // for a lock, by message id
}

// heldJob is one that a peer has read of.
type heldJob struct {
	job    *simJob
	run    *simRun
	handle []byte
	tag    uint32 // of the GRAB_JOB
}

// mark is a request whose last byte is the one before at.
type mark struct {
	at      int
	request *simRequest
}

// simRequest is what the ledger has to know of a request: what its arrival does, and what
// its answer means.
type simRequest struct {
	id     uint32
	cmd    periodic.Command
	turn   int // in which it came
	group  int // of changes that what it does is in, at the latest
	job    *simJob
	loaded []*simJob // of a LOAD
	jobs   []*simJob // of a removal
	arrive func()
	silent bool  // nothing answers it
	acked  bool  // a GRAB_JOB whose SUCCESS has come
	at     int64 // Mono when a RUN_JOB came

	refused  bool // it came when the disk was full, or makes no sense
	doubtful bool // it came when the disk became full, or had room again

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

func (c *simConn) framing() periodic.Framing {
	if c.kind >= crcClient {
		return periodic.CRC
	}
	return periodic.Plain
}

func (c *simConn) gloom() bool  { return c.kind >= gloomMaster }
func (c *simConn) client() bool { return c.kind != plainWorker && !c.gloom() }
func (c *simConn) worker() bool { return c.kind != plainClient && !c.gloom() }

// named are the roles with a name and a token, which count as those without.
var named = map[int]periodic.Role{crcClient: periodic.AuthClient, crcWorker: periodic.AuthWorker}

// connect opens a connection of a kind, and says hello.
func (s *sim) connect(kind int) *simConn {
	s.made++
	c := &simConn{id: s.made, kind: kind, peer: s.server.Connect(periodicPorts[kind]), requests: map[uint32]*simRequest{}, asking: map[uint32]heldJob{}}
	c.peer.Written = func(b []byte) { s.written(c, b) }
	s.conns = append(s.conns, c)
	hello := periodicHellos()[kind]
	if role, ok := named[kind]; ok && s.rng.IntN(4) == 0 {
		hello = periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: role, Name: []byte("me"), Token: []byte("token")})
	}
	c.outgoing = append(c.outgoing, hello...)
	s.say("c%d opens as %d", c.id, kind)
	return c
}

// ask sends a request of the Periodic protocol.
func (c *simConn) ask(r *simRequest, args []byte) {
	c.next++
	c.askAs(c.next, r, args)
}

// askAs is ask under a message id.
func (c *simConn) askAs(id uint32, r *simRequest, args []byte) {
	r.id = id
	f := periodic.Frame{MsgID: r.id, Cmd: r.cmd}
	c.outgoing = append(c.outgoing, periodicRequest(&f, c.framing(), args)...)
	c.mark(r, 0)
}

// mark notes a request that ends before the last bytes of what has been sent.
func (c *simConn) mark(r *simRequest, before int) {
	c.marks = append(c.marks, mark{c.passed + len(c.outgoing) - before, r})
}

// tell is ask in the Gloom protocol.
func (c *simConn) tell(r *simRequest, frame []byte) {
	c.outgoing = append(c.outgoing, frame...)
	r.silent = true // which answer is whose is seen by its content
	c.mark(r, 0)
}

// deliver has n bytes of what was sent arrive.
func (s *sim) deliver(c *simConn, n int) {
	if c.peer.Closed() {
		return
	}
	n = min(n, len(c.outgoing))
	c.passed += n
	for len(c.marks) > 0 && c.marks[0].at <= c.passed {
		r := c.marks[0].request
		c.marks = c.marks[1:]
		c.recent = append(c.recent, r)
		r.turn, r.group = s.turn, s.group()
		if !r.silent {
			c.requests[r.id] = r
		}
		if r.arrive != nil {
			r.arrive()
		}
		s.mixed = true
	}
	chunk := slices.Clone(c.outgoing[:n])
	c.outgoing = c.outgoing[n:]
	c.peer.Feed(chunk)
	if len(c.outgoing) == 0 && c.fin && !c.garbled {
		s.parts(c)
	}
}

// reap forgets the connections that have ended. Of what had just arrived on one that the
// server ended, nobody knows whether it was read.
func (s *sim) reap() {
	s.conns = slices.DeleteFunc(s.conns, func(c *simConn) bool {
		if !c.peer.Closed() {
			c.recent = c.recent[:0]
			return false
		}
		s.say("c%d has ended", c.id)
		for _, r := range c.recent {
			if c.finished {
				break // all of it was
			}
			if r.chunk != nil {
				r.chunk.sure = false
			}
			for _, j := range append(r.jobs, r.job) {
				if j != nil && j.by != ofDwork {
					s.doubt(j)
				}
			}
		}
		s.left(c)
		if !c.reset {
			s.mayHaveHeld()
			s.misdated, s.behind = "", nil
		}
		return true
	})
}

// written takes what the server writes apart, at its door.
func (s *sim) written(c *simConn, b []byte) {
	c.written = append(c.written, b...)
	for len(c.written) > 0 {
		reply := s.periodicReply
		if c.gloom() {
			reply = s.gloomReply
		}
		n := reply(c)
		if n == 0 {
			return
		}
		c.written = c.written[n:]
	}
}

func (s *sim) periodicReply(c *simConn) int {
	var r periodic.Response
	n, err := periodic.NextResponse(c.written, c.framing(), periodic.MaxPayload, &r)
	if err != nil {
		s.fail("c%d is sent %x: %v", c.id, c.written, err)
	}
	if n == 0 || !c.greeted {
		c.greeted = c.greeted || n > 0
		return n
	}
	q := c.requests[r.MsgID]
	if q == nil {
		s.fail("c%d is sent %x for message %d, which it does not wait for", c.id, r.Body, r.MsgID)
	}
	delete(c.requests, r.MsgID)
	is := func(cmd periodic.Command) bool { return len(r.Body) == 1 && r.Body[0] == byte(cmd) }
	if q.refused != is(periodic.Unknown) && !q.doubtful {
		s.fail("c%d is sent %x for a %v, refused: %v", c.id, r.Body, q.cmd, q.refused)
	} else if is(periodic.Unknown) {
		s.say("c%d hears that its %v is refused", c.id, q.cmd)
		return n
	}
	switch q.cmd {
	case periodic.GrabJob:
		if s.acksGrabs(c) && !q.acked {
			if !is(periodic.Success) {
				s.fail("c%d is sent %x for a GRAB_JOB that was not acknowledged", c.id, r.Body)
			}
			c.requests[r.MsgID], q.acked = q, true
			return n
		}
		if is(periodic.NoJob) {
			s.noJob(c)
			return n
		}
		if len(r.Body) == 0 || r.Body[0] != byte(periodic.JobAssign) {
			s.fail("c%d is sent %x for a GRAB_JOB", c.id, r.Body)
		}
		_, j := takeAssign(c, r.Body)
		k := s.whole(j.Workload, "an assignment")
		run := s.begins(c, k)
		if c.slow && q.turn < s.turn && k.queue != broadcast {
			s.assignedLate(c, k, q)
			break
		}
		k.run = run
		s.assignedAs(c, k, &j)
		if k.queue == broadcast {
			s.sent(c, k, q.turn)
		} else {
			if !c.serving(s, k.queue) {
				s.fail("c%d is given %v of q%d, which it does not do", c.id, k, k.queue)
			}
			s.assigned(c, k, string(j.Func), string(j.Name))
		}
	case periodic.Sleep:
		s.wakes(c, r.Body, q.turn)
	case periodic.RunJob:
		s.result(c, q, r.Body)
	case periodic.Acquire:
		s.acquired(c, q, r.Body)
	case periodic.RecvData:
		if s.received(c, q, r.Body) {
			c.requests[r.MsgID] = q
		}
	case periodic.Status:
		if lines := statusLines(s.report(c.framing(), s.era, r.Body)); q.crowded {
			s.isCrowded(lines)
		}
	case periodic.Dump:
		s.dumped(q.turn, s.report(c.framing(), s.era, r.Body))
	case periodic.ConfigGet:
		s.isSetting(c, q, r.Body)
	case periodic.Ping:
		if !is(periodic.Pong) {
			s.fail("c%d is sent %x for a PING", c.id, r.Body)
		}
	default:
		if !is(periodic.Success) {
			s.fail("c%d is sent %x for a %v", c.id, r.Body, q.cmd)
		}
		if q.job != nil {
			s.acknowledged(q.job)
		}
		for _, j := range q.loaded {
			s.acknowledged(j)
		}
		s.removed(q.jobs)
		if q.acknowledged != nil {
			q.acknowledged()
		}
	}
	s.say("c%d hears of its %v", c.id, q.cmd)
	return n
}

// takeAssign takes a JOB_ASSIGN apart, into what names the job to the server and the job.
func takeAssign(c *simConn, body []byte) (handle []byte, j periodic.Job) {
	record := body[1:]
	if c.framing() == periodic.Plain {
		h, rest, _ := periodic.Str8(record)
		handle, record = periodic.AppendStr8(nil, h), rest
	}
	if _, err := periodic.ParseJob(record, &j); err != nil {
		panic(simFailure(fmt.Sprintf("c%d is assigned %x: %v", c.id, body, err)))
	}
	if c.framing() == periodic.CRC {
		handle = periodic.AppendStr8(periodic.AppendStr8(nil, j.Func), j.Name)
	}
	return handle, j
}

// result checks what a RUN_JOB is answered with.
func (s *sim) result(c *simConn, q *simRequest, body []byte) {
	j := q.job
	if c.framing() == periodic.CRC && s.era != "2019-02" {
		if len(body) == 1 && body[0] == byte(periodic.NoWorker) {
			s.say("c%d hears that nobody does %v", c.id, j)
			j.owner = nil
			s.end(j)
			return
		}
		if len(body) == 0 || body[0] != byte(periodic.Data) {
			s.fail("c%d is sent %x as a result", c.id, body)
		}
		body = body[1:]
	}
	s.say("c%d has the result %s of %v", c.id, brief(body), j)
	if j.owner != c {
		s.fail("c%d is sent a result of %v, which it does not wait for", c.id, j)
	}
	j.owner = nil
	s.results++
	if s.today(c.framing()) && string(body) == "expired" {
		s.expired(c, q)
		return
	}
	failed, removed, failEnds := s.ends(c)
	for k := j; k != nil; k = k.next {
		if slices.Contains(k.results, string(body)) || failEnds && string(body) == failed && k.returned > 0 || string(body) == removed && k.now != sure && k.next == nil {
			return
		}
	}
	s.fail("c%d is sent %q as the result of %v, of which workers said %q", c.id, brief(body), j, j.results)
}

// expires is when a RUN_JOB expires, where it does, by Mono.
func (s *sim) expires(q *simRequest) int64 {
	limit := q.job.timeout
	if limit == 0 {
		limit = 60_000
	}
	return q.at + limit + loop.DefaultGrace.Milliseconds()
}

// expired is the end of a RUN_JOB whose time is over. Its job goes, unless another submission has given it its values.
func (s *sim) expired(c *simConn, q *simRequest) {
	if now := s.server.Now().Mono; now < s.expires(q) {
		s.fail("the RUN_JOB of %v by c%d expires %d ms early", q.job, c.id, s.expires(q)-now)
	}
	switch j := q.job; {
	case j.next == nil:
		s.end(j)
	case j.now != gone:
		s.doubt(j)
	}
}

// unexpired checks, when time has passed, that no RUN_JOB is left whose time is over: they are looked at every second.
func (s *sim) unexpired() {
	for _, c := range s.conns {
		if !s.today(c.framing()) || c.gloom() || c.slow || c.peer.Broken || c.peer.Closed() {
			continue
		}
		for _, q := range c.requests {
			if q.cmd == periodic.RunJob && !q.refused && s.server.Now().Mono > s.expires(q)+2000 {
				s.fail("the RUN_JOB of %v by c%d does not expire", q.job, c.id)
			}
		}
	}
}

// ends are what a RUN_JOB of c ends with when its job has failed or was removed, and whether a failure ends it.
func (s *sim) ends(c *simConn) (failed, removed string, failEnds bool) {
	if c.framing() == periodic.CRC && s.era >= "2023" {
		return "failed", "removed", true
	}
	return "", "", c.framing() == periodic.CRC && s.era != "2019-02"
}

// read has the peer read n bytes, and notes the jobs it hears of.
func (s *sim) read(c *simConn, n int) {
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
				c.held = append(c.held, heldJob{job: s.known(r.Body, "a job"), run: c.hears()})
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
			handle, j := takeAssign(c, r.Body)
			c.held = append(c.held, heldJob{s.known(j.Workload, "a job"), c.hears(), handle, r.MsgID})
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
