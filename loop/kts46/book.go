package kts46

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"treadle/loop/protocol"
	"treadle/sched"
)

// kind is a kind of task. Each has a queue of its own.
type kind uint8

// The kinds: batches of a simulation that workers of both versions may be given, the one task
// behind them that version 1 knows, the three of version 2, and batches for one version. The
// journal has the numbers.
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

// queue is the kind's in the scheduler.
func (k kind) queue() []byte {
	if q := kindQueues[k]; q != "" {
		return []byte(q)
	}
	return []byte("kts46." + kindNames[k])
}

// Queues are the scheduler's queues of the protocol.
func Queues() (all [][]byte) {
	for k := range kindCount {
		all = append(all, k.queue())
	}
	return all
}

// kindSet is a set of kinds, a bit each.
type kindSet uint8

func setOf(kinds ...kind) (s kindSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

func (s kindSet) has(k kind) bool { return s&(1<<k) != 0 }

// The kinds that each version's workers are given, and that end a job which it started.
var (
	v1Kinds, v1End = setOf(simulation, simulationV1, statistics), setOf(statistics)
	v2End          = setOf(basicStatistics, idleTimes, throughput)
	v2Kinds        = setOf(simulation, simulationV2) | v2End
	batchKinds     = setOf(simulation, simulationV1, simulationV2)
)

// Bounds of the book.
const (
	// maxName is a name's length in bytes: file systems and databases, where the
	// projects' results go, know no longer ones.
	maxName = 255
	// maxEntries bounds projects and jobs together; each takes about 500 bytes here, and
	// about 700 of getServerStatus, which is made in memory.
	maxEntries = 1 << 17
)

// project is a project of simulations.
type project struct {
	name   string
	lastID int64 // that getNewJobId gave out
	jobs   map[string]*job
}

// job is one simulation. Its numbers never change; the text of its definition is in the
// journal alone.
type job struct {
	project *project
	name    string
	numbers
	progress progress
	tasks    [kindCount]*task // those that are queued or held
}

// progress is what changes about a job, as the journal has it.
type progress struct {
	Done     int64   `json:"done"` // steps, counted by whole batches up to the job's total
	Running  bool    `json:"running,omitempty"`
	Finished bool    `json:"finished,omitempty"`
	Left     kindSet `json:"left,omitempty"` // kinds to be done behind the simulation
	// Version is that of the worker that accepted the first batch, and of the later batches;
	// 0 before.
	Version int `json:"version,omitempty"`
	// Mirrored: MongoDB has had the job, and says how many steps are done.
	Mirrored bool `json:"mongodb,omitempty"`
}

// task is a task that the scheduler has.
type task struct {
	job    *job
	kind   kind
	holder *worker // nil: it is queued

	// Of a held one:
	lease    sched.Lease // its revision is the last update, in Unix milliseconds
	accepted bool
	started  int64 // Unix milliseconds
	seen     int64 // Mono of the holder's last sign of life
}

// worker is a worker that is known by its id, over both versions.
type worker struct {
	id   string
	peer *sched.Peer
	task *task // that it holds, if any
	last int64 // the largest revision that it was ever given
}

// plan says which tasks a job is to have now.
func (j *job) plan() kindSet {
	switch {
	case !j.progress.Running:
		return 0
	case j.progress.Done < j.total:
		return setOf(j.batches())
	}
	return j.progress.Left
}

// batches is the kind of the job's batches. A first one stays of the kind for both versions
// while a worker holds it.
func (j *job) batches() kind {
	if j.tasks[simulation] != nil {
		return simulation
	}
	return [...]kind{simulation, simulationV1, simulationV2}[j.progress.Version]
}

// start makes a job run that does not; left ends it. Of what an abort left of the same
// ending only the rest is to be done.
func (j *job) start(left kindSet) {
	if rest := j.progress.Left & left; rest != 0 {
		left = rest
	}
	j.progress.Running, j.progress.Left = true, left
}

// steps is how many steps are done. A journal of an older version may count the whole of
// the last batch.
func (j *job) steps() int64 { return min(j.progress.Done, j.total) }

// flags are the kinds of statistics that are done. The one task of version 1 does them all.
func (j *job) flags() kindSet {
	left := j.progress.Left & v2End
	switch {
	case j.progress.Finished:
		return v2End
	case left == 0:
		return 0
	}
	return v2End &^ left
}

// count notes that a task is done.
func (j *job) count(k kind) {
	if batchKinds.has(k) {
		j.progress.Done = min(j.progress.Done+j.batch, j.total)
		return
	}
	if j.progress.Left &^= 1 << k; j.progress.Left == 0 {
		j.progress.Running, j.progress.Finished = false, true
	}
}

// taskName is what the scheduler knows the job's present task of a kind by. It says how
// far the job is, so that a task which was overtaken has another name.
func (j *job) taskName() []byte {
	return strconv.AppendInt([]byte(j.project.name+"\x00"+j.name+"\x00"), j.progress.Done, 10)
}

// kindOf is the kind whose queue it is.
func kindOf(queue string) (kind, bool) {
	for k := range kindCount {
		if queue == string(k.queue()) {
			return k, true
		}
	}
	return 0, false
}

// checkName refuses names that could not be told apart or shown.
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

// missingError says that there is no such project or, with a job's name, no such job in it,
// to look at or to delete. The words, of this and the next, are the reference's.
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

// takenError says that there is such a project or, with a job's name, such a job already.
type takenError struct{ project, job string }

func (e *takenError) Error() string {
	if e.job == "" {
		return fmt.Sprintf("Couldn't create project because it already exists. Project name: %s.", e.project)
	}
	return fmt.Sprintf("Couldn't add job '%s' to project '%s' because it already exists.", e.job, e.project)
}

// retiredKey is the key of the journal's setting with the largest revision of a task that is
// gone.
const retiredKey = "kts46.retired"

// document is what the journal keeps of a kind of the job. Of the definition that is its text,
// of the others JSON.
func (j *job) document(kind protocol.DocumentKind, value []byte) *protocol.Document {
	return &protocol.Document{Kind: kind, Project: []byte(j.project.name), Name: []byte(j.name), Value: value}
}

// savedProject is what the journal keeps of a project itself.
type savedProject struct {
	LastID int64 `json:"last_id"`
}

func (p *project) document() *protocol.Document {
	return &protocol.Document{Kind: protocol.KindProject, Project: []byte(p.name), Value: mustJSON(savedProject{p.lastID})}
}

// mustJSON is the JSON of what always has one.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: this is no JSON: " + err.Error())
	}
	return b
}

// put journals a document.
func (h *Hub) put(d *protocol.Document) {
	h.changed = true
	h.host.PutDocument(d)
}

// drop journals that a document is gone.
func (h *Hub) drop(d *protocol.Document) {
	h.changed = true
	h.host.DropDocument(d)
}

func (h *Hub) saveProgress(j *job) {
	h.put(j.document(protocol.KindProgress, mustJSON(j.progress)))
}

// saveDefinition journals the definition of a job, and its numbers beside it.
func (h *Hub) saveDefinition(j *job, definition []byte) {
	h.put(j.document(protocol.KindDefinition, definition))
	if value := j.save(definition); value != nil {
		h.put(j.document(protocol.KindNumbers, value))
	}
}

func (h *Hub) saveRetired() {
	h.changed = true
	h.host.PutSetting(retiredKey, strconv.AppendInt(nil, h.retired, 10))
}
