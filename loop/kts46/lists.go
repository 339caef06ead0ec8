package kts46

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	codec "treadle/codec/kts46"
)

// What is listed may be a hundred thousand jobs and more tasks. A turn takes only a look at them: others
// wait for it. They are put in order, and into words, behind it.

// holding is a held task as it was at a moment.
type holding struct {
	task
	done int64 // steps of its job
}

func (t *task) holding() holding { return holding{*t, t.job.progress.Done} }

// byHolder is the order of held tasks by their workers' ids.
func byHolder(a, b *task) int { return strings.Compare(a.holder.id, b.holder.id) }

// holdings returns all tasks that are held, in no order.
func (h *Hub) holdings() (all []holding) {
	for _, w := range h.workers {
		if w.task != nil {
			all = append(all, w.task.holding())
		}
	}
	return all
}

// current is holdings in a turn, in order.
func (h *Hub) current() (all []holding, err error) {
	err = h.turn(func() error {
		all = h.holdings()
		return nil
	})
	slices.SortFunc(all, func(a, b holding) int { return byHolder(&a.task, &b.task) })
	return all, err
}

// standing is a job as it was at a moment.
type standing struct {
	name        string
	done, total int64   // steps
	flags       kindSet // kinds of statistics that are done
	finished    bool
	queued      kindSet // tasks that nobody holds
}

// listed is a project as it was at a moment.
type listed struct {
	name string
	jobs []standing
}

// listed is the project now, its jobs in no order.
func (p *project) listed() listed {
	l := listed{p.name, make([]standing, 0, len(p.jobs))}
	for _, j := range p.jobs {
		s := standing{name: j.name, done: j.steps(), total: j.total, flags: j.flags(), finished: j.progress.Finished}
		for k, t := range j.tasks {
			if t != nil && t.holder == nil {
				s.queued |= 1 << k
			}
		}
		l.jobs = append(l.jobs, s)
	}
	return l
}

// sort orders a project's jobs by their names.
func (l listed) sort() listed {
	slices.SortFunc(l.jobs, func(a, b standing) int { return strings.Compare(a.name, b.name) })
	return l
}

// list is a project with its jobs, in order.
func (h *Hub) list(project string) (l listed, err error) {
	err = h.turn(func() error {
		p, err := h.project(project)
		if err == nil {
			l = p.listed()
		}
		return err
	})
	return l.sort(), err
}

// listAll is all projects with their jobs, in order. also is called in the same turn.
func (h *Hub) listAll(also func()) (all []listed, err error) {
	err = h.turn(func() error {
		for _, p := range h.projects {
			all = append(all, p.listed())
		}
		also()
		return nil
	})
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	for _, l := range all {
		l.sort()
	}
	return all, err
}

func (h *Hub) xmlCurrentTasks([]any, []string) (any, error) {
	held, err := h.current()
	all := []any{}
	for i := range held {
		t := &held[i]
		all = append(all, codec.Struct{
			{Name: "project", Value: t.job.project.name},
			{Name: "workerId", Value: t.holder.id},
			{Name: "job", Value: t.job.name},
			{Name: "lastUpdate", Value: dateTime(&t.task)},
		})
	}
	return all, err
}

func (h *Hub) xmlJobsList(_ []any, s []string) (any, error) {
	l, err := h.list(s[0])
	all := []any{}
	for _, j := range l.jobs {
		all = append(all, j.name)
	}
	return all, err
}

func (h *Hub) xmlProjectStatus(_ []any, s []string) (any, error) {
	l, err := h.list(s[0])
	return l.appendStatus([]any{}), err
}

// appendStatus lists a project's jobs; for one without any, an entry that says so. The
// original of January 2011 has total, the later ones totalSteps and the four flags.
func (l listed) appendStatus(all []any) []any {
	for _, j := range l.jobs {
		all = append(all, codec.Struct{
			{Name: "project", Value: l.name}, {Name: "name", Value: j.name},
			{Name: "done", Value: j.done}, {Name: "total", Value: j.total}, {Name: "totalSteps", Value: float64(j.total)},
			{Name: "basicStatistics", Value: j.flags.has(basicStatistics)}, {Name: "idleTimes", Value: j.flags.has(idleTimes)},
			{Name: "throughput", Value: j.flags.has(throughput)}, {Name: "fullStatistics", Value: j.finished},
		})
	}
	if len(l.jobs) == 0 {
		all = append(all, codec.Struct{{Name: "project", Value: l.name}, {Name: "visible", Value: false}})
	}
	return all
}

func (h *Hub) xmlServerStatus([]any, []string) (any, error) {
	projects, err := h.listAll(func() {})
	all := []any{}
	for _, l := range projects {
		all = l.appendStatus(all)
	}
	return all, err
}

// heldJSON names a held task by its worker and signature.
type heldJSON struct {
	ID  string `json:"id"`
	Sig string `json:"sig"`
}

func (h *Hub) jsonCurrentTasks(*codec.Request) (any, error) {
	held, err := h.current()
	all := []heldJSON{}
	for i := range held {
		all = append(all, heldJSON{held[i].holder.id, sigOf(&held[i].task)})
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

func (h *Hub) sendStatus(w http.ResponseWriter) {
	composed := h.compose("getServerStatus") // of which this is the form of version 2
	defer composed()
	st := statusJSON{[]waitingJSON{}, make(map[string]*taskJSON), make(map[string]*taskJSON)}
	var held []holding
	projects, err := h.listAll(func() { held = h.holdings() })
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
			st.RunningTasks[t.holder.id] = h.taskJSON(t)
		} else {
			st.WaitingActivation[t.holder.id] = h.taskJSON(t)
		}
	}
	if err != nil {
		h.send(w, http.StatusServiceUnavailable, "text/plain", []byte(err.Error()+"\n"))
		return
	}
	text, err := json.MarshalIndent(&st, "", "    ")
	if err != nil {
		panic("BUG: the status is no JSON: " + err.Error())
	}
	composed()
	h.send(w, http.StatusOK, "application/json", text)
}
