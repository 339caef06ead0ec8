package periodic

import (
	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// era describes the replies of the original server at one time.
type era struct {
	dataResults bool             // DATA carries the reply of RUN_JOB
	dataReports bool             // DATA carries the replies of STATUS, DUMP and the handshake
	status      codec.StatusForm // of STATUS
	failEnds    bool             // RUN_JOB ends with the first failure and needs a worker
	acksWorkers bool             // SUCCESS answers a worker's notifications
	failed      []byte           // the result of a RUN_JOB whose job failed
	removed     []byte           // the result of a RUN_JOB whose job was removed
	is2026      bool             // CONFIG has the keys and defaults of 1.2.9.1, and RUN_JOB expires
}

// plainEra is the era of the framing of 2018.
var plainEra = era{status: codec.StatusPlain}

// eras holds the eras of the CRC framing by the values of --periodic-crc: the date of the first such reply.
var eras = map[string]*era{
	"2019-02": {status: codec.StatusCRC},
	"2019":    {status: codec.StatusCRC, dataResults: true, failEnds: true},
	"2020":    {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true},
	"2023":    {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed, removed: resultRemoved},
	"2026": {status: codec.StatusCRC, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed,
		removed: resultRemoved, is2026: true},
}

// The results of a RUN_JOB whose job failed or was removed. Before March 2022 they are empty.
var resultFailed, resultRemoved = []byte("failed"), []byte("removed")

// endOfData is the last DATA of a stream.
var endOfData = []byte("EOF")

// crcOnly handles the requests of the CRC framing alone. It returns false when the arguments
// are truncated.
func (c *conversation) crcOnly(f *codec.Frame) bool {
	loop := c.s.Loop
	switch f.Cmd {
	case codec.Acquire:
		return c.acquire(f)
	case codec.Release:
		return c.release(f)
	case codec.WorkData:
		return c.workData(f)
	case codec.RecvData:
		return c.recvData(f)
	case codec.JobUnassigned:
		_ = c.p.sched.Release(loop.Now, c.s.Peer(), uint64(f.MsgID), loop.Sink)
	}
	return true // JOB_ASSIGNED has no effect
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
	c.s.Touch()
	start := len(c.s.Out)
	out := codec.AppendMessage(codec.BeginResponse(c.s.Out, c.framing), f.MsgID, codec.Acquired)
	if got {
		out = append(out, 1)
	} else {
		out = append(out, 0)
	}
	codec.End(out, start, c.framing)
	c.s.Out = out
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
