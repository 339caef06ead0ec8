//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"
)

// place is where a job of the model is. Places are bits: of several each is possible.
type place uint8

const (
	nowhere    place = 1 << iota
	inQueue          // in the queue, also while a worker has the job
	failed           // given up, and kept
	dead             // in the dead-letter queue, also while a worker has the job
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

// fate is what the server may know of a job, in ranges where the model cannot tell exactly.
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
	name   string // its own name, or that of a job which has ended
	key    byte
	fates  []fate // the possible fates
	now    fate   // their union
	past   []fate // all fates that were possible since the last commit; a crash may bring any of them back

	maybeDue, due bool  // the time of now.from, or now.to, has come since that was decided
	ready         bool  // the job was due when the server had nothing left to do
	passed        int   // number of jobs of the other key that started after the last of its own, while it was ready and could start
	inTurn        bool  // the job was ready at the last hand-out
	tooOld        int64 // Mono since when it has expired for sure; 0: it has not
	parked        bool  // the job waits for the lock
	parkedAt      int64 // Mono

	worker  *policyWorker // worker that has the job, or nil
	handle  []byte
	timeout int64 // seconds
	expires int64 // Mono of its time-out
	size    int   // bytes of padding in its workload

	awaited *policyClient // client whose RUN_JOB has no result yet
	result  string        // result that its worker reported
}

func (j *policyJob) String() string { return fmt.Sprintf("%c:p%d", j.key, j.number) }

// changeTo notes that something has happened to a job, which ended its run if it had one. Each of the fates is possible
// from now on.
func (j *policyJob) changeTo(fates ...fate) {
	j.worker, j.handle, j.maybeDue, j.due, j.ready = nil, nil, false, false, false
	j.passed, j.inTurn, j.tooOld, j.parked = 0, false, 0, false
	j.past = append(j.past, fates...)
	j.setFates(fates)
}

// setFates sets the possible fates of a job, and their union.
func (j *policyJob) setFates(fates []fate) {
	j.fates, j.now = fates, fates[0]
	for _, f := range fates[1:] {
		j.now = j.now.union(f)
	}
}

// policyMove notes that a job moves to the dead-letter queue if it has failed.
func (j *policyJob) policyMove() {
	if j.now.place&failed == 0 {
		return
	}
	fates, due, maybeDue := slices.Clone(j.fates), j.due, j.maybeDue
	for i := range fates {
		if fates[i].place == failed {
			fates[i] = fate{place: dead}
		}
	}
	j.changeTo(fates...)
	j.due, j.maybeDue = due, maybeDue
}

// acknowledged notes that a job's submission is acknowledged: it is on disk.
func (j *policyJob) acknowledged() {
	if j.past[0].place == nowhere {
		j.past = j.past[1:]
	}
}

// union returns the least fate that covers two others.
func (f fate) union(o fate) fate {
	return fate{
		f.place | o.place, min(f.least, o.least), max(f.most, o.most), min(f.from, o.from), max(f.to, o.to),
		min(f.dueFrom, o.dueFrom), max(f.dueTo, o.dueTo), min(f.endedFrom, o.endedFrom), max(f.endedTo, o.endedTo),
	}
}

// isRunning reports whether a worker has a job.
func (j *policyJob) isRunning() bool { return j.worker != nil }

// workload is the name of the job and some bytes more.
func (j *policyJob) workload() string { return j.String() + strings.Repeat(padding, j.size) }
