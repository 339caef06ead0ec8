package kts46

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"treadle/loop/protocol"
	"treadle/sched"
)

// kind is a kind of task. Each kind has its own queue.
type kind uint8

// The kinds, with the numbers that the journal stores. Workers of both versions take simulation. Only version 1 takes
// statistics, only version 2 the three kinds after it. The last two are batches for one version.
const (
	simulation kind = iota
	statistics
	basicStatistics
	idleTimes
	throughput
	simulationV1
	simulationV2
	kindCount
)

var (
	kindNames  = [kindCount]string{"simulation", "statistics", "basicStatistics", "idleTimes", "throughput", "simulation", "simulation"}
	kindQueues = [kindCount]string{simulationV1: "kts46.simulation.v1", simulationV2: "kts46.simulation.v2"}
)

func (k kind) String() string { return kindNames[k] }

// queue returns the kind's queue in the scheduler.
func (k kind) queue() []byte {
	if q := kindQueues[k]; q != "" {
		return []byte(q)
	}
	return []byte("kts46." + kindNames[k])
}

// kindSet is a set of kinds, one bit each.
type kindSet uint8

func setOf(kinds ...kind) (s kindSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

func (s kindSet) has(k kind) bool { return s&(1<<k) != 0 }

// The kinds that workers of each version take, and the kinds that end a job started by each version.
var (
	v1Kinds, v1End = setOf(simulation, simulationV1, statistics), setOf(statistics)
	v2End          = setOf(basicStatistics, idleTimes, throughput)
	v2Kinds        = setOf(simulation, simulationV2) | v2End
	batchKinds     = setOf(simulation, simulationV1, simulationV2)
)

// Limits of the registry.
const (
	// maxName is the longest name in bytes: file systems and databases, which store the projects' results, allow no
	// longer ones.
	maxName = 255
	// maxEntries bounds projects and jobs together. Each takes about 500 bytes here, and about 700 in the answer to
	// getServerStatus, which is built in memory.
	maxEntries = 1 << 17
)

// registry has the projects and jobs, and the workers of both versions with their tasks. The tasks themselves are in
// the scheduler. The registry decides which tasks exist (queueMissingTasks) and journals its changes. It knows neither
// calls nor MongoDB.
type registry struct {
	host   protocol.Host
	sched  *sched.Scheduler
	parsed atomic.Uint64 // definitions

	restartAfter time.Duration // how long a worker that holds a task may be silent

	mu       sync.Mutex // guards the fields below and the workers' scheduler calls
	now      sched.Time
	sink     protocol.Sink
	changed  bool // this turn journaled something
	closed   bool
	projects map[string]*project
	entries  int // projects and jobs
	workers  map[string]*worker
	sweepAt  int // number of workers at which the idle ones are removed
	// minRevision is a revision. Every revision that was given before the start, or to a removed worker, is of the same
	// second or earlier. A new revision is of a later second.
	minRevision int64
	maxRetired  int64                         // largest revision of a removed task
	restored    map[string]*protocol.Document // numbers that wait for their definition, by project and job with a NUL between
}

// project is a project of simulations.
type project struct {
	name   string
	lastID int64 // the last id from getNewJobId
	jobs   map[string]*job
}

// job is one simulation. Its numbers never change. Only the journal has the text of its definition.
type job struct {
	project *project
	name    string
	batchParams
	progress progress
	tasks    [kindCount]*task // queued or reserved tasks
}

// progress is the part of a job that changes, in the journal's form.
type progress struct {
	Done     int64   `json:"done"` // steps, counted in whole batches up to the job's total
	Running  bool    `json:"running,omitempty"`
	Finished bool    `json:"finished,omitempty"`
	Left     kindSet `json:"left,omitempty"` // kinds to do after the simulation
	// Version is the version of the worker that accepted the first batch, and of the workers of all later ones; 0
	// before the first.
	Version int `json:"version,omitempty"`
	// Mirrored reports whether MongoDB has had the job and counts its steps.
	Mirrored bool `json:"mongodb,omitempty"`
}

// task is a task in the scheduler.
type task struct {
	job    *job
	kind   kind
	holder *worker // nil: the task is queued

	// The fields of a reserved task:
	revision sched.TaskRevision // its number is the time of the last update, in Unix milliseconds
	accepted bool
	started  int64 // Unix milliseconds
	seen     int64 // Mono of the holder's last report
}

// worker is a worker of either version, known by its id.
type worker struct {
	id   string
	peer *sched.Peer
	task *task // the task that the worker holds; nil: none
	last int64 // the largest revision that the worker was given
}

// neededKinds returns the kinds of the tasks that a job needs now.
func (j *job) neededKinds() kindSet {
	switch {
	case !j.progress.Running:
		return 0
	case j.progress.Done < j.total:
		return setOf(j.batches())
	}
	return j.progress.Left
}

// batches returns the kind of the job's batches. The first batch keeps the kind for both versions while a worker holds
// it.
func (j *job) batches() kind {
	if j.tasks[simulation] != nil {
		return simulation
	}
	return j.versionBatches()
}

// versionBatches returns the kind of the batches after the first one, of the version that the job is decided for.
func (j *job) versionBatches() kind {
	return [...]kind{simulation, simulationV1, simulationV2}[j.progress.Version]
}

// start marks a stopped job as running; left are the kinds that end it. If an abort left a part of these to do, only
// that part remains.
func (j *job) start(left kindSet) {
	if rest := j.progress.Left & left; rest != 0 {
		left = rest
	}
	j.progress.Running, j.progress.Left = true, left
}

// steps returns how many steps are done. A journal of an older version may count the whole last batch.
func (j *job) steps() int64 { return min(j.progress.Done, j.total) }

// doneStatistics returns the kinds of statistics that are done. The one task of v1 stands for all of them.
func (j *job) doneStatistics() kindSet {
	left := j.progress.Left & v2End
	switch {
	case j.progress.Finished:
		return v2End
	case left == 0:
		return 0
	}
	return v2End &^ left
}

// recordDone records that a task is done.
func (j *job) recordDone(k kind) {
	if batchKinds.has(k) {
		j.progress.Done = min(j.progress.Done+j.batch, j.total)
		return
	}
	if j.progress.Left &^= 1 << k; j.progress.Left == 0 {
		j.progress.Running, j.progress.Finished = false, true
	}
}

// taskName returns the scheduler's name of the job's present tasks. It contains the steps done, so an outdated task has
// another name.
func (j *job) taskName() []byte {
	return strconv.AppendInt([]byte(j.project.name+"\x00"+j.name+"\x00"), j.progress.Done, 10)
}

// kindOf returns the kind of a queue; false: none.
func kindOf(queue string) (kind, bool) {
	for k := range kindCount {
		if queue == string(k.queue()) {
			return k, true
		}
	}
	return 0, false
}

// checkName rejects empty, long and unprintable names.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the %s's name is empty", what)
	case len(name) > maxName:
		return fmt.Errorf("the %s's name has %d bytes, more than %d", what, len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the %s's name has characters that are no text", what)
	}
	return nil
}

// missingError reports that a project, or a job of it, does not exist. The text, like the next one, is the reference's.
type missingError struct {
	project, job string
	toDelete     bool
}

func (e *missingError) Error() string {
	switch {
	case e.job == "" && e.toDelete:
		return fmt.Sprintf("Couldn't delete project '%s' because it doesn't exists.", e.project)
	case e.job == "":
		return fmt.Sprintf("Couldn't get project '%s' because it doesn't exists.", e.project)
	case e.toDelete:
		return fmt.Sprintf("Couldn't delete job '%s' in project '%s' because it doesn't exist.", e.job, e.project)
	}
	return fmt.Sprintf("Couldn't get job '%s' from project '%s' because it doesn't exists.", e.job, e.project)
}

// takenError reports that a project, or a job in it, exists already.
type takenError struct{ project, job string }

func (e *takenError) Error() string {
	if e.job == "" {
		return fmt.Sprintf("Couldn't create project because it already exists. Project name: %s.", e.project)
	}
	return fmt.Sprintf("Couldn't add job '%s' to project '%s' because it already exists.", e.job, e.project)
}

// retiredKey is the journal's setting for the largest revision of all removed tasks.
const retiredKey = "kts46.retired"

// document returns the job's journal document of a kind. A definition is stored as text, everything else as JSON.
func (j *job) document(kind protocol.DocumentKind, value []byte) *protocol.Document {
	return &protocol.Document{Kind: kind, Project: []byte(j.project.name), Name: []byte(j.name), Value: value}
}

// savedProject is the journal's form of a project.
type savedProject struct {
	LastID int64 `json:"last_id"`
}

func (p *project) document() *protocol.Document {
	return &protocol.Document{Kind: protocol.KindProject, Project: []byte(p.name), Value: mustJSON(savedProject{p.lastID})}
}

// mustJSON encodes a value that JSON can always represent.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: this is no JSON: " + err.Error())
	}
	return b
}

// put journals a document.
func (r *registry) put(d *protocol.Document) {
	r.changed = true
	r.host.PutDocument(d)
}

// drop journals the removal of a document.
func (r *registry) drop(d *protocol.Document) {
	r.changed = true
	r.host.DropDocument(d)
}

func (r *registry) saveProgress(j *job) {
	r.put(j.document(protocol.KindProgress, mustJSON(j.progress)))
}

// saveDefinition journals the definition of a job and, separately, its numbers.
func (r *registry) saveDefinition(j *job, definition []byte) {
	r.put(j.document(protocol.KindDefinition, definition))
	if value := j.save(definition); value != nil {
		r.put(j.document(protocol.KindBatchParams, value))
	}
}

func (r *registry) saveRetired() {
	r.changed = true
	r.host.PutSetting(retiredKey, strconv.AppendInt(nil, r.maxRetired, 10))
}

// Omitted implements protocol.Omitted: it returns the number of projects.
func (r *registry) Omitted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.projects)
}

// unwrittenError reports that a call's changes are not on disk and never will be.
type unwrittenError struct{ error }

// update runs fn with exclusive access to the registry. It returns when fn's changes are on disk.
func (r *registry) update(fn func() error) error {
	group, wait, err := r.locked(fn)
	acknowledgements := 0
	if wait {
		acknowledgements = 1
	}
	r.host.Flush(acknowledgements)
	if wait {
		if failed := r.host.Await(group); failed != nil {
			return &unwrittenError{failed}
		}
	}
	return err
}

// updateWithAnswer is update for an fn that returns an answer.
func (r *registry) updateWithAnswer(fn func() (any, error)) (answer any, err error) {
	err = r.update(func() (err error) {
		answer, err = fn()
		return err
	})
	return answer, err
}

// locked runs fn as a turn of the registry: with its lock, the present time, and the deliveries sent at the end. wait
// reports whether the answer must wait for a group of the journal.
func (r *registry) locked(fn func() error) (group uint64, wait bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, false, errStopping
	}
	r.now, r.changed = r.host.Now(), false
	err = fn()
	r.sink.Wake()
	if r.changed {
		group, wait = r.host.CommitGroupAll()
	}
	return group, wait, err
}
