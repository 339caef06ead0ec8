package sched

import (
	"slices"
	"strings"
)

// Task is a task as AddTasks, Complete and Transfer take it. The bytes are copied.
type Task struct {
	Name     []byte
	Workload []byte
	After    [][]byte // names of predecessors; an unknown or complete predecessor counts as done
	Log      []Event  // appended to the task's log
}

// cycleError reports that tasks would wait for each other for ever.
type cycleError struct{ Names []string } // each waits for the next; the last is the first

func (e *cycleError) Error() string { return "a cycle: " + strings.Join(e.Names, " after ") }

// AddTasks adds tasks to a queue's graph one after the other. Tasks that exist get the given
// predecessors in addition: a ready task waits again, a reserved task waits when it is released.
// With an error nothing has changed. The error for a cycle names its tasks.
func (s *Scheduler) AddTasks(now Time, space Space, queue []byte, tasks []Task, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q, err := sh.queue(queue)
	if err != nil {
		return err
	}
	e := edit{g: &sh.graph, q: q, space: space, start: s.lastSeq.Load(), budget: maxOrderSteps}
	for i := range tasks {
		if err := e.task(&tasks[i]); err != nil {
			e.undo()
			return err
		}
	}
	e.commit(now, sink)
	return nil
}

// Transfer releases tasks that the peer holds, last in line, with more predecessors. It returns ErrNotFound when the
// peer does not hold all of them. With an error nothing has changed.
func (s *Scheduler) Transfer(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil {
		return ErrNotFound
	}
	e := edit{g: &sh.graph, q: q, space: space, start: s.lastSeq.Load(), budget: maxOrderSteps}
	for i := range tasks {
		job, ok := sh.graph.lookup(q, space, tasks[i].Name)
		if !ok || !sh.graph.holds(p, job) {
			e.undo()
			return ErrNotFound
		}
		if err := e.after(job, &tasks[i]); err != nil {
			e.undo()
			return err
		}
	}
	e.release(now, tasks, sink)
	return nil
}

// edit is one change of a graph. It can be undone until it is committed.
type edit struct {
	g         *graph
	q         *queue
	space     Space
	start     uint64   // tasks with a larger sequence number are made by the edit
	fresh     []uint32 // tasks that it made, in state waiting
	known     []uint32 // tasks that existed, in the order of the request
	displaced []uint32 // remembered tasks whose names the fresh tasks took
	added     []uint32 // edges that it made
	budget    int      // edges that may still be scanned, see makeOrder
}

// task makes or finds a task and adds its predecessors.
func (e *edit) task(t *Task) error {
	g, sh := e.g, e.g.sh
	sh.countSteps(1)
	job, ok := g.lookup(e.q, e.space, t.Name)
	if ok {
		e.known = append(e.known, job)
		return e.after(job, t)
	}
	hash := sh.s.nameHash(e.q.id, e.space, t.Name)
	if old, ok := sh.lookup(hash, e.q, e.space, t.Name); ok {
		sh.names.remove(hash, old)
		e.displaced = append(e.displaced, old)
	}
	job, r, err := sh.newJob(hash, e.q, e.space, t.Name, t.Workload)
	if err != nil {
		return err
	}
	r.seq = sh.s.lastSeq.Add(1)
	r.flags |= task
	g.wait(job, r, e.q, 0)
	e.q.tasks++
	*g.node(job) = node{order: int64(r.seq)}
	e.fresh = append(e.fresh, job)
	g.log(job, t.Log...)
	return e.after(job, t)
}

// after adds the edges to a task from its predecessors.
func (e *edit) after(job uint32, t *Task) error {
	g, sh := e.g, e.g.sh
	sh.countSteps(len(t.After))
	for _, name := range t.After {
		if string(name) == string(t.Name) {
			return &cycleError{[]string{cutName(name), cutName(name)}}
		}
		from, ok := g.lookup(e.q, e.space, name)
		if !ok || g.linked(from, job) {
			continue
		}
		if err := g.makeOrder(from, job, &e.budget); err != nil {
			return err
		}
		e.added = append(e.added, g.link(from, job))
		g.node(job).given++
	}
	return nil
}

// undo takes the whole edit back.
func (e *edit) undo() {
	for _, i := range slices.Backward(e.added) {
		e.g.node(e.g.edges.at(i).to).given--
		e.g.unlink(i)
	}
	g, sh := e.g, e.g.sh
	for _, job := range slices.Backward(e.fresh) {
		sh.names.remove(sh.s.nameHash(e.q.id, e.space, sh.nameView(job)), job)
		g.freeRecord(job, sh.slab.at(job))
		e.q.waiting--
		e.q.tasks--
	}
	for _, job := range e.displaced {
		if !sh.names.insert(sh.s.nameHash(e.q.id, e.space, sh.nameView(job)), job) {
			panic("BUG: a name does not fit where it was")
		}
	}
}

// commit gives the tasks their places and journals them.
func (e *edit) commit(now Time, sink Sink) {
	g, sh := e.g, e.g.sh
	for _, job := range e.displaced {
		g.forget(job, sh.slab.at(job))
	}
	for _, job := range e.fresh {
		r := sh.slab.at(job)
		sh.counters.Submitted++
		e.q.tally.Submitted[r.space]++
		if g.node(job).ins == 0 {
			e.q.waiting--
			g.makeReady(now, job, r, e.q, back)
		}
		sh.save(job, r, e.q)
	}
	for _, job := range e.known {
		r := sh.slab.at(job)
		if (r.state == ready || r.state == delayed) && g.node(job).ins > 0 {
			sh.dequeue(job, r, e.q)
			g.wait(job, r, e.q, r.dueMillis())
		}
	}
	for _, i := range e.added {
		if sh.slab.at(g.edges.at(i).to).seq <= e.start { // the record of a fresh task has its edges
			g.saveEdge(i, e.q)
		}
	}
	sh.matchOrDefer(now, e.q, sink)
}

// release commits a Transfer.
func (e *edit) release(now Time, tasks []Task, sink Sink) {
	g, sh := e.g, e.g.sh
	for i := range tasks {
		job, _ := g.lookup(e.q, e.space, tasks[i].Name)
		r := sh.slab.at(job)
		g.log(job, tasks[i].Log...)
		if r.state == reserved { // else it was named twice and is released already
			sh.counters.Released++
			sh.unhold(job, r)
			g.release(now, job, r, e.q, back)
		}
	}
	sh.matchOrDefer(now, e.q, sink)
}
