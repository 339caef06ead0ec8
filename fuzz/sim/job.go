//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// certainty is how sure the ledger is of something, such as that the server has a job.
type certainty int8

const (
	no    certainty = iota // it is not so
	maybe                  // it may be so
	sure                   // it is so
)

// protocol is the one by which a job came.
type protocol int8

const (
	ofPeriodic protocol = iota
	ofGloom
	ofDwork
	ofDisbatch
	ofBeanstalk
	ofFaktory
)

// Job is what the ledger knows of one job. A name that is submitted again is another Job. The fields of one protocol
// are in the embedded structs.
type Job struct {
	id    int
	by    protocol
	queue int // index of Ledger.queues
	name  string
	// nameless reports whether the server makes the name, which is not known yet.
	nameless bool
	text     bool // the workload is text, not JSON
	size     int  // bytes of padding behind the job's number, in the workload and in the result

	// The state of the job in the server.
	inServer certainty // whether the server has the job
	onDisk   certainty // whether the server would have it after a crash
	turn     int       // the turn of the last change of inServer or holder
	group    int       // the group of changes that brings the job to the disk
	came     int       // the turn in which the job came

	// The place of the job in its queue.
	orderKnown     bool // priority and due are known
	priority       int64
	due            int64 // Unix milliseconds
	notBefore      int64 // Unix milliseconds before which the job must not be handed out; may be too early, never too late
	delayMayBeLost bool  // notBefore comes from a SCHED_LATER or an operator, which a crash may lose
	// otherQueues are those in which the job may be beside queue: since a crash, or while an operation moves it.
	otherQueues []int
	movedIn     int     // turn in which it came to be in its queue, other than by its submission
	moving      bool    // an operation may move the job
	priorities  []int64 // other priorities that the job may have after a crash
	changedByID int     // how often operators have changed the job by its id

	// The reservation of the job.
	run           *Run           // the last run; nil: it is not known which run is the last
	holder        *Conn          // the connection that was given the job and has not ended it
	sentTo        map[*Conn]bool // the connections that the job was broadcast to
	holderUnknown bool           // the holder is not known
	heldAt        int64          // Mono when the holder was given the job
	strayReport   pastTurn       // turn of the last report by a connection other than the holder

	// The result of the job.
	owner    *Conn    // the connection that waits for the result
	results  []string // everything that workers said the job came to
	next     *Job     // the job that has replaced this one, or may have
	awaited  bool     // a client has waited for its end, or for that of a job that it may have replaced
	failures int      // largest number of runs that may have failed
	returned int      // reports of workers that the job is not done

	periodicJob
	crcRun
	dworkTask
	beanstalkJob
	faktoryJob
	idTaken   certainty // whether another Gloom job had the id when this one came
	nodeWaits bool      // the Disbatch node waits for the job's end
}

// periodicJob is what the ledger checks of the jobs of Periodic alone.
type periodicJob struct {
	record, recordDisk figures // the job's record now, and after a crash unless it has changed since

	timeout int64 // milliseconds; 0: the server's setting. Jobs of beanstalkd and Faktory have one, too
}

// beanstalkJob is what only a job of beanstalkd's protocol has.
type beanstalkJob struct {
	put, putLatest     int64     // Unix milliseconds: when the job was put, and the latest time that the clock had shown
	buried, buriedDisk certainty // whether the job is buried now, and after a crash
	saved, unsaved     bool      // the job has been on disk for sure; a crash came before that
}

// faktoryJob is what only a job of Faktory has.
type faktoryJob struct {
	retries            int   // how often the job is tried again
	failed, failedDisk int   // smallest number of runs that have failed, now and after a crash
	uniqueUntil        int64 // Unix milliseconds; 0: the job is not unique
}

// crcRun is what a job of any protocol has when a worker with the CRC framing runs it.
type crcRun struct {
	locks    map[string]bool // names of the locks that the run has
	acquires int             // ACQUIREs without an answer
	parked   bool            // the job may wait for a lock
}

// dworkTask is what only a task of dwork has.
type dworkTask struct {
	location       string // the location that was given the task and has not ended it
	savedLocation  string // location, when the journal has it on disk
	preds          []*Job // predecessors
	latePreds      []*Job // predecessors that were added later and are not acknowledged yet
	maybeLostPreds []*Job // predecessors that the server may have lost
	life           int    // how often a task of this name was created
}

// key is the job's key of Ledger.names.
func (j *Job) key() string { return j.keyIn(j.queue) }

func (j *Job) String() string { return fmt.Sprintf("j%d", j.id) }

// crashed notes what a crash leaves of the job: its state on disk, and no connections. restart is the setting for
// stolen tasks.
func (j *Job) crashed(restart string) {
	j.inServer, j.group = j.onDisk, 0
	j.holder, j.owner, j.nodeWaits, j.acquires = nil, nil, false, 0
	j.orderKnown, j.moving = false, false
	j.maybeLostPreds, j.latePreds = append(j.maybeLostPreds, j.latePreds...), nil
	j.unsaved = j.unsaved || !j.saved
	j.failed = min(j.failed, j.failedDisk)
	if j.delayMayBeLost {
		j.notBefore = 0 // the delay may be lost
	}
	if j.buried != j.buriedDisk {
		j.buried = maybe
	}
	j.holderUnknown = j.by == ofDwork && j.savedLocation == "" && restart == "keep"
	// The worker of another protocol has lost its connection.
	if restart == "ready" || j.savedLocation != "" && !slices.Contains(locations, j.savedLocation) {
		j.setLocation("")
	}
	if j.record != j.recordDisk { // the changes since may be there, or not
		j.record.least, j.record.schedKnown = j.recordDisk.least, false
	}
}

// volatile reports whether the server keeps the job in memory only.
func (j *Job) volatile() bool { return j.by == ofGloom || j.by == ofDisbatch }

// untimed reports whether the job has no time-out.
func (j *Job) untimed() bool { return !j.durable() }

// workload identifies the job to the ledger: its number, as JSON or as text, and padding.
func (j *Job) workload() string {
	text := j.String() + strings.Repeat(padding, j.size)
	if j.text {
		return text
	}
	return strconv.Quote(text)
}

// padding fills large workloads and results; the trace leaves it out.
const padding = "."

func brief(b []byte) string { return strings.ReplaceAll(string(b), padding, "") }

// resultFor is a worker's result as the job's owner gets it. A protocol that has only JSON carries text as a string;
// the other side gets text again.
func (j *Job) resultFor(c *Conn, result string) string {
	switch text := strings.Trim(result, `"`); {
	case c.gloom() && j.text:
		return text
	case j.by == ofGloom:
		return strconv.Quote(text)
	}
	return result
}

// lastNext returns the last of the jobs that may have replaced a job one after the other. Some of these may have gone.
func (j *Job) lastNext() *Job {
	for j.next != nil {
		j = j.next
	}
	return j
}
