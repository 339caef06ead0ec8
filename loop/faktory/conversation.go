package faktory

import (
	"bytes"
	"crypto/subtle"
	"io"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/sched"
)

var (
	replyOK   = codec.AppendOK(nil)
	replyNull = codec.AppendNull(nil)
)

// conversation speaks the protocol with one client.
type conversation struct {
	p       *Protocol
	s       *protocol.Session
	scanned int // bytes of the unfinished line, which has no LF

	greeted    bool // HELLO was accepted
	salt       string
	iterations int
	worker     *worker // its process; nil: it has none
	secret     uint64  // of the leases of its jobs

	watched  map[string]uint32 // the queues that it watches, each with the number of the last FETCH that named it
	fetches  uint32            // the number of the last FETCH
	fetching bool              // a FETCH waits for its answer
	idle     bool              // it waits for no job, only for the time to pass

	offloaded *offloadWork // a command that is handled off the event loop, or nil
}

var _ interface {
	protocol.Conversation
	protocol.Delimited
	protocol.Sweeper
	protocol.Alarmed
	protocol.Quieted
} = (*conversation)(nil)

// Consume implements protocol.Conversation.
func (c *conversation) Consume(in []byte) (n int, err error) {
	for n < len(in) && !c.fetching && !c.s.PauseIfCostly() {
		line, k, err := codec.Next(in[n:], c.scanned, c.p.limits.MaxFrame)
		c.scanned = 0
		if err != nil {
			c.answerError("a line is longer than --max-frame")
			return n, err
		}
		if k == 0 {
			c.scanned = len(in) - n
			break
		}
		if !c.greeted {
			if err := c.handshake(in, n, line); err != nil || !c.greeted {
				return n, err
			}
		} else if handled, err := c.handle(in, n, line); err != nil || !handled {
			return n, err
		}
		n += k
		c.s.Loop.Frames[c.s.ProtocolID]++
		if c.s.FlushLarge() {
			break
		}
	}
	return n, nil
}

// Rest implements protocol.Delimited.
func (c *conversation) Rest(in []byte) int {
	if i := bytes.IndexByte(in, '\n'); i >= 0 {
		return i + 1
	}
	return len(in)
}

// IdleLimit implements protocol.Conversation. Producers may be silent for ever; see Sweep for workers.
func (c *conversation) IdleLimit() int64 { return 0 }

// Sweep implements protocol.Sweeper. It ends the connections of a worker process without a BEAT.
func (c *conversation) Sweep(budget int) int {
	if w := c.worker; w != nil && c.s.Loop.Now.Mono-w.lastBeat.Load() > beatLimit {
		c.s.End(errNoBeat)
	}
	return budget
}

// Alarm implements protocol.Alarmed: it answers a FETCH that has waited long enough. A job that is on its way answers
// it instead.
func (c *conversation) Alarm() {
	if c.fetching && (c.idle || c.p.sched.StopReserve(c.s.Peer(), fetchTag)) {
		c.endFetch(replyNull)
	}
}

// Quiet implements protocol.Quieted. The reply to the next BEAT of the worker process tells it.
func (c *conversation) Quiet(end bool) bool {
	switch {
	case c.worker == nil:
		return false
	case end:
		c.worker.advance(terminate)
	default:
		c.worker.advance(quiet)
	}
	return true
}

// Closed implements protocol.Conversation.
func (c *conversation) Closed() {
	c.p.connections.Add(-1)
	if c.worker != nil {
		c.p.workers.leave(c.worker)
	}
}

// maxWorkerID bounds the bytes of the id of a worker process.
const maxWorkerID = sched.MaxWorkerName - len(name) - 1

// handshake handles the first line, which is at in[at:]. It leaves greeted false while the password is checked
// off the event loop.
func (c *conversation) handshake(in []byte, at int, line []byte) error {
	if c.p.password != "" && c.offloaded == nil {
		c.offload(in, at, func(b *offloadWork) {
			h, err := codec.ParseHello(line)
			if b.hello = h; err != nil {
				return
			}
			iterations := c.iterations
			if h.Version < codec.Version { // clients of the first version hash once
				iterations = 1
			}
			want := codec.Hash(c.p.password, c.salt, iterations)
			b.proved = subtle.ConstantTimeCompare([]byte(h.Password), []byte(want)) == 1
		})
		return nil
	}
	var h *codec.Hello
	if b := c.offloaded; b != nil {
		if !b.done {
			return nil
		}
		if c.offloaded, h = nil, b.hello; h != nil && !b.proved {
			c.answerError(errPassword.Error())
			return errPassword
		}
	} else {
		h, _ = codec.ParseHello(line)
	}
	if h == nil {
		return codec.ErrHello
	}
	c.greet(h)
	return nil
}

// greet accepts a client.
func (c *conversation) greet(h *codec.Hello) {
	c.greeted, c.s.HandshakeDone = true, true
	c.s.Role = protocol.RoleClient
	who := name
	if id := h.Worker; id != "" {
		id = id[:min(len(id), maxWorkerID)]
		c.s.Role, who = protocol.RoleWorker, name+" "+id
		c.worker = c.p.workers.join(id, c.s.Loop.Now.Mono)
	} else if remote := c.s.Remote(); remote != "" {
		who = name + " " + remote
	}
	c.s.Peer().LeaseTo(sched.LeaseTerms{Worker: who, Secret: c.secret, For: codec.DefaultReserveFor * 1000})
	c.s.Reply(replyOK)
}

// command is how a command is handled.
type command struct {
	handle func(c *conversation, text []byte)                        // on the event loop; nil: never, it looks at all jobs or queues
	run    func(p *Protocol, text []byte, sink protocol.Sink) []byte // off the event loop, returns the reply; nil: it has no large line
	reads  bool                                                      // it changes nothing: its reply does not wait for the journal
}

// commands are the commands of a client that was greeted, beside END.
var commands = map[string]command{
	"PUSH":   {handle: (*conversation).push, run: (*Protocol).push},
	"PUSHB":  {handle: (*conversation).pushBulk, run: (*Protocol).pushBulk},
	"FETCH":  {handle: (*conversation).fetch},
	"ACK":    {handle: (*conversation).ack},
	"FAIL":   {handle: (*conversation).fail},
	"BEAT":   {handle: (*conversation).beat},
	"TRACK":  {handle: (*conversation).track},
	"INFO":   {run: (*Protocol).info, reads: true},
	"FLUSH":  {run: (*Protocol).flush},
	"MUTATE": {run: (*Protocol).mutate},
	"QUEUE":  {run: (*Protocol).changeQueues},
	"BATCH":  {handle: (*conversation).batch},
}

// handle handles one line. handled is false when it is handled off the event loop, or has to come again.
func (c *conversation) handle(in []byte, at int, line []byte) (handled bool, err error) {
	word, text := codec.Cut(line)
	command, known := commands[string(word)]
	if c.offloaded != nil || len(line) > largeLine || known && command.handle == nil {
		return c.runCommand(in, at, word, text), nil
	}
	c.p.commands.Add(1)
	switch {
	case known:
		command.handle(c, text)
	case string(word) == "END":
		return true, io.EOF // as when the client had closed the connection
	default:
		c.answerError("unknown command " + shortText(word))
	}
	return true, nil
}

// batch answers a BATCH.
func (c *conversation) batch([]byte) {
	c.answerError("BATCH is not supported: use several jobs, or a job that submits jobs")
}

// replyBulk sends a reply of any bytes.
func (c *conversation) replyBulk(data []byte) {
	if !c.s.HasPendingAcks() {
		c.s.OpenOut()
		c.s.EnsureRoom(len(data) + bulkRoom)
		c.s.Out = codec.AppendBulk(c.s.Out, data)
		return
	}
	c.s.SendAfterCommit(0, codec.AppendBulk(nil, data))
}

// bulkRoom is the bytes of a bulk reply beside its data.
const bulkRoom = 32

// acknowledge sends a reply once the last change in a queue is durable.
func (c *conversation) acknowledge(queue, reply []byte) {
	group, wait := c.p.host.CommitGroup(queue)
	c.s.ReplyAfter(group, wait, reply)
}

// acknowledgeAll sends a reply once the last changes in all queues are durable.
func (c *conversation) acknowledgeAll(reply []byte) {
	group, wait := c.p.host.CommitGroupAll()
	c.s.ReplyAfter(group, wait, reply)
}

// answerError answers a command that is wrong in itself, and counts it.
func (c *conversation) answerError(text string) { c.s.Reply(c.p.errorReply(text)) }

// refuse answers a command that a limit or a policy forbids, or whose job is wrong.
func (c *conversation) refuse(err error) { c.s.Reply(c.p.refusal(err)) }

// errorReply returns the reply of answerError. It may run off the event loop, as refusal.
func (p *Protocol) errorReply(text string) []byte {
	p.errors.Add(1)
	return codec.AppendError(nil, codeError, text)
}

// refusal returns the reply of refuse.
func (p *Protocol) refusal(err error) []byte {
	code, text := p.explain(err)
	return codec.AppendError(nil, code, text)
}

// Deliver implements protocol.Conversation.
func (c *conversation) Deliver(d *sched.Delivery) {
	if d.Effect != sched.Assign && d.Effect != sched.Broadcast {
		return
	}
	c.s.Assigned, c.fetching = true, false
	c.s.Alarm(0)
	c.assign(d)
	c.s.Resume()
}
