package gloom

import (
	codec "treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// join handles a join: it makes a queue the slave's only one, from its next job on.
func (c *conversation) join(m *codec.Message) {
	switch {
	case m.Type == nil:
		c.answerError(codec.MissingField, reasonJobType)
		return
	case len(m.Type) > MaxName:
		c.answerError(codec.InvalidType, reasonJobType)
		return
	case string(m.Type) == codec.Leaving:
		c.leave()
		return
	}
	loop, s, p := c.s.Loop, c.p.sched, c.s.Peer()
	queue := queueOf(m.Type)
	if c.queue != nil && string(c.queue) != string(queue) {
		s.Unwatch(p, c.queue)
	}
	c.queue = append([]byte(nil), queue...)
	c.replyOK()
	if err := s.Watch(loop.Now, p, queue, false, loop.Sink); err != nil {
		c.s.End(err)
		return
	}
	c.reserve()
}

// leave handles a join of the type Leaving: the slave gets no more jobs, and keeps the one that it has.
func (c *conversation) leave() {
	if c.queue != nil {
		c.p.sched.Unwatch(c.s.Peer(), c.queue)
		c.queue = nil
	}
	c.replyOK()
}

// reserve asks for a job, unless the slave has one or waits for one: it may be on its way from another loop.
func (c *conversation) reserve() {
	if !c.busy && !c.reserved {
		c.reserved = true
		loop := c.s.Loop
		_ = c.p.sched.Reserve(loop.Now, c.s.Peer(), 0, loop.Sink) // one slot is never too many
	}
}

// assign hands a job to the slave. The id of another protocol's job is its name.
func (c *conversation) assign(j *sched.Job) {
	c.busy, c.reserved, c.job, c.wrapped = true, false, j.Run(), false
	if isGloom(j.Space) {
		id, typ, body := splitWorkload(j.Workload)
		c.s.Out = codec.AppendJob(c.s.Out, id, typ, body)
		return
	}
	loop := c.s.Loop
	id := jsontext.AppendText(loop.Scratch[:0], j.Name)
	function, _ := protocol.Function(j.Queue)
	all := jsontext.AppendText(id, function)
	typ := all[len(id):]
	if asJSON := loop.Spaces[j.Space].AsJSON; asJSON != nil {
		all = asJSON(all, j)
	} else {
		all, c.wrapped = jsontext.AppendValue(all, j.Workload)
	}
	body := all[len(id)+len(typ):]
	loop.Scratch = all
	c.s.Out = codec.AppendJob(c.s.Out, all[:len(id)], all[len(id):len(id)+len(typ)], body)
}

// respond handles a respond: it ends the slave's job. It acknowledges the response even when the slave no longer holds
// the job, because its time-out has passed or its function was dropped.
func (c *conversation) respond(m *codec.Message) {
	switch {
	case !c.busy:
		c.answerError(codec.InvalidState, reasonNotProcessing)
		return
	case m.Body == nil:
		c.answerError(codec.MissingField, reasonBody)
		return
	}
	loop, data := c.s.Loop, m.Body
	c.replyOK()
	c.busy = false
	if c.wrapped {
		if text, ok := jsontext.Text(nil, data); ok {
			data = text
		}
	}
	if !isGloom(c.job.Space) {
		data = loop.Result(c.job.Space, data)
	}
	if err := c.p.sched.Finish(loop.Now, c.s.Peer(), c.job, data, loop.Sink); err != nil {
		c.logLate()
	}
	c.reserve()
}

// logLate logs a late respond. The job has names while it exists.
func (c *conversation) logLate() {
	c.s.LogLate("respond", func() (queue, name string) { return c.p.sched.NameOf(c.job) })
}
