package sched

import (
	"errors"
	"fmt"
)

// JobVerb is what an operator does with jobs.
type JobVerb uint8

// The verbs.
const (
	// RetryJobs makes failed jobs ready, and gives them all their retries again.
	RetryJobs JobVerb = iota + 1
	// RunJobs is RetryJobs, and makes delayed jobs ready now.
	RunJobs
	// RemoveJobs removes jobs in any state. The worker of a running job learns by its report that the job is gone.
	RemoveJobs
	// SetPriority gives pending jobs another priority. A ready job goes behind the jobs that have this priority.
	SetPriority
	// SetDue gives pending jobs another due time.
	SetDue
	// MoveJobs moves pending and failed jobs to another queue. A failed job is ready there. A moved job has another
	// JobRef, and all its retries again. Its earlier JobRef finds it, too, as long as the move is remembered.
	MoveJobs
	// GiveUpJobs makes pending jobs failed.
	GiveUpJobs
)

// JobChange is a change of jobs.
type JobChange struct {
	Verb     JobVerb
	Priority int64  // new priority, of SetPriority
	Due      int64  // new due time in Unix milliseconds, of SetDue; a time that has passed is now
	Queue    string // target queue, of MoveJobs
}

// The errors of ChangeJobs, besides ErrDuplicate, ErrPolicy and ErrQueues. A job with an error has not changed.
var (
	// ErrNoJob: no job has the JobRef.
	ErrNoJob = errors.New("there is no such job: it has ended, was moved long ago, or never was")
	// ErrUnfit: the verb is not for jobs in this state. ChangeJobs wraps it in an error that names the state.
	ErrUnfit = errors.New("the job cannot be changed so")
)

// unfit is why a verb does not fit a job, by the job's state.
var unfit = [...]error{
	delayed:      fmt.Errorf("%w: it is delayed", ErrUnfit),
	ready:        fmt.Errorf("%w: it is ready", ErrUnfit),
	reserved:     fmt.Errorf("%w: a worker has it", ErrUnfit),
	parked:       fmt.Errorf("%w: it waits for a lock", ErrUnfit),
	waiting:      fmt.Errorf("%w: it waits for other tasks", ErrUnfit),
	broadcasting: fmt.Errorf("%w: it is being broadcast", ErrUnfit),
	failed:       fmt.Errorf("%w: it has failed", ErrUnfit),
	finished:     fmt.Errorf("%w: it has ended and is kept", ErrUnfit),
}

// Further reasons why a verb does not fit.
var (
	errPrivateTask = fmt.Errorf("%w: its protocol keeps track of its tasks by itself, use the protocol's own commands", ErrUnfit)
	errTaskOrder   = fmt.Errorf("%w: a task has a place in line, and neither a priority nor a due time", ErrUnfit)
	errTaskQueue   = fmt.Errorf("%w: a task cannot leave the queue of its graph", ErrUnfit)
	errOwnedEnd    = fmt.Errorf("%w: it belongs to the client that submitted it", ErrUnfit)
	errOwnedQueue  = fmt.Errorf("%w: it belongs to the client that submitted it, which knows it by its queue", ErrUnfit)
	errAwaited     = fmt.Errorf("%w: a client waits for its end, and knows it by its queue", ErrUnfit)
	errSameQueue   = fmt.Errorf("%w: it is in that queue already", ErrUnfit)
)

// ChangeJobs changes jobs, a batch under each hold of a shard's lock, and returns how many it has changed. ChangeJobs
// calls left(i, err) for each refs[i] that it did not change, possibly under a lock. It ignores the spaces of the
// references.
func (s *Scheduler) ChangeJobs(now Time, refs []JobRef, c *JobChange, sink Sink, left func(n int, why error)) (changed int) {
	var gone []int
	done := func(n int, err error) {
		if err != nil {
			left(n, err)
		} else {
			changed++
		}
	}
	for n := 0; n < len(refs); {
		if int(refs[n].Shard) >= len(s.shards) {
			gone = append(gone, n)
			n++
			continue
		}
		sh := &s.shards[refs[n].Shard]
		to := s.lockFor(sh, c)
		for stepLimit := sh.mu.steps + s.batch; n < len(refs) && refs[n].Shard == sh.id && sh.mu.steps < stepLimit; n++ {
			if err := sh.change(now, refs[n], c, to, stepLimit, sink); err == ErrNoJob {
				gone = append(gone, n)
			} else {
				done(n, err)
			}
		}
		s.unlockTwo(now, sh, to, sink)
	}
	for _, n := range gone {
		err := ErrNoJob
		if sh, job, r := s.lockJob(refs[n]); sh != nil { // a restart gave a kept job another shard, or it was moved
			ref := sh.ref(job, r)
			sh.mu.Unlock()
			to := s.lockFor(sh, c)
			err = sh.change(now, ref, c, to, sh.mu.steps+s.batch, sink)
			s.unlockTwo(now, sh, to, sink)
		}
		done(n, err)
	}
	return changed
}

// lockFor locks the shard of the jobs, and the shard of the queue to which they are to move. It returns the latter
// shard.
func (s *Scheduler) lockFor(sh *shard, c *JobChange) (to *shard) {
	if to = sh; c.Verb == MoveJobs {
		to = s.shardOf([]byte(c.Queue))
	}
	lockTwo(sh, to)
	return to
}

// change is ChangeJobs for one job. to is the shard of JobChange.Queue. The caller holds its lock as well. change
// matches the queues while the shard has taken fewer than stepLimit steps. The Ticks match the rest.
func (sh *shard) change(now Time, ref JobRef, c *JobChange, to *shard, stepLimit int, sink Sink) error {
	sh.countSteps(1)
	job, r, ok := sh.find(ref)
	if !ok {
		return ErrNoJob
	}
	q := sh.queueOf(r)
	sh.countSteps(r.cost())
	if r.flags&private != 0 {
		return errPrivateTask
	}
	pending := r.state == ready || r.state == delayed
	var err error
	switch {
	case c.Verb == RemoveJobs:
		sh.removeInAnyState(now, job, r, q, sink)
		return nil
	case c.Verb == MoveJobs && (pending || r.state == failed):
		return sh.moveByHand(now, job, r, q, c.Queue, to, stepLimit, sink)
	case (c.Verb == RetryJobs || c.Verb == RunJobs) && r.state == failed:
		err = sh.retry(now, job, r, q, true)
	case c.Verb == GiveUpJobs && pending && r.flags&task != 0:
		err = errTaskOrder
	case c.Verb == GiveUpJobs && pending && sh.s.rules[r.space].Owned:
		err = errOwnedEnd
	case c.Verb == GiveUpJobs && pending:
		sh.dequeue(job, r, q)
		sh.counters.GivenUp++
		q.tally.Ended[EndFailed]++
		sh.giveUp(now, job, r, q, sink)
	case c.Verb == RunJobs && r.state == delayed:
		sh.addCount(r, atKicked)
		sh.setDue(now, job, r, q, now.Wall)
	case (c.Verb == SetPriority || c.Verb == SetDue) && pending && r.flags&task != 0:
		err = errTaskOrder
	case c.Verb == SetPriority && pending:
		sh.setPriority(now, job, r, q, c.Priority)
	case c.Verb == SetDue && pending:
		sh.setDue(now, job, r, q, max(c.Due, now.Wall))
	default:
		err = unfit[r.state]
	}
	if err == nil {
		sh.matchUntil(now, q, stepLimit, sink)
	}
	return err
}

// removeInAnyState removes a job in any state. An owner is told that its job has failed, since it did not ask for the
// removal.
func (sh *shard) removeInAnyState(now Time, job uint32, r *record, q *queue, sink Sink) {
	switch {
	case r.state == failed || r.state == finished:
		sh.counters.Removed += uint64(oneIf(r.state == failed))
		sh.removeKept(job, r, q)
	case sh.s.rules[r.space].Owned:
		sh.removeLive(now, job, r, q, Failed, sink)
	default:
		sh.removeLive(now, job, r, q, Removed, sink)
	}
}

// setPriority gives a pending job another priority.
func (sh *shard) setPriority(now Time, job uint32, r *record, q *queue, priority int64) {
	if r.priority == priority {
		return // it keeps its place
	}
	millis := uint32(0)
	if r.state == delayed {
		millis = r.dueMillis()
	} else {
		now = r.notBefore(now)
	}
	sh.dequeue(job, r, q)
	r.priority = priority
	sh.enqueue(now, job, r, q, millis)
	sh.save(job, r, q)
}

// setDue gives a pending job another due time. A job that was woken for a lock leaves its turn to other jobs.
func (sh *shard) setDue(now Time, job uint32, r *record, q *queue, wall int64) {
	sh.dequeue(job, r, q)
	if r.flags&locking != 0 {
		sh.dropLocks(job, r)
	}
	r.flags &^= immediate
	r.due = floorSecond(wall)
	sh.enqueue(now, job, r, q, uint32(wall-r.due*1000))
	sh.save(job, r, q)
}

// moveByHand moves a pending or failed job to the queue of a name, if the policy there takes it.
func (sh *shard) moveByHand(now Time, job uint32, r *record, q *queue, queue string, to *shard, stepLimit int, sink Sink) error {
	switch {
	case q.name == queue:
		return errSameQueue
	case r.flags&task != 0:
		return errTaskQueue
	case sh.s.rules[r.space].Owned:
		return errOwnedQueue
	case r.flags&awaited != 0:
		return errAwaited
	}
	target, err := to.queueFor([]byte(queue), r.flags&numbered != 0)
	if err == nil && target.policy != nil {
		name, workload := unpack(sh.arena.view(r.bytes, int(r.size)))
		err = target.admit(name, workload, -1)
	}
	if err == nil {
		err = sh.moveTo(now, job, r, q, to, target, now.Wall, sink)
	}
	if err != nil {
		return err
	}
	to.matchUntil(now, target, to.mu.steps+max(stepLimit-sh.mu.steps, 0), sink)
	return nil
}
