//go:build invariants

package sim

import (
	"slices"
	"strconv"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
)

// hold is how sure it is that c holds a job, and that no peer holds it.
func (l *Ledger) hold(c *Conn, j *Job) (held, free certainty) {
	switch {
	case l.holds(c, j):
		return sure, no
	case j.turn >= l.turn || l.underWay || l.mayHold(c, j) || j.holderUnknown || j.parked || j.acquires > 0 || j.inServer == maybe || l.waitsUnread(j):
		return maybe, maybe
	case j.inServer == no || l.holds(j.holder, j):
		return no, no
	case j.holder != nil: // its time is over
		return no, maybe
	}
	return no, sure
}

// doByID notes the arrival of a command with the id of a job. It has an effect on a job that the client holds. A delete
// and a kick have one on a job of the protocol that nobody holds.
func (l *Ledger) doByID(c *Conn, r *Request, numbers []int64) {
	j := r.job
	held, free := l.hold(c, j)
	r.effect = held
	if last := j.lastNext(); last != j { // the one that has replaced it may have its id
		for ; j != nil; j = j.next {
			if j.inServer != no {
				l.mayBeDone(c, j, r.word)
			}
		}
		r.effect = maybe
		return
	}
	switch numbered := j.by == ofBeanstalk; {
	case r.word == kicked && free != no:
		l.kickedOne(r, free)
		return
	case r.word == kicked:
		r.effect = no
		return
	case r.word == deleted && numbered && held != sure && free != no:
		r.effect = free
	case held == no:
		return
	}
	if r.word != touched && j.durable() && j.onDisk == sure {
		r.synced = l.group() // the journal is never told of a job that comes and goes in one group
	}
	if r.effect == maybe {
		l.mayBeDone(c, j, r.word)
		return
	}
	switch r.word {
	case deleted:
		if j.results = append(j.results, j.resultFor(c, "")); held == sure {
			l.done++
		}
		l.end(j)
	case touched:
		j.heldAt, j.run.began = l.clock().Mono, l.clock().Mono
	case released:
		if l.released(c, heldJob{job: j, run: j.run}); j.inServer != no {
			l.placed(j, numbers[0])
			j.delayBy(numbers[1])
			j.delayMayBeLost = j.delayMayBeLost || numbers[1] > 0
			j.record.schedAt = j.due / 1000
		}
	case buried:
		l.released(c, heldJob{job: j, run: j.run})
		l.placed(j, numbers[0])
		j.orderKnown, j.buried = false, sure
	}
}

// placed notes the priority of a job that is given back. One of another protocol keeps its own.
func (l *Ledger) placed(j *Job, priority int64) {
	if j.by == ofBeanstalk {
		j.priority, j.orderKnown, j.notBefore = priority, true, 0
	}
}

// mayBeDone notes a command that may have had its effect on a job.
func (l *Ledger) mayBeDone(c *Conn, j *Job, word string) {
	j.strayReport = past(l.turn)
	switch word {
	case deleted:
		j.results = append(j.results, j.resultFor(c, ""))
		l.doubt(j)
		return
	case buried:
		j.buried = maybe
	}
	j.doubtLease()
	l.freed(j)
	j.forgetPlace()
	j.notBefore, j.holderUnknown = 0, true
}

// kickedOne notes a kick of one job. free is how sure it is that nobody holds it.
func (l *Ledger) kickedOne(r *Request, free certainty) {
	j := r.job
	r.effect = min(free, j.buried)
	if j.inServer == no && j.turn < l.turn {
		return
	}
	if r.effect == no && (!j.orderKnown || j.due > l.clock().Wall || free == maybe) { // it may be delayed
		r.effect = maybe
	}
	if r.effect == sure && j.buriedDisk == sure {
		r.synced = l.group()
	}
	l.unbury(j, r.effect == sure)
}

// unbury notes that a job is kicked, or may be.
func (l *Ledger) unbury(j *Job, known bool) {
	if j.buried > no {
		j.buried = maybe
	}
	if known {
		j.buried = no
	}
	j.orderKnown, j.notBefore, j.due, j.turn = false, 0, l.clock().Wall, l.turn
}

// kicked notes the arrival of a kick: more than the tube has. There is no buried job in it then.
func (l *Ledger) kicked(r *Request, queue int) {
	r.effect = maybe
	is := func(j *Job) bool { return j.by == ofBeanstalk && j.queue == queue && j.inServer != no }
	known := false
	for _, j := range l.jobs {
		if is(j) && j.buried == sure && j.inServer == sure {
			known = true
			r.least++
		}
	}
	for _, j := range l.jobs {
		switch {
		case !is(j):
		case j.buried != no:
			l.unbury(j, true)
		case !known && j.holder == nil: // a delayed job may be kicked instead
			l.unbury(j, false)
		}
	}
}

// beanstalkReply checks the next answer that a client has received, and returns its size; 0: it is not complete.
func (l *Ledger) beanstalkReply(c *Conn) int {
	words, data, n, err := wire.NextBeanstalkReply(c.written)
	if err != nil {
		l.trace.Failf("c%d is sent %q: %v", c.id, brief(c.written), err)
	}
	if n == 0 {
		return 0
	}
	c.wroteBytes += n
	r, word := l.answered(c, c.written[:n]), words[0]
	switch {
	case r.refused:
		if r.job == nil && word != "UNKNOWN_COMMAND" || r.job != nil && word != "OUT_OF_MEMORY" && word != "DRAINING" {
			l.trace.Failf("c%d is answered %q, although the server must refuse that", c.id, words)
		}
		l.trace.Logf("c%d is answered %s", c.id, word)
	case r.cmd == periodic.GrabJob && word == "RESERVED" && len(words) == 3:
		l.reserved(c, words[1], data)
	case r.cmd == periodic.GrabJob:
		l.checkUnreserved(c, r, word)
	case r.cmd == periodic.SubmitJob:
		l.inserted(c, r, words)
	case r.cmd == periodic.WorkFail:
		if kicked, err := strconv.Atoi(words[len(words)-1]); word != r.word || err != nil || kicked < r.least {
			l.trace.Failf("c%d kicks %d buried jobs, and is answered %q", c.id, r.least, words)
		}
		l.trace.Logf("c%d is answered %q", c.id, words)
	case r.cmd == periodic.WorkDone:
		if word != r.word && word != "NOT_FOUND" {
			l.trace.Failf("c%d asks for %s of %v, and is answered %q", c.id, r.word, r.job, words)
		}
		if l.checkEffect(c, r, word == r.word); word == deleted {
			l.removed([]*Job{r.job})
		}
	case word != r.word:
		l.trace.Failf("c%d is answered %q, want %s", c.id, words, r.word)
	}
	return n
}

// inserted checks the answer to a put. No two jobs have one id, but for those that a crash has lost before they were on
// disk.
func (l *Ledger) inserted(c *Conn, r *Request, words []string) {
	j := r.job
	if len(words) != 2 || words[0] != "INSERTED" || !l.hasName(j, words[1]) {
		l.trace.Failf("c%d is answered %q of %v, %q", c.id, words, j, j.name)
	}
	for _, o := range l.jobs {
		if o != j && o.by == ofBeanstalk && o.name == j.name && !o.unsaved {
			l.trace.Failf("%v and %v have the id %s", o, j, j.name)
		}
	}
	l.acknowledged(j)
	l.trace.Logf("c%d is told that %v is there", c.id, j)
}

// reserved checks a job that a client is handed. The answer has not the job's tube.
func (l *Ledger) reserved(c *Conn, id string, body []byte) {
	j := l.exactJobOf(body, "a reserved job")
	if !l.serving(c, j.queue) {
		for _, q := range j.otherQueues {
			if l.serving(c, q) {
				l.isIn(j, l.queues[q])
				break
			}
		}
	}
	if !l.serving(c, j.queue) {
		l.trace.Failf("c%d is given %v of q%d, which it does not watch", c.id, j, j.queue)
	}
	if j.by == ofBeanstalk && !l.hasName(j, id) {
		l.trace.Failf("c%d is given %v, %q, as %s", c.id, j, j.name, id)
	}
	run := l.runBegun(c, j, l.queues[j.queue])
	c.nextTold()
	j.run = run
	l.assigned(c, j, l.queues[j.queue], "")
	c.unread = append(c.unread, readJob{at: c.wroteBytes, job: heldJob{job: j, run: run, handle: []byte(id)}})
}

// safetyMargin is the last part of a time to run, in milliseconds, in which a reserve does not wait.
const safetyMargin = 1000

// checkUnreserved checks the answer to a reserve that no job has come for.
func (l *Ledger) checkUnreserved(c *Conn, r *Request, word string) {
	now := l.clock().Mono
	switch word {
	case "TIMED_OUT":
		if now < r.until && !c.halfClosing {
			l.trace.Failf("the reserve of c%d ends %d ms early", c.id, r.until-now)
		}
		if j := l.readyJob(c); j != nil && r.turn == l.turn && !l.underWay && !l.stopping {
			l.trace.Failf("c%d is told that there is no job, although %v is ready for it", c.id, j)
		}
	case "DEADLINE_SOON":
		ends := func(x *Run) bool {
			least, most := l.timeouts(x.job)
			return x.began+least-safetyMargin <= now && now < x.began+most+safetyMargin
		}
		if !slices.ContainsFunc(c.runs, ends) {
			l.trace.Failf("c%d is told that a time to run ends soon, although it holds no such job", c.id)
		}
	default:
		l.trace.Failf("c%d is answered %q to a reserve", c.id, word)
	}
	l.trace.Logf("c%d is answered %s", c.id, word)
}
