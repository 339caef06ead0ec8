package periodic

import (
	"encoding/binary"
	"sync/atomic"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// conversation speaks the Periodic protocol with one client or worker.
type conversation struct {
	p         *Protocol
	s         *protocol.Session
	framing   codec.Framing
	crc       *wireVersion  // the listener's version, for peers of the CRC framing
	version   *wireVersion  // the version of the replies
	roles     uint8         // byClient, byWorker and byCRC; 0 until the handshake
	acksGrabs bool          // SUCCESS answers each GRAB_JOB
	load      *load         // a LOAD under way
	omitted   omittedCounts // by the last DUMP
	backlog   backlog       // jobs broadcast while the worker slept
	last      outcomes      // of the last requests
	pending   *pendingRuns  // RUN_JOBs that may expire; nil until the first
}

var _ interface {
	protocol.Conversation
	protocol.Sized
	protocol.Sweeper
} = (*conversation)(nil)

// Consume implements protocol.Conversation: it handles the handshake and all whole frames of in, and returns their
// bytes.
func (c *conversation) Consume(in []byte) (n int, err error) {
	if c.roles == 0 {
		if n, err = c.handshake(in); n == 0 {
			return 0, err
		}
	}
	var f codec.Frame
	for n < len(in) && !c.s.PauseIfCostly() {
		if c.load != nil {
			k, err := c.load.consume(c, in[n:])
			if n += k; k == 0 || err != nil {
				return n, err
			}
			continue
		}
		k, err := codec.Next(in[n:], c.framing, c.p.limits.MaxFrame, &f)
		if k == 0 {
			return n, err
		}
		n += k
		c.s.Loop.Frames[c.s.ProtocolID]++
		c.handle(&f)
		if c.s.FlushLarge() {
			break
		}
	}
	return n, nil
}

// Need implements protocol.Sized.
func (c *conversation) Need(in []byte) int {
	switch {
	case c.roles == 0:
		return len(in) + 1 // a handshake has a few bytes
	case c.load != nil:
		return c.load.need(in)
	}
	return max(codec.Need(in, c.framing), len(in)+1)
}

// IdleLimit implements protocol.Conversation.
func (c *conversation) IdleLimit() int64 {
	if c.load != nil { // the message has not ended
		return c.p.limits.FrameTimeout.Milliseconds()
	}
	if c.roles != 0 && c.version.config2026 {
		return c.p.config.keepalive2026.Load()
	}
	return c.p.config.keepalive.Load()
}

// Sweep implements protocol.Sweeper: it ends the RUN_JOBs that have expired.
func (c *conversation) Sweep(budget int) int {
	now := c.s.Loop.Now.Mono
	if c.pending == nil {
		return budget
	}
	for ; budget > 0 && len(c.pending.next) > 0 && c.pending.next[0].expires <= now; budget-- {
		r := c.pending.next[0]
		c.pending.remove(r.id)
		c.p.sched.TimeOutAwait(c.s.Loop.Now, c.s.Peer(), uint64(r.id), Space, r.queue, r.name, c.s.Loop.Sink)
	}
	return budget
}

// Closed implements protocol.Conversation.
func (c *conversation) Closed() { c.s.Loop.Backlog -= c.backlog.size }

// handshake reads the handshake and answers with the connection's id.
func (c *conversation) handshake(in []byte) (int, error) {
	var h codec.Hello
	n, err := codec.NextHello(in, &h)
	if err == codec.ErrMagic {
		return 0, identify(in)
	}
	if n == 0 {
		return 0, err
	}
	// This server checks no tokens, so a role with a name and a token equals the plain role.
	switch h.Role {
	case codec.AuthClient:
		h.Role = codec.Client
	case codec.AuthWorker:
		h.Role = codec.Worker
	}
	c.framing, c.version, c.roles = h.Framing, &plainVersion, 1<<h.Role
	if h.Framing == codec.CRC {
		c.s.Capabilities = sched.NameOnly
		c.version, c.roles = c.crc, byClient|byWorker|byCRC
		// Workers of 2026 start no job without this SUCCESS. go-periodic's workers up to early 2023 stop after ten
		// unexpected replies; they register as clients. No client needs it.
		c.acksGrabs = c.version.acksWorkers && h.Role == codec.Worker
	}
	if c.s.Role = protocol.RoleClient; h.Role == codec.Worker {
		c.s.Role = protocol.RoleWorker
	}
	c.s.HandshakeDone = true
	c.s.OpenOut()
	if id := c.s.ConnectionID; c.version.dataReports {
		c.s.Out = codec.AppendHelloReplyData(c.s.Out, id)
	} else {
		c.s.Out = codec.AppendHelloReply(c.s.Out, c.framing, id)
	}
	return n, nil
}

// The bits of conversation.roles, and of the roles that may send a command. A connection of the plain
// framing has the one bit of its handshake. A connection of the CRC framing has all three.
const (
	byClient = 1 << codec.Client
	byWorker = 1 << codec.Worker
	byCRC    = 1 << 7
)

var allowed = [256]uint8{
	codec.Ping:       byClient | byWorker,
	codec.SubmitJob:  byClient,
	codec.RunJob:     byClient,
	codec.Status:     byClient,
	codec.DropFunc:   byClient,
	codec.RemoveJob:  byClient,
	codec.Dump:       byClient,
	codec.Load:       byClient,
	codec.Shutdown:   byClient,
	codec.ConfigGet:  byClient,
	codec.ConfigSet:  byClient,
	codec.GrabJob:    byWorker,
	codec.SchedLater: byWorker,
	codec.WorkDone:   byWorker,
	codec.WorkFail:   byWorker,
	codec.CanDo:      byWorker,
	codec.CantDo:     byWorker,
	codec.Sleep:      byWorker,
	codec.Broadcast:  byWorker,

	codec.Acquire:       byCRC,
	codec.Release:       byCRC,
	codec.RecvData:      byCRC,
	codec.WorkData:      byCRC,
	codec.JobAssigned:   byCRC,
	codec.JobUnassigned: byCRC,
}

// handle handles one request. A handler returns false when the arguments are truncated; UNKNOWN answers that.
func (c *conversation) handle(f *codec.Frame) {
	if allowed[f.Cmd]&c.roles == 0 {
		c.answerCommand(f)
		return
	}
	ok := true
	switch f.Cmd {
	case codec.SubmitJob:
		ok = c.submit(f, false)
	case codec.GrabJob:
		c.grab(f.MsgID)
	case codec.WorkDone:
		ok = c.workDone(f)
	case codec.RunJob:
		ok = c.submit(f, true)
	case codec.WorkFail:
		ok = c.workFail(f)
	case codec.SchedLater:
		ok = c.schedLater(f)
	case codec.CanDo, codec.CantDo, codec.Broadcast:
		ok = c.handleWatch(f)
	case codec.Sleep:
		c.sleep(f.MsgID)
	case codec.Ping:
		c.reply(f.MsgID, codec.Pong)
	case codec.Acquire:
		ok = c.acquire(f)
	case codec.Release:
		ok = c.release(f)
	case codec.WorkData:
		ok = c.workData(f)
	case codec.RecvData:
		ok = c.recvData(f)
	case codec.JobUnassigned:
		_ = c.p.sched.ReleaseNewest(c.s.Loop.Now, c.s.Peer(), uint64(f.MsgID), c.s.Loop.Sink)
	case codec.JobAssigned: // it has no effect
	default:
		ok = c.handleAdmin(f)
	}
	if !ok {
		c.answerError(f.MsgID, codec.ReasonMalformed, &c.p.truncated)
	}
}

// answerCommand answers a command that the peer's role does not allow, or that is unknown. It skips the jobs of a LOAD.
func (c *conversation) answerCommand(f *codec.Frame) {
	switch {
	case f.Cmd == codec.Load:
		c.p.wrongRole.Add(1)
		c.beginLoad(f, true)
	case allowed[f.Cmd]&(byClient|byWorker) == 0:
		c.answerError(f.MsgID, codec.ReasonRole, &c.p.unknownCommands)
	default:
		c.answerError(f.MsgID, codec.ReasonRole, &c.p.wrongRole)
	}
}

// reply sends a response without arguments.
func (c *conversation) reply(msgID uint32, cmd codec.Command) {
	c.s.OpenOut()
	c.s.Out = codec.AppendReply(c.s.Out, c.framing, msgID, cmd)
}

// replyWith sends a response with arguments.
func (c *conversation) replyWith(msgID uint32, cmd codec.Command, args ...byte) {
	c.s.OpenOut()
	start := len(c.s.Out)
	out := codec.AppendMessage(codec.BeginResponse(c.s.Out, c.framing), msgID, cmd)
	out = append(out, args...)
	codec.End(out, start, c.framing)
	c.s.Out = out
}

// acknowledge replies once the last change in a queue is durable.
func (c *conversation) acknowledge(msgID uint32, cmd codec.Command, queue []byte) {
	group, wait := c.p.host.CommitGroup(queue)
	c.replyAfter(msgID, cmd, group, wait)
}

func (c *conversation) replyAfter(msgID uint32, cmd codec.Command, group uint64, wait bool) {
	if !wait {
		c.reply(msgID, cmd)
		return
	}
	loop := c.s.Loop
	loop.Scratch = codec.AppendReply(loop.Scratch[:0], c.framing, msgID, cmd)
	c.s.SendAfterCommit(group, loop.Scratch)
}

// answerError answers a request that is wrong in itself, and counts it.
func (c *conversation) answerError(msgID uint32, why codec.Reason, errors *atomic.Uint64) {
	errors.Add(1)
	c.answerUnknown(msgID, why)
}

// refuse answers a request that a limit, a policy or a setting forbids.
func (c *conversation) refuse(msgID uint32, why codec.Reason) {
	c.p.host.CountRefusal(name, serverReasons[why])
	c.answerUnknown(msgID, why)
}

func (c *conversation) answerUnknown(msgID uint32, why codec.Reason) {
	c.last.refused = why
	c.reply(msgID, codec.Unknown)
}

// Deliver implements protocol.Conversation.
func (c *conversation) Deliver(d *sched.Delivery) {
	msgID := uint32(d.Tag)
	if c.pending != nil {
		c.pending.answered(d.Effect, msgID)
	}
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		c.s.Assigned = true
		c.assign(msgID, &d.Job)
	case sched.WakeWith:
		c.pushBacklog(&d.Job)
		fallthrough
	case sched.Wake:
		c.s.Out = codec.AppendReply(c.s.Out, c.framing, msgID, codec.Noop)
	case sched.Result:
		c.data(msgID, c.version.dataResults, d.Data)
	case sched.Removed:
		c.last.jobRemoved = msgID
		c.data(msgID, c.version.dataResults, c.version.removed)
	case sched.Failed:
		c.last.failed = msgID
		c.data(msgID, c.version.dataResults, c.version.failed)
	case sched.AwaitTimedOut:
		c.last.failed = msgID
		c.data(msgID, c.version.dataResults, resultExpired)
	case sched.Chunk:
		c.s.Assigned = true
		c.data(msgID, true, d.Data)
	case sched.End:
		c.data(msgID, true, endOfData)
	case sched.Proceed:
		c.reply(msgID, codec.Success)
	}
}

// data encodes the message id, the command DATA where the version has it, and the bytes.
func (c *conversation) data(msgID uint32, command bool, data []byte) {
	start := len(c.s.Out)
	out := codec.BeginResponse(c.s.Out, c.framing)
	out = binary.BigEndian.AppendUint32(out, msgID)
	if command {
		out = append(out, byte(codec.Data))
	}
	out = append(out, data...)
	codec.End(out, start, c.framing)
	c.s.Out = out
}
