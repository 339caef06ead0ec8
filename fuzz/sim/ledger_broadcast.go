//go:build invariants

package sim

import (
	"slices"

	"treadle/codec/periodic"
)

// A job of the broadcast queue goes to every GRAB_JOB that waits, and is gone then. What workers report of it changes
// nothing.

// broadcastSent checks that a broadcast job may go to a worker that asked in a certain turn, and notes it.
func (l *Ledger) broadcastSent(c *Conn, j *Job, asked int) {
	l.trace.Logf("c%d is sent %v", c.id, j)
	if !c.slow {
		asked = l.turn // the worker reads at once
	}
	switch {
	case slices.Contains(c.backlog, j):
	case j.inServer == no && (j.turn < asked || j.id == 0):
		l.trace.Failf("%v is broadcast after its end, or before it came", j)
	case !l.serving(c, broadcastQueue):
		l.trace.Failf("%v is broadcast to c%d, which has not asked for it", j, c.id)
	case j.inServer != no && j.notBefore > max(l.wall, l.clock().Wall):
		l.trace.Failf("%v is broadcast early", j)
	}
	if j.inServer != no {
		l.end(j)
		l.handed++
		if !c.slow { // a slow reader may have been sent the job long ago, when others did not wait
			l.broadcasts = append(l.broadcasts, j)
		}
	}
	if j.sentTo == nil {
		j.sentTo = map[*Conn]bool{}
	}
	j.sentTo[c] = true
}

// checkBroadcasts checks, at the end of a turn, that each job that was broadcast in it went to every worker that waited
// for one before and still waits. A slow reader may get it later.
func (l *Ledger) checkBroadcasts() {
	for _, j := range l.broadcasts {
		for _, c := range l.net.conns {
			waits := false
			for _, r := range c.requests {
				waits = waits || r.cmd == periodic.GrabJob && r.turn < l.turn
			}
			if waits && !c.slow && c.broadcast.before(l.turn) && !j.sentTo[c] {
				l.trace.Failf("%v is not broadcast to c%d, although it waits", j, c.id)
			}
		}
	}
	l.broadcasts = nil
}

// maybeBroadcast reports whether a broadcast job may have gone to a worker that has not read it yet, or whose
// connection ends in this turn.
func (l *Ledger) maybeBroadcast(j *Job) bool {
	if j.notBefore > max(l.wall, l.clock().Wall) {
		return false
	}
	return slices.ContainsFunc(l.net.conns, func(c *Conn) bool {
		return l.mayHaveUnread(c, j) || c.peer.Closed() && l.serving(c, broadcastQueue) && c.waitsFor(j)
	})
}
