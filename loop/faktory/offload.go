package faktory

import codec "treadle/codec/faktory"

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
	command := commands[string(word)]
	if b := c.offloaded; b != nil {
		if b.done {
			c.offloaded = nil
			c.p.commands.Add(1)
			if command.reads {
				c.s.Reply(b.reply)
			} else {
				c.acknowledgeAll(b.reply)
			}
		}
		return b.done
	}
	c.offload(in, at, func(b *offloadWork) {
		if command.run == nil {
			b.reply = c.p.errorReply("the line is too long for the command " + shortText(word))
			return
		}
		sink := c.p.host.NewSink()
		defer sink.Wake()
		b.reply = command.run(c.p, text, sink)
	})
	return false
}
