package periodic

import (
	"encoding/binary"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
)

// handleAdmin handles the requests about functions, settings and the server. It returns false
// when the arguments are truncated.
func (c *conversation) handleAdmin(f *codec.Frame) bool {
	switch f.Cmd {
	case codec.Status:
		c.status(f.MsgID, c.reportPrefix(), c.version.status)
		return true
	case codec.Dump:
		spaces := c.s.Loop.Spaces
		c.report(f.MsgID, c.reportPrefix(), protocol.Dump, func() [][]byte { return c.p.encodeDump(&c.omitted, spaces) })
		return true
	case codec.Load:
		c.beginLoad(f, false)
		return true
	case codec.Shutdown:
		if c.p.o.Shutdown != on {
			c.refuse(f.MsgID, codec.ReasonSetting)
			return true
		}
		c.p.host.Log().Info("a client asks to shut down", "remote", c.s.Remote())
		c.p.host.Quit()
		return true
	case codec.ConfigGet, codec.ConfigSet:
		return c.handleConfig(f)
	}
	return c.remove(f)
}

// handleConfig answers CONFIG_GET and CONFIG_SET. It returns false for a frame that cannot be parsed.
func (c *conversation) handleConfig(f *codec.Frame) bool {
	key, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	index := c.version.keyOf(string(key))
	if f.Cmd == codec.ConfigSet {
		value, _, ok := codec.Uint32(rest)
		if !ok {
			return false
		}
		c.p.setConfig(index, value)
		group, wait := c.p.host.CommitGroupAll()
		c.replyAfter(f.MsgID, codec.Success, group, wait)
		return true
	}
	switch string(key) {
	case codec.KeyStatus:
		c.status(f.MsgID, []byte{byte(codec.Config)}, codec.StatusDetails)
		return true
	case codec.KeyFailedStatus:
		c.status(f.MsgID, []byte{byte(codec.Config)}, codec.StatusAllCounts)
		return true
	}
	value, own := c.infoKey(string(key))
	if !own {
		value = c.p.config.get(index, c.version)
	}
	c.replyWith(f.MsgID, codec.Config, binary.BigEndian.AppendUint32(nil, value)...)
	return true
}

// remove handles REMOVE_JOB and DROP_FUNC. Both succeed when there is nothing to remove.
func (c *conversation) remove(f *codec.Frame) bool {
	loop := c.s.Loop
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
		c.last.removed = c.p.sched.Remove(loop.Now, Space, protocol.Queue(function), name, loop.Sink)
	}
	c.acknowledge(f.MsgID, codec.Success, protocol.Queue(function))
	return true
}

// LongStatus is the number of functions above which a STATUS is encoded off the event loop.
const LongStatus = 1000

// reportPrefix returns the bytes between the message id and a report.
func (c *conversation) reportPrefix() []byte {
	if c.version.dataReports {
		return []byte{byte(codec.Data)}
	}
	return nil
}

// report answers with a long reply. encode returns its body, or nil when no frame can hold it.
func (c *conversation) report(msgID uint32, prefix []byte, kind protocol.StreamKind, encode func() [][]byte) {
	started := c.s.Stream(kind, func() [][]byte { return c.frameOf(msgID, prefix, encode()) }, func() { c.refuse(msgID, codec.ReasonSize) })
	if !started {
		c.refuse(msgID, codec.ReasonReports)
	}
}

// frameOf puts a long reply's body in a frame. It returns nil when the body is nil or too large. It may run off the
// event loop, since it reads only fields that the handshake has set.
func (c *conversation) frameOf(msgID uint32, prefix []byte, body [][]byte) [][]byte {
	if body == nil {
		return nil
	}
	head := append(binary.BigEndian.AppendUint32(nil, msgID), prefix...)
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
