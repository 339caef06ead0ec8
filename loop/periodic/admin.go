package periodic

import (
	"encoding/binary"
	"strconv"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// administer does the requests about functions, settings and the server itself;
// false when the arguments are cut.
func (c *conversation) administer(f *codec.Frame) bool {
	switch f.Cmd {
	case codec.Status:
		c.status(f.MsgID, c.lead(), c.era.appendStatus)
		return true
	case codec.Dump:
		spaces := c.s.Loop.Spaces
		c.report(f.MsgID, c.lead(), protocol.Dump, func() [][]byte { return c.p.encodeDump(&c.left, spaces) })
		return true
	case codec.Load:
		c.beginLoad(f, false)
		return true
	case codec.Shutdown:
		if !c.p.o.Shutdown {
			c.refuse(f.MsgID, codec.ReasonSetting)
			return true
		}
		c.p.host.Log().Info("a client asks to shut down", "remote", c.s.Remote())
		c.p.host.Quit()
		return true
	case codec.ConfigGet, codec.ConfigSet:
		return c.configure(f)
	}
	return c.remove(f)
}

func (c *conversation) configure(f *codec.Frame) bool {
	key, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	place := c.era.keyOf(string(key))
	if f.Cmd == codec.ConfigSet {
		value, _, ok := codec.Uint32(rest)
		if !ok {
			return false
		}
		c.p.config.set(place, value)
		c.p.config.apply(c.p.sched)
		c.p.config.save(c.p.host, place)
		group, wait := c.p.host.DurableAll()
		c.replyAfter(f.MsgID, codec.Success, group, wait)
		return true
	}
	if string(key) == codec.KeyStatus {
		c.status(f.MsgID, []byte{byte(codec.Config)}, appendDetails)
		return true
	}
	c.s.Touch()
	start := len(c.s.Out)
	out := codec.AppendMessage(codec.BeginResponse(c.s.Out, c.framing), f.MsgID, codec.Config)
	value, own := c.ownKey(string(key))
	if !own {
		value = c.p.config.get(place, c.era)
	}
	out = binary.BigEndian.AppendUint32(out, value)
	codec.End(out, start, c.framing)
	c.s.Out = out
	return true
}

// remove is REMOVE_JOB and DROP_FUNC, which succeed whether there was anything.
func (c *conversation) remove(f *codec.Frame) bool {
	r := c.s.Loop
	function, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	if f.Cmd == codec.DropFunc {
		c.last.removed = c.p.sched.Drop(protocol.Queue(function))
	} else {
		name, _, ok := codec.Str8(rest)
		if !ok {
			return false
		}
		c.last.removed = c.p.sched.Remove(r.Now, Space, protocol.Queue(function), name, r.Sink)
	}
	c.acknowledge(f.MsgID, codec.Success, protocol.Queue(function))
	return true
}

// LongStatus is how many functions a STATUS may list on the event loop; a longer
// one is written beside it.
const LongStatus = 1000

// line appends a function's line to a STATUS; more says that there is one before it.
type line func(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte

// lead is what stands between the message id and a report.
func (c *conversation) lead() []byte {
	if c.era.dataReports {
		return []byte{byte(codec.Data)}
	}
	return nil
}

// status is STATUS: a line a function, joined with newlines.
func (c *conversation) status(msgID uint32, lead []byte, write line) {
	queues := c.p.sched.Stats().Queues
	if queues > LongStatus {
		c.report(msgID, lead, protocol.Listing, func() [][]byte { return c.p.encodeStatus(write) })
		return
	}
	c.s.Looked += 2 * queues // each is written, too
	c.s.Touch()
	start := len(c.s.Out)
	out := binary.BigEndian.AppendUint32(codec.BeginResponse(c.s.Out, c.framing), msgID)
	out = append(out, lead...)
	mark := len(out)
	c.p.sched.Status(func(q sched.QueueStatus) { out = write(out, q, len(out) > mark, c.s.Loop.Now) })
	codec.End(out, start, c.framing)
	c.s.Out = out
}

// appendStatus writes one line: func,workers,jobs,processing,schedat; in the CRC eras
// with the locked jobs before schedat.
func (e *era) appendStatus(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte {
	if e.locked {
		return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running, q.Parked)
	}
	return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running)
}

// appendDetails writes a line of KeyStatus.
func appendDetails(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte {
	return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running, q.Parked, q.Delayed, q.Waiting)
}

func appendLine(out []byte, q sched.QueueStatus, more bool, now sched.Time, columns ...int) []byte {
	name, ok := protocol.Function(q.Name)
	if !ok || len(name) > codec.MaxStr8 {
		return out // no Periodic function: its name fits no str8
	}
	if more {
		out = append(out, '\n')
	}
	out = append(out, name...)
	for _, n := range columns {
		out = strconv.AppendInt(append(out, ','), int64(n), 10)
	}
	at := q.SchedAt
	if at == 0 {
		at = now.Wall / 1000
	}
	return strconv.AppendInt(append(out, ','), at, 10)
}

// report answers with a long reply. encode returns the reply behind the message id, or nil when it would be larger
// than a frame can be.
func (c *conversation) report(msgID uint32, lead []byte, kind protocol.StreamKind, encode func() [][]byte) {
	begun := c.s.Stream(kind, func() [][]byte { return c.frameOf(msgID, lead, encode()) }, func() { c.refuse(msgID, codec.ReasonSize) })
	if !begun {
		c.refuse(msgID, codec.ReasonReports)
	}
}

// frameOf makes a frame of a long reply's body; nil stays nil. It reads only what the
// handshake has settled for good, so it may run beside the loop.
func (c *conversation) frameOf(msgID uint32, lead []byte, body [][]byte) [][]byte {
	if body == nil {
		return nil
	}
	head := append(binary.BigEndian.AppendUint32(nil, msgID), lead...)
	size, sum := len(head), crcOf(c.framing, 0, head)
	for _, b := range body {
		size += len(b)
		sum = crcOf(c.framing, sum, b)
	}
	if size > codec.MaxPayload {
		return nil
	}
	frame := codec.AppendResponseHeader(nil, c.framing, size, sum)
	return append([][]byte{append(frame, head...)}, body...)
}
