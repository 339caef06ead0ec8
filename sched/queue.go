package sched

// queue is one kind of work. Everything in it is guarded by its shard's lock.
type queue struct {
	name string
	id   uint32 // in the shard's queues

	ready       index     // key {^priority, due second}
	wide        index     // the same, for jobs that only wide peers get
	private     index     // the same, for tasks that are only stolen
	withheld    index     // the same, for jobs whose names clash for all Named peers in line
	delayed     index     // key {due second, milliseconds}
	prioritized dueCounts // of ready jobs that have a priority, and were not submitted with sched_at 0
	timer       key       // the delayed index's smallest key, while in the timers heap
	at          int       // place in the timers heap, -1: not in it

	lines            [classes]heap[*watch] // watches whose peers may have a slot, oldest slot first, by class
	workers          int
	broadcastWorkers int      // of the workers, those that registered for broadcasts
	named            int      // of the workers, those that know jobs by name
	unreported       int      // names that these have not reported, and those of them that are quiet
	spaces           uint16   // name spaces that ever had a job here
	running          int      // reserved jobs
	reservedTasks    int      // of these, tasks
	parked           []uint32 // jobs waiting for a lock, in no order
	waiting          int      // tasks waiting for others
	tasks            int      // tasks that are not complete
	readyTasks       int      // of these, those that are ready
	immediate        int      // pending jobs submitted with sched_at 0
	dropped          bool
	saved            uint64 // what the journal knows it by, 0: not at all
	search           search
	matchPending     bool             // the Ticks are to match it
	broadcast        *activeBroadcast // a job that is being broadcast
}

func (q *queue) ahead(o *queue) bool { return q.timer.less(o.timer) }
func (q *queue) place() int          { return q.at }
func (q *queue) setPlace(i int)      { q.at = i }

func (q *queue) pending() int {
	return q.ready.jobs + q.withheld.jobs + q.wide.jobs + q.private.jobs + q.delayed.jobs
}

// unheld is how many jobs go with a queue that is dropped: nobody runs them.
func (q *queue) unreserved() int { return q.pending() + len(q.parked) }

// readyFor is the ready index that a job belongs in.
func (q *queue) readyFor(r *record) *index {
	switch {
	case r.flags&(longName|private|withheld) == 0: // nearly always
		return &q.ready
	case r.flags&private != 0:
		return &q.private
	case r.flags&withheld != 0:
		return &q.withheld
	}
	return &q.wide
}

// readyKey is the key under which a due job stands: larger priority first, then
// the earlier second. ^ turns the order round without overflow.
func readyKey(r *record) key { return key{^r.priority, r.due} }

// countDue counts a job that comes into a ready index, or leaves it, among the others.
func (q *queue) countDue(r *record, n int) {
	if r.priority != 0 && r.flags&immediate == 0 {
		q.prioritized.add(r.due, n)
	}
}

// deserted says that nobody is in line.
func (q *queue) lineEmpty() bool {
	for i := range q.lines {
		if len(q.lines[i]) > 0 {
			return false
		}
	}
	return true
}

// oldest returns the watch in line whose slot is the oldest, nil when nobody is in line.
func (q *queue) oldest() *watch {
	var first *watch
	for i := range q.lines {
		if line := q.lines[i]; len(line) > 0 && (first == nil || line[0].ahead(first)) {
			first = line[0]
		}
	}
	return first
}

// oldestOf is oldest among the watches of a class.
func (q *queue) oldestOf(c class) *watch {
	if len(q.lines[c]) == 0 {
		return nil
	}
	return q.lines[c][0]
}

// claim takes the oldest slot of a watch in line, for a job of size bytes; false: the line has
// changed instead. A watch whose peer has none leaves the line: its next Reserve puts it back.
func (q *queue) claim(w *watch, size int) (slot, bool) {
	line := &q.lines[w.peer.class]
	s, next, a := w.peer.claim(w.seq, size)
	switch {
	case a == nothing:
		line.remove(w)
	case next != w.seq:
		w.seq = next
		line.down(w.at)
	}
	return s, a == served
}
