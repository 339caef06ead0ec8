//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/codec/periodic"
	"treadle/loop"
)

// The workers and the client of the queue with a policy read all at once.

// policyWorker is a worker of the queue: of Periodic in either framing, which serves the dead-letter queue as well, or a
// Gloom slave.
type policyWorker struct {
	number int
	kind   peerKind
	peer   *loop.OfflinePeer
	heard  []byte
	met    bool
	grabs  int // requests for a job without an answer; a slave has one while it has no job
	next   uint32
	locks  []bool      // requests for the lock without an answer: it is to be had
	late   []policyRun // runs that have ended by their time-outs, and that it has not reported
}

// policyRun is a run of a job as its worker reports it.
type policyRun struct {
	job    *policyJob
	handle []byte
}

func (w *policyWorker) String() string { return fmt.Sprintf("w%d", w.number) }

// isLate reports whether the worker has a run of the job still to report that has ended without it.
func (w *policyWorker) isLate(j *policyJob) bool {
	return slices.ContainsFunc(w.late, func(r policyRun) bool { return r.job == j })
}

// policyJoin connects a worker of a kind.
func (s *Simulator) policyJoin(kind peerKind) {
	m := s.ledger.policy
	m.joined++
	w := &policyWorker{number: m.joined, kind: kind, peer: s.server.Connect(kind.port())}
	w.peer.Written = func(b []byte) {
		w.heard = append(w.heard, b...)
		next := s.ledger.policy.reply
		if kind.gloom() {
			next = s.ledger.policy.gloomReply
		}
		for n := next(w); n > 0; n = next(w) {
			w.heard = w.heard[n:]
		}
	}
	m.workers = append(m.workers, w)
	s.trace.say("%v joins as %d", w, kind)
	if kind.gloom() {
		w.grabs = 1
		w.peer.Send(gloom.AppendJoin(nil, fmt.Appendf(nil, "%q", m.queue)))
		return
	}
	w.peer.Send(kind.hello())
	for _, name := range []string{m.queue, m.dead} {
		w.says(periodic.CanDo, periodic.AppendStr8String(nil, name))
	}
}

// says sends a Periodic worker's message.
func (w *policyWorker) says(cmd periodic.Command, args []byte) {
	w.next++
	w.peer.Send(frame(w.kind.framing(), w.next, cmd, args))
}

// reply takes the first frame of what a Periodic worker has heard, and returns its size; 0: it is not complete.
func (m *PolicyModel) reply(w *policyWorker) int {
	var r periodic.Response
	n, err := periodic.NextResponse(w.heard, w.kind.framing(), periodic.MaxPayload, &r)
	switch is := func(cmd periodic.Command) bool { return len(r.Body) == 1 && r.Body[0] == byte(cmd) }; {
	case err != nil || n == 0:
		return 0
	case !w.met:
		w.met = true
	case is(periodic.Success) && w.kind == crcWorker: // it says that a request was read
	case is(periodic.NoJob):
		m.turned()
		if j := m.mayStart(w); j != nil {
			m.trace.fail("%v is sent NO_JOB, and %v is ready for it", w, j)
		}
		w.grabs--
	case len(r.Body) == 2 && r.Body[0] == byte(periodic.Acquired) && len(w.locks) > 0:
		if got := r.Body[1] == 1; got != w.locks[0] {
			m.trace.fail("%v gets the lock: %v", w, got)
		}
		w.locks = w.locks[1:]
	case len(r.Body) > 1 && r.Body[0] == byte(periodic.JobAssign):
		handle, job := takeAssign(&Conn{peerKind: w.kind}, r.Body)
		m.hands(w, m.jobOf(&job), string(job.Func), handle)
	default:
		m.trace.fail("%v is sent %x", w, r.Body)
	}
	return n
}

// gloomReply is reply for a slave.
func (m *PolicyModel) gloomReply(w *policyWorker) int {
	payload, n, err := gloom.Next(w.heard, 1<<20)
	if err != nil || n == 0 {
		return 0
	}
	var r gloom.Reply
	if err := gloom.ParseReply(payload, &r); err != nil || r.Action == nil && !r.OK {
		m.trace.fail("%v is sent %q: %v", w, payload, err)
	}
	if r.Action != nil {
		var job periodic.Job
		job.Func, _ = jsontext.Text(nil, r.Type)
		job.Name, _ = jsontext.Text(nil, r.ID)
		job.Workload, _ = jsontext.Text(nil, r.Body)
		m.hands(w, m.jobOf(&job), string(job.Func), nil)
	}
	return n
}

// named finds the last job of the model for which is holds; text is how the server calls it.
func (m *PolicyModel) named(text string, is func(*policyJob) bool) *policyJob {
	for i := len(m.jobs) - 1; i >= 0; i-- {
		if is(m.jobs[i]) {
			return m.jobs[i]
		}
	}
	m.trace.fail("%q is nobody's", text)
	return nil
}

// jobOf finds a job of the model by its record.
func (m *PolicyModel) jobOf(job *periodic.Job) *policyJob {
	text, _, _ := strings.Cut(string(job.Workload), padding)
	j := m.named(text, func(j *policyJob) bool { return j.String() == text })
	if string(job.Workload) != j.workload() || string(job.Name) != j.name {
		m.trace.fail("%q of %q has the workload %q", job.Name, job.Func, job.Workload)
	}
	return j
}

// policyClient submits the jobs of the model.
type policyClient struct {
	peer  *loop.OfflinePeer
	heard []byte
	met   bool
	next  uint32
	asked map[uint32]*policyRequest // by message id, without an answer
}

// policyRequest is a submission or a RUN_JOB.
type policyRequest struct {
	job                    *policyJob
	before                 policyJob // what the job was before
	run                    bool
	mayBeTaken, mayRefused bool
	namesake               namesake
}

// policyConnect connects a client.
func (s *Simulator) policyConnect() *policyClient {
	c := &policyClient{peer: s.server.Connect("periodic"), asked: map[uint32]*policyRequest{}}
	c.peer.Written = func(b []byte) {
		c.heard = append(c.heard, b...)
		for len(c.heard) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(c.heard, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				break
			}
			if c.met {
				s.ledger.policy.answered(c, r.MsgID, r.Body)
			}
			c.met = true
			c.heard = c.heard[n:]
		}
	}
	c.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: periodic.Client}))
	return c
}

// answered checks the answer to a submission or a RUN_JOB.
func (m *PolicyModel) answered(c *policyClient, id uint32, body []byte) {
	q := c.asked[id]
	if q == nil {
		m.trace.fail("the client of the queue with a policy is sent %x for message %d", body, id)
	}
	delete(c.asked, id)
	is := func(cmd periodic.Command) bool { return len(body) == 1 && body[0] == byte(cmd) }
	j := q.job
	switch {
	case is(periodic.Unknown):
		m.trace.say("%v is refused", j)
		if !q.mayRefused {
			m.trace.fail("%v is refused, and the policy takes it", j)
		}
		*j = q.before
		return
	case !q.mayBeTaken:
		m.trace.fail("%v is taken, and the policy refuses it", j)
	case q.run:
		m.result(q, string(body))
	case !is(periodic.Success):
		m.trace.fail("the submission of %v is answered with %x", j, body)
	default:
		m.trace.say("%v is acknowledged", j)
		j.acknowledged()
	}
}

// result checks the result of a RUN_JOB, which is empty when the job was given up or has expired. One that is ignored has
// what is kept of the job before.
func (m *PolicyModel) result(q *policyRequest, result string) {
	j := q.job
	m.turned()
	m.trace.say("%v has the result %q", j, result)
	all := slices.DeleteFunc(slices.Clone(j.might), func(f fate) bool { return f.place == waiting })
	ignored := q.namesake.maybe && j.result == "" && slices.Contains(q.namesake.results, result)
	if len(all) == 0 || !ignored && (q.namesake.taken || result != j.result) {
		m.trace.fail("the result of %v is %q; it is %v, and workers said %q", j, result, j.now.place, j.result)
	}
	m.isOneOf(j, all)
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
	again := slices.IndexFunc(m.jobs, func(j *policyJob) bool { return j.now.place == waiting && j.worker == nil && !j.parked })
	if again >= 0 && s.rng.IntN(6) == 0 {
		j = m.jobs[again]
	} else {
		if d := s.policyAgain(); d != nil && s.rng.IntN(3) > 0 {
			j.key, j.name = d.key, d.name
		}
		m.jobs = append(m.jobs, j)
		j.becomes(fate{place: nowhere})
	}
	c, q, now := m.client, &policyRequest{job: j, before: *j, run: j.now.place == nowhere && s.rng.IntN(3) == 0}, s.server.Now().Wall
	q.mayBeTaken, q.mayRefused = m.admits(j)
	if q.namesake = m.namesakeOf(j); j.now.place != nowhere {
		q.namesake = namesake{}
	}
	might := []fate{{place: waiting, dueFrom: now, dueTo: now}}
	switch n := &q.namesake; {
	case n.taken:
		might, q.mayRefused = nil, false
		fallthrough
	case n.maybe:
		might, q.mayBeTaken = append(might, fate{place: nowhere}), true
	}
	j.becomes(might...)
	j.due, j.maybeDue = true, true
	c.next++
	c.asked[c.next] = q
	cmd := periodic.SubmitJob
	if q.run {
		cmd, j.awaited = periodic.RunJob, c
	}
	s.trace.say("%v is sent by %v as %s, with a time-out of %d s and %d bytes more; %+v", j, cmd, j.name, j.timeout, j.size, q.namesake)
	c.peer.Send(frame(periodic.Plain, c.next, cmd, periodic.AppendJob(nil, &periodic.Job{
		Func: []byte(m.queue), Name: []byte(j.name), Workload: []byte(j.workload()), Timeout: int32(j.timeout),
	})))
	if s.settle(); q.run && q.namesake.taken && c.asked[c.next] == q {
		s.trace.fail("%v was done as %s lately, and its RUN_JOB has no answer", j, j.name)
	}
}

// workload is the name of the job and some bytes more.
func (j *policyJob) workload() string { return j.String() + strings.Repeat(padding, j.size) }
