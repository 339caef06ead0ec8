//go:build invariants

package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The kinds of kts46 tasks, and which of them a version's workers do and end its jobs with.
var (
	kts46Kinds = []string{"simulation", "statistics", "basicStatistics", "idleTimes", "throughput"}
	kts46Ends  = map[bool][]int{false: {1}, true: {2, 3, 4}}
	kts46Does  = map[bool][]int{false: {0, 1}, true: {0, 2, 3, 4}}
)

// Kts46Model is what the ledger knows of kts46. The server handles calls one at a time, so the model knows the answer
// to each. It learns one thing from the server: the revision of each task, from the list of current tasks; each must be
// larger than all before it.
type Kts46Model struct {
	projects map[string]int64     // the last job id that was given out
	jobs     map[string]*kts46Job // by project/job
	tops     [4]int64             // the largest revision of each worker
	back     int64                // place of the last task in line
	front    int64
	made     int64 // number of tasks that were made
	changes  int64 // number of changes of this model
}

// kts46Saved is what the ledger knows of kts46 on disk. One of the two models, or Ledger.kts, is left by a crash.
type kts46Saved struct {
	disk  *Kts46Model // as of the last commit
	next  *Kts46Model // as of the group that a slow disk is syncing
	acked int64       // number of the last change that was acknowledged
}

// kts46Job is a simulation job.
type kts46Job struct {
	project, name     string
	total, batch      int64
	done              int64
	running, finished bool
	left              [5]bool // kinds to be done behind the simulation
	tasks             [5]kts46Task
	version           int // the version whose workers alone get its batches; 0: not decided
}

// kts46Task is one task, if there is one; holder 0: no worker holds it.
type kts46Task struct {
	there       bool
	place, made int64
	holder      int // 1 + worker
	accepted    bool
	revision    int64 // Unix milliseconds; 0: the server has just given the task a new one
	before      int64 // the previous revision
	seen        int64 // Mono of the last sign of life
	line        int   // of a batch: the version in whose line it stands; 0: the line of both
}

func newKts46Model() *Kts46Model {
	return &Kts46Model{projects: map[string]int64{}, jobs: map[string]*kts46Job{}}
}

func (m *Kts46Model) clone() *Kts46Model {
	c := *m
	c.projects, c.jobs = maps.Clone(m.projects), map[string]*kts46Job{}
	for key, j := range m.jobs {
		same := *j
		c.jobs[key] = &same
	}
	return &c
}

// sorted lists the jobs by name.
func (m *Kts46Model) sorted() (all []*kts46Job) {
	for _, key := range slices.Sorted(maps.Keys(m.jobs)) {
		all = append(all, m.jobs[key])
	}
	return all
}

// held returns what a worker holds; nil: nothing.
func (m *Kts46Model) held(worker int) (*kts46Job, *kts46Task, int) {
	for _, j := range m.jobs {
		for k := range j.tasks {
			if j.tasks[k].there && j.tasks[k].holder == worker+1 {
				return j, &j.tasks[k], k
			}
		}
	}
	return nil, nil, 0
}

// plan queues the tasks that a job is to have and has not.
func (m *Kts46Model) plan(j *kts46Job) {
	for k := range j.tasks {
		wanted := j.running && (j.done < j.total && k == 0 || j.done >= j.total && j.left[k])
		if wanted && !j.tasks[k].there {
			m.made++
			m.back++
			j.tasks[k] = kts46Task{there: true, made: m.made, place: m.back, line: j.version}
		}
	}
}

// run starts a job; false: it runs already, or is done.
func (m *Kts46Model) run(j *kts46Job, v2 bool) bool {
	if j.running || j.finished {
		return false
	}
	rest := [5]bool{} // the ending tasks of this version that an abort left undone
	for _, k := range kts46Ends[v2] {
		rest[k] = j.left[k]
	}
	if rest == [5]bool{} {
		for _, k := range kts46Ends[v2] {
			rest[k] = true
		}
	}
	j.running, j.left = true, rest
	m.plan(j)
	return true
}

// abort stops a job, and returns how many tasks that ended.
func (j *kts46Job) abort() (n int) {
	for k := range j.tasks {
		if j.tasks[k].there {
			n++
		}
		j.tasks[k] = kts46Task{}
	}
	j.running = false
	return n
}

// requeue puts a held task of a job back in line. A batch for one version is created anew if it was in the line of
// both.
func (m *Kts46Model) requeue(j *kts46Job, t *kts46Task, first bool) {
	t.holder, t.accepted = 0, false
	if t == &j.tasks[0] && t.line != j.version {
		m.made++
		t.made, t.line = m.made, j.version
	}
	if first {
		m.front--
		t.place = m.front
	} else {
		m.back++
		t.place = m.back
	}
}

// finish ends a held task.
func (m *Kts46Model) finish(j *kts46Job, k int) {
	j.tasks[k] = kts46Task{}
	if k == 0 {
		j.done = min(j.done+j.batch, j.total)
	} else {
		j.left[k] = false
	}
	if j.done >= j.total && j.left == [5]bool{} {
		j.running, j.finished = false, true
	}
	m.plan(j)
}

// fixVersion notes that a worker of a version has accepted a task. After its first batch, a job is for workers of that
// version only.
func (m *Kts46Model) fixVersion(j *kts46Job, k int, v2 bool) {
	if k != 0 || j.version != 0 {
		return
	}
	j.version = 1
	if v2 {
		j.version = 2
	}
}

// nextTasks lists the tasks that a worker of a version may be given next: one task, or all those that came in line at
// the same moment.
func (m *Kts46Model) nextTasks(kinds []int, v2 bool) (best []*kts46Task) {
	least := int64(math.MaxInt64)
	for _, j := range m.sorted() {
		for _, k := range kinds {
			t := &j.tasks[k]
			if !t.there || t.holder != 0 || t.place > least || k == 0 && j.version == map[bool]int{false: 2, true: 1}[v2] {
				continue
			}
			if t.place < least {
				best = nil
			}
			best, least = append(best, t), t.place
		}
	}
	return best
}

// tasks describes all tasks in the form of kts46Shown: queued ones by name, held ones by worker.
func (m *Kts46Model) tasks() string {
	var text strings.Builder
	for _, j := range m.sorted() {
		for k, t := range j.tasks {
			if t.there && t.holder == 0 {
				fmt.Fprintf(&text, "%s/%s %s waits\n", j.project, j.name, kts46Kinds[k])
			}
		}
	}
	for w := range m.tops {
		if j, t, k := m.held(w); j != nil {
			fmt.Fprintf(&text, "w%d %s, accepted: %v\n", w, j.shown(k), t.accepted)
		}
	}
	return text.String()
}

// shown describes a task in the form of kts46Shown.
func (j *kts46Job) shown(k int) string {
	start := int64(-1)
	if k == 0 {
		start = j.done
	}
	return fmt.Sprintf("%s/%s %s %d", j.project, j.name, kts46Kinds[k], start)
}

// list describes all projects and jobs, as getServerStatus does.
func (m *Kts46Model) list() string {
	var text strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m.projects)) {
		fmt.Fprintf(&text, "%s:", p)
		for _, j := range m.sorted() {
			if j.project == p {
				fmt.Fprintf(&text, " %s %d/%d", j.name, j.done, j.total)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}
