//go:build invariants

package sim

import (
	"fmt"
	"slices"
)

// policyTurn is whose turn it is in a fair order, as far as known.
type policyTurn struct {
	key   byte // key of the job that was handed out last
	had   int  // jobs of this turn that were handed out
	known bool // had is exact: the turn was seen from its start
}

// weight is how many jobs of a key start in one turn.
func (r *effectivePolicy) weight(key byte) int { return max(1, r.weights[key-'a']) }

// checkTurns checks that with a fair order the two keys take turns, and notes whose turn it was. Of jobs that workers
// are given in one step the order is not seen, since the workers may be of several loops: nothing is known of the
// turns then.
func (m *PolicyModel) checkTurns(j *policyJob) {
	if m.handed++; m.handed > 1 {
		m.turn, m.turnFault = policyTurn{}, ""
		for _, o := range m.jobs {
			o.passed, o.inTurn = 0, false
		}
		return
	}
	r := &m.effective
	fair := r.fair && !r.oneKey && m.policyBefore == nil && !m.withheld
	for _, o := range m.jobs {
		switch {
		case o.key == j.key || !fair:
			o.passed = 0
		case !o.ready || o.worker != nil || o.now.place != inQueue || m.isKeyThrottled(r, o.key, (*policyJob).isRunning):
		case o.passed >= r.weight(j.key):
			m.turnFault = fmt.Sprintf("%v is handed out after %d of its key, although it is the turn of %v", j, o.passed, o)
		default:
			o.passed++
		}
	}
	m.checkTurnLength(j, fair && r.keyConcurrency == 0)
}

// endTurns ends what checkTurns knows of one step: a fault of its only hand-out is one.
func (m *PolicyModel) endTurns() {
	if m.turnFault != "" {
		m.trace.Failf("%s", m.turnFault)
	}
	m.handed = 0
}

// checkTurnLength checks that a key has its whole turn. While either key has jobs all the time, each turn is as long as
// its weight.
func (m *PolicyModel) checkTurnLength(j *policyJob, fair bool) {
	stays := func(key byte) bool { // a job of the key other than j was ready at the last hand-out, and still is
		return slices.ContainsFunc(m.jobs, func(o *policyJob) bool { return o != j && o.key == key && o.inTurn && m.isReady(o) })
	}
	t := &m.turn
	switch steady := fair && stays('a') && stays('b'); {
	case !steady || t.key == 0:
		t.known = false
	case t.key != j.key && t.known && t.had < m.effective.weight(t.key):
		m.turnFault = fmt.Sprintf("%v is handed out, although it is the turn of another key, which has had %d of %d jobs", j, t.had, m.effective.weight(t.key))
	case t.key != j.key:
		t.had, t.known = 0, true
	}
	t.key = j.key
	t.had++
	for _, o := range m.jobs {
		o.inTurn = o != j && m.isReady(o)
	}
}

// isReady reports whether a job is ready for sure.
func (m *PolicyModel) isReady(j *policyJob) bool {
	return j.ready && j.worker == nil && j.now.place == inQueue && !j.parked
}
