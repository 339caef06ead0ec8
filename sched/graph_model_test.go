package sched

import (
	"errors"
	"slices"
	"strings"
)

// graphJob is a job of the queue of a graphModel: a task, or a job of another space.
type graphJob struct {
	made           int // by the model's clock
	space          Space
	name, workload string
	state          state
	priority       int64
	due            int64 // second, as in a ready key; of a delayed or waiting one in milliseconds
	count          int32
	log, saved     []Event // as it is, and as the journal has it
	holder         string  // a holder's name, or a worker's
	age            int     // of the slot that it was assigned to
	tag            uint64
	until          int64 // how long a complete one is remembered; since when a parked one waits
}

// graphEdge records that to waits for from. own reports whether it is in the journal's record of to.
type graphEdge struct {
	from, to *graphJob
	own      bool
	made     int // unless own
}

// since returns when the journal received an edge.
func (e *graphEdge) since() int {
	if e.own {
		return e.to.made
	}
	return e.made
}

// graphModel is a naive model of the table "Graph and scheduling" of the dwork page: a list of live
// tasks, a list of edges, a line. Beside holders it has workers, which are handed the first fitting
// job in line.
type graphModel struct {
	now      Time
	remember int64
	all      []*graphJob // not complete, oldest first
	past     []*graphJob // complete and remembered, oldest first
	edges    []graphEdge // oldest first
	line     []*graphJob
	delayed  []*graphJob // in the order in which they were delayed
	parked   []*graphJob // in the order in which they were parked
	locked   *graphJob   // has the lock
	queueing []*graphJob // wait for the lock
	woken    []*graphJob // were made ready for the lock and have not asked for it yet
	workers  []*graphWorker
	clock    int
	want     []delivered // deliveries
}

type graphWorker struct {
	id           SessionID
	name         string
	capabilities Capabilities
	serves       bool
	slots        []modelSlot // wake is unused
	held         []*graphJob // in the order in which the scheduler keeps them
}

// The spaces of the graph tests: tasks, jobs as they come, jobs that die.
const (
	graphTasks Space = iota
	graphPlain
	graphDeaths
)

var graphRules = [MaxSpaces]Rules{
	graphTasks:  {Durable: true, Graph: true, Untimed: true},
	graphDeaths: {Untimed: true, MaxFailures: 3},
}

func (m *graphModel) find(space Space, name string) *graphJob {
	for _, j := range m.all {
		if j.space == space && j.name == name {
			return j
		}
	}
	return nil
}

func (m *graphModel) remembered(name string) *graphJob {
	for _, j := range m.past {
		if j.name == name {
			return j
		}
	}
	return nil
}

// after and before return the names that a task waits for, or that wait for it.
func (m *graphModel) after(j *graphJob) (names []string) {
	for _, e := range m.edges {
		if e.to == j {
			names = append(names, e.from.name)
		}
	}
	return names
}

func (m *graphModel) before(j *graphJob) (names []string) {
	for _, e := range m.edges {
		if e.from == j {
			names = append(names, e.to.name)
		}
	}
	return names
}

func (m *graphModel) logs(j *graphJob, stage uint8) {
	j.log = append(slices.Clone(j.log), Event{stage, m.now.WallMicros})
}

// closes reports whether tasks would wait for each other in a cycle, or for themselves, if those of a
// request were added one after the other.
func (m *graphModel) closes(tasks []Task) bool {
	waits := make(map[string][]string)
	for _, j := range m.all {
		if j.space == graphTasks {
			waits[j.name] = m.after(j)
		}
	}
	for _, t := range tasks {
		name := string(t.Name)
		waits[name] = append([]string{}, waits[name]...)
		for _, a := range t.After {
			if string(a) == name {
				return true
			}
			if _, ok := waits[string(a)]; ok {
				waits[name] = append(waits[name], string(a))
			}
		}
	}
	for name := range waits {
		if reaches(waits, name, name, len(waits)) {
			return true
		}
	}
	return false
}

// reaches reports whether a path of at most n steps leads from one name to another.
func reaches(waits map[string][]string, from, to string, n int) bool {
	return n > 0 && slices.ContainsFunc(waits[from], func(a string) bool { return a == to || reaches(waits, a, to, n-1) })
}

// addEdges gives a task more predecessors.
func (m *graphModel) addEdges(j *graphJob, after [][]byte, own bool) {
	for _, name := range after {
		from := m.find(graphTasks, string(name))
		if from != nil && !slices.Contains(m.after(j), from.name) {
			m.edges = append(m.edges, graphEdge{from: from, to: j, own: own})
		}
	}
}

func (m *graphModel) extend(tasks []Task) error {
	if m.closes(tasks) {
		return &cycleError{}
	}
	fresh := make(map[*graphJob]bool)
	var order []*graphJob
	for _, t := range tasks {
		j := m.find(graphTasks, string(t.Name))
		if j == nil {
			m.past = slices.DeleteFunc(m.past, func(o *graphJob) bool { return o.name == string(t.Name) })
			m.clock++
			j = &graphJob{made: m.clock, space: graphTasks, name: string(t.Name), workload: string(t.Workload), log: t.Log, state: waiting}
			m.all, fresh[j] = append(m.all, j), true
			order = append(order, j)
		}
		m.addEdges(j, t.After, fresh[j])
	}
	for i := range m.edges {
		if m.edges[i].since() == 0 {
			m.clock++
			m.edges[i].made = m.clock
		}
	}
	for _, j := range order {
		if len(m.after(j)) == 0 {
			m.ready(j, back)
		}
		j.saved = j.log
	}
	for _, j := range m.all {
		if (j.state == ready || j.state == delayed) && len(m.after(j)) > 0 {
			m.leave(j)
			j.state = waiting
		}
	}
	m.match()
	m.yieldWoken()
	return nil
}

// leave takes a job out of the line and out of the delayed ones.
func (m *graphModel) leave(j *graphJob) {
	same := func(o *graphJob) bool { return o == j }
	m.line, m.delayed = slices.DeleteFunc(m.line, same), slices.DeleteFunc(m.delayed, same)
}

// ahead is the order of the line: larger priority first, then the earlier second.
func (j *graphJob) ahead(o *graphJob) bool {
	return j.priority > o.priority || j.priority == o.priority && j.due < o.due
}

// ready puts a job in line, ahead of or behind its equals.
func (m *graphModel) ready(j *graphJob, where lineEnd) {
	j.state, j.holder = ready, ""
	if j.space == graphTasks {
		j.due = taskDue
		m.logs(j, StageReady)
	}
	at := slices.IndexFunc(m.line, func(o *graphJob) bool { return j.ahead(o) || where == front && !o.ahead(j) })
	if at < 0 {
		at = len(m.line)
	}
	m.line = slices.Insert(m.line, at, j)
}

// release places a task that was taken from its holder.
func (m *graphModel) release(j *graphJob, where lineEnd) {
	j.holder, j.due = "", 0
	if j.state = waiting; len(m.after(j)) == 0 {
		m.ready(j, where)
	}
	j.saved = j.log
}

func (m *graphModel) steal(holder string, n int) (names []string) {
	for _, j := range slices.Clone(m.line) {
		if j.space == graphTasks && len(names) < n {
			m.leave(j)
			j.state, j.holder = reserved, holder
			m.logs(j, StageReserved)
			j.saved = j.log
			names = append(names, j.name)
		}
	}
	return names
}

// anyHolder completes the tasks of any holder. The names of holders begin with h.
const anyHolder = ""

func (m *graphModel) complete(holder string, tasks []Task) (missing []int) {
	var done []*graphJob
	for i, t := range tasks {
		j := m.find(graphTasks, string(t.Name))
		if j == nil || j.state != reserved || j.holder != holder && (holder != anyHolder || !strings.HasPrefix(j.holder, "h")) {
			missing = append(missing, i)
			continue
		}
		if m.remember > 0 {
			j.log = slices.Concat(j.log, t.Log)
		}
		m.done(j)
		done = append(done, j)
	}
	for _, j := range done {
		m.free(j)
	}
	m.match()
	for _, j := range done {
		m.unlock(j)
	}
	return missing
}

// done takes a complete task out.
func (m *graphModel) done(j *graphJob) {
	m.all = slices.DeleteFunc(m.all, func(o *graphJob) bool { return o == j })
	m.edges = slices.DeleteFunc(m.edges, func(e graphEdge) bool { return e.to == j })
	if m.remember > 0 {
		m.logs(j, StageDone)
		j.state, j.holder, j.until = remembered, "", roundUp(m.now.Mono+m.remember)
		m.past = append(m.past, j)
	}
}

func (m *graphModel) free(j *graphJob) {
	var next []*graphJob
	m.edges = slices.DeleteFunc(m.edges, func(e graphEdge) bool {
		if e.from == j {
			next = append(next, e.to)
		}
		return e.from == j
	})
	for _, to := range next {
		if to.state != waiting || len(m.after(to)) > 0 {
			continue
		}
		if to.due > m.now.Wall {
			to.state = delayed
			m.delayed = append(m.delayed, to)
			continue
		}
		m.ready(to, front)
	}
}

func (m *graphModel) transfer(holder string, tasks []Task) error {
	for i, t := range tasks {
		j := m.find(graphTasks, string(t.Name))
		if j == nil || j.state != reserved || j.holder != holder {
			if m.closes(tasks[:i]) { // it was met before
				return &cycleError{}
			}
			return ErrNotFound
		}
	}
	if m.closes(tasks) {
		return &cycleError{}
	}
	for _, t := range tasks {
		m.addEdges(m.find(graphTasks, string(t.Name)), t.After, true)
	}
	for _, t := range tasks {
		j := m.find(graphTasks, string(t.Name))
		j.log = slices.Concat(j.log, t.Log)
		if j.state == reserved {
			m.release(j, back)
		}
	}
	m.match()
	for _, t := range tasks {
		m.unlock(m.find(graphTasks, string(t.Name)))
	}
	return nil
}

func (m *graphModel) forgetHolder(holder string) {
	var all []*graphJob
	for _, j := range m.all {
		if j.state == reserved && j.holder == holder {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *graphJob) int { return strings.Compare(a.name, b.name) })
	for _, j := range all {
		m.release(j, front)
	}
	m.match()
	for _, j := range all {
		m.unlock(j)
	}
}

// sameGraphError compares the kinds of two errors.
func sameGraphError(got, want error) bool {
	var a, b *cycleError
	return got == want || errors.As(got, &a) && errors.As(want, &b)
}
