package kts46

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// A list may have a hundred thousand jobs and more tasks. Other calls wait during a turn, so a turn only copies the
// data; sorting and encoding follow outside.

// heldTask is a copy of a task that a worker holds.
type heldTask struct {
	task
	done int64 // steps of its job
}

func (t *task) held() heldTask { return heldTask{*t, t.job.progress.Done} }

// byHolder compares held tasks by their workers' ids.
func byHolder(a, b *task) int { return strings.Compare(a.holder.id, b.holder.id) }

// heldTasks returns all held tasks, unsorted.
func (r *registry) heldTasks() (all []heldTask) {
	for _, w := range r.workers {
		if w.task != nil {
			all = append(all, w.task.held())
		}
	}
	return all
}

// current returns all held tasks in order. It takes a turn.
func (r *registry) current() (all []heldTask, err error) {
	err = r.update(func() error {
		all = r.heldTasks()
		return nil
	})
	slices.SortFunc(all, func(a, b heldTask) int { return byHolder(&a.task, &b.task) })
	return all, err
}

// jobState is a copy of a job's state.
type jobState struct {
	name           string
	done, total    int64   // steps
	doneStatistics kindSet // kinds of statistics that are done
	finished       bool
	queued         kindSet // tasks that no worker holds
}

// projectState is a copy of a project's state.
type projectState struct {
	name string
	jobs []jobState
}

// state copies the project's state, its jobs unsorted.
func (p *project) state() projectState {
	l := projectState{p.name, make([]jobState, 0, len(p.jobs))}
	for _, j := range p.jobs {
		s := jobState{name: j.name, done: j.steps(), total: j.total, doneStatistics: j.doneStatistics(), finished: j.progress.Finished}
		for k, t := range j.tasks {
			if t != nil && t.holder == nil {
				s.queued |= 1 << k
			}
		}
		l.jobs = append(l.jobs, s)
	}
	return l
}

// sort sorts a project's jobs by name.
func (s projectState) sort() projectState {
	slices.SortFunc(s.jobs, func(a, b jobState) int { return strings.Compare(a.name, b.name) })
	return s
}

// list returns a project with its jobs in order.
func (r *registry) list(project string) (l projectState, err error) {
	err = r.update(func() error {
		p, err := r.project(project)
		if err == nil {
			l = p.state()
		}
		return err
	})
	return l.sort(), err
}

// listAll returns all projects with their jobs in order. It calls inTurn in the turn in which it copies the projects.
func (r *registry) listAll(inTurn func()) (all []projectState, err error) {
	err = r.update(func() error {
		for _, p := range r.projects {
			all = append(all, p.state())
		}
		inTurn()
		return nil
	})
	slices.SortFunc(all, func(a, b projectState) int { return strings.Compare(a.name, b.name) })
	for _, l := range all {
		l.sort()
	}
	return all, err
}

// statusJSON is the answer to a GET.
type statusJSON struct {
	WaitingQueue      []waitingJSON        `json:"waitingQueue"`
	WaitingActivation map[string]*taskJSON `json:"waitingActivation"`
	RunningTasks      map[string]*taskJSON `json:"runningTasks"`
}

type waitingJSON struct {
	Project string `json:"project"`
	Job     string `json:"job"`
	Type    string `json:"type"`
}

// sendStatus answers a GET with the waiting and running tasks of all projects, as the reference does.
func (p *Protocol) sendStatus(w http.ResponseWriter) {
	composed := p.compose("getServerStatus") // the same list in the form of version 2
	defer composed()
	st := statusJSON{[]waitingJSON{}, make(map[string]*taskJSON), make(map[string]*taskJSON)}
	var held []heldTask
	projects, err := p.listAll(func() { held = p.heldTasks() })
	for _, l := range projects {
		for _, j := range l.jobs {
			for k := range kindCount {
				if j.queued.has(k) {
					st.WaitingQueue = append(st.WaitingQueue, waitingJSON{l.name, j.name, k.String()})
				}
			}
		}
	}
	for _, t := range held {
		if t.accepted {
			st.RunningTasks[t.holder.id] = p.taskJSON(t)
		} else {
			st.WaitingActivation[t.holder.id] = p.taskJSON(t)
		}
	}
	if err != nil {
		p.send(w, unavailable(err))
		return
	}
	text, err := json.MarshalIndent(&st, "", "    ")
	if err != nil {
		panic("BUG: the status is no JSON: " + err.Error())
	}
	composed()
	p.send(w, reply{http.StatusOK, typeJSON, text})
}
