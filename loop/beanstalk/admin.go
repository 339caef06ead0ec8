package beanstalk

import (
	"io"

	codec "treadle/codec/beanstalk"
	"treadle/sched"
)

// kickRun is a kick that goes on in a later turn.
type kickRun struct {
	left     int
	kicked   uint64
	ofFailed bool
}

// kick kicks a batch at a time. It returns false when it goes on in a later turn.
func (c *conversation) kick(bound uint32) (done bool) {
	k := c.kicking
	if k == nil {
		k = &kickRun{left: int(bound), ofFailed: true}
	}
	c.kicking = nil
	loop := c.s.Loop
	for {
		n, more := c.p.sched.Kick(loop.Now, c.used.queue, k.left, k.ofFailed, loop.Sink)
		k.left -= n
		k.kicked += uint64(n)
		c.s.Cost += n
		switch {
		case more && c.s.PauseIfCostly():
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
		c.replyWord(codec.NotFound)
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
		c.replyWord(codec.NotFound)
		return
	}
	c.reply(reply)
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
