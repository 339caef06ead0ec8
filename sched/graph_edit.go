package sched

import (
	"cmp"
	"math"
	"slices"
)

// Extend adds tasks to a queue's graph one after the other, and to those that are
// there already the predecessors given: a ready task waits again, of a reserved one
// they count when it comes back. With an error, a *CycleError among others, nothing
// of it has happened.
func (s *Scheduler) Extend(now Time, space Space, queue []byte, tasks []Task, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q, err := sh.queue(queue)
	if err != nil {
		return err
	}
	e := edit{sh: sh, q: q, space: space, start: s.jobs.Load()}
	for i := range tasks {
		if err := e.task(&tasks[i]); err != nil {
			e.undo()
			return err
		}
	}
	e.settle(now, sink)
	return nil
}

// Transfer gives tasks that the peer holds back, last in line, with more predecessors.
// ErrNotFound: it does not hold one of them. With an error nothing has happened.
func (s *Scheduler) Transfer(now Time, p *Peer, space Space, queue []byte, tasks []Task, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q := sh.byName[string(queue)]
	if q == nil {
		return ErrNotFound
	}
	e := edit{sh: sh, q: q, space: space, start: s.jobs.Load()}
	for i := range tasks {
		job, ok := sh.lookupTask(q, space, tasks[i].Name)
		if !ok || !sh.holds(p, job) {
			e.undo()
			return ErrNotFound
		}
		if err := e.after(job, &tasks[i]); err != nil {
			e.undo()
			return err
		}
	}
	e.giveBack(now, tasks, sink)
	return nil
}

// edit is one change of a graph, which can be undone until it is settled.
type edit struct {
	sh    *shard
	q     *queue
	space Space
	start uint64   // tasks with a larger sequence number are its own
	fresh []uint32 // tasks that it made, in state waiting
	known []uint32 // tasks that were there, in the order of the request
	stale []uint32 // remembered tasks whose names its own took
	added []uint32 // edges
}

// task makes a task or finds it, and adds its predecessors.
func (e *edit) task(t *Task) error {
	sh := e.sh
	job, ok := sh.lookupTask(e.q, e.space, t.Name)
	if ok {
		e.known = append(e.known, job)
		return e.after(job, t)
	}
	if old, ok := sh.lookup(sh.s.tag(e.q.id, e.space, t.Name), e.q, e.space, t.Name); ok {
		sh.names.remove(sh.s.tag(e.q.id, e.space, t.Name), old)
		e.stale = append(e.stale, old)
	}
	job, r, err := sh.make(sh.s.tag(e.q.id, e.space, t.Name), e.q, e.space, t.Name, t.Workload)
	if err != nil {
		return err
	}
	r.seq = sh.s.jobs.Add(1)
	r.flags |= task
	sh.wait(job, r, e.q, 0)
	e.q.tasks++
	*sh.slab.node(job) = node{order: int64(r.seq)}
	e.fresh = append(e.fresh, job)
	sh.logEvents(job, t.Log...)
	return e.after(job, t)
}

// after adds the edges to a task from its predecessors.
func (e *edit) after(job uint32, t *Task) error {
	sh := e.sh
	for _, name := range t.After {
		if string(name) == string(t.Name) {
			return &CycleError{[]string{string(name), string(name)}}
		}
		from, ok := sh.lookupTask(e.q, e.space, name)
		if !ok || sh.linked(from, job) {
			continue
		}
		if err := sh.makeOrder(from, job); err != nil {
			return err
		}
		e.added = append(e.added, sh.link(from, job))
	}
	return nil
}

// undo takes back all of it.
func (e *edit) undo() {
	for _, i := range slices.Backward(e.added) {
		e.sh.unlink(i)
	}
	sh := e.sh
	for _, job := range slices.Backward(e.fresh) {
		sh.names.remove(sh.s.tag(e.q.id, e.space, sh.nameView(job)), job)
		sh.freeRecord(job, sh.slab.at(job))
		e.q.waiting--
		e.q.tasks--
	}
	for _, job := range e.stale {
		if !sh.names.insert(sh.s.tag(e.q.id, e.space, sh.nameView(job)), job) {
			panic("BUG: a name does not fit where it was")
		}
	}
}

// settle gives the tasks their places and tells the journal.
func (e *edit) settle(now Time, sink Sink) {
	sh := e.sh
	for _, job := range e.stale {
		sh.forgetTask(job, sh.slab.at(job))
	}
	for _, job := range e.fresh {
		r := sh.slab.at(job)
		sh.counters.Submitted++
		if sh.slab.node(job).ins == 0 {
			e.q.waiting--
			sh.ready(now, job, r, e.q, back)
		}
		sh.save(job, r, e.q)
	}
	for _, job := range e.known {
		r := sh.slab.at(job)
		if (r.state == ready || r.state == delayed) && sh.slab.node(job).ins > 0 {
			sh.dequeue(job, r, e.q)
			sh.wait(job, r, e.q, r.place)
		}
	}
	for _, i := range e.added {
		if sh.slab.at(sh.edges.at(i).to).seq <= e.start { // a fresh one's are in its record
			sh.saveEdge(i, e.q)
		}
	}
	sh.match(now, e.q, sink)
}

// giveBack settles a Transfer.
func (e *edit) giveBack(now Time, tasks []Task, sink Sink) {
	sh := e.sh
	for i := range tasks {
		job, _ := sh.lookupTask(e.q, e.space, tasks[i].Name)
		r := sh.slab.at(job)
		sh.logEvents(job, tasks[i].Log...)
		if r.state == reserved { // named twice: given back already
			sh.counters.Released++
			sh.unhold(job, r)
			sh.comeBack(now, job, r, e.q, back)
		}
	}
	sh.match(now, e.q, sink)
}

// makeOrder sees to it that the orders allow an edge, which is at once the proof that
// it closes no cycle: Pearce and Kelly's algorithm, "A dynamic topological sort
// algorithm for directed acyclic graphs" (2006). An edge from an older task to a
// younger one, nearly every one, costs one comparison. Of the others nearly all are of
// a task that few come before, which can be the first of all with those, or that few
// come after, which can be the last.
func (sh *shard) makeOrder(from, to uint32) error {
	low, high := sh.slab.node(to).order, sh.slab.node(from).order
	if high < low {
		return nil
	}
	if tasks := sh.earlier(from, math.MinInt64, few); len(tasks) <= few && !slices.Contains(tasks, to) {
		for _, job := range slices.Backward(tasks) {
			sh.foremost--
			sh.slab.node(job).order = sh.foremost
		}
		return nil
	}
	tasks, err := sh.later(to, from, math.MaxInt64, few)
	if err == nil && len(tasks) <= few {
		for _, job := range tasks {
			sh.slab.node(job).order = int64(sh.s.jobs.Add(1))
		}
		return nil
	}
	if err == nil {
		tasks, err = sh.later(to, from, high, math.MaxInt)
	}
	if err != nil {
		return err
	}
	tasks = append(sh.earlier(from, low, math.MaxInt), tasks...)
	orders := make([]int64, len(tasks))
	for i, job := range tasks {
		orders[i] = sh.slab.node(job).order
	}
	slices.Sort(orders)
	for i, job := range tasks {
		sh.slab.node(job).order = orders[i]
	}
	return nil
}

// few is how many tasks are looked at to save the search among all.
const few = 32

// later returns the tasks that come after start, itself included, up to an order, in
// order; just more than limit when there are more. A way that leads to end is a cycle.
func (sh *shard) later(start, end uint32, high int64, limit int) ([]uint32, error) {
	via := map[uint32]uint32{start: none}
	all := []uint32{start}
	for i := 0; i < len(all); i++ {
		n := sh.slab.node(all[i])
		for x, k := n.out, n.outs; k > 0 && len(all) <= limit; k-- {
			e := sh.edges.at(x)
			x = e.nextOut
			if _, seen := via[e.to]; seen || sh.slab.node(e.to).order > high {
				continue
			}
			via[e.to] = all[i]
			if e.to == end {
				return nil, sh.cycle(end, via)
			}
			all = append(all, e.to)
		}
	}
	sh.sortByOrder(all)
	return all, nil
}

// earlier returns the tasks that end comes after, itself included, down to an order,
// in order; just more than limit when there are more.
func (sh *shard) earlier(end uint32, low int64, limit int) []uint32 {
	seen := map[uint32]bool{end: true}
	all := []uint32{end}
	for i := 0; i < len(all); i++ {
		n := sh.slab.node(all[i])
		for x, k := n.in, n.ins; k > 0 && len(all) <= limit; k-- {
			e := sh.edges.at(x)
			x = e.nextIn
			if !seen[e.from] && sh.slab.node(e.from).order >= low {
				seen[e.from] = true
				all = append(all, e.from)
			}
		}
	}
	sh.sortByOrder(all)
	return all
}

func (sh *shard) sortByOrder(jobs []uint32) {
	slices.SortFunc(jobs, func(a, b uint32) int {
		return cmp.Compare(sh.slab.node(a).order, sh.slab.node(b).order)
	})
}

// maxCycleNames bounds a CycleError.
const maxCycleNames = 32

// cycle names the tasks of a way that via leads back along.
func (sh *shard) cycle(end uint32, via map[uint32]uint32) error {
	names := []string{sh.taskName(end)}
	for job := via[end]; job != none && len(names) < maxCycleNames; job = via[job] {
		names = append(names, sh.taskName(job))
	}
	return &CycleError{append(names, names[0])}
}

func (sh *shard) taskName(job uint32) string { return string(sh.nameView(job)) }

// nameView is a job's name, as a view.
func (sh *shard) nameView(job uint32) []byte {
	r := sh.slab.at(job)
	name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	return name
}
