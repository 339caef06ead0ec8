package periodic

import (
	"encoding/binary"
	"math"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// conversation is a conversation in the Periodic protocol, protocols/periodic.md:
// one client or worker.
type conversation struct {
	p       *Protocol
	s       *protocol.Session
	framing codec.Framing
	crc     *era     // that of its listener, in the CRC framing
	era     *era     // what replies look like
	may     uint8    // the commands it may send, 0 until the handshake
	acked   bool     // SUCCESS answers its GRAB_JOBs
	load    *load    // a LOAD under way
	left    leftOut  // of its last DUMP
	kept    kept     // what was broadcast to it while it slept
	last    outcomes // of its requests
	runs    *runs    // RUN_JOBs that expire, nil: it has had none
}

func (c *conversation) Consume(in []byte) (n int, err error) {
	if c.may == 0 {
		if n, err = c.greet(in); n == 0 {
			return 0, err
		}
	}
	var f codec.Frame
	for n < len(in) && !c.s.Pause() {
		if c.load != nil {
			k, err := c.load.consume(c, in[n:])
			if n += k; k == 0 || err != nil {
				return n, err
			}
			continue
		}
		k, err := codec.Next(in[n:], c.framing, c.p.o.MaxFrame, &f)
		if k == 0 {
			return n, err
		}
		n += k
		c.handle(&f)
		if c.s.Congested() {
			break
		}
	}
	return n, nil
}

func (c *conversation) Need(in []byte) int {
	switch {
	case c.may == 0:
		return len(in) + 1 // a handshake is a few bytes
	case c.load != nil:
		return c.load.need(in)
	}
	return max(codec.Need(in, c.framing), len(in)+1)
}

func (c *conversation) IdleLimit() int64 {
	if c.load != nil { // between two jobs of it, and so in the middle of a message
		return c.p.o.FrameTimeout.Milliseconds()
	}
	if c.may != 0 && c.era.today {
		return c.p.config.today.Load()
	}
	return c.p.config.keepalive.Load()
}

func (c *conversation) Closed() { c.s.Loop.Kept -= c.kept.size }

// greet takes the handshake and answers with the connection's id: the slot and the
// low bits of the generation, which is unique among open connections.
func (c *conversation) greet(in []byte) (int, error) {
	var h codec.Hello
	n, err := codec.NextHello(in, &h)
	if err == codec.ErrMagic {
		return 0, stranger(in)
	}
	if n == 0 {
		return 0, err
	}
	// Without rights a client or worker with a name and a token is one without.
	switch h.Role {
	case codec.AuthClient:
		h.Role = codec.Client
	case codec.AuthWorker:
		h.Role = codec.Worker
	}
	c.framing, c.era, c.may = h.Framing, &plainEra, 1<<h.Role
	if h.Framing == codec.CRC {
		c.s.Skills = sched.Named
		c.era, c.may = c.crc, byClient|byWorker|byCRC
		// Workers of 2026 start no job without it. Those of go-periodic, up to early 2023, stop after ten replies that
		// they do not wait for, and register as clients; no client needs it.
		c.acked = c.era.acksWorkers && h.Role == codec.Worker
	}
	c.s.Settled = true
	c.s.Touch()
	if id := c.s.Number; c.era.dataReports {
		c.s.Out = codec.AppendHelloReplyData(c.s.Out, id)
	} else {
		c.s.Out = codec.AppendHelloReply(c.s.Out, c.framing, id)
	}
	return n, nil
}

// Which role may send which command; a server's own commands are nobody's. In the
// CRC framing every connection is client and worker in one, and has more commands.
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

// handle does one request. Whatever can't be done is answered with UNKNOWN.
func (c *conversation) handle(f *codec.Frame) {
	c.s.Loop.Frames++
	if allowed[f.Cmd]&c.may == 0 {
		c.refuseCommand(f)
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
		ok = c.serve(f)
	case codec.Sleep:
		c.sleep(f.MsgID)
	case codec.Ping:
		c.reply(f.MsgID, codec.Pong)
	case codec.Acquire, codec.Release, codec.RecvData, codec.WorkData, codec.JobAssigned, codec.JobUnassigned:
		ok = c.crcOnly(f)
	default:
		ok = c.administer(f)
	}
	if !ok {
		c.last.refused = codec.ReasonMalformed
		c.p.truncated.Add(1)
		c.reply(f.MsgID, codec.Unknown)
	}
}

func (c *conversation) refuseCommand(f *codec.Frame) {
	if allowed[f.Cmd]&(byClient|byWorker) == 0 {
		c.p.unknownCommands.Add(1)
	} else {
		c.p.wrongRole.Add(1)
	}
	if f.Cmd == codec.Load { // its arguments still have to be read past
		c.beginLoad(f, true)
		return
	}
	c.last.refused = codec.ReasonRole
	c.reply(f.MsgID, codec.Unknown)
}

// reply sends a response without arguments.
func (c *conversation) reply(msgID uint32, cmd codec.Command) {
	c.s.Touch()
	c.s.Out = codec.AppendReply(c.s.Out, c.framing, msgID, cmd)
}

// acknowledge replies once what the request changed in a queue is durable.
func (c *conversation) acknowledge(msgID uint32, cmd codec.Command, queue []byte) {
	group, wait := c.p.host.Durable(queue)
	c.replyAfter(msgID, cmd, group, wait)
}

func (c *conversation) replyAfter(msgID uint32, cmd codec.Command, group uint64, wait bool) {
	if !wait {
		c.reply(msgID, cmd)
		return
	}
	loop := c.s.Loop
	loop.Scratch = codec.AppendReply(loop.Scratch[:0], c.framing, msgID, cmd)
	c.s.After(group, loop.Scratch)
}

// refuse answers a request that a limit or a setting forbids.
func (c *conversation) refuse(msgID uint32, why codec.Reason) {
	c.p.refused(why)
	c.last.refused = why
	c.reply(msgID, codec.Unknown)
}

// Deliver implements protocol.Conversation.
func (c *conversation) Deliver(d *sched.Delivery) {
	msgID := uint32(d.Tag)
	if c.runs != nil {
		c.runs.ended(d.Effect, msgID)
	}
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		c.s.Given = true
		c.assign(msgID, &d.Job)
	case sched.WakeWith:
		c.keep(&d.Job)
		fallthrough
	case sched.Wake:
		c.s.Out = codec.AppendReply(c.s.Out, c.framing, msgID, codec.Noop)
	case sched.Result:
		c.data(msgID, c.era.dataResults, d.Data)
	case sched.Removed:
		c.last.gone = msgID
		c.data(msgID, c.era.dataResults, c.era.removed)
	case sched.Failed:
		c.last.failed = msgID
		c.data(msgID, c.era.dataResults, c.era.failed)
	case sched.Expired:
		c.last.failed = msgID
		c.data(msgID, c.era.dataResults, resultExpired)
	case sched.Chunk:
		c.s.Given = true
		c.data(msgID, true, d.Data)
	case sched.End:
		c.data(msgID, true, endOfData)
	case sched.Proceed:
		c.reply(msgID, codec.Success)
	}
}

// assign encodes JOB_ASSIGN: the handle, then the Job record. In the CRC eras there
// is no handle, and the record says what the server fills in: when, and how long.
func (c *conversation) assign(msgID uint32, j *sched.Job) {
	start := len(c.s.Out)
	c.s.Room(len(j.Workload))
	out := codec.BeginResponse(c.s.Out, c.framing)
	out = codec.AppendMessage(out, msgID, codec.JobAssign)
	schedAt, count, timeout, workload := j.SchedAt, j.Count, j.Timeout, j.Workload
	if c.framing == codec.Plain {
		out = appendHandle(out, j.Run())
	}
	switch space := &c.s.Loop.Spaces[j.Space]; {
	case space.Bare:
		schedAt, count, timeout = 0, 0, 0
		c.s.Loop.Scratch = space.Text(c.s.Loop.Scratch[:0], j)
		workload = c.s.Loop.Scratch
	case c.framing == codec.CRC:
		if schedAt == 0 {
			schedAt = c.s.Loop.Now.Wall / 1000
		}
		if timeout == 0 {
			timeout = int32(min(c.p.config.timeout.Load(), math.MaxInt32))
		}
	}
	out = appendFunction(out, j.Queue)
	out = codec.AppendStr8(out, j.Name)
	out = codec.AppendStr32(out, workload)
	out = codec.AppendJobTail(out, schedAt, count, timeout)
	codec.End(out, start, c.framing)
	c.s.Out = out
}

// appendFunction appends a queue's name as the function that it is.
func appendFunction(out []byte, queue string) []byte {
	return codec.AppendStr8String(out, protocol.Unescape(queue))
}

// data encodes the message id and the bytes, with the command DATA between them
// where the era has it.
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

// A handle names a run of a job to its worker: a length byte and the run. A job that is handed out
// again has another handle, so that a late report ends no other run.
const (
	handleLen  = 2 + 4 + 8
	spaceShift = 12 // the space stands above the shard: maxShards has 12 bits, sched.MaxSpaces 4
)

func appendHandle(out []byte, run sched.Run) []byte {
	out = append(out, handleLen)
	out = binary.BigEndian.AppendUint16(out, run.Shard|uint16(run.Space)<<spaceShift)
	out = binary.BigEndian.AppendUint32(out, run.Slot)
	return binary.BigEndian.AppendUint64(out, run.Number)
}

// parseHandle reads a handle; ok is false when in ends inside it. One of another
// length names no run.
func parseHandle(in []byte) (run sched.Run, rest []byte, ok bool) {
	handle, rest, ok := codec.Str8(in)
	if !ok || len(handle) != handleLen {
		return noRun, rest, ok
	}
	where := binary.BigEndian.Uint16(handle)
	return sched.Run{
		Shard:  where & (1<<spaceShift - 1),
		Space:  sched.Space(where >> spaceShift),
		Slot:   binary.BigEndian.Uint32(handle[2:]),
		Number: binary.BigEndian.Uint64(handle[6:]),
	}, rest, true
}

// noRun is that of a job that the worker does not hold.
var noRun = sched.Run{Shard: math.MaxUint16}
