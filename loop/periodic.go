package loop

import (
	"encoding/binary"
	"math"

	"treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// periodicSpace is the name space of jobs that came in by the Periodic protocol.
const periodicSpace sched.Space = 1

// periodicTalk is a conversation in the Periodic protocol, protocols/periodic.md:
// one client or worker.
type periodicTalk struct {
	s       *session
	framing periodic.Framing
	crc     *era     // that of its listener, in the CRC framing
	era     *era     // what replies look like
	may     uint8    // the commands it may send, 0 until the handshake
	acked   bool     // SUCCESS answers its GRAB_JOBs
	load    *load    // a LOAD under way
	reports *reports // DUMPs and long STATUSes under way
	kept    kept     // what was broadcast to it while it slept
	last    outcomes // of its requests
	runs    *runs    // RUN_JOBs that expire, nil: it has had none
}

// periodicProtocol is the protocol in one server. It implements protocol.Protocol.
type periodicProtocol struct{ server *Server }

// Name implements protocol.Protocol.
func (p *periodicProtocol) Name() string { return "periodic" }

// Ports implements protocol.Protocol. An address may have an era of its own.
func (p *periodicProtocol) Ports() []protocol.Port {
	o := &p.server.o
	all := []protocol.Port{{Setting: "periodic", Start: p.startIn(o.PeriodicCRC)}}
	for _, a := range o.Periodic {
		address, crc := o.eraOf(a)
		all = append(all, protocol.Port{Setting: "periodic", Addresses: []string{address}, Start: p.startIn(crc)})
	}
	return all
}

// startIn starts conversations whose peers of the CRC framing get the replies of an era.
func (p *periodicProtocol) startIn(crc string) func(*protocol.Session) protocol.Conversation {
	e := eras[crc]
	return func(s *protocol.Session) protocol.Conversation {
		s.Label = "periodic"
		t := s.Transport.(*session)
		return &periodicTalk{s: t, crc: e, kept: kept{total: &t.r.kept}}
	}
}

// CloseReasons implements protocol.Protocol.
func (p *periodicProtocol) CloseReasons() []protocol.CloseReason {
	return []protocol.CloseReason{
		{Err: periodic.ErrMagic, Label: "bad_magic"}, {Err: periodic.ErrHelloSize, Label: "too_large"}, {Err: periodic.ErrTooLarge, Label: "too_large"},
		{Err: periodic.ErrShort, Label: "too_short"}, {Err: periodic.ErrChecksum, Label: "bad_checksum"}, {Err: periodic.ErrHello, Label: "bad_handshake"},
	}
}

// Samples implements protocol.Protocol.
func (p *periodicProtocol) Samples() []web.Sample { return nil }

func (p *periodicTalk) Consume(in []byte) (n int, err error) {
	if p.may == 0 {
		if n, err = p.greet(in); n == 0 {
			return 0, err
		}
	}
	var f periodic.Frame
	for n < len(in) && !p.s.pause() {
		if p.load != nil {
			k, err := p.load.consume(p, in[n:])
			if n += k; k == 0 || err != nil {
				return n, err
			}
			continue
		}
		k, err := periodic.Next(in[n:], p.framing, p.s.r.server.o.MaxFrame, &f)
		if k == 0 {
			return n, err
		}
		n += k
		p.handle(&f)
		if p.s.Congested() {
			break
		}
	}
	return n, nil
}

func (p *periodicTalk) Need(in []byte) int {
	switch {
	case p.may == 0:
		return len(in) + 1 // a handshake is a few bytes
	case p.load != nil:
		return p.load.need(in)
	}
	return max(periodic.Need(in, p.framing), len(in)+1)
}

func (p *periodicTalk) IdleLimit() int64 {
	if p.load != nil { // between two jobs of it, and so in the middle of a message
		return p.s.r.server.o.FrameTimeout.Milliseconds()
	}
	if p.may != 0 && p.era.today {
		return p.s.r.server.config.today.Load()
	}
	return p.s.r.server.config.keepalive.Load()
}

func (p *periodicTalk) Closed() {
	if p.reports != nil {
		p.reports.abandoned.Store(true)
	}
	p.kept.grow(-p.kept.size)
}

// greet takes the handshake and answers with the connection's id: the slot and the
// low bits of the generation, which is unique among open connections.
func (p *periodicTalk) greet(in []byte) (int, error) {
	var h periodic.Hello
	n, err := periodic.NextHello(in, &h)
	if err == periodic.ErrMagic {
		return 0, stranger(in)
	}
	if n == 0 {
		return 0, err
	}
	// Without rights a client or worker with a name and a token is one without.
	switch h.Role {
	case periodic.AuthClient:
		h.Role = periodic.Client
	case periodic.AuthWorker:
		h.Role = periodic.Worker
	}
	p.framing, p.era, p.may = h.Framing, &plainEra, 1<<h.Role
	if h.Framing == periodic.CRC {
		p.s.Skills = sched.Named
		p.era, p.may = p.crc, byClient|byWorker|byCRC
		// Workers of 2026 start no job without it. Those of go-periodic, up to early 2023, stop after ten replies that
		// they do not wait for, and register as clients; no client needs it.
		p.acked = p.era.acksWorkers && h.Role == periodic.Worker
	}
	p.s.Settled = true
	p.s.Touch()
	if id := connectionID(p.s.ID); p.era.dataReports {
		p.s.Out = periodic.AppendHelloReplyData(p.s.Out, id)
	} else {
		p.s.Out = periodic.AppendHelloReply(p.s.Out, p.framing, id)
	}
	return n, nil
}

// connectionID folds a session id to the four bytes of the handshake's answer: eight bits of the
// loop, twenty of the slot, as many as there may be connections, and four of the generation.
func connectionID(id sched.SessionID) uint32 {
	slot := uint64(id) >> slotShift & slotMask
	return uint32(uint64(id)>>loopShift)<<24 | uint32(slot)<<4&(1<<24-1) | uint32(id)&0xf
}

// Which role may send which command; a server's own commands are nobody's. In the
// CRC framing every connection is client and worker in one, and has more commands.
const (
	byClient = 1 << periodic.Client
	byWorker = 1 << periodic.Worker
	byCRC    = 1 << 7
)

var allowed = [256]uint8{
	periodic.Ping:       byClient | byWorker,
	periodic.SubmitJob:  byClient,
	periodic.RunJob:     byClient,
	periodic.Status:     byClient,
	periodic.DropFunc:   byClient,
	periodic.RemoveJob:  byClient,
	periodic.Dump:       byClient,
	periodic.Load:       byClient,
	periodic.Shutdown:   byClient,
	periodic.ConfigGet:  byClient,
	periodic.ConfigSet:  byClient,
	periodic.GrabJob:    byWorker,
	periodic.SchedLater: byWorker,
	periodic.WorkDone:   byWorker,
	periodic.WorkFail:   byWorker,
	periodic.CanDo:      byWorker,
	periodic.CantDo:     byWorker,
	periodic.Sleep:      byWorker,
	periodic.Broadcast:  byWorker,

	periodic.Acquire:       byCRC,
	periodic.Release:       byCRC,
	periodic.RecvData:      byCRC,
	periodic.WorkData:      byCRC,
	periodic.JobAssigned:   byCRC,
	periodic.JobUnassigned: byCRC,
}

// handle does one request. Whatever can't be done is answered with UNKNOWN.
func (p *periodicTalk) handle(f *periodic.Frame) {
	p.s.r.Frames++
	if allowed[f.Cmd]&p.may == 0 {
		p.refuseCommand(f)
		return
	}
	ok := true
	switch f.Cmd {
	case periodic.SubmitJob:
		ok = p.submit(f, false)
	case periodic.GrabJob:
		p.grab(f.MsgID)
	case periodic.WorkDone:
		ok = p.workDone(f)
	case periodic.RunJob:
		ok = p.submit(f, true)
	case periodic.WorkFail:
		ok = p.workFail(f)
	case periodic.SchedLater:
		ok = p.schedLater(f)
	case periodic.CanDo, periodic.CantDo, periodic.Broadcast:
		ok = p.serve(f)
	case periodic.Sleep:
		p.sleep(f.MsgID)
	case periodic.Ping:
		p.reply(f.MsgID, periodic.Pong)
	case periodic.Acquire, periodic.Release, periodic.RecvData, periodic.WorkData, periodic.JobAssigned, periodic.JobUnassigned:
		ok = p.crcOnly(f)
	default:
		ok = p.administer(f)
	}
	if !ok {
		p.last.refused = periodic.ReasonMalformed
		p.s.r.server.counters.truncated.Add(1)
		p.reply(f.MsgID, periodic.Unknown)
	}
}

func (p *periodicTalk) refuseCommand(f *periodic.Frame) {
	c := &p.s.r.server.counters
	if allowed[f.Cmd]&(byClient|byWorker) == 0 {
		c.unknownCommands.Add(1)
	} else {
		c.wrongRole.Add(1)
	}
	if f.Cmd == periodic.Load { // its arguments still have to be read past
		p.beginLoad(f, true)
		return
	}
	p.last.refused = periodic.ReasonRole
	p.reply(f.MsgID, periodic.Unknown)
}

// reply sends a response without arguments.
func (p *periodicTalk) reply(msgID uint32, cmd periodic.Command) {
	p.s.Touch()
	p.s.Out = periodic.AppendReply(p.s.Out, p.framing, msgID, cmd)
}

// acknowledge replies once what the request changed in a queue is durable.
func (p *periodicTalk) acknowledge(msgID uint32, cmd periodic.Command, queue []byte) {
	group, wait := p.s.r.server.durable(queue)
	p.replyAfter(msgID, cmd, group, wait)
}

func (p *periodicTalk) replyAfter(msgID uint32, cmd periodic.Command, group uint64, wait bool) {
	if !wait {
		p.reply(msgID, cmd)
		return
	}
	p.s.after(group, func(out []byte) []byte { return periodic.AppendReply(out, p.framing, msgID, cmd) })
}

// refuse answers a request that a limit or a setting forbids.
func (p *periodicTalk) refuse(msgID uint32, why periodic.Reason) {
	p.s.r.server.counters.refusals[why].Add(1)
	p.last.refused = why
	p.reply(msgID, periodic.Unknown)
}

// Deliver implements protocol.Conversation.
func (p *periodicTalk) Deliver(d *sched.Delivery) {
	msgID := uint32(d.Tag)
	if p.runs != nil {
		p.runs.ended(d.Effect, msgID)
	}
	switch d.Effect {
	case sched.Assign, sched.Broadcast:
		p.s.Given = true
		p.assign(msgID, &d.Job)
	case sched.WakeWith:
		p.kept.put(d, p.s.r.server.mostUnsent())
		fallthrough
	case sched.Wake:
		p.s.Out = periodic.AppendReply(p.s.Out, p.framing, msgID, periodic.Noop)
	case sched.Result:
		p.data(msgID, p.era.dataResults, d.Data)
	case sched.Removed:
		p.last.gone = msgID
		p.data(msgID, p.era.dataResults, p.era.removed)
	case sched.Failed:
		p.last.failed = msgID
		p.data(msgID, p.era.dataResults, p.era.failed)
	case sched.Expired:
		p.last.failed = msgID
		p.data(msgID, p.era.dataResults, resultExpired)
	case sched.Chunk:
		p.s.Given = true
		p.data(msgID, true, d.Data)
	case sched.End:
		p.data(msgID, true, endOfData)
	case sched.Proceed:
		p.reply(msgID, periodic.Success)
	}
}

// assign encodes JOB_ASSIGN: the handle, then the Job record. In the CRC eras there
// is no handle, and the record says what the server fills in: when, and how long.
func (p *periodicTalk) assign(msgID uint32, j *sched.Job) {
	start := len(p.s.Out)
	out := periodic.BeginResponse(p.s.r.large.room(p.s.Out, len(j.Workload)), p.framing)
	out = periodic.AppendMessage(out, msgID, periodic.JobAssign)
	schedAt, count, timeout, workload := j.SchedAt, j.Count, j.Timeout, j.Workload
	if p.framing == periodic.Plain {
		out = appendHandle(out, j.Run())
	}
	switch space := &spaces[j.Space]; {
	case space.Bare:
		schedAt, count, timeout = 0, 0, 0
		p.s.r.Scratch = space.Text(p.s.r.Scratch[:0], j)
		workload = p.s.r.Scratch
	case p.framing == periodic.CRC:
		if schedAt == 0 {
			schedAt = p.s.r.Now.Wall / 1000
		}
		if timeout == 0 {
			timeout = int32(min(p.s.r.server.config.timeout.Load(), math.MaxInt32))
		}
	}
	out = appendFunction(out, j.Queue)
	out = periodic.AppendStr8(out, j.Name)
	out = periodic.AppendStr32(out, workload)
	out = periodic.AppendJobTail(out, schedAt, count, timeout)
	periodic.End(out, start, p.framing)
	p.s.Out = out
}

// appendFunction appends a queue's name as the function that it is.
func appendFunction(out []byte, queue string) []byte {
	return periodic.AppendStr8String(out, protocol.Unescape(queue))
}

// data encodes the message id and the bytes, with the command DATA between them
// where the era has it.
func (p *periodicTalk) data(msgID uint32, command bool, data []byte) {
	start := len(p.s.Out)
	out := periodic.BeginResponse(p.s.Out, p.framing)
	out = binary.BigEndian.AppendUint32(out, msgID)
	if command {
		out = append(out, byte(periodic.Data))
	}
	out = append(out, data...)
	periodic.End(out, start, p.framing)
	p.s.Out = out
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
	handle, rest, ok := periodic.Str8(in)
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
