//go:build invariants

package sim

import (
	"fmt"
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

	queue, dead string       // their names
	sets        []*policySet // the rules, the weaker first
	rule        policyRule   // what they come to
	before      *policyRule  // while a rule is being set; nil: it is set
	jobs        []*policyJob
	workers     []*policyWorker
	joined      int // workers
	client      *policyClient
	starts      []int64    // Mono of the jobs that have started since the rate was set
	last        sched.Time // when turn was called last
	turn        policyTurn
	lock        policyLock
	withheld    bool // a ready job may have clashed for a worker since the start: it passes others in a turn of its own
}

// place is where a job of the model is. Places are bits: of several each is possible.
type place uint8

const (
	nowhere    place = 1 << iota
	waiting          // in the queue, also while a worker has it
	failed           // given up, and kept
	dead             // in the dead-letter queue, also while a worker has it
	doneName         // done, and its name alone is known
	doneKept         // done, and kept without its result
	doneResult       // done, and kept with its result
	expired          // too old to start, and kept
)

func (p place) String() string {
	names := []string{"nowhere", "in the queue", "failed", "a dead letter", "a done name", "done", "done with a result", "expired"}
	text := ""
	for i, name := range names {
		if p&(1<<i) != 0 {
			text += " or " + name
		}
	}
	return text[min(len(text), len(" or ")):]
}

// fate is what the server may know of a job.
type fate struct {
	place       place
	least, most int   // failures since it was submitted or retried by hand
	from, to    int64 // Wall: it is not handed out before from, and may be from to on

	dueFrom, dueTo     int64 // Wall: between these it was due, for job-ttl
	endedFrom, endedTo int64 // Wall: between these it was given up, done or expired
}

// policyJob is a job of the model.
type policyJob struct {
	number int
	name   string // that of another job which has ended, or its own
	key    byte
	might  []fate // now; of several each is possible
	now    fate   // what they have in common
	past   []fate // since the last commit

	maybeDue, due bool  // the time of now.from, or now.to, has come since that was decided
	ready         bool  // it was due when the server had nothing more to do
	passed        int   // so many of the other key started, later than any of its own, while it was ready and could start
	inTurn        bool  // it was ready when a job was handed out last
	tooOld        int64 // Mono since when it has expired for sure; 0: it has not
	parked        bool  // it waits for the lock
	parkedAt      int64 // Mono

	worker  *policyWorker // that has it; nil: none
	handle  []byte
	timeout int64 // seconds
	expires int64 // Mono of its time-out
	size    int   // of its workload, beside its name

	awaited *policyClient // whose RUN_JOB has no result yet
	result  string        // that its worker said
}

func (j *policyJob) String() string { return fmt.Sprintf("%c:p%d", j.key, j.number) }

// becomes notes what happens to a job: one of these.
func (j *policyJob) becomes(might ...fate) {
	j.worker, j.handle, j.maybeDue, j.due, j.ready = nil, nil, false, false, false
	j.passed, j.inTurn, j.tooOld, j.parked = 0, false, 0, false
	j.past = append(j.past, might...)
	j.isOne(might)
}

// isOne notes what a job may be.
func (j *policyJob) isOne(might []fate) {
	j.might, j.now = might, might[0]
	for _, f := range might[1:] {
		j.now = j.now.or(f)
	}
}

// committed notes that everything is on disk.
func (m *PolicyModel) committed() {
	for _, j := range m.jobs {
		j.past = slices.Clone(j.might)
	}
}

// policyMove notes that a job moves to the dead-letter queue if it has failed.
func (j *policyJob) policyMove() {
	if j.now.place&failed == 0 {
		return
	}
	might, due, maybeDue := slices.Clone(j.might), j.due, j.maybeDue
	for i := range might {
		if might[i].place == failed {
			might[i] = fate{place: dead}
		}
	}
	j.becomes(might...)
	j.due, j.maybeDue = due, maybeDue
}

// acknowledged notes that a job's submission is acknowledged: it is on disk.
func (j *policyJob) acknowledged() {
	if j.past[0].place == nowhere {
		j.past = j.past[1:]
	}
}

// crashed notes that the server has ended: each job is what it was at some time since the last commit.
func (m *PolicyModel) crashed() {
	m.workers, m.client, m.starts, m.withheld, m.turn, m.lock = nil, nil, nil, false, policyTurn{}, policyLock{}
	for _, j := range m.jobs {
		past := j.past
		j.awaited = nil
		j.becomes(past...)
		j.past = past
	}
}

// or is what two fates have in common.
func (f fate) or(o fate) fate {
	return fate{
		f.place | o.place, min(f.least, o.least), max(f.most, o.most), min(f.from, o.from), max(f.to, o.to),
		min(f.dueFrom, o.dueFrom), max(f.dueTo, o.dueTo), min(f.endedFrom, o.endedFrom), max(f.endedTo, o.endedTo),
	}
}

// isAt notes that a job was seen in a place.
func (m *PolicyModel) isAt(j *policyJob, at place) {
	all := slices.DeleteFunc(slices.Clone(j.might), func(f fate) bool { return f.place&at == 0 })
	if len(all) == 0 {
		m.trace.Fail("%v is %v, and was %v", j, at, j.now.place)
	}
	m.isOneOf(j, all)
}

// isOneOf notes what a job may be of what it might be.
func (m *PolicyModel) isOneOf(j *policyJob, all []fate) {
	if len(all) < len(j.might) {
		j.isOne(all)
		m.trace.Say("%v is %v", j, j.now.place)
	}
}

// fails notes that a run of a job has failed, between two times of the wall clock.
func (m *PolicyModel) fails(j *policyJob, from, to int64) {
	m.unlock(j)
	r, f := &m.rule, j.now
	if f.place == dead { // it has no policy
		j.becomes(fate{place: dead})
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
	if again.from, again.to = 0, 0; r.first > 0 { // else it is ready, also if the clock is set back
		least, _ := r.delay(f.least)
		_, most := r.delay(f.most)
		again.from, again.to = from+least, to+most
		again.dueFrom, again.dueTo = again.from, again.to
	} else {
		again.dueFrom, again.dueTo = from, to
	}
	switch {
	case r.retries < 0 && r.first == 0: // no failure counts
		j.becomes(fate{place: waiting, least: j.now.least, most: j.now.most, dueFrom: from, dueTo: to})
	case r.retries < 0 || f.most <= r.retries:
		j.becomes(again)
	case f.least > r.retries:
		j.becomes(givenUp)
	default:
		j.becomes(again, givenUp)
	}
	m.trace.Say("%v has failed %d to %d times, and is %v", j, f.least, f.most, j.now.place)
}

// turned notes what has happened to the jobs of the model since it was called last: time-outs, and workers that the
// server has hung up on.
func (m *PolicyModel) turned() {
	now := m.clock()
	for _, j := range m.jobs {
		if j.worker != nil && j.worker.peer.Closed() {
			m.lock.unsure = m.lock.unsure || len(m.lock.line) > 0 // it is not known when
			m.fails(j, min(m.last.Wall, now.Wall), now.Wall)
		}
	}
	for j, mono := m.nextOver(); j != nil; j, mono = m.nextOver() {
		if j.parked {
			m.trace.Say("%v waits for the lock no more", j)
			m.unpark(j)
			continue
		}
		m.leaveAtOnce(func(o *policyJob) bool { return o.expires == mono })
		at := now.Wall - (now.Mono - mono)
		w := j.worker
		w.late = append(w.late, policyRun{j, j.handle})
		m.withheld = m.withheld || w.kind == crcWorker
		m.fails(j, at, at)
	}
	for _, j := range m.jobs {
		if !j.parked {
			j.maybeDue = j.maybeDue || j.now.from <= now.Wall
			j.due = j.due || j.now.to <= now.Wall && j.now.place != dead // a dead letter may be on its way
		}
	}
	m.workers = slices.DeleteFunc(m.workers, func(w *policyWorker) bool { return w.peer.Closed() })
	for _, j := range m.jobs {
		m.expires(j)
	}
	for _, j := range m.jobs {
		m.evict(j, now.Wall)
	}
	m.last = now
}

// running counts the jobs of the queue that workers have.
func (m *PolicyModel) running() (n int) {
	for _, j := range m.jobs {
		if j.worker != nil && j.now.place == waiting {
			n++
		}
	}
	return n
}

// shut reports whether the queue hands out no job under a rule.
func (m *PolicyModel) shut(r *policyRule) bool {
	return r.noHandOut || r.concurrency > 0 && m.running() >= r.concurrency
}

// shutKey reports whether so many jobs of a key are running that the queue hands out no other under a rule.
func (m *PolicyModel) shutKey(r *policyRule, key byte, running func(*policyJob) bool) bool {
	n := 0
	for _, j := range m.jobs {
		if j.now.place&waiting != 0 && (j.key == key || r.oneKey) && running(j) {
			n++
		}
	}
	return r.keyConcurrency > 0 && n >= r.keyConcurrency
}

// isRunning reports whether a worker has a job.
func (j *policyJob) isRunning() bool { return j.worker != nil }

// mayCount reports whether the server may count a job as running: also one that clashes for a worker.
func (m *PolicyModel) mayCount(j *policyJob) bool {
	return j.worker != nil || slices.ContainsFunc(m.workers, func(w *policyWorker) bool { return w.kind == crcWorker && w.isLate(j) })
}

// settled notes that the server has nothing more to do: jobs that are due are ready.
func (m *PolicyModel) settled() {
	for _, j := range m.jobs {
		j.ready = j.due
	}
}

// mayRate reports whether the rate of a rule lets one more job start at a time: of the jobs that have started from any
// moment on there are no more than a burst, and those that the rate adds in the time since.
func (m *PolicyModel) mayRate(r *policyRule, mono int64) bool {
	for i, at := range m.starts {
		if r.jobs > 0 && (int64(len(m.starts)-i)+1-r.burst)*r.per > (mono-at)*r.jobs {
			return false
		}
	}
	return true
}

// admits reports whether the policy may take a job, and whether it may refuse it: the model may not know of each other
// job whether it is pending, and the server counts a byte more for each.
func (m *PolicyModel) admits(j *policyJob) (mayTake, mayRefuse bool) {
	var least, most struct{ pending, bytes int }
	for _, o := range m.jobs {
		if o == j || o.now.place&waiting == 0 {
			continue
		}
		pending, bytes := oneUnless(o.worker != nil), len(o.name)+len(o.workload())
		most.pending += pending
		most.bytes += bytes + 1
		if o.now.place == waiting {
			least.pending += pending
			least.bytes += bytes
		}
	}
	r, size := &m.rule, len(j.name)+len(j.workload())
	over := func(pending, bytes int) bool {
		return r.noSubmits || r.maxPayload > 0 && len(j.workload()) > r.maxPayload ||
			r.maxJobs > 0 && j.now.place != waiting && pending >= r.maxJobs || r.maxBytes > 0 && bytes > r.maxBytes
	}
	return !over(least.pending, least.bytes+size), over(most.pending, most.bytes+size+1)
}

// hands checks that a job may be handed out now, and notes that it is.
func (m *PolicyModel) hands(w *policyWorker, j *policyJob, queue string, handle []byte) {
	m.turned()
	at := waiting
	if queue == m.dead {
		at = dead
	}
	m.trace.Say("%v is given %v, %v", w, j, at)
	if j.worker != nil {
		m.trace.Fail("%v is handed to %v, and %v has it", j, w, j.worker)
	}
	m.isAt(j, at)
	switch now := m.clock(); {
	case at == dead:
	case j.parked && !m.lock.unsure:
		m.trace.Fail("%v is handed out, and waits for the lock", j)
	case m.isTooOld(j):
		m.trace.Fail("%v is handed out, and has expired", j)
	case !j.maybeDue:
		m.trace.Fail("%v is handed out %d ms before its back-off is over", j, j.now.from-now.Wall)
	case !m.shut(&m.rule) || m.before != nil && !m.shut(m.before):
	case m.rule.noHandOut:
		m.trace.Fail("%v is handed out, and its queue is paused", j)
	default:
		m.trace.Fail("%v is handed out, and %d of its queue are running", j, m.running())
	}
	if at == waiting {
		if m.before == nil && m.shutKey(&m.rule, j.key, (*policyJob).isRunning) {
			m.trace.Fail("%v is handed out, and %d of its key are running", j, m.rule.keyConcurrency)
		}
		m.turns(j)
		if now := m.clock().Mono; m.before == nil && !m.mayRate(&m.rule, now) {
			m.trace.Fail("%v is handed out at %d, and others of its queue at %v: the rate is %d in %d ms", j, now, m.starts, m.rule.jobs, m.rule.per)
		} else {
			m.starts = append(m.starts, now)
		}
	}
	if w.kind == crcWorker { // it reports by name: a report is of this run now
		w.late = slices.DeleteFunc(w.late, func(r policyRun) bool { return r.job == j })
	}
	j.worker, j.handle, j.expires = w, handle, roundUp(m.clock().Mono+j.timeout*1000+policyGrace)
	w.grabs--
}

// policyGrace is how long after a time-out the server waits for the worker; roundUp is what it makes of the end of that.
const policyGrace, policyGrain = 1000, 128

func roundUp(mono int64) int64 { return (mono + policyGrain - 1) &^ (policyGrain - 1) }

// mayStart returns a job that is ready for a worker of the model, or nil. A slave serves no dead letters, and a worker
// that knows jobs by name is given none that it still has to report.
func (m *PolicyModel) mayStart(w *policyWorker) *policyJob {
	shut := m.shut(&m.rule) || m.before != nil || !m.mayRate(&m.rule, m.last.Mono-policyGrain)
	for _, j := range m.jobs {
		switch {
		case j.worker != nil || w.kind == crcWorker && w.isLate(j):
		case j.due && (j.now.place == dead && !w.kind.gloom() || j.now.place == waiting && !shut && !m.shutKey(&m.rule, j.key, m.mayCount)):
			return j
		}
	}
	return nil
}

// checkIdle checks, when time has passed, that no worker of the model waits while a job is ready.
func (m *PolicyModel) checkIdle() {
	for _, j := range m.jobs {
		j.due = j.due || !j.parked && j.now.to <= m.last.Wall
	}
	for _, w := range m.workers {
		if j := m.mayStart(w); j != nil && w.grabs > 0 {
			m.trace.Fail("%v waits, and %v is ready for it", w, j)
		}
	}
}

// named finds the last job of the model for which is holds; text is how the server calls it.
func (m *PolicyModel) named(text string, is func(*policyJob) bool) *policyJob {
	for i := len(m.jobs) - 1; i >= 0; i-- {
		if is(m.jobs[i]) {
			return m.jobs[i]
		}
	}
	m.trace.Fail("%q is nobody's", text)
	return nil
}

// jobOf finds a job of the model by its record.
func (m *PolicyModel) jobOf(job *periodic.Job) *policyJob {
	text, _, _ := strings.Cut(string(job.Workload), padding)
	j := m.named(text, func(j *policyJob) bool { return j.String() == text })
	if string(job.Workload) != j.workload() || string(job.Name) != j.name {
		m.trace.Fail("%q of %q has the workload %q", job.Name, job.Func, job.Workload)
	}
	return j
}

// workload is the name of the job and some bytes more.
func (j *policyJob) workload() string { return j.String() + strings.Repeat(padding, j.size) }
