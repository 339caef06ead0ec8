package sched

import (
	"cmp"
	"fmt"
	"slices"
)

// The model's part for policies, without dead letters. Its jobs are of spaces without rules for failures.

// machinePolicies are the policies of the model's queues: at most one holds for a queue at a time.
var machinePolicies = []map[string]string{
	{"retries": "1", "keep-failed": "2"},
	{"retries": "0", "keep-failed": "0"},
	{"retries": "0", "keep-failed": "5s"},
	{"retries": "2", "backoff": "1s..3s x2", "concurrency": "1"}, // with more than one running job the order of the retries would be free
	{"concurrency": "1", "retries": "forever", "backoff": "1500ms"},
	{"rate": "2/s burst 3"},
	{"rate": "1/700ms", "concurrency": "2"},
	{"paused": "hand-out"},
	{"paused": "submits"},
	{"paused": "both"},
	{"max-jobs": "2"},
	{"max-bytes": "300"},
	{"max-payload": "59"},
}

// modelRate is what has started under a rate.
type modelRate struct {
	rate   Rate
	starts []int64 // Mono
	shut   bool    // until a Tick
}

// opens returns the Mono from which on one more job may start: of the jobs that have started from any moment on there
// are no more than a burst, and those that the rate adds in the time since.
func (r *modelRate) opens() (mono int64) {
	for i, at := range r.starts {
		if over := int64(len(r.starts)-i) + 1 - r.rate.Burst; over > 0 {
			mono = max(mono, at+(over*r.rate.Per+r.rate.Jobs-1)/r.rate.Jobs)
		}
	}
	return mono
}

// policy is the policy of a queue, nil for none.
func (m *model) policy(queue string) *Policy {
	if m.policies == nil {
		return nil
	}
	return m.policies.forQueue(queue)
}

func (m *model) running(queue string) (n int) {
	for _, j := range m.jobs {
		n += oneIf(j.queue == queue && j.state == reserved)
	}
	return n
}

// limited reports whether a policy bounds what a queue hands out. Such a queue is matched at the next Tick when a job
// of it ends.
func (m *model) limited(queue string) bool {
	p := m.policy(queue)
	return p != nil && (p.Paused&pauseHandOut != 0 || p.Concurrency > 0 || p.Rate.Jobs > 0)
}

// unmatched reports whether a Tick has to match a limited queue.
func (m *model) unmatched() bool {
	for queue := range m.queues {
		if m.limited(queue) && m.nextSlot(queue) != nil && len(m.heads(queue)) > 0 {
			return true
		}
	}
	return false
}

// shut reports whether a queue hands out nothing now.
func (m *model) shut(queue string) bool {
	p, r := m.policy(queue), m.rates[queue]
	return p != nil && (p.Paused&pauseHandOut != 0 || p.Concurrency > 0 && m.running(queue) >= int(p.Concurrency)) || r != nil && r.shut
}

// started notes that a job of a queue was handed out.
func (m *model) started(queue string) {
	if r := m.rates[queue]; r != nil {
		r.starts = append(r.starts, m.now.Mono)
		r.shut = r.opens() > m.now.Mono
	}
}

// setPolicies gives all queues policies. A rate that stays goes on as it was.
func (m *model) setPolicies(t *Policies) {
	m.policies = t
	for _, queue := range machineQueues {
		p, r := m.policy(queue), m.rates[queue]
		switch {
		case p == nil || p.Rate.Jobs == 0:
			delete(m.rates, queue)
		case r == nil || r.rate != p.Rate:
			m.rates[queue] = &modelRate{rate: p.Rate}
		}
	}
}

// admit is the error of a submission that the policy of its queue refuses. j is the pending job of its name, or nil.
func (m *model) admit(s *Submission, j *modelJob) error {
	p, pending, bytes := m.policy(string(s.Queue)), 0, packedLen(s.Name, s.Workload)
	if p == nil {
		return nil
	}
	for _, o := range m.jobs {
		if o.queue == string(s.Queue) && o != j {
			pending += oneIf(o.state != reserved)
			bytes += o.size()
		}
	}
	switch {
	case p.Paused&pauseSubmits != 0:
		return ErrPaused
	case p.MaxPayload > 0 && len(s.Workload) > int(p.MaxPayload):
		return ErrPayload
	case p.MaxJobs > 0 && j == nil && pending >= int(p.MaxJobs):
		return ErrMaxJobs
	case p.MaxBytes > 0 && bytes > int(p.MaxBytes):
		return ErrMaxBytes
	}
	return nil
}

// fails is the end of a run that has failed; false: the queue has no policy for that. The effects of a job that is
// given up are owed, or come in any order with those of others.
func (m *model) fails(j *modelJob, anyOrder bool) bool {
	p := m.policy(j.queue)
	if p == nil || !p.Limited && p.Backoff.First == 0 {
		return false
	}
	j.tries++
	if p.Limited && j.tries > int(p.Retries) {
		m.giveUp(j, p, anyOrder)
		return true
	}
	delay := p.Backoff.delay(j.tries, 0)
	if delay == 0 {
		return false
	}
	j.due(m.now.Wall + delay)
	m.place(j)
	return true
}

func (m *model) giveUp(j *modelJob, p *Policy, anyOrder bool) {
	m.counted.GivenUp++
	owed := len(m.owed)
	m.end(j, Failed, "")
	if anyOrder {
		m.anyOrder = append(m.anyOrder, m.owed[owed:]...)
		m.owed = m.owed[:owed]
	}
	if p.KeepFailed != (Keep{}) {
		j.state, j.holder, j.failedAt = failed, nil, m.now.Wall
		m.failed = append(m.failed, j)
		slices.SortStableFunc(m.failed, func(a, b *modelJob) int { return cmp.Or(cmp.Compare(a.failedAt, b.failedAt), cmp.Compare(a.id, b.id)) })
	}
}

// failedOf are the failed jobs of a queue, the oldest first.
func (m *model) failedOf(queue string) (all []*modelJob) {
	for _, j := range m.failed {
		if j.queue == queue {
			all = append(all, j)
		}
	}
	return all
}

// keeps is what is kept of a queue's failed jobs.
func (m *model) keeps(queue string) Keep {
	if p := m.policy(queue); p != nil {
		return p.KeepFailed
	}
	return defaultKept
}

// tickPolicies removes failed jobs that are too many or too old, and opens the rates whose time has come: a part of
// tick.
func (m *model) tickPolicies() {
	for _, r := range m.rates {
		r.shut = r.shut && r.opens() > m.now.Mono
	}
	for _, queue := range machineQueues {
		k, all := m.keeps(queue), m.failedOf(queue)
		for i, j := range all {
			if k == (Keep{}) || k.Jobs > 0 && len(all)-i > int(k.Jobs) || k.Age > 0 && j.failedAt+k.Age <= m.now.Wall {
				m.counted.Evicted++
				m.failed = slices.DeleteFunc(m.failed, func(o *modelJob) bool { return o == j })
			}
		}
	}
}

// retryFailed makes a failed job ready by hand.
func (m *model) retryFailed(j *modelJob) error {
	if m.find(j.space, j.queue, j.name) != nil {
		return ErrDuplicate
	}
	m.counted.Retried++
	m.failed = slices.DeleteFunc(m.failed, func(o *modelJob) bool { return o == j })
	m.jobs = append(m.jobs, j)
	j.tries, j.schedAt, j.second, j.past = 0, 0, m.second(), 0
	m.place(j)
	return nil
}

// policy gives queues other policies, which hold from the Ticks on that follow.
func (x *machine) policy(o op) error {
	if err := x.run(op{Verb: "tick"}); err != nil { // what is due under the earlier policies
		return err
	}
	queue, rules := machineQueues[o.Queue], []PolicyRule(nil)
	if x.m.policies != nil {
		rules = slices.DeleteFunc(slices.Clone(x.m.policies.Rules()), func(r PolicyRule) bool { return r.Pattern == queue })
	}
	if values := machinePolicies[o.Which]; queue != "" && !o.Flag && (values["backoff"] == "" || x.m.running(queue) < 2) {
		rules = append(rules, PolicyRule{Pattern: queue, Source: FromRunTime, Values: values})
	}
	table, err := NewPolicies(rules)
	if err != nil {
		return err
	}
	x.m.setPolicies(table)
	x.s.SetPolicies(table)
	return x.tick()
}

// failed retries or removes a failed job by hand.
func (x *machine) failed(o op) error {
	queue := machineQueues[o.Queue]
	all := x.m.failedOf(queue)
	if len(all) == 0 {
		return nil
	}
	j := all[o.Which%len(all)]
	if o.Flag {
		x.m.counted.Removed++
		x.m.failed = slices.DeleteFunc(x.m.failed, func(k *modelJob) bool { return k == j })
		return x.s.changeKept(x.m.now, RemoveJobs, j.ref.Seq, &x.rec)
	}
	return same("error", x.s.changeKept(x.m.now, RetryJobs, j.ref.Seq, &x.rec), x.m.retryFailed(j))
}

// compareFailed compares the failed jobs of all queues.
func (x *machine) compareFailed() error {
	for queue := range x.m.queues {
		all := x.m.failedOf(queue)
		var got, want []string
		x.s.kept(x.m.now, queue, failedStates, func(f *JobView) {
			tries, _ := ParseHistory(f.History)
			got = append(got, fmt.Sprint(string(f.Name), f.Space, f.Since, tries, f.Ref))
		})
		for _, j := range all {
			want = append(want, fmt.Sprint(j.name, j.space, j.failedAt, j.tries, j.ref))
		}
		if err := same("failed jobs of "+queue, fmt.Sprint(got), fmt.Sprint(want)); err != nil {
			return err
		}
	}
	return nil
}
