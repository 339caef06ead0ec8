package loop

import (
	"treadle/codec/periodic"
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
func (p *periodicTalk) crcOnly(f *periodic.Frame) bool {
	r := p.s.r
	switch f.Cmd {
	case periodic.Acquire:
		return p.acquire(f)
	case periodic.Release:
		return p.release(f)
	case periodic.WorkData:
		return p.workData(f)
	case periodic.RecvData:
		return p.recvData(f)
	case periodic.JobUnassigned:
		_ = r.server.sched.Release(r.Now, p.s.Peer(), uint64(f.MsgID), r)
	}
	return true // JOB_ASSIGNED asks for nothing
}

// acquire is ACQUIRE: 1 when the job has the lock, 0 when it has not, and is the
// worker's no more.
func (p *periodicTalk) acquire(f *periodic.Frame) bool {
	name, rest, ok := periodic.Str8(f.Args)
	if !ok {
		return false
	}
	count, rest, ok := periodic.Int16(rest)
	if !ok {
		return false
	}
	run, _, ok := p.reportOf(rest) // a worker that is refused says nothing more of the run
	if !ok {
		return false
	}
	r := p.s.r
	got, err := r.server.sched.Lock(r.Now, p.s.Peer(), run, string(name), int(count), r)
	if err == sched.ErrLocks || err == sched.ErrJobLocks {
		p.refuse(f.MsgID, reasonOf(err))
		return true
	}
	p.s.Touch()
	start := len(p.s.Out)
	out := periodic.AppendMessage(periodic.BeginResponse(p.s.Out, p.framing), f.MsgID, periodic.Acquired)
	if got {
		out = append(out, 1)
	} else {
		out = append(out, 0)
	}
	periodic.End(out, start, p.framing)
	p.s.Out = out
	return true
}

func (p *periodicTalk) release(f *periodic.Frame) bool {
	name, rest, ok := periodic.Str8(f.Args)
	if !ok {
		return false
	}
	run, _, ok := p.handleOf(rest)
	if !ok {
		return false
	}
	r := p.s.r
	_ = r.server.sched.Unlock(r.Now, p.s.Peer(), run, string(name), r)
	p.received(f.MsgID)
	return true
}

// workData is WORK_DATA. Its SUCCESS waits for receivers that read too slowly: a
// worker that waits for it keeps their pace.
func (p *periodicTalk) workData(f *periodic.Frame) bool {
	run, data, ok := p.handleOf(f.Args)
	if !ok {
		return false
	}
	r := p.s.r
	wait, _ := r.server.sched.Publish(p.s.Peer(), run, data, uint64(f.MsgID), r)
	if !wait {
		p.reply(f.MsgID, periodic.Success)
	}
	return true
}

// recvData is RECV_DATA: of the Job record only function and name count.
func (p *periodicTalk) recvData(f *periodic.Frame) bool {
	var j periodic.Job
	if _, err := periodic.ParseJob(f.Args, &j); err != nil {
		return false
	}
	switch err := p.s.r.server.sched.Listen(p.s.Peer(), periodicSpace, protocol.Queue(j.Func), j.Name, uint64(f.MsgID)); {
	case err == sched.ErrNoWorker:
		p.reply(f.MsgID, periodic.NoWorker)
	case err != nil:
		p.refuse(f.MsgID, reasonOf(err))
	default:
		p.reply(f.MsgID, periodic.Success)
	}
	return true
}
