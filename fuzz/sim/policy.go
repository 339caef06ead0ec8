//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"time"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
)

// policyJobs limits the jobs of the queue with a policy, policyWorkers its workers.
const policyJobs, policyWorkers = 12, 3

// queueName returns a name that begins with prefix, of a queue of a shard.
func (s *Simulator) queueName(prefix string, shard int) string {
	for k := 0; ; k++ {
		if name := fmt.Sprintf("%s.%03d", prefix, k); s.server.ShardOf(name) == shard%s.ledger.setup.shards {
			return name
		}
	}
}

// namePolicyQueues chooses the queue with a policy, its dead-letter queue and that of cron entries, of different shards
// if there are several.
func (s *Simulator) namePolicyQueues() {
	m := s.ledger.policy
	m.queue, m.dead, s.ledger.cron.queue = s.queueName("policed", 2), s.queueName("dead", 3), s.queueName("cron", 1)
	m.rules[len(m.rules)-1].pattern, m.effective = m.queue, m.mergedPolicy()
}

// policyStep lets some things happen to the queue with a policy.
func (s *Simulator) policyStep() {
	s.settle()
	for range 1 + s.rng.IntN(9) {
		s.policyDo()
		s.settle()
	}
}

// policyAct is something that happens to the queue with a policy.
type policyAct int

const (
	policyJoins policyAct = iota
	policySubmits
	policyGrabs
	policyReports
	policyLeaves
	policyChanges
	policyRetries
	policyRemoves
	policyLooks
	policyWants // the lock
	policyPauses
)

var policyActs = play.NewTable(
	play.Of(3, policyJoins), play.Of(9, policySubmits), play.Of(10, policyGrabs), play.Of(12, policyReports),
	play.Of(1, policyLeaves), play.Of(2, policyChanges), play.Of(1, policyRetries), play.Of(1, policyRemoves),
	play.Of(1, policyLooks), play.Of(6, policyWants), play.Of(1, policyPauses),
)

// policyEnds are the ends of runs in the queue with a policy, policyKinds the kinds of its workers.
var (
	policyEnds  = play.NewTable(play.Of(2, reportDone), play.Of(3, reportFail), play.Of(1, reportDelay))
	policyKinds = play.NewTable(play.Of(2, plainWorker), play.Of(2, crcWorker), play.Of(1, gloomSlave))
)

// policyDo lets one thing happen to the queue with a policy.
func (s *Simulator) policyDo() {
	m := s.ledger.policy
	live := 0
	for _, j := range m.jobs {
		live += oneIf(j.now.place&^(nowhere|finished) != 0)
	}
	switch act := policyActs.Draw(s.rng); {
	case len(m.workers) == 0 || act == policyJoins && len(m.workers) < policyWorkers:
		s.policyJoin(policyKinds.Draw(s.rng))
	case act == policyJoins || act == policySubmits:
		if live < policyJobs && !s.ledger.full {
			s.policySubmit()
		}
	case act == policyGrabs:
		s.policyGrab(m.workers[s.rng.IntN(len(m.workers))])
	case act == policyReports:
		s.policyReport(policyEnds.Draw(s.rng))
	case act == policyLeaves:
		s.policyLeave(m.workers[s.rng.IntN(len(m.workers))])
	case act == policyChanges:
		s.policyChange()
	case act == policyRetries:
		s.policyRetry()
	case act == policyRemoves:
		[]func(){s.policyRemove, s.policyForget}[s.rng.IntN(2)]()
	case act == policyLooks:
		s.policyLook()
	case act == policyPauses:
		s.policyPause()
	default:
		s.policyAskLock()
	}
}

// policyGrab lets a worker ask for a job.
func (s *Simulator) policyGrab(w *policyWorker) {
	if w.grabs < 2 && !w.kind.gloom() {
		s.trace.Logf("%v asks for a job", w)
		w.grabs++
		w.send(periodic.GrabJob, nil)
	}
}

// policyReport lets a worker report the first job that a worker has, or a job that it no longer has, which changes
// nothing.
func (s *Simulator) policyReport(end report) {
	for _, w := range s.ledger.policy.workers {
		if len(w.timedOutRuns) > 0 && s.rng.IntN(2) == 0 {
			r := w.timedOutRuns[0]
			w.timedOutRuns = w.timedOutRuns[1:]
			s.trace.Logf("%v reports %v late", w, r.job)
			w.sendReport(end, &r)
			return
		}
	}
	i := slices.IndexFunc(s.ledger.policy.jobs, func(j *policyJob) bool { return j.worker != nil })
	if i < 0 {
		return
	}
	j := s.ledger.policy.jobs[i]
	w, r, now := j.worker, &policyRun{j, j.handle}, s.server.Now().Wall
	if w.kind.gloom() && end != reportDone { // a slave fails by leaving
		s.policyLeave(w)
		return
	}
	s.trace.Logf("%v ends its run of %v with %d", w, j, end)
	switch end {
	case reportFail:
		s.ledger.policy.runFailed(j, now, now)
	case reportDelay:
		s.ledger.policy.unlock(j)
		f := j.now
		f.from, f.to = now+1000*policyDelay, now+1000*policyDelay
		f.dueFrom, f.dueTo = f.from, f.to
		j.changeTo(f)
	default:
		s.ledger.policy.runDone(j)
		j.result = r.result()
	}
	w.sendReport(end, r)
}

// policyDelay is for how many seconds workers put off jobs.
const policyDelay = 2

// result is the text that a worker ends a job with.
func (r *policyRun) result() string { return "done " + r.job.String() }

// sendReport sends how a run has ended.
func (w *policyWorker) sendReport(end report, r *policyRun) {
	switch handle := slices.Clone(r.handle); {
	case w.kind.gloom():
		w.grabs++
		w.peer.Send(gloom.AppendRespond(nil, fmt.Appendf(nil, "%q", r.result())))
	case end == reportFail:
		w.send(periodic.WorkFail, handle)
	case end == reportDelay:
		w.send(periodic.SchedLater, append(handle, laterArgs(policyDelay, 1)...))
	default:
		w.send(periodic.WorkDone, append(handle, r.result()...))
	}
}

// policyLeave lets a worker leave with what it has.
func (s *Simulator) policyLeave(w *policyWorker) {
	s.trace.Logf("%v leaves", w)
	now := s.server.Now().Wall
	s.ledger.policy.leftAtOnce(func(j *policyJob) bool { return j.worker == w })
	for _, j := range s.ledger.policy.jobs {
		if j.worker == w {
			s.ledger.policy.runFailed(j, now, now)
		}
	}
	s.ledger.policy.workers = slices.DeleteFunc(s.ledger.policy.workers, func(o *policyWorker) bool { return o == w })
	w.peer.Close()
	s.settle()
}

// policyLeaveAll lets all workers leave, before a stop or at the end.
func (s *Simulator) policyLeaveAll() {
	for len(s.ledger.policy.workers) > 0 {
		s.policyLeave(s.ledger.policy.workers[0])
	}
}

// policyRecovered compares a server that has started with the model. What it has now was on disk.
func (s *Simulator) policyRecovered() {
	if !s.policyLook() {
		s.trace.Failf("after a restart: a DUMP has no answer: want one")
	}
	s.ledger.policy.committed()
}

// policyFinish has all jobs done or given up.
func (s *Simulator) policyFinish() {
	m := s.ledger.policy
	s.policyLeaveAll()
	s.policyClear()
	for range 4 * policyJobs {
		if len(m.workers) == 0 {
			s.policyJoin(plainWorker)
		}
		s.policyGrab(m.workers[0])
		s.policyReport(reportDone)
		s.pass(time.Second)
	}
	s.policyLook() // a job that has failed at the end may have been given up
	for _, j := range m.jobs {
		if j.now.place&(inQueue|dead) != 0 {
			s.trace.Failf("the end: %v is still %v: want it done or given up", j, j.now.place)
		}
	}
	s.policyLeaveAll()
	if m.client != nil && !m.client.peer.Closed() {
		m.client.peer.Close()
		for _, q := range m.client.asked {
			s.trace.Failf("the end: the client of the queue with a policy has no answer about %v: want one", q.job)
		}
	}
}
