package beanstalk

import (
	"errors"

	codec "treadle/codec/beanstalk"
	"treadle/loop/protocol"
	"treadle/sched"
)

// conversation speaks the protocol with one client.
type conversation struct {
	p       *Protocol
	s       *protocol.Session
	decoder codec.Decoder

	used     *tube
	watched  []*tube // in the order of list-tubes-watched
	producer bool    // it has put a job
	worker   bool    // it has reserved: the scheduler knows its watched tubes

	wait       wait
	held       heldJobs
	continuing bool         // the request did not end in an earlier turn and goes on
	kicking    *kickRun     // a kick that goes on
	listing    *tubeListing // a list-tubes that goes on
	quitting   bool         // the session is suspended until no reply waits for the journal
	skipping   int64        // Mono since which a job that is too large is passed over; 0: none is
}

var _ interface {
	protocol.Conversation
	protocol.Sized
	protocol.Alarmed
} = (*conversation)(nil)

// acksPoll is how often, in milliseconds, a conversation looks whether its acknowledgements are sent.
const acksPoll = 2

// Consume implements protocol.Conversation. It stops behind a request that suspends or pauses the session.
func (c *conversation) Consume(in []byte) (n int, err error) {
	if c.wait.on { // the peer has closed its side: nothing else ends a reserve that waits before its time
		c.stopWait(codec.TimedOut)
	}
	var r codec.Request
	for n < len(in) && !c.wait.on && !c.quitting && !c.s.PauseIfCostly() {
		k, ok := c.decoder.Next(in[n:], &r)
		if !ok {
			if n += k; k == 0 {
				break
			}
			continue
		}
		if r.Fatal {
			c.answerError(&r)
			return n + k, errMalformed
		}
		if r.Fault != "" {
			c.answerError(&r)
		} else if c.continuing = !c.handle(&r); c.continuing {
			return n, nil // Consume is called with the same request
		}
		n += k
		c.s.Loop.Frames[c.s.ProtocolID]++
		if c.s.FlushLarge() {
			break
		}
	}
	c.watchSkipped()
	return n, nil
}

// watchSkipped has Alarm end the session when a job that is too large does not end in time.
func (c *conversation) watchSkipped() {
	switch skipping := c.decoder.Skipping(); {
	case skipping && c.skipping == 0:
		c.skipping = c.s.Loop.Now.Mono
		c.s.Alarm(c.skipEnd())
	case !skipping && c.skipping != 0:
		if c.skipping = 0; !c.wait.on && !c.quitting {
			c.s.Alarm(0)
		}
	}
}

func (c *conversation) skipEnd() int64 {
	return c.skipping + c.p.host.Limits().FrameTimeout.Milliseconds()
}

// Need implements protocol.Sized.
func (c *conversation) Need(in []byte) int { return c.decoder.Need(in) }

// IdleLimit implements protocol.Conversation. There is none: a worker may wait for hours. TCP keep-alive finds dead
// hosts.
func (c *conversation) IdleLimit() int64 { return 0 }

// Alarm implements protocol.Alarmed.
func (c *conversation) Alarm() {
	switch {
	case c.quitting:
		c.quit()
	case c.skipping != 0 && c.skipEnd() <= c.s.Loop.Now.Mono:
		c.s.End(errSkipped)
	default:
		c.expireWait()
	}
}

// Closed implements protocol.Conversation: the counts of the connection end with it.
func (c *conversation) Closed() {
	p := c.p
	c.endWait()
	p.tubes.unuse(c.s.Loop.Now, c.used)
	for _, t := range c.watched {
		p.tubes.unwatch(c.s.Loop.Now, t)
	}
	p.connections.Add(-1)
	if c.producer {
		p.producers.Add(-1)
	}
	if c.worker {
		p.workers.Add(-1)
	}
}

// quit ends the session once no reply waits for the journal.
func (c *conversation) quit() {
	if !c.s.HasPendingAcks() {
		c.s.End(errQuit)
		return
	}
	if !c.quitting {
		c.quitting = true
		c.s.Suspend()
	}
	c.s.Alarm(c.s.Loop.Now.Mono + acksPoll)
}

// handle handles one request. It returns false when the request goes on in a later turn.
func (c *conversation) handle(r *codec.Request) (done bool) {
	if !c.continuing {
		c.p.commands[r.Command].Add(1)
	}
	switch r.Command {
	case codec.Put:
		c.put(r)
	case codec.Reserve, codec.ReserveWithTimeout:
		c.reserve(r.Timeout)
	case codec.ReserveJob:
		c.reserveJob(r.ID)
	case codec.Delete:
		c.delete(r.ID)
	case codec.Release:
		c.release(r)
	case codec.Bury:
		c.bury(r)
	case codec.Touch:
		c.touch(r.ID)
	case codec.Kick:
		return c.kick(r.Bound)
	case codec.KickJob:
		c.kickJob(r.ID)
	case codec.Use:
		c.use(r.Tube)
	case codec.Watch:
		c.watch(r.Tube)
	case codec.Ignore:
		c.ignore(r.Tube)
	case codec.PauseTube:
		c.pauseTube(r)
	case codec.Quit:
		c.quit()
	default:
		return c.show(r)
	}
	return true
}

// show handles the requests that change nothing.
func (c *conversation) show(r *codec.Request) (done bool) {
	switch r.Command {
	case codec.Peek:
		c.peek(r.ID)
	case codec.PeekReady, codec.PeekDelayed, codec.PeekBuried:
		c.peekTube(r.Command)
	case codec.Stats:
		c.stats()
	case codec.StatsJob:
		c.statsJob(r.ID)
	case codec.StatsTube:
		c.statsTube(r.Tube)
	case codec.ListTubeUsed:
		c.reply(codec.AppendUsing(c.scratch(), c.used.name))
	case codec.ListTubesWatched:
		c.listWatched()
	case codec.ListTubes:
		return c.listTubes()
	}
	return true
}

// scratch returns the loop's empty buffer, for one reply.
func (c *conversation) scratch() []byte { return c.s.Loop.Scratch[:0] }

// keep has the loop keep the room of a reply that was appended to scratch.
func (c *conversation) keep(reply []byte) {
	if cap(reply) > cap(c.s.Loop.Scratch) {
		c.s.Loop.Scratch = reply
	}
}

// reply sends a reply, which may have been appended to scratch, behind those before it.
func (c *conversation) reply(reply []byte) {
	c.keep(reply)
	c.s.Reply(reply)
}

// replyWord sends a reply of one word.
func (c *conversation) replyWord(reply string) { c.reply(append(c.scratch(), reply...)) }

// acknowledge sends a reply once the last change in a queue is durable.
func (c *conversation) acknowledge(queue []byte, reply []byte) {
	c.keep(reply)
	group, wait := c.p.host.CommitGroup(queue)
	c.s.ReplyAfter(group, wait, reply)
}

// acknowledgeWord is acknowledge for a reply of one word.
func (c *conversation) acknowledgeWord(queue string, reply string) {
	c.acknowledge([]byte(queue), append(c.scratch(), reply...))
}

// answerError answers a request that is wrong in itself, and counts it.
func (c *conversation) answerError(r *codec.Request) {
	if r.Counted {
		c.p.commands[r.Command].Add(1)
	}
	switch r.Fault {
	case codec.BadFormat:
		c.p.badFormat.Add(1)
	case codec.UnknownCommand:
		c.p.unknownCommand.Add(1)
	case codec.ExpectedCRLF:
		c.p.expectedCRLF.Add(1)
	case codec.JobTooBig:
		c.p.jobTooBig.Add(1)
	}
	c.replyWord(r.Fault)
}

// refuse answers a request that a limit or a policy forbids.
func (c *conversation) refuse(err error) {
	c.p.host.CountRefusal(name, protocol.ReasonOf(err))
	switch {
	case errors.Is(err, sched.ErrPaused):
		c.replyWord(codec.Draining)
	case errors.Is(err, sched.ErrPayload):
		c.replyWord(codec.JobTooBig)
	default:
		c.replyWord(codec.OutOfMemory)
	}
}

// Deliver implements protocol.Conversation.
func (c *conversation) Deliver(d *sched.Delivery) {
	if d.Effect != sched.Assign && d.Effect != sched.Broadcast {
		return
	}
	c.s.Assigned = true
	if d.Tag == tagReserve {
		c.endWait()
	}
	c.assign(&d.Job, d.Effect == sched.Broadcast)
}
