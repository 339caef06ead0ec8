//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// The workers of the queue with a policy read all at once.

// policyWorker is a worker of the queue: of Periodic in either framing, which serves the dead-letter queue as well, or
// a Gloom slave.
type policyWorker struct {
	number       int
	kind         peerKind
	peer         *loop.OfflinePeer
	undecoded    []byte
	helloRead    bool
	grabs        int // requests for a job without an answer; a slave has one while it has no job
	next         uint32
	locks        []bool      // requests for the lock without an answer: true when the worker must get it
	timedOutRuns []policyRun // runs that have ended by their time-outs, and that it has not reported
}

// policyRun is a run of a job as its worker reports it.
type policyRun struct {
	job    *policyJob
	handle []byte
}

func (w *policyWorker) String() string { return fmt.Sprintf("w%d", w.number) }

// connected counts the connections of the queue's workers and of its client.
func (m *PolicyModel) connected() int {
	n := oneIf(m.client != nil && !m.client.peer.Closed())
	for _, w := range m.workers {
		n += oneIf(!w.peer.Closed())
	}
	return n
}

// isLate reports whether the worker has a run of the job still to report that has ended without it.
func (w *policyWorker) isLate(j *policyJob) bool {
	return slices.ContainsFunc(w.timedOutRuns, func(r policyRun) bool { return r.job == j })
}

// policyJoin connects a worker of a kind.
func (s *Simulator) policyJoin(kind peerKind) {
	m := s.ledger.policy
	m.workersMade++
	w := &policyWorker{number: m.workersMade, kind: kind, peer: s.server.Connect(kind.port())}
	w.peer.Written = func(b []byte) {
		w.undecoded = append(w.undecoded, b...)
		next := s.ledger.policy.reply
		if kind.gloom() {
			next = s.ledger.policy.gloomReply
		}
		for n := next(w); n > 0; n = next(w) {
			w.undecoded = w.undecoded[n:]
		}
	}
	m.workers = append(m.workers, w)
	s.trace.Logf("%v joins as %d", w, kind)
	if kind.gloom() {
		w.grabs = 1
		w.peer.Send(gloom.AppendJoin(nil, fmt.Appendf(nil, "%q", m.queue)))
		return
	}
	w.peer.Send(kind.hello())
	for _, name := range []string{m.queue, m.dead} {
		w.send(periodic.CanDo, periodic.AppendStr8String(nil, name))
	}
}

// send sends a Periodic worker's message.
func (w *policyWorker) send(cmd periodic.Command, args []byte) {
	w.next++
	w.peer.Send(wire.PeriodicFrame(w.kind.framing(), w.next, cmd, args))
}

// reply takes the first frame of the bytes that a Periodic worker has not decoded, and returns its size; 0: it is not
// complete.
func (m *PolicyModel) reply(w *policyWorker) int {
	var r periodic.Response
	n, err := periodic.NextResponse(w.undecoded, w.kind.framing(), periodic.MaxPayload, &r)
	switch is := func(cmd periodic.Command) bool { return len(r.Body) == 1 && r.Body[0] == byte(cmd) }; {
	case err != nil || n == 0:
		return 0
	case !w.helloRead:
		w.helloRead = true
	case is(periodic.Success) && w.kind == crcWorker: // SUCCESS: a request was read
	case is(periodic.NoJob):
		m.catchUp()
		if j := m.readyFor(w); j != nil {
			m.trace.Failf("%v is sent NO_JOB, although %v is ready for it", w, j)
		}
		w.grabs--
	case len(r.Body) == 2 && r.Body[0] == byte(periodic.Acquired) && len(w.locks) > 0:
		if got := r.Body[1] == 1; got != w.locks[0] {
			m.trace.Failf("%v asks for the lock: got %v, want %v", w, got, w.locks[0])
		}
		w.locks = w.locks[1:]
	case len(r.Body) > 1 && r.Body[0] == byte(periodic.JobAssign):
		handle, job, err := wire.ParseAssign(w.kind.framing(), r.Body)
		if err != nil {
			m.trace.Failf("%v is sent %x, want a JOB_ASSIGN: %v", w, r.Body, err)
		}
		m.handedOut(w, m.jobOf(&job), string(job.Func), handle)
	default:
		m.trace.Failf("%v is sent %x, want the answer to a GRAB_JOB or an ACQUIRE", w, r.Body)
	}
	return n
}

// gloomReply is reply for a slave.
func (m *PolicyModel) gloomReply(w *policyWorker) int {
	payload, n, err := gloom.Next(w.undecoded, 1<<20)
	if err != nil || n == 0 {
		return 0
	}
	var r gloom.Reply
	if err := gloom.ParseReply(payload, &r); err != nil || r.Action == nil && !r.OK {
		m.trace.Failf("%v is sent %q, want a job or an acknowledgement: %v", w, payload, err)
	}
	if r.Action != nil {
		var job periodic.Job
		job.Func, _ = jsontext.Text(nil, r.Type)
		job.Name, _ = jsontext.Text(nil, r.ID)
		job.Workload, _ = jsontext.Text(nil, r.Body)
		m.handedOut(w, m.jobOf(&job), string(job.Func), nil)
	}
	return n
}
