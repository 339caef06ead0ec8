//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// The client of the queue with a policy reads all at once.

// policyClient submits the jobs of the model.
type policyClient struct {
	peer      *loop.OfflinePeer
	undecoded []byte
	helloRead bool
	next      uint32
	asked     map[uint32]*policyRequest // by message id, without an answer
}

// policyRequest is a submission or a RUN_JOB.
type policyRequest struct {
	job                    *policyJob
	before                 policyJob // the job as it was before the request
	run                    bool
	mayBeTaken, mayRefused bool
	namesake               namesake
}

// policyConnect connects a client.
func (s *Simulator) policyConnect() *policyClient {
	c := &policyClient{peer: s.server.Connect("periodic"), asked: map[uint32]*policyRequest{}}
	c.peer.Written = func(b []byte) {
		c.undecoded = append(c.undecoded, b...)
		for len(c.undecoded) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(c.undecoded, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				break
			}
			if c.helloRead {
				s.ledger.policy.answered(c, r.MsgID, r.Body)
			}
			c.helloRead = true
			c.undecoded = c.undecoded[n:]
		}
	}
	c.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: periodic.Client}))
	return c
}

// answered checks the answer to a submission or a RUN_JOB.
func (m *PolicyModel) answered(c *policyClient, id uint32, body []byte) {
	q := c.asked[id]
	if q == nil {
		m.trace.Failf("the client of the queue with a policy is sent %x for message %d, which it does not wait for", body, id)
	}
	delete(c.asked, id)
	is := func(cmd periodic.Command) bool { return len(body) == 1 && body[0] == byte(cmd) }
	j := q.job
	switch {
	case is(periodic.Unknown):
		m.trace.Logf("%v is refused", j)
		if !q.mayRefused {
			m.trace.Failf("%v is refused, although the policy admits it", j)
		}
		*j = q.before
		return
	case !q.mayBeTaken:
		m.trace.Failf("%v is taken, although the policy refuses it", j)
	case q.run:
		m.result(q, string(body))
	case !is(periodic.Success):
		m.trace.Failf("the submission of %v: got %x, want SUCCESS", j, body)
	default:
		m.trace.Logf("%v is acknowledged", j)
		j.acknowledged()
	}
}

// result checks the result of a RUN_JOB, which is empty when the job was given up or has expired. A RUN_JOB whose name
// is taken is ignored, and gets the kept result of the earlier job.
func (m *PolicyModel) result(q *policyRequest, result string) {
	j := q.job
	m.catchUp()
	m.trace.Logf("%v has the result %q", j, result)
	all := slices.DeleteFunc(slices.Clone(j.fates), func(f fate) bool { return f.place == inQueue })
	ignored := q.namesake.maybe && j.result == "" && slices.Contains(q.namesake.results, result)
	if len(all) == 0 || !ignored && (q.namesake.taken || result != j.result) {
		m.trace.Failf("the result of %v, which is %[3]v: got %[2]q, want %[4]q", j, result, j.now.place, j.result)
	}
	m.narrowTo(j, all)
	j.awaited = nil
}

// policySubmit submits a job, or one of the pending ones again.
func (s *Simulator) policySubmit() {
	m := s.ledger.policy
	if m.client == nil || m.client.peer.Closed() {
		m.client = s.policyConnect()
	}
	j := &policyJob{number: len(m.jobs), key: "aab"[s.rng.IntN(3)], timeout: []int64{86_400, 3}[s.rng.IntN(2)], size: 100 * (s.rng.IntN(4) / 3)}
	j.name = j.String()
	again := slices.IndexFunc(m.jobs, func(j *policyJob) bool { return j.now.place == inQueue && j.worker == nil && !j.parked })
	if again >= 0 && s.rng.IntN(6) == 0 {
		j = m.jobs[again]
	} else {
		if d := s.policyRepeatable(); d != nil && s.rng.IntN(3) > 0 {
			j.key, j.name = d.key, d.name
		}
		m.jobs = append(m.jobs, j)
		j.changeTo(fate{place: nowhere})
	}
	c, q, now := m.client, &policyRequest{job: j, before: *j, run: j.now.place == nowhere && s.rng.IntN(3) == 0}, s.server.Now().Wall
	q.mayBeTaken, q.mayRefused = m.admits(j)
	if q.namesake = m.namesakeOf(j); j.now.place != nowhere {
		q.namesake = namesake{}
	}
	fates := []fate{{place: inQueue, dueFrom: now, dueTo: now}}
	switch n := &q.namesake; {
	case n.taken:
		fates, q.mayRefused = nil, false
		fallthrough
	case n.maybe:
		fates, q.mayBeTaken = append(fates, fate{place: nowhere}), true
	}
	j.changeTo(fates...)
	j.due, j.maybeDue = true, true
	c.next++
	c.asked[c.next] = q
	cmd := periodic.SubmitJob
	if q.run {
		cmd, j.awaited = periodic.RunJob, c
	}
	s.trace.Logf("%v is sent by %v as %s, with a time-out of %d s and %d bytes more; %+v", j, cmd, j.name, j.timeout, j.size, q.namesake)
	c.peer.Send(wire.PeriodicFrame(periodic.Plain, c.next, cmd, periodic.AppendJob(nil, &periodic.Job{
		Func: []byte(m.queue), Name: []byte(j.name), Workload: []byte(j.workload()), Timeout: int32(j.timeout),
	})))
	if s.settle(); q.run && q.namesake.taken && c.asked[c.next] == q {
		s.trace.Failf("%v has no answer to its RUN_JOB, although %s was done lately", j, j.name)
	}
}
