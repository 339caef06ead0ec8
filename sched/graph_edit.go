package sched

import (
	"cmp"
	"math"
	"slices"
)

// Extend adds tasks to a queue's graph one after the other, and to those that are
// there already the predecessors given: a ready task waits again, of a reserved one
// they count when it comes back. With an error, a *CycleError or ErrCostly among others,
// nothing of it has happened.
func (s *Scheduler) Extend(now Time, space Space, queue []byte, tasks []Task, sink Sink) error {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.unlock(now, sink)
	q, err := sh.queue(queue)
	if err != nil {
		return err
	}
	e := edit{sh: sh, q: q, space: space, start: s.jobs.Load(), room: maxLooks}
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
	e := edit{sh: sh, q: q, space: space, start: s.jobs.Load(), room: maxLooks}
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
	room  int      // edges that may be looked at, see makeOrder
}

// task makes a task or finds it, and adds its predecessors.
func (e *edit) task(t *Task) error {
	sh := e.sh
	sh.op(1)
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
	sh.op(len(t.After))
	for _, name := range t.After {
		if string(name) == string(t.Name) {
			return &CycleError{[]string{cutName(name), cutName(name)}}
		}
		from, ok := sh.lookupTask(e.q, e.space, name)
		if !ok || sh.linked(from, job) {
			continue
		}
		if err := sh.makeOrder(from, job, &e.room); err != nil {
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
// come after, which can be the last. All ways are tried with more and more edges to look
// at: the shortest ends it, however long the others are. room is what the request has left
// to look at.
func (sh *shard) makeOrder(from, to uint32, room *int) error {
	low, high := sh.slab.node(to).order, sh.slab.node(from).order
	if high < low {
		return nil
	}
	for limit := few; ; limit *= 8 {
		before, whole, err := sh.reach(from, to, true, math.MinInt64, limit, room)
		if err != nil {
			return err
		}
		if whole {
			for _, job := range slices.Backward(before) {
				sh.foremost--
				sh.slab.node(job).order = sh.foremost
			}
			return nil
		}
		after, whole, err := sh.reach(to, from, false, math.MaxInt64, limit, room)
		if err != nil {
			return err
		}
		if whole {
			for _, job := range after {
				sh.slab.node(job).order = int64(sh.s.jobs.Add(1))
			}
			return nil
		}
		if whole, err := sh.swap(from, to, limit, room); whole || err != nil {
			return err
		}
	}
}

// swap gives the tasks that to comes before, and those that from comes after, the orders
// that they have together, from's first. It needs no look at tasks outside of the two orders.
func (sh *shard) swap(from, to uint32, limit int, room *int) (whole bool, err error) {
	low, high := sh.slab.node(to).order, sh.slab.node(from).order
	after, whole, err := sh.reach(to, from, false, high, limit, room)
	if !whole {
		return false, err
	}
	before, whole, err := sh.reach(from, to, true, low, limit, room)
	if !whole {
		return false, err
	}
	tasks := append(before, after...)
	orders := make([]int64, len(tasks))
	for i, job := range tasks {
		orders[i] = sh.slab.node(job).order
	}
	slices.Sort(orders)
	for i, job := range tasks {
		sh.slab.node(job).order = orders[i]
	}
	return true, nil
}

const (
	// few is how many edges are looked at to save the search among more.
	few = 32
	// maxLooks is how many edges a request may have looked at for the order of its tasks, under the
	// lock: a few hundredths of a second. It finds a side of a hundred thousand edges.
	maxLooks = 1 << 18
)

// reach returns start and the tasks that come after it, or back: that it comes after, as
// far as their orders do not go beyond bound, in order; not all of them when there are more
// than limit edges to look at. A way that leads to end is a cycle.
func (sh *shard) reach(start, end uint32, back bool, bound int64, limit int, room *int) (tasks []uint32, whole bool, err error) {
	all := []uint32{start}
	sh.slab.node(start).via = start + 1
	defer func() {
		for _, job := range all {
			sh.slab.node(job).via = 0
		}
	}()
	for i := 0; i < len(all); i++ {
		n := sh.slab.node(all[i])
		x, k := n.out, n.outs
		if back {
			x, k = n.in, n.ins
		}
		for ; k > 0; k-- {
			if limit--; limit < 0 {
				return nil, false, nil
			}
			if *room--; *room < 0 {
				return nil, false, ErrCostly
			}
			sh.op(1)
			e := sh.edges.at(x)
			next := e.to
			if x = e.nextOut; back {
				next, x = e.from, e.nextIn
			}
			m := sh.slab.node(next)
			if m.via != 0 || back && m.order < bound || !back && m.order > bound {
				continue
			}
			m.via = all[i] + 1
			all = append(all, next)
			if next == end {
				return nil, false, sh.cycle(start, end, back)
			}
		}
	}
	return sh.inOrder(all), true, nil
}

// inOrder returns tasks in their order.
func (sh *shard) inOrder(jobs []uint32) []uint32 {
	type ranked struct {
		order int64
		job   uint32
	}
	all := make([]ranked, len(jobs))
	for i, job := range jobs {
		all[i] = ranked{sh.slab.node(job).order, job}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.order, b.order) })
	sorted := make([]uint32, len(jobs))
	for i, r := range all {
		sorted[i] = r.job
	}
	return sorted
}

// Bounds of a CycleError: how many names it has, and how long each is.
const (
	maxCycleNames = 32
	maxCycleName  = 255
)

// cycle names the tasks of the way between start and end that reach has just found.
func (sh *shard) cycle(start, end uint32, back bool) error {
	way := []uint32{end}
	for job := end; job != start; {
		job = sh.slab.node(job).via - 1
		way = append(way, job)
	}
	if back {
		slices.Reverse(way)
	}
	names := make([]string, 0, maxCycleNames+1)
	for _, job := range way[:min(len(way), maxCycleNames)] {
		names = append(names, cutName(sh.nameView(job)))
	}
	return &CycleError{append(names, names[0])}
}

// cutName is a name, or its beginning: a name may have megabytes.
func cutName(name []byte) string { return string(name[:min(len(name), maxCycleName)]) }

func (sh *shard) taskName(job uint32) string { return string(sh.nameView(job)) }

// nameView is a job's name, as a view.
func (sh *shard) nameView(job uint32) []byte {
	r := sh.slab.at(job)
	name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	return name
}
