package periodic

import (
	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// era says how the replies of one age of the protocol differ.
type era struct {
	dataResults bool   // RUN_JOB is answered as DATA
	dataReports bool   // STATUS, DUMP and the handshake too
	locked      bool   // STATUS has a column for jobs waiting for a lock
	failEnds    bool   // RUN_JOB ends with the first failure, and needs a worker
	acksWorkers bool   // SUCCESS answers what a worker notifies
	failed      []byte // the result of a RUN_JOB whose job failed
	removed     []byte // or was removed
	today       bool   // CONFIG has the keys and defaults of 1.2.9.1, and RUN_JOB expires
}

// plainEra is that of the 2018 framing.
var plainEra = era{}

// eras are those of the CRC framing, by the values of --periodic-crc: when their replies began.
var eras = map[string]*era{
	"2019-02": {locked: true},
	"2019":    {locked: true, dataResults: true, failEnds: true},
	"2020":    {locked: true, dataResults: true, failEnds: true, dataReports: true},
	"2023":    {locked: true, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed, removed: resultRemoved},
	"2026":    {locked: true, dataResults: true, failEnds: true, dataReports: true, acksWorkers: true, failed: resultFailed, removed: resultRemoved, today: true},
}

// The results of a RUN_JOB whose job failed or was removed are of March 2022. Before that they were empty.
var resultFailed, resultRemoved = []byte("failed"), []byte("removed")

// endOfData is the last DATA of a stream.
var endOfData = []byte("EOF")

// crcOnly does the requests that only the CRC framing has; false when the arguments
// are cut.
func (c *conversation) crcOnly(f *codec.Frame) bool {
	r := c.s.Loop
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
		_ = c.p.sched.Release(r.Now, c.s.Peer(), uint64(f.MsgID), r.Sink)
	}
	return true // JOB_ASSIGNED asks for nothing
}

// acquire is ACQUIRE: 1 when the job has the lock, 0 when it has not, and is the
// worker's no more.
func (c *conversation) acquire(f *codec.Frame) bool {
	name, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	count, rest, ok := codec.Int16(rest)
	if !ok {
		return false
	}
	run, _, ok := c.reportOf(rest) // a worker that is refused says nothing more of the run
	if !ok {
		return false
	}
	r := c.s.Loop
	got, err := c.p.sched.Lock(r.Now, c.s.Peer(), run, string(name), int(count), r.Sink)
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

func (c *conversation) release(f *codec.Frame) bool {
	name, rest, ok := codec.Str8(f.Args)
	if !ok {
		return false
	}
	run, _, ok := c.handleOf(rest)
	if !ok {
		return false
	}
	r := c.s.Loop
	_ = c.p.sched.Unlock(r.Now, c.s.Peer(), run, string(name), r.Sink)
	c.received(f.MsgID)
	return true
}

// workData is WORK_DATA. Its SUCCESS waits for receivers that read too slowly: a
// worker that waits for it keeps their pace.
func (c *conversation) workData(f *codec.Frame) bool {
	run, data, ok := c.handleOf(f.Args)
	if !ok {
		return false
	}
	r := c.s.Loop
	wait, _ := c.p.sched.Publish(c.s.Peer(), run, data, uint64(f.MsgID), r.Sink)
	if !wait {
		c.reply(f.MsgID, codec.Success)
	}
	return true
}

// recvData is RECV_DATA: of the Job record only function and name count.
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
