//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/admin"
)

// operation is an operator's change of all jobs that a filter means. The server changes them in slices, between which
// time passes and everything goes on. Until it has ended, the ledger does not know which jobs of the queue are changed.
type operation struct {
	jobChange
	id    string // empty: it is not answered yet
	queue int
	spare bool // running jobs do not match
	turn  int  // in which it arrived
	firm  []firmJob
}

// firmJob is a job that an operation must change, unless something else happens to the job meanwhile.
type firmJob struct {
	job         *Job
	state       string // state that the server showed at the beginning
	run         *Run
	failures    int
	changedByID int
}

// isUndisturbed reports whether nothing has happened to a job since the operation has begun.
func (f *firmJob) isUndisturbed() bool {
	j := f.job
	return j.inServer != no && j.holder == nil && j.run == f.run && j.failures == f.failures && j.changedByID == f.changedByID
}

// operateOnAll lets an operator change all Periodic jobs of a queue, or empty a queue.
func (s *Simulator) operateOnAll(c *jobChange) {
	if s.ledger.operation != nil || s.ledger.stopping {
		return
	}
	o := &operation{jobChange: *c, queue: s.rng.IntN(workedQueues), turn: s.ledger.turn}
	r := s.request(c)
	call := s.operatorCall("/api/v1/jobs/change", r)
	r.Filter = fmt.Sprintf("queue:%q protocol:periodic", s.ledger.queues[o.queue])
	if call.body = s.httpBody(r); c.verb == admin.VerbRemove && s.rng.IntN(2) == 0 {
		o.queue, o.spare = spareQueue, true // it has Periodic jobs alone
		call = s.operatorCall("/api/v1/queues/empty", &admin.QueueChange{Queue: s.ledger.queues[o.queue], RequestedBy: admin.RequestedBy{By: "ana"}})
	}
	if c.verb == admin.VerbMove && c.to == o.queue {
		return
	}
	seen := s.seeJobs(fmt.Sprintf("queue:%q protocol:periodic", s.ledger.queues[o.queue]))
	if o.spare && len(seen) == 0 {
		return // there may be no such queue yet
	}
	call.onArrival = func() {
		s.ledger.operation = o
		for i := range seen {
			x := &seen[i]
			if does, known := s.ledger.willChange(c, x); does && known && x.isPending() && x.job.turn < s.ledger.turn {
				o.firm = append(o.firm, firmJob{x.job, x.State, x.job.run, x.job.failures, x.job.changedByID})
			}
		}
		s.ledger.noteOperation()
	}
	call.onAnswer = func(status int, all []byte) {
		var answer admin.OperationStarted
		s.ledger.httpRead(call, status, all, &answer)
		o.id = answer.Operation
	}
	s.trace.Logf("h%d is an operator's: %+v of all jobs of q%d, but those that run: %v", call.number, *c, o.queue, o.spare)
	s.httpArrive(call)
	s.operationOver()
	s.settle()
}

// noteOperation notes what the operation may have done to jobs, or may still do.
func (l *Ledger) noteOperation() {
	o := l.operation
	if o == nil {
		return
	}
	for _, j := range l.jobs {
		if j.by == ofPeriodic && j.inServer != no && j.mayBeIn(o.queue) {
			o.mayChange(l, j)
		}
	}
}

// mayChange notes that the operation changes a job, or not.
func (o *operation) mayChange(l *Ledger, j *Job) {
	held := l.holds(j.holder, j)
	switch o.verb {
	case admin.VerbRemove:
		if !held || !o.spare {
			l.doubt(j)
		}
		return
	case admin.VerbMove:
		if !j.moving && j.queue == o.queue {
			j.moving, j.otherQueues = true, append(j.otherQueues, o.to)
			if !j.nameless {
				l.names[j.keyIn(o.to)] = append(l.names[j.keyIn(o.to)], j)
			}
		}
	case admin.VerbPriority:
		if !slices.Contains(j.priorities, o.priority) {
			j.priorities = append(j.priorities, j.priority, o.priority)
		}
	case admin.VerbDue:
		j.notBefore, j.record.schedKnown = min(j.notBefore, o.due), j.record.schedKnown && held
	default:
		j.notBefore, j.record.schedKnown = 0, j.record.schedKnown && held
	}
	j.orderKnown = false
}

// operationOver looks whether the operation has ended, and checks what it has come to.
func (s *Simulator) operationOver() {
	o := s.ledger.operation
	if o == nil || o.id == "" {
		return
	}
	var all admin.Operations
	s.get("/api/v1/operations?id="+o.id, &all)
	is := &all.Operations[0]
	if is.State == admin.OperationRunning {
		return
	}
	if is.State != admin.OperationDone && !s.ledger.stopping || is.Changed+is.Left != is.Matched {
		s.trace.Failf("the operation %+v: got %+v, want it done, with all that it matched changed or left", o.jobChange, is)
	}
	s.trace.Logf("the operation has changed %d of %d jobs", is.Changed, is.Matched)
	s.ledger.operation = nil
	seen := s.seeJobs(fmt.Sprintf("queue:%q protocol:periodic", s.ledger.queues[o.queue]))
	if o.verb == admin.VerbMove {
		seen = append(seen, s.seeJobs(fmt.Sprintf("queue:%q protocol:periodic", s.ledger.queues[o.to]))...)
	}
	for i := range seen {
		s.ledger.operated(o, &seen[i], is.State == admin.OperationDone)
	}
	for _, j := range s.ledger.jobs {
		if j.moving { // the job has ended, or has a worker
			s.ledger.move(j, j.queue)
		}
	}
}

// operated notes what an operation has done to a job, and fails if the job must have been changed and is not.
func (l *Ledger) operated(o *operation, x *seenJob, done bool) {
	j := x.job
	if o.verb == admin.VerbPriority && j.mayBeIn(o.queue) {
		j.priority = x.Priority
	}
	if !l.isIn(j, x.Queue) {
		l.trace.Failf("%v is in %s, although it is certainly in q%d", j, x.Queue, j.queue)
	}
	if o.verb == admin.VerbRemove && j.inServer == maybe && x.isPending() {
		j.inServer, j.holderUnknown = sure, false
	}
	i := slices.IndexFunc(o.firm, func(f firmJob) bool { return f.job == j })
	if i < 0 || !x.isPending() || !o.firm[i].isUndisturbed() {
		return
	}
	if f := &o.firm[i]; done && !l.wasChanged(o, f, x) {
		l.trace.Failf("%v is %s in %s, of priority %d, due at %d, although it was %s when it was to be changed: %+v", j, x.State, x.Queue, x.Priority,
			x.Due, f.state, o.jobChange)
	}
	if o.verb != admin.VerbRemove {
		j.orderKnown, j.due = true, x.Due
	}
}

// wasChanged reports whether a pending job may be as an operation leaves it.
func (l *Ledger) wasChanged(o *operation, f *firmJob, x *seenJob) bool {
	// The jobs of a queue are listed in order. One that becomes ready meanwhile may be overlooked.
	becameReady := f.state == admin.StateDelayed && x.State == admin.StateReady
	// The listing goes on behind the last job that it has shown. If that one was replaced, it stands behind others now.
	replaced := slices.ContainsFunc(l.jobs, func(k *Job) bool { return k.next != nil && k.queue == o.queue && k.turn >= o.turn })
	switch o.verb {
	case admin.VerbRemove:
		return becameReady || replaced
	case admin.VerbMove:
		nameTaken := func(k *Job) bool { return k != f.job && (k.inServer != no || k.turn >= o.turn) }
		return f.job.queue == o.to || becameReady || replaced || slices.ContainsFunc(l.names[f.job.keyIn(o.to)], nameTaken)
	case admin.VerbPriority:
		return x.Priority == o.priority
	case admin.VerbDue:
		// A ready job, which stays ready when the clock is set back, shows the second. A time that has passed is now.
		return x.State == admin.StateReady && (o.due <= l.wall || x.Due == o.due-o.due%1000) || x.Due == o.due
	default:
		return x.State == admin.StateReady
	}
}
