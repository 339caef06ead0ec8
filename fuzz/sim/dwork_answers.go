//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/dwork"
)

// dworkAnswered checks an answer of the hub.
func (l *Ledger) dworkAnswered(call *dworkCall, reply []byte) {
	var q dwork.Query
	if err := dwork.DecodeReply(reply, &q); err != nil {
		l.trace.Failf("the hub answers %v with %x: %v", call.kind, reply, err)
	}
	l.trace.Logf("dwork %v %s is answered %v", call.kind, call.location, q.Type)
	switch {
	case call.refused:
		if q.Type != dwork.Error {
			l.trace.Failf("the hub answers %v to %v, although the disk is full", q.Type, call.kind)
		}
	case call.cyclic != (q.Type == dwork.Error):
		l.trace.Failf("the hub answers %v to %v of %v behind %v; it closes a cycle: %v", q.Type, call.kind, call.tasks, call.after, call.cyclic)
	case call.cyclic:
	case call.kind == dwork.Steal && q.Type == dwork.Transfer:
		for t := range q.Tasks {
			l.taskGiven(call.location, l.task(t.Name))
		}
	case call.kind == dwork.Steal && q.Type == dwork.Exit:
		for _, t := range l.jobs {
			if t.by == ofDwork && t.inServer == sure {
				l.trace.Failf("%s is told that all is done, although %v is not", call.location, t)
			}
		}
	case call.kind == dwork.Create:
		for i, t := range call.tasks {
			if t.life == call.lives[i] {
				l.acknowledged(t)
			}
		}
		call.addedCommitted()
	case call.kind == dwork.Complete || call.kind == dwork.Transfer:
		l.dworkAccepted(call, &q)
	}
}

// dworkAccepted checks the answer to a Complete or a Transfer.
func (l *Ledger) dworkAccepted(call *dworkCall, q *dwork.Query) {
	var refused []*Job
	for t := range q.Tasks {
		refused = append(refused, l.task(t.Name))
	}
	for i, t := range call.tasks {
		notFound := q.Type == dwork.NotFound && (call.kind == dwork.Transfer || slices.Contains(refused, t))
		switch {
		case notFound && call.sure[i]:
			l.trace.Failf("the hub does not find a task, although %s held %v", call.location, t)
		case notFound:
		case call.notHeld[i]:
			l.trace.Failf("%s did not hold %v, although the hub accepts its %v", call.location, t, call.kind)
		case call.kind == dwork.Complete && t.life == call.lives[i]:
			l.end(t)
			l.removed([]*Job{t})
		}
	}
	if q.Type == dwork.OK {
		call.addedCommitted()
	}
}

// checkNext checks that a task has no unfinished predecessor and is not put off.
func (l *Ledger) checkNext(t *Job) {
	for _, p := range slices.Concat(t.preds, t.latePreds) {
		if p.inServer == sure {
			l.trace.Failf("%v is handed out before %v is complete", t, p)
		}
	}
	if l.wall = max(l.wall, l.clock().Wall); t.notBefore > l.wall {
		l.trace.Failf("%v is handed out %d ms early", t, t.notBefore-l.wall)
	}
}

// label is the location of a worker of another protocol, without its number.
func (c *Conn) label() string {
	switch {
	case c.gloom():
		return "gloom"
	case c.reserve != nil:
		return "http"
	}
	return "periodic"
}

// taskGiven checks that a task may be given to a worker, and notes it.
func (l *Ledger) taskGiven(location string, t *Job) {
	l.trace.Logf("%s is given %v", location, t)
	switch {
	case t.inServer == no:
		l.trace.Failf("%v is handed out after its end, or before it came", t)
	case t.location != "" && !t.holderUnknown:
		l.trace.Failf("%v is handed to %s and %s holds it", t, location, t.location)
	}
	l.checkNext(t)
	t.inServer, t.holderUnknown, t.holder, t.run = sure, false, nil, new(Run)
	t.setLocation(location)
	l.taskKnown(location, t)
	l.handed++
}

// taskKnown notes that a worker knows that it has a task. It may know that already: after a crash it may be given again
// a task that it has, while its Transfer is on its way, which is refused then.
func (l *Ledger) taskKnown(location string, t *Job) {
	if !slices.Contains(l.net.dwork.stolen[location], t) {
		l.net.dwork.stolen[location] = append(l.net.dwork.stolen[location], t)
	}
}

// leaseOver reports whether the lease of a worker is over.
func (l *Ledger) leaseOver(location string) bool {
	return l.setup.dworkLease > 0 && slices.Contains(locations, location) && l.clock().Mono-l.dworkSigns[location] >= l.setup.dworkLease.Milliseconds()
}

// graphExpired notes the tasks of silent workers as ready.
func (l *Ledger) graphExpired() {
	for _, t := range l.jobs {
		if t.by == ofDwork && !t.holderUnknown && l.leaseOver(t.location) {
			l.trace.Logf("%s is silent, and has %v no more", t.location, t)
			t.setLocation("")
		}
	}
}
