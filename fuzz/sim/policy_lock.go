//go:build invariants

package sim

import (
	"encoding/binary"
	"slices"

	"treadle/codec/periodic"
)

// policyLockName is the lock that workers of the CRC framing want for the jobs of the model. One job may have it.
const policyLockName = "policed"

// policyLock is what the model knows of the lock.
type policyLock struct {
	holder *policyJob
	line   []*policyJob // parked, the first has waited longest
	woken  []*policyJob // made ready for the lock, until they have it or their runs end
	unsure bool         // several jobs have left the lock at once, in an order that is not known
}

// policyAskLock lets a worker ask for the lock, or give it back.
func (s *Simulator) policyAskLock() {
	m := s.ledger.policy
	var all []*policyJob
	for _, j := range m.jobs {
		if j.worker != nil && j.worker.kind == crcWorker && !m.lock.unsure {
			all = append(all, j)
		}
	}
	if len(all) == 0 {
		return
	}
	j := all[s.rng.IntN(len(all))]
	w, handle := j.worker, slices.Clone(j.handle)
	name := periodic.AppendStr8String(nil, policyLockName)
	if m.lock.holder == j && s.rng.IntN(3) == 0 {
		s.trace.Logf("%v gives the lock of %v back", w, j)
		m.unlock(j)
		w.send(periodic.Release, append(name, handle...))
		return
	}
	s.trace.Logf("%v wants the lock for %v", w, j)
	w.locks = append(w.locks, m.lockRequested(j))
	w.send(periodic.Acquire, append(binary.BigEndian.AppendUint16(name, 1), handle...))
}

// lockRequested notes that a job asks for the lock; false: it does not get it, and is parked.
func (m *PolicyModel) lockRequested(j *policyJob) bool {
	l := &m.lock
	l.woken = slices.DeleteFunc(l.woken, func(o *policyJob) bool { return o == j })
	if l.holder == nil || l.holder == j {
		l.holder = j
		return true
	}
	j.worker, j.handle, j.due, j.maybeDue, j.ready, j.inTurn = nil, nil, false, false, false, false
	j.parked, j.parkedAt = true, m.clock().Mono
	l.line = append(l.line, j)
	return false
}

// isLocking reports whether a job has the lock, or its turn.
func (l *policyLock) isLocking(j *policyJob) bool {
	return l.holder == j || slices.Contains(l.woken, j)
}

// unlock notes that a job no longer has the lock, or its turn: it is the turn of the next.
func (m *PolicyModel) unlock(j *policyJob) {
	l := &m.lock
	if !l.isLocking(j) {
		return
	}
	l.woken = slices.DeleteFunc(l.woken, func(o *policyJob) bool { return o == j })
	if l.holder == j {
		l.holder = nil
	}
	if l.holder == nil && len(l.line) > 0 {
		first := l.line[0]
		m.unpark(first)
		l.woken = append(l.woken, first)
		m.trace.Logf("it is the turn of %v", first)
	}
}

// unpark makes a job ready that waits for the lock.
func (m *PolicyModel) unpark(j *policyJob) {
	m.lock.line = slices.DeleteFunc(m.lock.line, func(o *policyJob) bool { return o == j })
	j.parked, j.due, j.maybeDue = false, true, true
}

// leftAtOnce notes that jobs stop running at one moment, in any order.
func (m *PolicyModel) leftAtOnce(is func(*policyJob) bool) {
	n := 0
	for _, j := range m.jobs {
		n += oneIf(j.worker != nil && is(j) && m.lock.isLocking(j))
	}
	m.lock.unsure = m.lock.unsure || n > 1
}

// nextToEnd returns the job whose run or whose wait for the lock is over next, up to now; nil: none. When both are
// over at once, the wait comes first.
func (m *PolicyModel) nextToEnd() (first *policyJob, at int64) {
	at = m.clock().Mono + 1
	for _, j := range m.jobs {
		over := at
		switch {
		case j.parked:
			over = roundUp(j.parkedAt) + m.lockTimeout()
		case j.worker != nil:
			over = j.expires
		}
		if over < at || over == at && first != nil && j.parked && !first.parked {
			first, at = j, over
		}
	}
	return first, at
}
