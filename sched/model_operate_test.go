package sched

import (
	"cmp"
	"slices"
)

// The model's part for what operators do with jobs of any state.

// change is ChangeJobs for one job.
func (m *model) change(j *modelJob, c *JobChange) error {
	pending := j.state == ready || j.state == delayed
	switch {
	case c.Verb == RemoveJobs && j.state == failed:
		m.counted.Removed++
		m.unkeep(j)
	case c.Verb == RemoveJobs:
		m.remove(j.space, j.queue, j.name)
	case c.Verb == MoveJobs && (pending || j.state == failed):
		return m.move(j, c.Queue)
	case (c.Verb == RetryJobs || c.Verb == RunJobs) && j.state == failed:
		return m.retryFailed(j)
	case c.Verb == RunJobs && j.state == delayed:
		j.due(m.now.Wall)
		m.place(j)
	case c.Verb == SetPriority && pending:
		if j.priority != c.Priority {
			j.priority = c.Priority
			m.placeAgain(j)
		}
	case c.Verb == SetDue && pending:
		j.due(max(c.Due, m.now.Wall))
		m.place(j)
	default:
		return unfit[j.state]
	}
	return nil
}

// placeAgain puts a pending job behind its equals. One that was ready stays so, whatever the clock says.
func (m *model) placeAgain(j *modelJob) {
	if j.state == ready {
		j.stamp = m.nextStamp()
		return
	}
	m.place(j)
}

// unkeep takes a job out of the failed ones.
func (m *model) unkeep(j *modelJob) {
	m.failed = slices.DeleteFunc(m.failed, func(o *modelJob) bool { return o == j })
}

func (m *model) move(j *modelJob, to string) error {
	switch {
	case j.queue == to:
		return errSameQueue
	case len(j.waits) > 0:
		return errAwaited
	}
	err := cmp.Or(m.makeQueue(to), m.admit(&Submission{Queue: []byte(to), Name: []byte(j.name), Workload: []byte(j.workload)}, nil))
	if err == nil && m.find(j.space, to, j.name) != nil {
		err = ErrDuplicate
	}
	if err != nil {
		return err
	}
	m.counted.Moved++
	m.counted.Submitted++
	wasFailed := j.state == failed
	m.unkeep(j)
	m.jobs = append(slices.DeleteFunc(m.jobs, func(o *modelJob) bool { return o == j }), j)
	j.queue, j.ref, j.tries, j.id = to, JobRef{}, 0, m.nextStamp()
	if wasFailed {
		j.schedAt, j.second, j.past = 0, m.second(), 0
		m.place(j)
		return nil
	}
	m.placeAgain(j)
	return nil
}

// operate changes a job as an operator does.
func (x *machine) operate(o op) error {
	all := slices.Concat(x.m.jobs, x.m.failed)
	if len(all) == 0 {
		return nil
	}
	j := all[o.Which%len(all)]
	ref := j.ref
	if j.state != failed {
		ref, _ = x.s.Find(j.space, []byte(j.queue), []byte(j.name))
	}
	c := &JobChange{
		Verb: JobVerb(o.Count) + RetryJobs, Priority: machinePriority[o.Priority], Due: x.m.now.Wall + int64(o.At-2)*700,
		Queue: machineQueues[o.Queue],
	}
	var got error
	x.s.ChangeJobs(x.m.now, []JobRef{ref}, c, &x.rec, func(_ int, why error) { got = why })
	return same("error", got, x.m.change(j, c))
}
