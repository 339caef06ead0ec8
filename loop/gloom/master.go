package gloom

import (
	codec "treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// submit handles a submit. A job without a priority has priority 0. A death of its slave raises it (package sched,
// Rules.MaxFailures).
func (c *conversation) submit(m *codec.Message) {
	priority, isInteger := int64(0), true
	if m.Priority != nil {
		priority, isInteger = jsontext.Integer(m.Priority)
	}
	switch {
	case m.ID == nil:
		c.answerError(codec.MissingField, reasonID)
	case m.Type == nil:
		c.answerError(codec.MissingField, reasonType)
	case !isInteger:
		c.answerError(codec.InvalidType, reasonPriority)
	case m.Body == nil:
		c.answerError(codec.MissingField, reasonBody)
	case len(m.ID) > MaxName:
		c.answerError(codec.InvalidType, reasonID)
	case len(m.Type) > MaxName:
		c.answerError(codec.InvalidType, reasonType)
	default:
		c.accept(m, priority)
	}
}

// accept submits a job. It acknowledges before it refuses a duplicate id, as the reference does.
func (c *conversation) accept(m *codec.Message, priority int64) {
	loop := c.s.Loop
	c.s.OpenOut()
	c.s.Out = codec.AppendSubmitted(c.s.Out, m.ID)
	loop.Scratch = appendWorkload(loop.Scratch[:0], m)
	name, isText := jsontext.Text(nil, m.ID)
	space := TextSpace
	if !isText {
		space, name = ValueSpace, m.ID
	}
	err := c.p.host.CheckCapacity()
	if err != protocol.ErrMaxMemory { // a full disk does not concern Gloom: its jobs live in memory
		err = c.p.sched.Submit(loop.Now, &sched.Submission{
			Space: space, Queue: queueOf(m.Type), Name: name, Workload: loop.Scratch,
			Priority: priority, Await: c.s.Peer(),
		}, loop.Sink)
	}
	switch {
	case err == sched.ErrDuplicate:
		c.answerError(codec.IDExists, m.ID)
	case err != nil:
		c.refuse(err, m.ID)
	}
}

// queueOf returns the queue of a type. A string is a function; any other value has its own queue.
func queueOf(typ []byte) []byte {
	if text, ok := jsontext.Text(nil, typ); ok {
		return protocol.Queue(text)
	}
	return protocol.ValueQueue(typ)
}
