package beanstalk

import (
	"math"

	codec "treadle/codec/beanstalk"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// safetyMargin is the last part of a job's time to run, in milliseconds. While a job of the connection is in it, a
	// reserve is answered DEADLINE_SOON instead of waiting.
	safetyMargin = 1000
	// blockedWait is how long, in milliseconds, a reserve with a time-out of 0 waits when jobs are ready, but the peer
	// has to read its output first.
	blockedWait = 1000
)

// The tags of reserves.
const (
	tagReserve uint64 = iota
	tagReserveJob
)

// wait is a reserve that waits for a job.
type wait struct {
	on        bool
	until     int64   // Mono; math.MaxInt64: for ever
	suspended bool    // the session is suspended, and the connection is counted as one that waits
	counted   []*tube // the tubes that count it
}

// becomeWorker makes the connection one that reserves: its tubes are watched from now on. It fails when a limit forbids
// it.
func (c *conversation) becomeWorker() error {
	if c.worker {
		return nil
	}
	loop := c.s.Loop
	for _, t := range c.watched {
		c.p.tubes.keepPause(loop.Now, t)
		if err := c.p.sched.Watch(loop.Now, c.s.Peer(), t.queue, false, loop.Sink); err != nil {
			return err
		}
	}
	c.countWorker()
	return nil
}

func (c *conversation) countWorker() {
	c.worker, c.s.Role = true, protocol.RoleWorker
	c.p.workers.Add(1)
}

// reserve asks for a job. A negative timeout waits for ever.
func (c *conversation) reserve(timeout int32) {
	loop, p := c.s.Loop, c.p
	if err := c.becomeWorker(); err != nil {
		c.refuse(err)
		return
	}
	c.wait.on, c.wait.until = true, math.MaxInt64
	if timeout >= 0 {
		c.wait.until = loop.Now.Mono + int64(timeout)*1000
	}
	if err := p.sched.Reserve(loop.Now, c.s.Peer(), tagReserve, loop.Sink); err != nil {
		c.wait.on = false
		c.refuse(err)
		return
	}
	switch {
	case !c.wait.on: // it has been answered
		return
	case c.deadlineSoon():
		if c.stopWait(codec.DeadlineSoon); !c.wait.on {
			return
		}
	case timeout == 0 && c.s.Peer().Blocked():
		c.wait.until = loop.Now.Mono + blockedWait
	case timeout == 0:
		if c.stopWait(codec.TimedOut); !c.wait.on {
			return
		}
	}
	c.beginWait()
}

// beginWait suspends the session until a job comes.
func (c *conversation) beginWait() {
	c.wait.suspended, c.wait.counted = true, append(c.wait.counted[:0], c.watched...)
	for _, t := range c.wait.counted {
		t.waiting.Add(1)
	}
	c.s.Cost += len(c.wait.counted) / tubesPerCost
	c.p.waits.Add(1)
	c.s.Suspend()
	c.setAlarm()
}

// setAlarm sets the alarm for the end of the wait.
func (c *conversation) setAlarm() {
	at := min(c.wait.until, c.held.soonest()-safetyMargin)
	if at == math.MaxInt64 {
		at = 0
	}
	c.s.Alarm(at)
}

// deadlineSoon reports whether a job that the connection holds is in its safety margin.
func (c *conversation) deadlineSoon() bool {
	now := c.s.Loop.Now.Mono
	c.held.expire(now)
	return c.held.soonest()-safetyMargin <= now
}

// expireWait ends a wait whose time has come.
func (c *conversation) expireWait() {
	switch {
	case !c.wait.on:
	case c.deadlineSoon():
		c.stopWait(codec.DeadlineSoon)
	case c.wait.until <= c.s.Loop.Now.Mono:
		c.stopWait(codec.TimedOut)
	}
	if c.wait.on {
		c.setAlarm()
	}
}

// stopWait answers a reserve that waits, unless a job is on its way to the connection.
func (c *conversation) stopWait(reply string) {
	if c.p.sched.StopReserve(c.s.Peer(), tagReserve) {
		c.endWait()
		c.replyWord(reply)
	}
}

// endWait ends a wait. The session goes on with its next request.
func (c *conversation) endWait() {
	c.wait.on = false
	if !c.wait.suspended {
		return
	}
	c.wait.suspended = false
	for _, t := range c.wait.counted {
		t.waiting.Add(-1)
	}
	c.p.waits.Add(-1)
	c.s.Alarm(0)
	c.s.Resume()
}

// reserveJob asks for one job that was put.
func (c *conversation) reserveJob(id uint64) {
	loop := c.s.Loop
	c.held.expire(loop.Now.Mono)
	if !c.p.sched.ReserveNumber(loop.Now, c.s.Peer(), Space, id, tagReserveJob, loop.Sink) {
		c.replyWord(codec.NotFound)
		return
	}
	if err := c.becomeWorker(); err != nil { // the job is on its way all the same
		c.p.host.CountRefusal(name, protocol.ReasonOf(err))
		c.countWorker()
	}
}

// assign answers a reserve with a job.
func (c *conversation) assign(j *sched.Job, broadcast bool) {
	c.hold(j, broadcast)
	if !c.s.HasPendingAcks() && c.s.Loop.Spaces[j.Space].AsText == nil { // fast path: without a copy in between
		c.s.EnsureRoom(len(j.Workload))
		c.s.Out = codec.AppendJob(c.s.Out, codec.Reserved, j.Ref.Seq, j.Workload)
		return
	}
	c.reply(c.appendJob(codec.Reserved, j))
}

// hold notes a job that the connection was handed.
func (c *conversation) hold(j *sched.Job, broadcast bool) {
	ttr := int64(j.Timeout) * 1000
	if ttr <= 0 {
		ttr = c.p.sched.Timeout()
	}
	if ttr <= 0 || c.s.Loop.Spaces[j.Space].Rules.Untimed {
		ttr = math.MaxInt64
	}
	h := c.held.add(j.Ref.Seq)
	h.run, h.queue, h.ttr, h.broadcast = j.Run(), j.Queue, ttr, broadcast
	c.held.renew(h, c.s.Loop.Now.Mono)
}

// delete ends a job that the connection holds as done, or removes a job that was put and that no connection holds.
func (c *conversation) delete(id uint64) {
	loop := c.s.Loop
	queue, ok := c.finish(id)
	if !ok {
		queue, ok = c.p.sched.RemoveNumber(loop.Now, Space, id, loop.Sink)
	}
	if !ok {
		c.replyWord(codec.NotFound)
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
	return h.queue, c.p.sched.Finish(loop.Now, c.s.Peer(), h.run, loop.Result(h.run.Space, nil), loop.Sink) == nil
}

// giveBack ends the connection's hold on a job by one of the scheduler's verbs, and answers.
func (c *conversation) giveBack(id uint64, verb func(run sched.Run) error, reply string) {
	h := c.held.take(id)
	switch {
	case h == nil || !h.broadcast && verb(h.run) != nil:
		c.replyWord(codec.NotFound)
	default:
		c.acknowledgeWord(h.queue, reply)
	}
}

func (c *conversation) release(r *codec.Request) {
	loop := c.s.Loop
	c.giveBack(r.ID, func(run sched.Run) error {
		return c.p.sched.Release(loop.Now, c.s.Peer(), run, toPriority(r.Priority), int64(r.Delay)*1000, loop.Sink)
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
	if h == nil || !h.broadcast && c.p.sched.Touch(c.s.Loop.Now, c.s.Peer(), h.run) != nil {
		c.replyWord(codec.NotFound)
		return
	}
	c.held.renew(h, c.s.Loop.Now.Mono)
	c.replyWord(codec.Touched)
}
