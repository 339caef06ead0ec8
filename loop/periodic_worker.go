package loop

import (
	"treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// The requests of jobs and workers. Each returns false when its arguments are cut.

// submit is SUBMIT_JOB, and RUN_JOB when the result is awaited.
func (p *periodicTalk) submit(f *periodic.Frame, await bool) bool {
	var j periodic.Job
	if _, err := periodic.ParseJob(f.Args, &j); err != nil {
		return false
	}
	sub := submission(&j)
	if await {
		sub.Await, sub.Tag = p.s.Peer(), uint64(f.MsgID)
		sub.OnFail, sub.NeedWorker = p.era.failEnds, p.era.failEnds
	}
	r := p.s.r
	if r.server.full() {
		p.refuse(f.MsgID, periodic.ReasonDisk)
		return true
	}
	if await && p.era.today {
		p.expires(f.MsgID, &sub)
	}
	err := r.server.sched.Submit(r.Now, &sub, r)
	if err != nil && await && p.runs != nil {
		p.runs.end(f.MsgID)
	}
	switch {
	case err == sched.ErrNoWorker:
		p.reply(f.MsgID, periodic.NoWorker)
	case err != nil:
		p.refuse(f.MsgID, reasonOf(err))
	case !await:
		p.acknowledge(f.MsgID, periodic.Success, sub.Queue)
	}
	return true
}

func submission(j *periodic.Job) sched.Submission {
	return sched.Submission{
		Space: periodicSpace, Queue: protocol.Queue(j.Func), Name: j.Name, Workload: j.Workload,
		SchedAt: j.SchedAt, Count: j.Count, Timeout: j.Timeout,
	}
}

// grab is GRAB_JOB: answered with what was broadcast while the worker slept, else held until there is a job, or answered NO_JOB at once.
func (p *periodicTalk) grab(msgID uint32) {
	r := p.s.r
	if p.acked {
		p.reply(msgID, periodic.Success)
	}
	if d := p.kept.take(); d != nil {
		d.Tag, d.Effect = uint64(msgID), sched.Broadcast
		p.s.Touch()
		p.Deliver(d)
		return
	}
	if r.server.o.PeriodicGrab == GrabHold {
		if err := r.server.sched.Reserve(r.Now, p.s.Peer(), uint64(msgID), r); err != nil {
			p.refuse(msgID, reasonOf(err))
		}
		return
	}
	switch given, err := r.server.sched.TryReserve(r.Now, p.s.Peer(), uint64(msgID), r); {
	case err != nil:
		p.refuse(msgID, reasonOf(err))
	case !given:
		p.reply(msgID, periodic.NoJob)
	}
}

// sleep is SLEEP: answered at once where grabs are held, else when a job is ready.
func (p *periodicTalk) sleep(msgID uint32) {
	r := p.s.r
	if r.server.o.PeriodicGrab == GrabHold || !p.kept.empty() {
		p.reply(msgID, periodic.Noop)
		return
	}
	if err := r.server.sched.Sleep(r.Now, p.s.Peer(), uint64(msgID), r); err != nil {
		p.refuse(msgID, reasonOf(err))
	}
}

// handleOf reads what names a job to its worker: the handle, or in the CRC framing its
// function and name. ok is false when in ends inside it; a job that the worker does
// not hold is noRun.
func (p *periodicTalk) handleOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	if p.framing == periodic.Plain {
		return parseHandle(in)
	}
	queue, name, rest, ok := twoNames(in)
	if !ok {
		return noRun, nil, false
	}
	if run, held := p.s.r.server.sched.Held(p.s.Peer(), queue, name); held {
		return run, rest, true
	}
	return noRun, rest, true
}

// reportOf is handleOf for what ends a run.
func (p *periodicTalk) reportOf(in []byte) (run sched.Run, rest []byte, ok bool) {
	if p.framing == periodic.Plain {
		return parseHandle(in)
	}
	queue, name, rest, ok := twoNames(in)
	if !ok {
		return noRun, nil, false
	}
	r := p.s.r
	if run, held := r.server.sched.Report(r.Now, p.s.Peer(), queue, name, r); held {
		return run, rest, true
	}
	return noRun, rest, true
}

// skipHandle returns what stands behind the names of a job.
func (p *periodicTalk) skipHandle(in []byte) (rest []byte, ok bool) {
	if p.framing == periodic.Plain {
		_, rest, ok = periodic.Str8(in)
	} else {
		_, _, rest, ok = twoNames(in)
	}
	return rest, ok
}

// twoNames reads a function, as the queue that it is, and the name of a job.
func twoNames(in []byte) (queue, name, rest []byte, ok bool) {
	function, rest, ok := periodic.Str8(in)
	if !ok {
		return nil, nil, nil, false
	}
	name, rest, ok = periodic.Str8(rest)
	return protocol.Queue(function), name, rest, ok
}

// received acknowledges a worker's notification, in the eras that do: it means that
// it was read, whether or not the job was still the worker's.
func (p *periodicTalk) received(msgID uint32) {
	if p.era.acksWorkers {
		p.reply(msgID, periodic.Success)
	}
}

// workDone is WORK_DONE. A job that the worker does not hold is counted and ignored,
// here and below: its time was over, or it was removed.
func (p *periodicTalk) workDone(f *periodic.Frame) bool {
	run, data, ok := p.reportOf(f.Args)
	if ok {
		r := p.s.r
		if result := spaces[run.Space].Result; result != nil {
			r.Scratch = result(r.Scratch[:0], data)
			data = r.Scratch
		}
		if err := r.server.sched.Finish(r.Now, p.s.Peer(), run, data, r); err != nil {
			p.tooLate(f, run)
		}
		p.received(f.MsgID)
	}
	return ok
}

func (p *periodicTalk) workFail(f *periodic.Frame) bool {
	run, _, ok := p.reportOf(f.Args)
	if ok {
		r := p.s.r
		if err := r.server.sched.Fail(r.Now, p.s.Peer(), run, r); err != nil {
			p.tooLate(f, run)
		}
		p.received(f.MsgID)
	}
	return ok
}

func (p *periodicTalk) schedLater(f *periodic.Frame) bool {
	rest, ok := p.skipHandle(f.Args)
	if !ok {
		return false
	}
	delay, rest, ok := periodic.Int64(rest)
	if !ok {
		return false
	}
	step, _, ok := periodic.Int16(rest)
	if !ok {
		return false
	}
	r := p.s.r
	run, _, _ := p.reportOf(f.Args) // now that all of it is there
	if err := r.server.sched.Delay(r.Now, p.s.Peer(), run, delay, int32(step), r); err != nil {
		p.tooLate(f, run)
	}
	p.received(f.MsgID)
	return true
}

// serve is CAN_DO, BROADCAST and CANT_DO.
func (p *periodicTalk) serve(f *periodic.Frame) bool {
	name, _, ok := periodic.Str8(f.Args)
	if !ok {
		return false
	}
	r := p.s.r
	if f.Cmd == periodic.CantDo {
		p.s.Looked += len(p.kept.all)
		p.kept.drop(string(protocol.Queue(name)))
		r.server.sched.Unwatch(p.s.Peer(), protocol.Queue(name))
	} else if err := r.server.sched.Watch(r.Now, p.s.Peer(), protocol.Queue(name), f.Cmd == periodic.Broadcast, r); err != nil {
		p.refuse(f.MsgID, reasonOf(err))
		return true
	}
	p.received(f.MsgID)
	return true
}
