package periodic

import (
	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// submit handles SUBMIT_JOB and, with await, RUN_JOB.
func (c *conversation) submit(f *codec.Frame, await bool) bool {
	var j codec.Job
	if _, err := codec.ParseJob(f.Args, &j); err != nil {
		return false
	}
	sub := submission(&j)
	if await {
		sub.Await, sub.Tag = c.s.Peer(), uint64(f.MsgID)
		sub.OnFail, sub.NeedWorker = c.version.failEnds, c.version.failEnds
	}
	loop := c.s.Loop
	if err := c.p.host.CheckCapacity(); err != nil {
		c.refuse(f.MsgID, reasonOf(err))
		return true
	}
	if await && c.version.expiresRuns {
		c.startExpiry(f.MsgID, &sub)
	}
	err := c.p.sched.Submit(loop.Now, &sub, loop.Sink)
	if err != nil && await && c.pending != nil {
		c.pending.remove(f.MsgID)
	}
	switch {
	case err == sched.ErrNoWorker:
		c.reply(f.MsgID, codec.NoWorker)
	case err != nil:
		c.refuse(f.MsgID, reasonOf(err))
	case !await:
		c.acknowledge(f.MsgID, codec.Success, sub.Queue)
	}
	return true
}

func submission(j *codec.Job) sched.Submission {
	return sched.Submission{
		Space: Space, Queue: protocol.Queue(j.Func), Name: j.Name, Workload: j.Workload,
		SchedAt: j.SchedAt, Count: j.Count, Timeout: j.Timeout,
	}
}

// recvData handles RECV_DATA. Only function and name of its Job record have an effect.
func (c *conversation) recvData(f *codec.Frame) bool {
	var j codec.Job
	if _, err := codec.ParseJob(f.Args, &j); err != nil {
		return false
	}
	switch err := c.p.sched.Listen(c.s.Peer(), Space, protocol.Queue(j.Func), j.Name, uint64(f.MsgID)); {
	case err == sched.ErrNoWorker:
		c.reply(f.MsgID, codec.NoWorker)
	case err != nil:
		c.refuse(f.MsgID, reasonOf(err))
	default:
		c.reply(f.MsgID, codec.Success)
	}
	return true
}
