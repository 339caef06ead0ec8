package sched

// taskDue is the due second of all ready tasks. It is before the due second of every job, except for jobs that go ahead
// of their equals.
const taskDue = aheadOfAll + 1

// lineEnd is the end of a queue's line at which a task is put.
type lineEnd bool

const (
	front lineEnd = true
	back  lineEnd = false
)

// first returns the first task in line. The caller knows that there is one.
func (g *graph) first(q *queue) uint32 {
	first := none
	for _, x := range [...]*index{&q.ready, &q.withheld, &q.longNames, &q.private} {
		job := x.headOf(&g.sh.buckets, sortKey{^0, taskDue})
		if first == none || job != none && g.before(job, first) {
			first = job
		}
	}
	return first
}

// makeReady puts a detached task in line and logs it.
func (g *graph) makeReady(now Time, job uint32, r *record, q *queue, where lineEnd) {
	g.pushReady(job, r, q, where)
	g.log(job, Event{StageReady, now.WallMicros})
}

// pushReady is makeReady without the log.
func (g *graph) pushReady(job uint32, r *record, q *queue, where lineEnd) {
	sh := g.sh
	r.state, r.container, r.due = ready, q.id, taskDue
	r.flags |= immediate
	q.immediate++
	q.readyTasks++
	n := g.node(job)
	if where == front {
		n.place = -sh.s.lastPlace.Add(1)
	} else {
		n.place = sh.s.lastPlace.Add(1)
	}
	sh.pushReady(job, r, q, where)
}

// wait puts a detached task among the waiting ones. millis is how many milliseconds after its due
// second a delayed task is due. The locks forget the task: a predecessor may wait for one of them.
func (g *graph) wait(job uint32, r *record, q *queue, millis uint32) {
	if r.flags&locking != 0 {
		g.sh.dropLocks(job, r)
	}
	r.state, r.container, r.stateData = waiting, q.id, millis
	q.waiting++
}

// Head returns the place of the first task in a queue's line, to compare queues. A task with a smaller place has been
// in line longer, or was put first. ok is false when the line is empty, the queue is throttled or the scheduler is
// halted.
func (s *Scheduler) Head(queue []byte) (place int64, ok bool) {
	sh := s.shardOf(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queue)]
	if q == nil || q.readyTasks == 0 || sh.halted || q.throttled() {
		return 0, false
	}
	return sh.slab.node(sh.graph.first(q)).place, true
}
