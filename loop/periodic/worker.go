package periodic

import (
	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// The handlers below return false when the arguments are truncated.

// submit handles SUBMIT_JOB and, with await, RUN_JOB.
func (c *conversation) submit(f *codec.Frame, await bool) bool {
	var j codec.Job
	if _, err := codec.ParseJob(f.Args, &j); err != nil {
		return false
	}
	sub := submission(&j)
	if await {
		sub.Await, sub.Tag = c.s.Peer(), uint64(f.MsgID)
		sub.OnFail, sub.NeedWorker = c.era.failEnds, c.era.failEnds
	}
	r := c.s.Loop
	if err := c.p.host.Refusing(); err != nil {
		c.refuse(f.MsgID, reasonOf(err))
		return true
	}
	if await && c.era.is2026 {
		c.startExpiry(f.MsgID, &sub)
	}
	err := c.p.sched.Submit(r.Now, &sub, r.Sink)
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

// grab handles GRAB_JOB. It answers with the backlog's first job. Without a backlog it waits for a job, or answers
// NO_JOB at once when Options.Grab says so.
func (c *conversation) grab(msgID uint32) {
	r := c.s.Loop
	if c.acksGrabs {
		c.reply(msgID, codec.Success)
	}
	if !c.backlog.empty() {
		c.s.Touch()
		c.s.Assigned = true
		c.assign(msgID, c.popBacklog())
		return
	}
	if c.p.o.Grab != grabDocument {
		if err := c.p.sched.Reserve(r.Now, c.s.Peer(), uint64(msgID), r.Sink); err != nil {
			c.refuse(msgID, reasonOf(err))
		}
		return
	}
	switch given, err := c.p.sched.TryReserve(r.Now, c.s.Peer(), uint64(msgID), r.Sink); {
	case err != nil:
		c.refuse(msgID, reasonOf(err))
	case !given:
		c.reply(msgID, codec.NoJob)
	}
}

// sleep handles SLEEP. It answers when a job is ready, or at once where grabs wait.
func (c *conversation) sleep(msgID uint32) {
	r := c.s.Loop
	if c.p.o.Grab != grabDocument || !c.backlog.empty() {
		c.reply(msgID, codec.Noop)
		return
	}
	if err := c.p.sched.Sleep(r.Now, c.s.Peer(), uint64(msgID), r.Sink); err != nil {
		c.refuse(msgID, reasonOf(err))
	}
}

// handleOf reads the handle of a job, which in the CRC framing is its function and name. ok is
// false when in ends inside it. A job that the worker does not hold is noRun.
func (c *conversation) handleOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	if c.framing == codec.Plain {
		return parseHandle(in)
	}
	queue, name, rest, ok := twoNames(in)
	if !ok {
		return noRun, nil, false
	}
	if run, held := c.p.sched.Held(c.s.Peer(), queue, name); held {
		return run, rest, true
	}
	return noRun, rest, true
}

// reportOf is handleOf for a report that ends the run.
func (c *conversation) reportOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	if c.framing == codec.Plain {
		return parseHandle(in)
	}
	queue, name, rest, ok := twoNames(in)
	if !ok {
		return noRun, nil, false
	}
	r := c.s.Loop
	if run, held := c.p.sched.Report(r.Now, c.s.Peer(), queue, name, r.Sink); held {
		return run, rest, true
	}
	return noRun, rest, true
}

// afterHandle returns the bytes after the handle of a job.
func (c *conversation) afterHandle(in []byte) (rest []byte, ok bool) {
	if c.framing == codec.Plain {
		_, rest, ok = codec.Str8(in)
	} else {
		_, _, rest, ok = twoNames(in)
	}
	return rest, ok
}

// twoNames reads a function, which it returns as a queue, and the name of a job.
func twoNames(in []byte) (queue, name, rest []byte, ok bool) {
	function, rest, ok := codec.Str8(in)
	if !ok {
		return nil, nil, nil, false
	}
	name, rest, ok = codec.Str8(rest)
	return protocol.Queue(function), name, rest, ok
}

// ackWorker acknowledges a worker's notification in the eras that do. SUCCESS confirms the reading, even when the
// worker no longer held the job.
func (c *conversation) ackWorker(msgID uint32) {
	if c.era.acksWorkers {
		c.reply(msgID, codec.Success)
	}
}

// workDone handles WORK_DONE. As in the handlers below, a report on a job that the worker no
// longer holds is counted and logged and has no effect.
func (c *conversation) workDone(f *codec.Frame) bool {
	run, data, ok := c.reportOf(f.Args)
	if ok {
		r := c.s.Loop
		if result := r.Spaces[run.Space].FromResult; result != nil {
			r.Scratch = result(r.Scratch[:0], data)
			data = r.Scratch
		}
		if err := c.p.sched.Finish(r.Now, c.s.Peer(), run, data, r.Sink); err != nil {
			c.logLate(f, run)
		}
		c.ackWorker(f.MsgID)
	}
	return ok
}

func (c *conversation) workFail(f *codec.Frame) bool {
	run, text, ok := c.reportOf(f.Args)
	if ok {
		r := c.s.Loop
		if err := c.p.sched.Fail(r.Now, c.s.Peer(), run, text, r.Sink); err != nil {
			c.logLate(f, run)
		}
		c.ackWorker(f.MsgID)
	}
	return ok
}

// schedLater handles SCHED_LATER: the job is delayed, and its count changes by the step. It returns false for a frame
// that cannot be parsed.
func (c *conversation) schedLater(f *codec.Frame) bool {
	rest, ok := c.afterHandle(f.Args)
	if !ok {
		return false
	}
	delay, rest, ok := codec.Int64(rest)
	if !ok {
		return false
	}
	step, _, ok := codec.Int16(rest)
	if !ok {
		return false
	}
	r := c.s.Loop
	run, _, _ := c.reportOf(f.Args) // the arguments are complete
	if err := c.p.sched.Delay(r.Now, c.s.Peer(), run, delay, int32(step), r.Sink); err != nil {
		c.logLate(f, run)
	}
	c.ackWorker(f.MsgID)
	return true
}

// serve handles CAN_DO, BROADCAST and CANT_DO.
func (c *conversation) serve(f *codec.Frame) bool {
	name, _, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	r := c.s.Loop
	if f.Cmd == codec.CantDo {
		c.s.Cost += len(c.backlog.jobs)
		c.dropBacklog(string(protocol.Queue(name)))
		c.p.sched.Unwatch(c.s.Peer(), protocol.Queue(name))
	} else if err := c.p.sched.Watch(r.Now, c.s.Peer(), protocol.Queue(name), f.Cmd == codec.Broadcast, r.Sink); err != nil {
		c.refuse(f.MsgID, reasonOf(err))
		return true
	}
	c.ackWorker(f.MsgID)
	return true
}

// logLate logs a late report. A plain handle has no names, so they are the job's, while it exists.
func (c *conversation) logLate(f *codec.Frame, run sched.Run) {
	args := f.Args // a captured f would be allocated for each read
	c.s.LogLate(f.Cmd.String(), func() (queue, name string) {
		if c.framing == codec.Plain {
			return c.p.sched.NameOf(run)
		}
		function, rest, _ := codec.Str8(args)
		b, _, _ := codec.Str8(rest)
		return string(protocol.Queue(function)), string(b)
	})
}
