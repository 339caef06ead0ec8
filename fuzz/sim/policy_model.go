//go:build invariants

package sim

import (
	"slices"
	"strings"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/play"
	"treadle/sched"
)

// The policy model knows one queue with a policy, its dead-letter queue, and their jobs. Workers of their own do these
// jobs; they read all at once, so the model knows when a job is handed out, to the millisecond. What it may not know is
// how much of the time before a crash was on disk.

// PolicyModel is what the ledger knows of the queue with a policy.
type PolicyModel struct {
	trace       *play.Trace
	clock       func() sched.Time // the server's
	lockTimeout func() int64      // milliseconds; the server's, too

	queue, dead  string           // their names
	rules        []*policyRule    // the rules, the weaker first
	effective    effectivePolicy  // what the rules come to
	policyBefore *effectivePolicy // the policy before a change of a rule that is under way; nil: none is
	jobs         []*policyJob
	workers      []*policyWorker
	workersMade  int
	client       *policyClient
	starts       []int64    // Mono of the jobs that have started since the rate was set
	last         sched.Time // moment of the last call of catchUp
	turn         policyTurn
	handed       int    // jobs that workers were given in this step
	turnFault    string // what is wrong with the turn of the first of them
	lock         policyLock
	withheld     bool // a ready job may have clashed for a worker since the start: it passes others in a turn of its own
}

// committed notes that everything is on disk.
func (m *PolicyModel) committed() {
	for _, j := range m.jobs {
		j.past = slices.Clone(j.fates)
	}
}

// crashed notes that the server has ended: each job is what it was at some time since the last commit.
func (m *PolicyModel) crashed() {
	m.workers, m.client, m.starts, m.withheld, m.turn, m.turnFault, m.lock = nil, nil, nil, false, policyTurn{}, "", policyLock{}
	for _, j := range m.jobs {
		past := j.past
		j.awaited = nil
		j.changeTo(past...)
		j.past = past
	}
}

// seenAt checks that a job may be in a place in which it was seen, and rules out all other places.
func (m *PolicyModel) seenAt(j *policyJob, at place) {
	all := slices.DeleteFunc(slices.Clone(j.fates), func(f fate) bool { return f.place&at == 0 })
	if len(all) == 0 {
		m.trace.Failf("%v: the server shows it %v, want it %v", j, at, j.now.place)
	}
	m.narrowTo(j, all)
}

// narrowTo notes which of a job's possible fates are left.
func (m *PolicyModel) narrowTo(j *policyJob, all []fate) {
	if len(all) < len(j.fates) {
		j.setFates(all)
		m.trace.Logf("%v is %v", j, j.now.place)
	}
}

// runFailed notes that a run of a job has failed, between two times of the wall clock.
func (m *PolicyModel) runFailed(j *policyJob, from, to int64) {
	m.unlock(j)
	r, f := &m.effective, j.now
	if f.place == dead { // the dead-letter queue has no policy
		j.changeTo(fate{place: dead})
		return
	}
	f.least, f.most = f.least+1, f.most+1
	givenUp := f
	switch givenUp.place, givenUp.endedFrom, givenUp.endedTo = failed, from, to; {
	case r.deadLetter:
		givenUp = fate{place: dead}
	case r.keepNone:
		givenUp = fate{place: nowhere}
	}
	again := f
	if again.from, again.to = 0, 0; r.first > 0 { // without a delay the job is ready even if the clock is set back
		least, _ := r.delay(f.least)
		_, most := r.delay(f.most)
		again.from, again.to = from+least, to+most
		again.dueFrom, again.dueTo = again.from, again.to
	} else {
		again.dueFrom, again.dueTo = from, to
	}
	switch {
	case r.retries < 0 && r.first == 0: // no failure counts
		j.changeTo(fate{place: inQueue, least: j.now.least, most: j.now.most, dueFrom: from, dueTo: to})
	case r.retries < 0 || f.most <= r.retries:
		j.changeTo(again)
	case f.least > r.retries:
		j.changeTo(givenUp)
	default:
		j.changeTo(again, givenUp)
	}
	m.trace.Logf("%v has failed %d to %d times, and is %v", j, f.least, f.most, j.now.place)
}

// catchUp notes what has happened to the jobs of the model since it was called last: time-outs, and workers that the
// server has hung up on.
func (m *PolicyModel) catchUp() {
	now := m.clock()
	for _, j := range m.jobs {
		if j.worker != nil && j.worker.peer.Closed() {
			m.lock.unsure = m.lock.unsure || len(m.lock.line) > 0 // the moment of the release is not known
			m.runFailed(j, min(m.last.Wall, now.Wall), now.Wall)
		}
	}
	for j, mono := m.nextToEnd(); j != nil; j, mono = m.nextToEnd() {
		if j.parked {
			m.trace.Logf("%v waits for the lock no more", j)
			m.unpark(j)
			continue
		}
		m.leftAtOnce(func(o *policyJob) bool { return o.expires == mono })
		at := now.Wall - (now.Mono - mono)
		w := j.worker
		w.timedOutRuns = append(w.timedOutRuns, policyRun{j, j.handle})
		m.withheld = m.withheld || w.kind == crcWorker
		m.runFailed(j, at, at)
	}
	for _, j := range m.jobs {
		if !j.parked {
			j.maybeDue = j.maybeDue || j.now.from <= now.Wall
			j.due = j.due || j.now.to <= now.Wall && j.now.place != dead // a dead letter may be on its way
		}
	}
	m.workers = slices.DeleteFunc(m.workers, func(w *policyWorker) bool { return w.peer.Closed() })
	for again := true; again; { // with the lock's order no longer known, jobs before this one may have expired too
		known := !m.lock.unsure
		for _, j := range m.jobs {
			m.noteExpiry(j)
		}
		again = known && m.lock.unsure
	}
	for _, j := range m.jobs {
		m.evict(j, now.Wall)
	}
	m.last = now
}

// settled notes that the server has nothing more to do: jobs that are due are ready.
func (m *PolicyModel) settled() {
	for _, j := range m.jobs {
		j.ready = j.due
	}
}

// admits reports whether the policy may take a job, and whether it may refuse it. Both are possible when the model does
// not know whether another job is pending, or whether the server counts a byte more for a job.
func (m *PolicyModel) admits(j *policyJob) (mayTake, mayRefuse bool) {
	var least, most struct{ pending, bytes int }
	for _, o := range m.jobs {
		if o == j || o.now.place&inQueue == 0 {
			continue
		}
		pending, bytes := oneIf(o.worker == nil), len(o.name)+len(o.workload())
		most.pending += pending
		most.bytes += bytes + 1
		if o.now.place == inQueue {
			least.pending += pending
			least.bytes += bytes
		}
	}
	r, size := &m.effective, len(j.name)+len(j.workload())
	over := func(pending, bytes int) bool {
		return r.noSubmits || r.maxPayload > 0 && len(j.workload()) > r.maxPayload ||
			r.maxJobs > 0 && j.now.place != inQueue && pending >= r.maxJobs || r.maxBytes > 0 && bytes > r.maxBytes
	}
	return !over(least.pending, least.bytes+size), over(most.pending, most.bytes+size+1)
}

// findJob returns the last job of the model for which is holds; text is its name on the server.
func (m *PolicyModel) findJob(text string, is func(*policyJob) bool) *policyJob {
	for i := len(m.jobs) - 1; i >= 0; i-- {
		if is(m.jobs[i]) {
			return m.jobs[i]
		}
	}
	m.trace.Failf("the queue with a policy: got a job that is called %q, want one of the %d that were submitted", text, len(m.jobs))
	return nil
}

// jobOf finds a job of the model by its record.
func (m *PolicyModel) jobOf(job *periodic.Job) *policyJob {
	text, _, _ := strings.Cut(string(job.Workload), padding)
	j := m.findJob(text, func(j *policyJob) bool { return j.String() == text })
	if string(job.Workload) != j.workload() || string(job.Name) != j.name {
		m.trace.Failf("%v: got the name %q and the workload %q, want %q and %q", j, job.Name, job.Workload, j.name, j.workload())
	}
	return j
}
