package periodic

import (
	"encoding/binary"
	"math"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// grab handles GRAB_JOB. It answers with the backlog's first job. Without a backlog it waits for a job, or answers
// NO_JOB at once when Options.Grab says so.
func (c *conversation) grab(msgID uint32) {
	loop := c.s.Loop
	if c.acksGrabs {
		c.reply(msgID, codec.Success)
	}
	if !c.backlog.empty() {
		c.s.OpenOut()
		c.s.Assigned = true
		c.assign(msgID, c.popBacklog())
		return
	}
	if c.p.o.Grab != grabDocument {
		if err := c.p.sched.Reserve(loop.Now, c.s.Peer(), uint64(msgID), loop.Sink); err != nil {
			c.refuse(msgID, reasonOf(err))
		}
		return
	}
	switch given, err := c.p.sched.TryReserve(loop.Now, c.s.Peer(), uint64(msgID), loop.Sink); {
	case err != nil:
		c.refuse(msgID, reasonOf(err))
	case !given:
		c.reply(msgID, codec.NoJob)
	}
}

// assign encodes JOB_ASSIGN: the handle, then the Job record. The CRC framing has no handle,
// and its record shows the defaults of sched_at and time-out.
func (c *conversation) assign(msgID uint32, j *sched.Job) {
	start := len(c.s.Out)
	c.s.EnsureRoom(len(j.Workload))
	out := codec.BeginResponse(c.s.Out, c.framing)
	out = codec.AppendMessage(out, msgID, codec.JobAssign)
	schedAt, count, timeout, workload := j.SchedAt, j.Count, j.Timeout, j.Workload
	if c.framing == codec.Plain {
		out = appendHandle(out, j.Run())
	}
	space := &c.s.Loop.Spaces[j.Space]
	if space.AsText != nil {
		c.s.Loop.Scratch = space.AsText(c.s.Loop.Scratch[:0], j)
		workload = c.s.Loop.Scratch
	}
	switch {
	case space.NoTimes:
		schedAt, count, timeout = 0, 0, 0
	case c.framing == codec.CRC:
		if schedAt == 0 {
			schedAt = c.s.Loop.Now.Wall / 1000
		}
		if timeout == 0 {
			timeout = int32(min(c.p.config.timeout.Load(), math.MaxInt32))
		}
	}
	out = appendFunction(out, j.Queue)
	out = codec.AppendStr8(out, j.Name)
	out = codec.AppendStr32(out, workload)
	out = codec.AppendJobTail(out, schedAt, count, timeout)
	codec.End(out, start, c.framing)
	c.s.Out = out
}

// appendFunction appends the function of a queue.
func appendFunction(out []byte, queue string) []byte {
	return codec.AppendStr8String(out, protocol.Unescape(queue))
}

// sleep handles SLEEP. It answers when a job is ready, or at once where grabs wait.
func (c *conversation) sleep(msgID uint32) {
	loop := c.s.Loop
	if c.p.o.Grab != grabDocument || !c.backlog.empty() {
		c.reply(msgID, codec.Noop)
		return
	}
	if err := c.p.sched.Sleep(loop.Now, c.s.Peer(), uint64(msgID), loop.Sink); err != nil {
		c.refuse(msgID, reasonOf(err))
	}
}

// A handle names a run of a job: a length byte and the run. A job that is handed out again has
// another handle, so that a late report does not end a later run.
const (
	handleLen  = 2 + 4 + 8
	spaceShift = 12 // below the space, the shard: it has at most 12 bits, sched.MaxSpaces 4
)

func appendHandle(out []byte, run sched.Run) []byte {
	out = append(out, handleLen)
	out = binary.BigEndian.AppendUint16(out, run.Shard|uint16(run.Space)<<spaceShift)
	out = binary.BigEndian.AppendUint32(out, run.Record)
	return binary.BigEndian.AppendUint64(out, run.Number)
}

// parseHandle reads a handle. ok is false when in ends inside it. A handle of another length
// is noRun.
func parseHandle(in []byte) (run sched.Run, rest []byte, ok bool) {
	handle, rest, ok := codec.Str8(in)
	if !ok || len(handle) != handleLen {
		return noRun, rest, ok
	}
	where := binary.BigEndian.Uint16(handle)
	return sched.Run{
		Shard:  where & (1<<spaceShift - 1),
		Space:  sched.Space(where >> spaceShift),
		Record: binary.BigEndian.Uint32(handle[2:]),
		Number: binary.BigEndian.Uint64(handle[6:]),
	}, rest, true
}

// noRun stands for a job that the worker does not hold.
var noRun = sched.Run{Shard: math.MaxUint16}

// handleOf reads the handle of a job, which in the CRC framing is its function and name. ok is
// false when in ends inside it. A job that the worker does not hold is noRun.
func (c *conversation) handleOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	return c.runOf(in, func(queue, name []byte) (sched.Run, bool) { return c.p.sched.Held(c.s.Peer(), queue, name) })
}

// reportOf is handleOf for a report that ends the run.
func (c *conversation) reportOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	return c.runOf(in, func(queue, name []byte) (sched.Run, bool) {
		return c.p.sched.Report(c.s.Loop.Now, c.s.Peer(), queue, name, c.s.Loop.Sink)
	})
}

// runOf reads a handle. In the CRC framing find knows its run.
func (c *conversation) runOf(in []byte, find func(queue, name []byte) (sched.Run, bool)) (run sched.Run, rest []byte, ok bool) {
	if c.framing == codec.Plain {
		return parseHandle(in)
	}
	queue, name, rest, ok := twoNames(in)
	if !ok {
		return noRun, nil, false
	}
	if run, held := find(queue, name); held {
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

// ackWorker acknowledges a worker's notification in the versions that do. SUCCESS confirms the reading, even when the
// worker no longer held the job.
func (c *conversation) ackWorker(msgID uint32) {
	if c.version.acksWorkers {
		c.reply(msgID, codec.Success)
	}
}

// workDone handles WORK_DONE. As in the handlers below, a report on a job that the worker no
// longer holds is counted and logged and has no effect.
func (c *conversation) workDone(f *codec.Frame) bool {
	run, data, ok := c.reportOf(f.Args)
	if ok {
		loop := c.s.Loop
		if err := c.p.sched.Finish(loop.Now, c.s.Peer(), run, loop.Result(run.Space, data), loop.Sink); err != nil {
			c.logLate(f, run)
		}
		c.ackWorker(f.MsgID)
	}
	return ok
}

func (c *conversation) workFail(f *codec.Frame) bool {
	run, text, ok := c.reportOf(f.Args)
	if ok {
		loop := c.s.Loop
		if err := c.p.sched.Fail(loop.Now, c.s.Peer(), run, text, loop.Sink); err != nil {
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
	loop := c.s.Loop
	run, _, _ := c.reportOf(f.Args) // the arguments are complete
	if err := c.p.sched.Delay(loop.Now, c.s.Peer(), run, delay, int32(step), loop.Sink); err != nil {
		c.logLate(f, run)
	}
	c.ackWorker(f.MsgID)
	return true
}

// acquire handles ACQUIRE. It answers 1 when the job has the lock, else 0: the worker then no
// longer holds the job.
func (c *conversation) acquire(f *codec.Frame) bool {
	name, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	count, rest, ok := codec.Int16(rest)
	if !ok {
		return false
	}
	run, _, ok := c.reportOf(rest) // a worker without the lock reports nothing more
	if !ok {
		return false
	}
	loop := c.s.Loop
	got, err := c.p.sched.AcquireLock(loop.Now, c.s.Peer(), run, string(name), int(count), loop.Sink)
	if err == sched.ErrLocks || err == sched.ErrJobLocks {
		c.refuse(f.MsgID, reasonOf(err))
		return true
	}
	answer := byte(0)
	if got {
		answer = 1
	}
	c.replyWith(f.MsgID, codec.Acquired, answer)
	return true
}

// release handles RELEASE of a lock. It returns false for a frame that cannot be parsed.
func (c *conversation) release(f *codec.Frame) bool {
	name, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	run, _, ok := c.handleOf(rest)
	if !ok {
		return false
	}
	loop := c.s.Loop
	_ = c.p.sched.ReleaseLock(loop.Now, c.s.Peer(), run, string(name), loop.Sink)
	c.ackWorker(f.MsgID)
	return true
}

// workData handles WORK_DATA. SUCCESS waits for receivers that read slowly, which slows down a
// worker that waits for it.
func (c *conversation) workData(f *codec.Frame) bool {
	run, data, ok := c.handleOf(f.Args)
	if !ok {
		return false
	}
	loop := c.s.Loop
	wait, _ := c.p.sched.Publish(c.s.Peer(), run, data, uint64(f.MsgID), loop.Sink)
	if !wait {
		c.reply(f.MsgID, codec.Success)
	}
	return true
}

// handleWatch handles CAN_DO, BROADCAST and CANT_DO.
func (c *conversation) handleWatch(f *codec.Frame) bool {
	name, _, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	loop := c.s.Loop
	if f.Cmd == codec.CantDo {
		c.s.Cost += len(c.backlog.jobs)
		c.dropBacklog(string(protocol.Queue(name)))
		c.p.sched.Unwatch(c.s.Peer(), protocol.Queue(name))
	} else if err := c.p.sched.Watch(loop.Now, c.s.Peer(), protocol.Queue(name), f.Cmd == codec.Broadcast, loop.Sink); err != nil {
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
