package admin

import (
	"errors"
	"net/http"

	codec "treadle/codec/admin"
	"treadle/sched"
)

// Bounds of the neighbourhood of a task. A task may have a hundred thousand predecessors.
const (
	graphSteps = 2    // links between the task and the farthest shown task
	graphFan   = 12   // tasks that are followed from one, in a direction
	graphCount = 1000 // no more tasks of a direction are counted
	graphTasks = 150  // tasks in all
)

// stages are the states of tasks, by their stages.
var stages = [...]string{0: codec.StateWaiting, sched.StageReady: codec.StateReady, sched.StageReserved: codec.StateRunning, sched.StageDone: codec.StateDone}

var errNoGraph = errors.New("the job is no task of a graph")

// graphWalk collects the neighbourhood of a task. All of it is in one queue of one space.
type graphWalk struct {
	s      *sched.Scheduler
	space  sched.Space
	queue  []byte
	at     map[string]int // by name: the place in all.Tasks
	around [][2][]string  // of each: the first tasks that it waits for, and that wait for it
	linked map[codec.GraphLink]bool
	all    codec.Graph
}

// getGraph answers with the tasks around a task, two links far: its predecessors and its successors.
func (api *API) getGraph(r *http.Request) (any, error) {
	ref, err := api.refOf(r)
	if err != nil {
		return nil, err
	}
	w := graphWalk{s: api.host.Sched(), at: make(map[string]int), linked: make(map[codec.GraphLink]bool)}
	w.all.Tasks, w.all.Links = []codec.GraphTask{}, []codec.GraphLink{}
	name := ""
	if !w.s.View(api.host.Now(), ref, func(v *sched.JobView) { w.space, w.queue, name = v.Space, []byte(v.Queue), string(v.Name) }) {
		return nil, &notFound{errNoJob}
	}
	if !api.host.Spaces()[w.space].Rules.Graph {
		return nil, &conflict{errNoGraph}
	}
	if at, _ := w.add(name, 0); at < 0 {
		return nil, &notFound{errNoJob}
	}
	w.follow(0, -1)
	w.follow(1, 1)
	return &w.all, nil
}

// follow adds the tasks in one direction of the first, the nearest first.
func (w *graphWalk) follow(direction, sign int) {
	last := []int{0}
	for step := 1; step <= graphSteps; step++ {
		var next []int
		for _, at := range last {
			for _, name := range w.around[at][direction] {
				other, fresh := w.add(name, sign*step)
				if fresh {
					next = append(next, other)
				}
				switch {
				case other < 0:
				case sign < 0:
					w.link(codec.GraphLink{From: other, To: at})
				default:
					w.link(codec.GraphLink{From: at, To: other})
				}
			}
		}
		last = next
	}
}

func (w *graphWalk) link(one codec.GraphLink) {
	if !w.linked[one] {
		w.linked[one] = true
		w.all.Links = append(w.all.Links, one)
	}
}

// add adds a task so many links from the first and returns its place; -1: there is no such task, or no room for it.
// fresh reports whether it was not there before.
func (w *graphWalk) add(name string, step int) (at int, fresh bool) {
	if at, ok := w.at[name]; ok {
		return at, false
	}
	var around [2][]string
	one := codec.GraphTask{Step: step}
	if len(w.all.Tasks) == graphTasks || !w.s.LookupTask(w.space, w.queue, []byte(name), func(t *sched.TaskView) {
		one.State, one.Worker = stages[t.Stage], shownName(t.Holder)
		around[0], one.After = firstNames(t.After())
		around[1], one.Before = firstNames(t.Before())
	}) {
		return -1, false
	}
	one.Name, one.NameBytes = codec.Name(name)
	at = len(w.all.Tasks)
	w.at[name], w.around, w.all.Tasks = at, append(w.around, around), append(w.all.Tasks, one)
	return at, true
}

// firstNames returns the first names of some, and how many there are.
func firstNames(all func(func([]byte) bool)) (first []string, n int) {
	for name := range all {
		if n++; n > graphCount {
			break
		}
		if len(first) < graphFan {
			first = append(first, string(name))
		}
	}
	return first, n
}
