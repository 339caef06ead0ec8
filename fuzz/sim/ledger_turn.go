//go:build invariants

package sim

import (
	"treadle/codec/periodic"
)

// turnState is what the ledger knows of the present turn, and has endTurn check.
type turnState struct {
	turn     int   // number of turns; at the end of a turn nothing is under way
	underWay bool  // something is under way in the server
	began    int64 // Wall at the beginning of the turn

	inversions      []inversion // hand-outs whose order seems wrong
	broadcasts      []*Job      // jobs that were broadcast in the turn
	missingFromDump []*Job      // jobs that a dump lacks
	behindRunning   []*Job      // jobs that a dump lists behind a running one
	wrongSchedAt    string      // description of a sched_at that seems wrong
}

// dropChecks forgets what endTurn would check: it is not known how the turn of an ended server or connection went on.
func (t *turnState) dropChecks() {
	*t = turnState{turn: t.turn, underWay: t.underWay, began: t.began}
}

// inversion is a job that was handed out before others that seem to come first.
type inversion struct {
	given  *Job
	better []*Job
}

// pastTurn is the turn of an event. The zero value stands for an event that has not happened.
type pastTurn struct {
	turn     int
	happened bool
}

// past returns the turn of an event that has happened.
func past(turn int) pastTurn { return pastTurn{turn, true} }

// in reports whether the event has happened in a turn.
func (p pastTurn) in(turn int) bool { return p == past(turn) }

// before reports whether the event has happened before a turn.
func (p pastTurn) before(turn int) bool { return p.happened && p.turn < turn }

// endTurn ends the turn: nothing is under way in the server, and the checks that waited for that are made.
func (l *Ledger) endTurn() {
	l.reap()
	l.noteGivenUp()
	l.policy.catchUp()
	if l.wrongSchedAt != "" {
		l.trace.Failf("%s", l.wrongSchedAt)
	}
	l.checkBroadcasts()
	l.checkHungUp()
	l.checkAnswered()
	l.checkAwaited()
	l.checkIdle()
	for _, j := range l.behindRunning {
		if j.inServer == sure && j.holder == nil && j.turn < l.turn && !j.holderUnknown && !l.waitsUnread(j) {
			l.trace.Failf("%v of q%d is in a dump behind a running job, although it waits: want running jobs last", j, j.queue)
		}
	}
	for _, j := range l.missingFromDump {
		if j.inServer == sure && !l.waitsUnread(j) {
			l.trace.Failf("%v of q%d is not in a dump: want it there", j, j.queue)
		}
	}
	l.behindRunning, l.missingFromDump = nil, nil
	for _, w := range l.inversions {
		for _, r := range w.better {
			if r.inServer == sure && r.turn < l.turn && r.orderKnown {
				l.trace.Failf("%v (priority %d, due %d) is handed out before %v (%d, %d)", w.given, w.given.priority, w.given.due, r, r.priority, r.due)
			}
		}
	}
	l.inversions = l.inversions[:0]
	l.noteOperation()
	l.turn++
	l.underWay = false
	l.began = l.clock().Wall
}

// checkAnswered checks, at the end of a turn, that every request with nothing to wait for has its answer: a Gloom
// submission, a malformed request, a PING, a CONFIG_GET and a STATUS.
func (l *Ledger) checkAnswered() {
	for _, c := range l.net.conns {
		if c.peer.Closed() {
			continue
		}
		if l.checkAdmitted(c); len(c.acks) > 0 {
			l.trace.Failf("c%d has no acknowledgement, although it has submitted %v", c.id, c.acks[0])
		}
		for _, r := range c.requests {
			if !c.slow && !c.inLines() && (r.refused && !r.doubtful || r.cmd == periodic.Ping || r.cmd == periodic.ConfigGet || r.cmd == periodic.Status) {
				l.trace.Failf("c%d has no answer, although it has sent a %v", c.id, r.cmd)
			}
		}
	}
}
