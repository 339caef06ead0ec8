package periodic

import (
	"cmp"
	"encoding/binary"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// STATUS is a line for each function. To change what it counts: shard.status (sched/status.go) counts the jobs of a
// queue into a sched.QueueStatus, appendStatus puts the counts into a line, and codec/periodic/status.go and keys.go
// have the form of the line and the keys of the longer forms. loop/client/status.go reads them, and
// cmd/treadle/status.go shows them.

// status answers with one line per function, joined with newlines.
func (c *conversation) status(msgID uint32, prefix []byte, form codec.StatusForm) {
	queues := c.p.sched.Stats().Queues
	if queues > LongStatus {
		c.report(msgID, prefix, protocol.Listing, func() [][]byte { return c.p.encodeStatus(form) })
		return
	}
	c.s.Cost += 2 * queues // to look at each and to write it
	c.s.OpenOut()
	start := len(c.s.Out)
	out := binary.BigEndian.AppendUint32(codec.BeginResponse(c.s.Out, c.framing), msgID)
	out = append(out, prefix...)
	body := len(out)
	c.p.sched.Status(func(q sched.QueueStatus) { out = appendStatus(out, q, form, len(out) > body, c.s.Loop.Now) })
	codec.End(out, start, c.framing)
	c.s.Out = out
}

// appendStatus appends a function's line to a STATUS, unless its name fits no str8. more reports whether a line
// precedes it.
func appendStatus(out []byte, q sched.QueueStatus, form codec.StatusForm, more bool, now sched.Time) []byte {
	name, ok := protocol.Function(q.Name)
	if !ok || len(name) > codec.MaxStr8 {
		return out
	}
	if more {
		out = append(out, '\n')
	}
	l := codec.StatusLine{Func: string(name), SchedAt: cmp.Or(q.SchedAt, now.Wall/1000)}
	for i, n := range [...]int{
		codec.StatusWorkers: q.Workers, codec.StatusJobs: q.Jobs, codec.StatusRunning: q.Running, codec.StatusLocked: q.Parked,
		codec.StatusDelayed: q.Delayed, codec.StatusWaiting: q.Waiting, codec.StatusFailed: q.Failed,
	} {
		l.Counts[i] = int64(n)
	}
	return codec.AppendStatusLine(out, &l, form)
}

// encodeStatus returns the body of a long STATUS, nil when no frame can hold it.
func (p *Protocol) encodeStatus(form codec.StatusForm) [][]byte {
	var body pieces
	now := p.host.Now()
	p.sched.Status(func(q sched.QueueStatus) {
		body.add(func(out []byte) []byte { return appendStatus(out, q, form, body.size > 0, now) })
	})
	if body.size > codec.MaxPayload {
		return nil
	}
	return body.parts
}
