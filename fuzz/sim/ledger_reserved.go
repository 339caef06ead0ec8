//go:build invariants

package sim

import (
	"treadle/codec/periodic"
	"treadle/loop"
)

// A job is reserved from its assignment to its end or its return; the ledger follows which connection holds it.

// holds reports whether c holds j for sure.
func (l *Ledger) holds(c *Conn, j *Job) bool {
	if c == nil || j.holder != c {
		return false
	}
	if x := c.leases[j]; x != nil {
		return l.clock().Mono < x.until
	}
	if c.peer.Closed() || j.acquires > 0 {
		return false
	}
	return j.untimed() || l.clock().Mono < j.heldAt+l.limit(j)
}

// grace is the default of --periodic-grace, in milliseconds.
var grace = loop.Defaults().Periodic.Grace.Milliseconds()

// limit is how long a job may be held, in milliseconds, with the grace.
func (l *Ledger) limit(j *Job) int64 {
	limit := j.timeout
	if limit == 0 {
		limit = int64(l.config[timeoutSetting].now()) * 1000
	}
	if j.holder != nil && j.holder.peerKind == beanstalkPeer { // to the moment
		return limit
	}
	return limit + grace
}

// lateTimeout bounds how late the server notices a time-out, in milliseconds: it rounds the moment up by less than
// policyGrain.
const lateTimeout = 200

// mayHold reports whether c may still hold j.
func (l *Ledger) mayHold(c *Conn, j *Job) bool {
	if c.leases[j] != nil {
		return l.holds(c, j)
	}
	return j.holder == c && (j.untimed() || l.clock().Mono < j.heldAt+l.limit(j)+lateTimeout)
}

// assigned checks that the server may give j to c, and notes that it has. An empty name is not known to the peer.
func (l *Ledger) assigned(c *Conn, j *Job, queue, name string) {
	l.trace.Logf("c%d is given %v", c.id, j)
	l.wall = max(l.wall, l.clock().Wall)
	if !l.isIn(j, queue) || name != "" && !l.hasName(j, name) {
		l.trace.Failf("%v of q%d, %q, is handed out as %q of %q", j, j.queue, j.name, name, queue)
	}
	if l.holds(j.holder, j) && j.holder != c {
		l.trace.Failf("%v is handed to c%d and c%d holds it", j, c.id, j.holder.id)
	}
	l.checkUnreported(c, j)
	if j.inServer == no {
		if j.turn < l.turn || j.id == 0 {
			l.trace.Failf("%v is handed out after its end, or before it came", j)
		}
		return // on its way when it ended
	}
	if j.notBefore > l.wall {
		l.trace.Failf("%v is handed out %d ms early", j, j.notBefore-l.wall)
	}
	if j.buried == sure {
		l.trace.Failf("%v is handed out, although it is buried", j)
	}
	if j.by == ofDwork {
		if j.location != "" && j.holder == nil && !j.holderUnknown && !l.leaseOver(j.location) {
			l.trace.Failf("%v is handed to c%d and %s holds it", j, c.id, j.location)
		}
		l.checkNext(j)
		j.setLocation(c.label())
	}
	if j.holder != nil {
		j.forgetPlace() // its time was over, and that was a new place in line
		j.failures++
	} else if j.orderKnown {
		l.noteInversions(j)
	}
	j.inServer, j.holder, j.heldAt, j.turn, j.holderUnknown, j.locks = sure, c, l.clock().Mono, l.turn, false, nil
	j.parked, j.buried = false, no
	l.handed++
	if j.strayReport.in(l.turn) {
		j.run.ambiguous = true
		l.doubt(j)
	}
}

// noteInversions notes the jobs that should have been handed out before j; endTurn checks them.
func (l *Ledger) noteInversions(j *Job) {
	var better []*Job
	for _, r := range l.jobs {
		if r.inServer != sure || r.queue != j.queue || !r.orderKnown || r.holder != nil || r.by == ofDwork || r.turn >= l.turn || r.due > l.began {
			continue
		}
		if r.comesBefore(j) && !l.waitsUnread(r) && !l.mayOweReport(j.run.conn, r) {
			better = append(better, r)
		}
	}
	if better != nil {
		l.inversions = append(l.inversions, inversion{j, better})
	}
}

// comesBefore reports whether one ready job comes before another for sure.
func (j *Job) comesBefore(o *Job) bool {
	if j.priority != o.priority {
		return j.priority > o.priority
	}
	if j.by == ofBeanstalk && o.by == ofBeanstalk { // in the order of their ids
		return !j.nameless && !o.nameless && (len(j.name) < len(o.name) || len(j.name) == len(o.name) && j.name < o.name)
	}
	first, second := j.due, o.due
	if j.by == ofBeanstalk { // one of a smaller id that was put at a later time, when the clock showed that, is before it
		first = j.putLatest
	}
	if o.by == ofBeanstalk {
		second = o.put
	}
	return first/1000 < second/1000
}

// freed notes that no worker holds a job any more.
func (l *Ledger) freed(j *Job) {
	j.holder, j.turn = nil, l.turn
	j.setLocation("")
}

// dueNow notes that a job is due since now.
func (l *Ledger) dueNow(j *Job) {
	j.orderKnown, j.due = j.by == ofPeriodic, l.clock().Wall
	j.record.schedAt, j.record.schedKnown = j.due/1000, true
}

// forgetPlace notes that a job may have another place in the line, and another due time.
func (j *Job) forgetPlace() { j.orderKnown, j.record.schedKnown = false, false }

// finished notes a worker's report that a job is done.
func (l *Ledger) finished(c *Conn, h heldJob, result string) {
	l.reported(h)
	for _, k := range l.sameName(h) {
		k.results, k.strayReport = append(k.results, k.resultFor(c, result)), past(l.turn)
		l.doubt(k)
	}
	j := h.job
	if result = j.resultFor(c, result); !h.isCurrent() {
		if l.maybeLater(h) {
			j.results, j.strayReport = append(j.results, result), past(l.turn)
			l.doubt(j)
		}
		return
	}
	if l.holds(c, j) {
		j.results = append(j.results, result)
		l.end(j)
		l.done++
		return
	}
	j.results, j.strayReport = append(j.results, result), past(l.turn)
	if l.mayHold(c, j) || j.holderUnknown && j.inServer != no {
		l.doubt(j)
	}
}

// returned notes a worker's report that a job is not done. The job is due again at a Unix millisecond; 0: at once.
func (l *Ledger) returned(c *Conn, h heldJob, at int64) {
	l.reported(h)
	for _, k := range l.sameName(h) {
		k.failures, k.returned, k.strayReport = k.failures+1, k.returned+1, past(l.turn)
		if k.forgetPlace(); k.holder == c {
			l.freed(k)
			k.notBefore, k.holderUnknown = 0, true
		}
		l.doubt(k)
	}
	j := h.job
	if !h.isCurrent() && !l.maybeLater(h) {
		return
	}
	j.failures++
	j.returned++
	if h.isCurrent() && l.holds(c, j) {
		l.freed(j)
		switch {
		case j.by == ofDisbatch && at == 0:
			l.end(j)
			return
		case j.by == ofFaktory && at == 0:
			l.noteRetry(j)
			return
		}
		if l.dueNow(j); at > 0 {
			j.due, j.notBefore, j.delayMayBeLost, j.record.schedAt = at, at, true, at/1000
		}
		return
	}
	j.strayReport = past(l.turn)
	if l.mayHold(c, j) || j.holderUnknown || !h.isCurrent() {
		j.doubtLease()
		l.freed(j)
		j.orderKnown, j.notBefore = false, 0
		j.holderUnknown = j.holderUnknown || !h.isCurrent() // another may have it
	}
	j.record.schedKnown = false
}

// left notes the end of a connection: its jobs are ready again, and the jobs that it owned are gone.
func (l *Ledger) left(c *Conn) {
	l.lostUnread(c)
	for _, r := range c.requests {
		if r.cmd == periodic.Acquire {
			r.job.acquires -= oneIf(!r.lateAcquire)
		}
	}
	for _, j := range l.jobs {
		if j.holder == c && j.lease() == nil {
			l.freed(j)
			j.forgetPlace()
			j.failures++
			if j.by == ofDisbatch {
				l.end(j)
			}
		}
		if j.owner == c {
			if j.owner = nil; j.by == ofGloom {
				holder := j.holder
				l.end(j)
				j.holder = holder
			}
		}
	}
}

// mayHaveHeld notes the end of a connection that may have been given any job in this turn. Such a job is ready again,
// at another place in the line.
func (l *Ledger) mayHaveHeld(c *Conn) {
	for _, j := range l.jobs {
		if j.holder != nil && j.turn == l.turn {
			j.failures++ // the departed connection may have had the job before its present holder
			j.record.schedKnown = false
		}
		none := j.by == ofDwork || (j.by == ofBeanstalk || j.by == ofFaktory) && !l.serving(c, j.queue)
		if j.inServer != no && (j.holder == nil || j.strayReport.in(l.turn)) && !none {
			j.forgetPlace()
			j.failures++
			if j.strayReport.in(l.turn) || j.by == ofDisbatch || j.queue == broadcastQueue { // the departed connection may have reported it
				l.doubt(j)
			}
		}
	}
}

// failuresOf is the largest number of runs of j that may have failed, with the failures that the server sees at the end
// of the turn.
func (l *Ledger) failuresOf(j *Job) int {
	n := j.failures
	if j.holder != nil && !l.holds(j.holder, j) {
		n++
	}
	for _, c := range l.net.conns {
		if c.peer.Closed() && !c.reset {
			n++
		}
	}
	return n
}
