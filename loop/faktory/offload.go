package faktory

import (
	codec "treadle/codec/faktory"
	"treadle/sched"
)

// largeLine is the size in bytes above which a line is handled off the event loop. Parsing this much, and submitting
// its jobs, takes a few milliseconds.
const largeLine = 256 << 10

// offloadWork is a command that is handled off the event loop.
type offloadWork struct {
	reply []byte
	done  bool // belongs to the loop

	hello  *codec.Hello // of a HELLO; nil: it is none
	proved bool         // it has the password
}

// isLong reports whether a command looks at all jobs or queues, however short its line.
func isLong(word []byte) bool {
	switch string(word) {
	case "INFO", "FLUSH", "MUTATE", "QUEUE":
		return true
	}
	return false
}

// offload runs work off the event loop for the line at in[at:]. Consume is called again when it is done.
func (c *conversation) offload(in []byte, at int, work func(*offloadWork)) {
	b := new(offloadWork)
	if c.s.Offload(in, at, maxBacklog, func() { work(b) }, func() { b.done = true }) {
		c.offloaded = b
	}
}

// maxBacklog is how many bytes a client may send while its command is handled off the event loop.
const maxBacklog = 1 << 20

// runCommand handles a command off the event loop. handled is true when it is done and answered.
func (c *conversation) runCommand(in []byte, at int, word, text []byte) (handled bool) {
	if b := c.offloaded; b != nil {
		if b.done {
			c.offloaded = nil
			c.p.commands.Add(1)
			if string(word) == "INFO" {
				c.s.Reply(b.reply)
			} else {
				c.acknowledgeAll(b.reply)
			}
		}
		return b.done
	}
	c.offload(in, at, func(b *offloadWork) { b.reply = c.p.run(word, text) })
	return false
}

// run carries out a command off the event loops and returns the reply, which has to wait until all changes are durable.
func (p *Protocol) run(word, text []byte) []byte {
	sink := p.host.NewSink()
	defer sink.Wake()
	u := pusher{p: p, now: p.host.Now(), sink: sink}
	switch string(word) {
	case "PUSH":
		if _, err := u.submit(text); err != nil {
			p.errors.Add(1)
			code, why := p.reasonOf(err)
			return codec.AppendError(nil, code, why)
		}
		return replyOK
	case "PUSHB":
		return u.submitAll(text)
	case "INFO":
		return codec.AppendBulk(nil, p.info())
	case "FLUSH":
		p.change(everything(), &sched.JobChange{Verb: sched.RemoveJobs}, sink)
		return replyOK
	case "MUTATE":
		return p.mutate(text, sink)
	case "QUEUE":
		return p.changeQueues(text, sink)
	}
	return p.failed("the line is too long for the command " + shortText(word))
}

// failed returns an error reply.
func (p *Protocol) failed(text string) []byte {
	p.errors.Add(1)
	return codec.AppendError(nil, codeError, text)
}
