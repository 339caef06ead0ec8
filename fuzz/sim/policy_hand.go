//go:build invariants

package sim

import (
	"slices"
)

// running counts the jobs of the queue that workers have.
func (m *PolicyModel) running() (n int) {
	for _, j := range m.jobs {
		if j.worker != nil && j.now.place == inQueue {
			n++
		}
	}
	return n
}

// isThrottled reports whether the queue hands out no job under a rule.
func (m *PolicyModel) isThrottled(r *effectivePolicy) bool {
	return r.noHandOut || r.concurrency > 0 && m.running() >= r.concurrency
}

// isKeyThrottled reports whether so many jobs of a key are running that the queue hands out no other under a rule.
func (m *PolicyModel) isKeyThrottled(r *effectivePolicy, key byte, running func(*policyJob) bool) bool {
	n := 0
	for _, j := range m.jobs {
		if j.now.place&inQueue != 0 && (j.key == key || r.oneKey) && running(j) {
			n++
		}
	}
	return r.keyConcurrency > 0 && n >= r.keyConcurrency
}

// mayCountAsRunning reports whether the server may count a job as running: also one that clashes for a worker.
func (m *PolicyModel) mayCountAsRunning(j *policyJob) bool {
	return j.worker != nil || slices.ContainsFunc(m.workers, func(w *policyWorker) bool { return w.kind == crcWorker && w.isLate(j) })
}

// rateAllows reports whether the rate of a rule lets one more job start at a time: of the jobs that have started from
// any moment on there are no more than a burst, and those that the rate adds in the time since.
func (m *PolicyModel) rateAllows(r *effectivePolicy, mono int64) bool {
	for i, at := range m.starts {
		if r.jobs > 0 && (int64(len(m.starts)-i)+1-r.burst)*r.per > (mono-at)*r.jobs {
			return false
		}
	}
	return true
}

// handedOut checks that a job may be handed out now, and notes that it was.
func (m *PolicyModel) handedOut(w *policyWorker, j *policyJob, queue string, handle []byte) {
	m.catchUp()
	at := inQueue
	if queue == m.dead {
		at = dead
	}
	m.trace.Logf("%v is given %v, %v", w, j, at)
	if j.worker != nil {
		m.trace.Failf("%v is handed to %v, although %v has it", j, w, j.worker)
	}
	m.seenAt(j, at)
	switch now := m.clock(); {
	case at == dead:
	case j.parked && !m.lock.unsure:
		m.trace.Failf("%v is handed out, although it waits for the lock", j)
	case m.isTooOld(j):
		m.trace.Failf("%v is handed out, although it has expired", j)
	case !j.maybeDue && !j.parked:
		m.trace.Failf("%v is handed out %d ms before its back-off is over", j, j.now.from-now.Wall)
	case !m.isThrottled(&m.effective) || m.policyBefore != nil && !m.isThrottled(m.policyBefore):
	case m.effective.noHandOut:
		m.trace.Failf("%v is handed out, although its queue is paused", j)
	default:
		m.trace.Failf("%v is handed out, although %d jobs of its queue are running and %d may", j, m.running(), m.effective.concurrency)
	}
	if at == inQueue {
		if m.policyBefore == nil && m.isKeyThrottled(&m.effective, j.key, (*policyJob).isRunning) {
			m.trace.Failf("%v is handed out, although %d jobs of its key are running, as many as may", j, m.effective.keyConcurrency)
		}
		m.checkTurns(j)
		if now := m.clock().Mono; m.policyBefore == nil && !m.rateAllows(&m.effective, now) {
			m.trace.Failf("%v is handed out at %d, although others of its queue at %v: the rate is %d in %d ms", j, now, m.starts, m.effective.jobs, m.effective.per)
		} else {
			m.starts = append(m.starts, now)
		}
	}
	if j.parked {
		m.unpark(j)
	}
	if w.kind == crcWorker { // the worker reports by name: a report is of this run from now on
		w.timedOutRuns = slices.DeleteFunc(w.timedOutRuns, func(r policyRun) bool { return r.job == j })
	}
	j.worker, j.handle, j.expires = w, handle, roundUp(m.clock().Mono+j.timeout*1000+policyGrace)
	w.grabs--
}

// policyGrace is how long after a time-out the server waits for the worker; roundUp is what it makes of the end of
// that.
const policyGrace, policyGrain = 1000, 128

func roundUp(mono int64) int64 { return (mono + policyGrain - 1) &^ (policyGrain - 1) }

// readyFor returns a job that is ready for a worker of the model, or nil. A slave serves no dead letters, and a worker
// that knows jobs by name is given none that it still has to report.
func (m *PolicyModel) readyFor(w *policyWorker) *policyJob {
	throttled := m.isThrottled(&m.effective) || m.policyBefore != nil || !m.rateAllows(&m.effective, m.last.Mono-policyGrain)
	for _, j := range m.jobs {
		switch {
		case j.worker != nil || w.kind == crcWorker && w.isLate(j):
		case j.due && (j.now.place == dead && !w.kind.gloom() || j.now.place == inQueue && !throttled && !m.isKeyThrottled(&m.effective, j.key, m.mayCountAsRunning)):
			return j
		}
	}
	return nil
}

// checkIdle checks, when time has passed, that no worker of the model waits while a job is ready.
func (m *PolicyModel) checkIdle() {
	for _, j := range m.jobs {
		j.due = j.due || !j.parked && j.now.to <= m.last.Wall
	}
	for _, w := range m.workers {
		if j := m.readyFor(w); j != nil && w.grabs > 0 {
			m.trace.Failf("%v waits, although %v is ready for it", w, j)
		}
	}
}
