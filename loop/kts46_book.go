package loop

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"treadle/loop/journal"
	"treadle/sched"
)

// ktsKind is a kind of task. Each has a queue of its own.
type ktsKind uint8

// The kinds: batches of a simulation that workers of both versions may be given, the one task
// behind them that version 1 knows, the three of version 2, and batches for one version. The
// journal has the numbers.
const (
	ktsSimulation ktsKind = iota
	ktsStatistics
	ktsBasicStatistics
	ktsIdleTimes
	ktsThroughput
	ktsSimulationV1
	ktsSimulationV2
	ktsKinds
)

var (
	ktsNames  = [ktsKinds]string{"simulation", "statistics", "basicStatistics", "idleTimes", "throughput", "simulation", "simulation"}
	ktsQueues = [ktsKinds]string{ktsSimulationV1: "kts46.simulation.v1", ktsSimulationV2: "kts46.simulation.v2"}
)

func (k ktsKind) String() string { return ktsNames[k] }

// queue is the kind's in the scheduler.
func (k ktsKind) queue() []byte {
	if q := ktsQueues[k]; q != "" {
		return []byte(q)
	}
	return []byte("kts46." + ktsNames[k])
}

// ktsSet is a set of kinds, a bit each.
type ktsSet uint8

func ktsSetOf(kinds ...ktsKind) (s ktsSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

func (s ktsSet) has(k ktsKind) bool { return s&(1<<k) != 0 }

// The kinds that each version's workers are given, and that end a job which it started.
var (
	ktsV1, ktsV1End = ktsSetOf(ktsSimulation, ktsSimulationV1, ktsStatistics), ktsSetOf(ktsStatistics)
	ktsV2End        = ktsSetOf(ktsBasicStatistics, ktsIdleTimes, ktsThroughput)
	ktsV2           = ktsSetOf(ktsSimulation, ktsSimulationV2) | ktsV2End
	ktsBatches      = ktsSetOf(ktsSimulation, ktsSimulationV1, ktsSimulationV2)
)

// Bounds of the book.
const (
	// maxKtsName is a name's length in bytes: file systems and databases, where the
	// projects' results go, know no longer ones.
	maxKtsName = 255
	// maxKtsJobs bounds projects and jobs together; each takes about 500 bytes here, and
	// about 700 of getServerStatus, which is made in memory.
	maxKtsJobs = 1 << 17
)

// ktsProject is a project of simulations.
type ktsProject struct {
	name   string
	lastID int64 // that getNewJobId gave out
	jobs   map[string]*ktsJob
}

// ktsJob is one simulation. Its numbers never change; the text of its definition is in the
// journal alone.
type ktsJob struct {
	project *ktsProject
	name    string
	ktsNumbers
	progress ktsProgress
	tasks    [ktsKinds]*ktsTask // those that are queued or held
}

// ktsProgress is what changes about a job, as the journal has it.
type ktsProgress struct {
	Done     int64  `json:"done"` // steps, counted by whole batches up to the job's total
	Running  bool   `json:"running,omitempty"`
	Finished bool   `json:"finished,omitempty"`
	Left     ktsSet `json:"left,omitempty"` // kinds to be done behind the simulation
	// Version is that of the worker that accepted the first batch, and of the later batches;
	// 0 before.
	Version int `json:"version,omitempty"`
	// Mirrored: MongoDB has had the job, and says how many steps are done.
	Mirrored bool `json:"mongodb,omitempty"`
}

// ktsTask is a task that the scheduler has.
type ktsTask struct {
	job    *ktsJob
	kind   ktsKind
	holder *ktsWorker // nil: it is queued

	// Of a held one:
	lease    sched.Lease // its revision is the last update, in Unix milliseconds
	accepted bool
	started  int64 // Unix milliseconds
	seen     int64 // Mono of the holder's last sign of life
}

// ktsWorker is a worker that is known by its id, over both versions.
type ktsWorker struct {
	id   string
	peer *sched.Peer
	task *ktsTask // that it holds, if any
	last int64    // the largest revision that it was ever given
}

// plan says which tasks a job is to have now.
func (j *ktsJob) plan() ktsSet {
	switch {
	case !j.progress.Running:
		return 0
	case j.progress.Done < j.total:
		return ktsSetOf(j.batches())
	}
	return j.progress.Left
}

// batches is the kind of the job's batches. A first one stays of the kind for both versions
// while a worker holds it.
func (j *ktsJob) batches() ktsKind {
	if j.tasks[ktsSimulation] != nil {
		return ktsSimulation
	}
	return [...]ktsKind{ktsSimulation, ktsSimulationV1, ktsSimulationV2}[j.progress.Version]
}

// start makes a job run that does not; left ends it. Of what an abort left of the same
// ending only the rest is to be done.
func (j *ktsJob) start(left ktsSet) {
	if rest := j.progress.Left & left; rest != 0 {
		left = rest
	}
	j.progress.Running, j.progress.Left = true, left
}

// steps is how many steps are done. A journal of an older version may count the whole of
// the last batch.
func (j *ktsJob) steps() int64 { return min(j.progress.Done, j.total) }

// flags are the kinds of statistics that are done. The one task of version 1 does them all.
func (j *ktsJob) flags() ktsSet {
	left := j.progress.Left & ktsV2End
	switch {
	case j.progress.Finished:
		return ktsV2End
	case left == 0:
		return 0
	}
	return ktsV2End &^ left
}

// count notes that a task is done.
func (j *ktsJob) count(k ktsKind) {
	if ktsBatches.has(k) {
		j.progress.Done = min(j.progress.Done+j.batch, j.total)
		return
	}
	if j.progress.Left &^= 1 << k; j.progress.Left == 0 {
		j.progress.Running, j.progress.Finished = false, true
	}
}

// taskName is what the scheduler knows the job's present task of a kind by. It says how
// far the job is, so that a task which was overtaken has another name.
func (j *ktsJob) taskName() []byte {
	return strconv.AppendInt([]byte(j.project.name+"\x00"+j.name+"\x00"), j.progress.Done, 10)
}

// ktsKindOf is the kind whose queue it is.
func ktsKindOf(queue string) (ktsKind, bool) {
	for k := range ktsKinds {
		if queue == string(k.queue()) {
			return k, true
		}
	}
	return 0, false
}

// checkKtsName refuses names that could not be told apart or shown.
func checkKtsName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the %s's name is empty", what)
	case len(name) > maxKtsName:
		return fmt.Errorf("the %s's name has %d bytes, more than %d", what, len(name), maxKtsName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the %s's name has characters that are no text", what)
	}
	return nil
}

// ktsMissing says that there is no such project or, with a job's name, no such job in it,
// to look at or to delete. The words, of this and the next, are the reference's.
type ktsMissing struct {
	project, job string
	toDelete     bool
}

func (e *ktsMissing) Error() string {
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

// ktsTaken says that there is such a project or, with a job's name, such a job already.
type ktsTaken struct{ project, job string }

func (e *ktsTaken) Error() string {
	if e.job == "" {
		return fmt.Sprintf("Couldn't create project because it already exists. Project name: %s.", e.project)
	}
	return fmt.Sprintf("Couldn't add job '%s' to project '%s' because it already exists.", e.job, e.project)
}

// ktsRetiredKey is the key of the journal's setting with the largest revision of a task that is
// gone.
const ktsRetiredKey = "kts46.retired"

// document is what the journal keeps of a kind of the job. Of the definition that is its text,
// of the others JSON.
func (j *ktsJob) document(kind journal.Kind, value []byte) *journal.Document {
	return &journal.Document{Kind: kind, Project: []byte(j.project.name), Name: []byte(j.name), Value: value}
}

// ktsProjectSaved is what the journal keeps of a project itself.
type ktsProjectSaved struct {
	LastID int64 `json:"last_id"`
}

func (p *ktsProject) document() *journal.Document {
	return &journal.Document{Kind: journal.KindProject, Project: []byte(p.name), Value: ktsJSON(ktsProjectSaved{p.lastID})}
}

// ktsJSON is the JSON of what always has one.
func ktsJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: this is no JSON: " + err.Error())
	}
	return b
}

// put journals a document.
func (h *ktsHub) put(d *journal.Document) {
	h.changed = true
	if h.server.feed != nil {
		h.server.feed.journal.PutDocument(d)
		h.server.feed.dirty.Store(true)
	}
}

// drop journals that a document is gone.
func (h *ktsHub) drop(d *journal.Document) {
	h.changed = true
	if h.server.feed != nil {
		h.server.feed.journal.DeleteDocument(d)
		h.server.feed.dirty.Store(true)
	}
}

func (h *ktsHub) saveProgress(j *ktsJob) {
	h.put(j.document(journal.KindProgress, ktsJSON(j.progress)))
}

// saveDefinition journals the definition of a job, and its numbers beside it.
func (h *ktsHub) saveDefinition(j *ktsJob, definition []byte) {
	h.put(j.document(journal.KindDefinition, definition))
	if value := j.save(definition); value != nil {
		h.put(j.document(journal.KindNumbers, value))
	}
}

func (h *ktsHub) saveRetired() {
	h.changed = true
	if h.server.feed != nil {
		h.server.feed.journal.PutSetting(ktsRetiredKey, strconv.AppendInt(nil, h.retired, 10))
		h.server.feed.dirty.Store(true)
	}
}
