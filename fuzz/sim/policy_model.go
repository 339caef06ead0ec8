//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/loop"
	"treadle/sched"
)

// The policy model knows one queue with a policy, its dead-letter queue, and their jobs. Workers of their own do these
// jobs; they read all at once, so the model knows when a job is handed out, to the millisecond. What it may not know is
// how much of the time before a crash was on disk.

// PolicyModel is what the ledger knows of the queue with a policy.
type PolicyModel struct {
	queue, dead string // their names
	rule        policyRule
	before      *policyRule // while the rule is being set; nil: it is set
	jobs        []*policyJob
	workers     []*policyWorker
	joined      int // workers
	client      *policyClient
	last        sched.Time // when turn was called last
}

// policyRule is the policy that the queue has.
type policyRule struct {
	retries     int   // less than 0: for ever
	first, most int64 // milliseconds of the back-off, which doubles; 0: at once
	concurrency int   // 0: any number
	paused      bool
	deadLetter  bool
}

// values are the policy as the operators' interface has it; nil takes a key out of the rule.
func (r *policyRule) values() map[string]*string {
	value := func(is bool, format string, args ...any) *string {
		if !is {
			return nil
		}
		text := fmt.Sprintf(format, args...)
		return &text
	}
	return map[string]*string{
		"retries":     value(r.retries >= 0, "%d", r.retries),
		"backoff":     value(r.first > 0, "%dms..%dms x2", r.first, r.most),
		"concurrency": value(r.concurrency > 0, "%d", r.concurrency),
		"paused":      value(r.paused, "hand-out"),
	}
}

// delay is the back-off before a retry.
func (r *policyRule) delay(retry int) int64 {
	return min(r.first<<min(max(retry-1, 0), 20), r.most)
}

// place is where a job of the model is. Places are bits: of several each is possible.
type place uint8

const (
	nowhere place = 1 << iota
	waiting       // in the queue, also while a worker has it
	failed        // given up, and kept
	dead          // in the dead-letter queue, also while a worker has it
)

func (p place) String() string {
	names := []string{"nowhere", "in the queue", "failed", "a dead letter"}
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
}

// policyJob is a job of the model.
type policyJob struct {
	number int
	might  []fate // now; of several each is possible
	now    fate   // what they have in common
	past   []fate // since the last commit

	maybeDue, due bool // the time of now.from, or now.to, has come since that was decided

	worker  *policyWorker // that has it; nil: none
	handle  []byte
	timeout int64 // seconds
	expires int64 // Mono of its time-out
}

func (j *policyJob) String() string { return fmt.Sprintf("p%d", j.number) }

// policyWorker is a Periodic worker of the two queues.
type policyWorker struct {
	number int
	peer   *loop.OfflinePeer
	heard  []byte
	met    bool
	grabs  int // GRAB_JOBs without an answer
	next   uint32
}

// policyClient submits the jobs of the model.
type policyClient struct {
	peer  *loop.OfflinePeer
	heard []byte
	met   bool
	next  uint32
	asked map[uint32]*policyJob // by message id, without an answer
}

// becomes notes what happens to a job: one of these.
func (j *policyJob) becomes(might ...fate) {
	j.worker, j.handle, j.maybeDue, j.due = nil, nil, false, false
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

// policyCommitted notes that everything is on disk.
func (l *Ledger) policyCommitted() {
	for _, j := range l.policy.jobs {
		j.past = slices.Clone(j.might)
	}
}

// acknowledged notes that a job's submission is acknowledged: it is on disk.
func (j *policyJob) acknowledged() {
	if j.past[0].place == nowhere {
		j.past = j.past[1:]
	}
}

// policyCrashed notes that the server has ended: each job is what it was at some time since the last commit.
func (l *Ledger) policyCrashed() {
	m := l.policy
	m.workers, m.client = nil, nil
	for _, j := range m.jobs {
		past := j.past
		j.becomes(past...)
		j.past = past
	}
}

// or is what two fates have in common.
func (f fate) or(o fate) fate {
	return fate{f.place | o.place, min(f.least, o.least), max(f.most, o.most), min(f.from, o.from), max(f.to, o.to)}
}

// isAt notes that a job was seen in a place.
func (l *Ledger) isAt(j *policyJob, at place) {
	all := slices.DeleteFunc(slices.Clone(j.might), func(f fate) bool { return f.place != at })
	if len(all) == 0 {
		l.fail("%v is %v, and was %v", j, at, j.now.place)
	}
	j.isOne(all)
}

// fails notes that a run of a job has failed, between two times of the wall clock.
func (l *Ledger) fails(j *policyJob, from, to int64) {
	r, f := &l.policy.rule, j.now
	if f.place == dead { // it has no policy
		j.becomes(fate{place: dead})
		return
	}
	f.least, f.most = f.least+1, f.most+1
	givenUp := f
	givenUp.place = failed
	if r.deadLetter {
		givenUp = fate{place: dead}
	}
	again := f
	if again.from, again.to = 0, 0; r.first > 0 { // else it is ready, also if the clock is set back
		again.from, again.to = from+r.delay(f.least), to+r.delay(f.most)
	}
	switch {
	case r.retries < 0 && r.first == 0: // no failure counts
		j.becomes(fate{place: waiting, least: j.now.least, most: j.now.most})
	case r.retries < 0 || f.most <= r.retries:
		j.becomes(again)
	case f.least > r.retries:
		j.becomes(givenUp)
	default:
		j.becomes(again, givenUp)
	}
	l.say("%v has failed %d to %d times, and is %v", j, f.least, f.most, j.now.place)
}

// policyTurn notes what has happened to the jobs of the model since it was called last: time-outs, and workers that the
// server has hung up on.
func (l *Ledger) policyTurn() {
	m := l.policy
	now := l.clock()
	for _, j := range m.jobs {
		switch {
		case j.worker == nil:
		case j.worker.peer.Closed():
			l.fails(j, min(m.last.Wall, now.Wall), now.Wall)
		case j.expires <= now.Mono:
			at := now.Wall - (now.Mono - j.expires)
			l.fails(j, at, at)
		}
		j.maybeDue = j.maybeDue || j.now.from <= now.Wall
		j.due = j.due || j.now.to <= now.Wall
	}
	m.workers = slices.DeleteFunc(m.workers, func(w *policyWorker) bool { return w.peer.Closed() })
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
	return r.paused || r.concurrency > 0 && m.running() >= r.concurrency
}

// hands checks that a job may be handed out now, and notes that it is.
func (l *Ledger) hands(w *policyWorker, j *policyJob, queue string, handle []byte) {
	l.policyTurn()
	m, at := l.policy, waiting
	if queue == m.dead {
		at = dead
	}
	l.say("w%d is given %v, %v", w.number, j, at)
	if j.worker != nil {
		l.fail("%v is handed to w%d, and w%d has it", j, w.number, j.worker.number)
	}
	l.isAt(j, at)
	switch now := l.clock(); {
	case at == dead:
	case !j.maybeDue:
		l.fail("%v is handed out %d ms before its back-off is over", j, j.now.from-now.Wall)
	case !m.shut(&m.rule) || m.before != nil && !m.shut(m.before):
	case m.rule.paused:
		l.fail("%v is handed out, and its queue is paused", j)
	default:
		l.fail("%v is handed out, and %d of its queue are running", j, m.running())
	}
	j.worker, j.handle, j.expires = w, handle, roundUp(l.clock().Mono+j.timeout*1000+policyGrace)
	w.grabs--
}

// policyGrace is how long after a time-out the server waits for the worker; roundUp is what it makes of the end of that.
const policyGrace = 1000

func roundUp(mono int64) int64 { return (mono + 127) &^ 127 }

// mayStart returns a job that is ready for every worker of the model, or nil.
func (m *PolicyModel) mayStart() *policyJob {
	shut := m.shut(&m.rule) || m.before != nil
	for _, j := range m.jobs {
		if j.worker == nil && (j.now.place == dead || j.now.place == waiting && j.due && !shut) {
			return j
		}
	}
	return nil
}

// checkPolicyIdle checks, when time has passed, that no worker of the model waits while a job is ready.
func (l *Ledger) checkPolicyIdle() {
	m := l.policy
	for _, w := range m.workers {
		if j := m.mayStart(); j != nil && w.grabs > 0 && !l.stopping {
			l.fail("w%d waits, and %v is ready for it", w.number, j)
		}
	}
}
