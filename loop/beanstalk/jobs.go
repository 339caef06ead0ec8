package beanstalk

import (
	"errors"
	"io"

	codec "treadle/codec/beanstalk"
	"treadle/loop/protocol"
	"treadle/sched"
)

// longestTTR is the longest time to run in seconds, 68 years.
const longestTTR = 1<<31 - 1

// put submits a job to the tube in use, and answers with its id when it is durable.
func (c *conversation) put(r *codec.Request) {
	if !c.producer {
		c.producer = true
		c.p.producers.Add(1)
		if c.s.Role == protocol.RoleNone {
			c.s.Role = protocol.RoleClient
		}
	}
	if c.p.host.Stopping() {
		c.word(codec.Draining)
		return
	}
	if err := c.p.host.Refusing(); err != nil {
		c.refuse(err)
		return
	}
	loop := c.s.Loop
	j := sched.Submission{
		Space: Space, Queue: c.used.queue, Workload: r.Body, Priority: toPriority(r.Priority),
		After: int64(r.Delay) * 1000, Timeout: int32(min(max(r.TTR, 1), longestTTR)),
	}
	c.p.tubes.keepPause(loop.Now, c.used)
	if err := c.p.sched.Submit(loop.Now, &j, loop.Sink); err != nil {
		c.refuse(err)
		return
	}
	c.p.puts.Add(1)
	c.used.puts.Add(1)
	c.acknowledge(c.used.queue, codec.AppendCount(c.scratch(), codec.Inserted, j.Number))
}

// refuse answers a put that a limit or a policy forbids.
func (c *conversation) refuse(err error) {
	c.p.host.Refused(name, protocol.ReasonOf(err))
	switch {
	case errors.Is(err, sched.ErrPaused):
		c.word(codec.Draining)
	case errors.Is(err, sched.ErrPayload):
		c.word(codec.JobTooBig)
	default:
		c.word(codec.OutOfMemory)
	}
}

// delete ends a job that the connection holds as done, or removes a job that was put and that no connection holds.
func (c *conversation) delete(id uint64) {
	loop := c.s.Loop
	queue, ok := c.finish(id)
	if !ok {
		queue, ok = c.p.sched.RemoveNumber(loop.Now, Space, id, loop.Sink)
	}
	if !ok {
		c.word(codec.NotFound)
		return
	}
	c.tubeOf(queue).deletes.Add(1)
	c.acknowledgeWord(queue, codec.Deleted)
}

// finish ends a job that the connection holds.
func (c *conversation) finish(id uint64) (queue string, ok bool) {
	h := c.held.take(id)
	switch {
	case h == nil:
		return "", false
	case h.broadcast:
		return h.queue, true
	}
	loop := c.s.Loop
	var data []byte
	if result := loop.Spaces[h.run.Space].FromResult; result != nil {
		data = result(loop.Scratch[:0], nil)
	}
	return h.queue, c.p.sched.Finish(loop.Now, c.s.Peer(), h.run, data, loop.Sink) == nil
}

// giveBack ends the connection's hold on a job by one of the scheduler's verbs, and answers.
func (c *conversation) giveBack(id uint64, verb func(run sched.Run) error, reply string) {
	h := c.held.take(id)
	switch {
	case h == nil || !h.broadcast && verb(h.run) != nil:
		c.word(codec.NotFound)
	default:
		c.acknowledgeWord(h.queue, reply)
	}
}

func (c *conversation) release(r *codec.Request) {
	loop := c.s.Loop
	c.giveBack(r.ID, func(run sched.Run) error {
		return c.p.sched.Return(loop.Now, c.s.Peer(), run, toPriority(r.Priority), int64(r.Delay)*1000, loop.Sink)
	}, codec.Released)
}

func (c *conversation) bury(r *codec.Request) {
	loop := c.s.Loop
	c.giveBack(r.ID, func(run sched.Run) error {
		return c.p.sched.Bury(loop.Now, c.s.Peer(), run, toPriority(r.Priority), loop.Sink)
	}, codec.Buried)
}

func (c *conversation) touch(id uint64) {
	h := c.held.find(id)
	if h == nil || !h.broadcast && c.p.sched.Renew(c.s.Loop.Now, c.s.Peer(), h.run) != nil {
		c.word(codec.NotFound)
		return
	}
	c.held.renew(h, c.s.Loop.Now.Mono)
	c.word(codec.Touched)
}

// kicking is a kick that goes on in a later turn.
type kicking struct {
	left     int
	kicked   uint64
	ofFailed bool
}

// kick kicks a batch at a time. It returns false when it goes on in a later turn.
func (c *conversation) kick(bound uint32) (done bool) {
	k := c.kicking
	if k == nil {
		k = &kicking{left: int(bound), ofFailed: true}
	}
	c.kicking = nil
	loop := c.s.Loop
	for {
		n, more := c.p.sched.Kick(loop.Now, c.used.queue, k.left, k.ofFailed, loop.Sink)
		k.left -= n
		k.kicked += uint64(n)
		c.s.Cost += n
		switch {
		case more && c.s.Pause():
			c.kicking = k
			return false
		case more:
		case k.ofFailed && k.kicked == 0:
			k.ofFailed = false // there was no buried job
		default:
			c.acknowledge(c.used.queue, codec.AppendCount(c.scratch(), codec.KickedOf, k.kicked))
			return true
		}
	}
}

func (c *conversation) kickJob(id uint64) {
	loop := c.s.Loop
	queue, ok := c.p.sched.KickNumber(loop.Now, Space, id, loop.Sink)
	if !ok {
		c.word(codec.NotFound)
		return
	}
	c.acknowledgeWord(queue, codec.Kicked)
}

// refOf finds a job that the connection holds, or one that was put.
func (c *conversation) refOf(id uint64) (ref sched.JobRef, ok bool) {
	if h := c.held.find(id); h != nil {
		return sched.JobRef{Shard: h.run.Shard, Space: h.run.Space, Record: h.run.Record, Seq: id}, true
	}
	return c.p.sched.FindNumber(Space, id)
}

func (c *conversation) peek(id uint64) {
	ref, ok := c.refOf(id)
	c.showJob(ref, ok)
}

func (c *conversation) peekTube(command codec.Command) {
	which := sched.PeekReady
	switch command {
	case codec.PeekDelayed:
		which = sched.PeekDelayed
	case codec.PeekBuried:
		which = sched.PeekBuried
	}
	ref, ok := c.p.sched.Peek(c.used.queue, which)
	c.showJob(ref, ok)
}

// maxViewed is the size of the largest body that is copied under a lock of the scheduler.
const maxViewed = 256 << 10

// showJob answers with a job, if there is one.
func (c *conversation) showJob(ref sched.JobRef, ok bool) {
	var reply []byte
	large := false
	ok = ok && c.p.sched.View(c.s.Loop.Now, ref, func(v *sched.JobView) {
		if large = len(v.Workload) > maxViewed; !large {
			reply = c.appendJob(codec.Found, &v.Job)
		}
	})
	if ok && large {
		if reply, ok = c.read(ref); len(reply) > 0 {
			c.s.Cost += len(reply) / maxViewed
		}
	}
	if !ok {
		c.word(codec.NotFound)
		return
	}
	c.send(reply)
}

// appendJob appends a job to scratch.
func (c *conversation) appendJob(word string, j *sched.Job) []byte {
	buffer, body := c.scratch(), j.Workload
	if asText := c.s.Loop.Spaces[j.Space].AsText; asText != nil {
		buffer = asText(buffer, j)
		body = buffer
	}
	all := codec.AppendJob(buffer, word, j.Ref.Seq, body)
	c.keep(all)
	return all[len(buffer):]
}

// read reads a large job that was put, a part under each hold of a lock.
func (c *conversation) read(ref sched.JobRef) (reply []byte, ok bool) {
	r, ok := c.p.sched.NewReader(ref, false, 0)
	if !ok {
		return nil, false
	}
	body := make([]byte, r.Size())
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, false
	}
	return codec.AppendJob(nil, codec.Found, ref.Seq, body), true
}
