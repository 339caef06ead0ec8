package periodic

import (
	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// The requests of jobs and workers. Each returns false when its arguments are cut.

// submit is SUBMIT_JOB, and RUN_JOB when the result is awaited.
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
	if c.p.host.Full() {
		c.refuse(f.MsgID, codec.ReasonDisk)
		return true
	}
	if await && c.era.today {
		c.expires(f.MsgID, &sub)
	}
	err := c.p.sched.Submit(r.Now, &sub, r.Sink)
	if err != nil && await && c.runs != nil {
		c.runs.end(f.MsgID)
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

// grab is GRAB_JOB: answered with what was broadcast while the worker slept, else held until there is a job, or answered NO_JOB at once.
func (c *conversation) grab(msgID uint32) {
	r := c.s.Loop
	if c.acked {
		c.reply(msgID, codec.Success)
	}
	if !c.kept.empty() {
		c.s.Touch()
		c.s.Given = true
		c.assign(msgID, c.takeKept())
		return
	}
	if !c.p.o.Document {
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

// sleep is SLEEP: answered at once where grabs are held, else when a job is ready.
func (c *conversation) sleep(msgID uint32) {
	r := c.s.Loop
	if !c.p.o.Document || !c.kept.empty() {
		c.reply(msgID, codec.Noop)
		return
	}
	if err := c.p.sched.Sleep(r.Now, c.s.Peer(), uint64(msgID), r.Sink); err != nil {
		c.refuse(msgID, reasonOf(err))
	}
}

// handleOf reads what names a job to its worker: the handle, or in the CRC framing its
// function and name. ok is false when in ends inside it; a job that the worker does
// not hold is noRun.
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

// reportOf is handleOf for what ends a run.
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

// skipHandle returns what stands behind the names of a job.
func (c *conversation) skipHandle(in []byte) (rest []byte, ok bool) {
	if c.framing == codec.Plain {
		_, rest, ok = codec.Str8(in)
	} else {
		_, _, rest, ok = twoNames(in)
	}
	return rest, ok
}

// twoNames reads a function, as the queue that it is, and the name of a job.
func twoNames(in []byte) (queue, name, rest []byte, ok bool) {
	function, rest, ok := codec.Str8(in)
	if !ok {
		return nil, nil, nil, false
	}
	name, rest, ok = codec.Str8(rest)
	return protocol.Queue(function), name, rest, ok
}

// received acknowledges a worker's notification, in the eras that do: it means that
// it was read, whether or not the job was still the worker's.
func (c *conversation) received(msgID uint32) {
	if c.era.acksWorkers {
		c.reply(msgID, codec.Success)
	}
}

// workDone is WORK_DONE. A job that the worker does not hold is counted and ignored,
// here and below: its time was over, or it was removed.
func (c *conversation) workDone(f *codec.Frame) bool {
	run, data, ok := c.reportOf(f.Args)
	if ok {
		r := c.s.Loop
		if result := r.Spaces[run.Space].Result; result != nil {
			r.Scratch = result(r.Scratch[:0], data)
			data = r.Scratch
		}
		if err := c.p.sched.Finish(r.Now, c.s.Peer(), run, data, r.Sink); err != nil {
			c.tooLate(f, run)
		}
		c.received(f.MsgID)
	}
	return ok
}

func (c *conversation) workFail(f *codec.Frame) bool {
	run, _, ok := c.reportOf(f.Args)
	if ok {
		r := c.s.Loop
		if err := c.p.sched.Fail(r.Now, c.s.Peer(), run, r.Sink); err != nil {
			c.tooLate(f, run)
		}
		c.received(f.MsgID)
	}
	return ok
}

func (c *conversation) schedLater(f *codec.Frame) bool {
	rest, ok := c.skipHandle(f.Args)
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
	run, _, _ := c.reportOf(f.Args) // now that all of it is there
	if err := c.p.sched.Delay(r.Now, c.s.Peer(), run, delay, int32(step), r.Sink); err != nil {
		c.tooLate(f, run)
	}
	c.received(f.MsgID)
	return true
}

// serve is CAN_DO, BROADCAST and CANT_DO.
func (c *conversation) serve(f *codec.Frame) bool {
	name, _, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	r := c.s.Loop
	if f.Cmd == codec.CantDo {
		c.s.Looked += len(c.kept.jobs)
		c.dropKept(string(protocol.Queue(name)))
		c.p.sched.Unwatch(c.s.Peer(), protocol.Queue(name))
	} else if err := c.p.sched.Watch(r.Now, c.s.Peer(), protocol.Queue(name), f.Cmd == codec.Broadcast, r.Sink); err != nil {
		c.refuse(f.MsgID, reasonOf(err))
		return true
	}
	c.received(f.MsgID)
	return true
}

// tooLate logs a late report. In the framing of 2018 the handle has no names: they are those of
// the job, while it is there.
func (c *conversation) tooLate(f *codec.Frame, run sched.Run) {
	args := f.Args // f itself must not escape: it is made for each read
	c.s.Late(f.Cmd.String(), func() (queue, name string) {
		if c.framing == codec.Plain {
			return c.p.sched.NameOf(run)
		}
		function, rest, _ := codec.Str8(args)
		b, _, _ := codec.Str8(rest)
		return string(protocol.Queue(function)), string(b)
	})
}
