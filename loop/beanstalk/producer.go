package beanstalk

import (
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
		c.replyWord(codec.Draining)
		return
	}
	if err := c.p.host.CheckCapacity(); err != nil {
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
