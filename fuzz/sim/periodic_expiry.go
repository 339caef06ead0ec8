//go:build invariants

package sim

import (
	"treadle/codec/periodic"
)

// expiryOf is the Mono at which a RUN_JOB of the version of 2026 expires.
func (l *Ledger) expiryOf(q *Request) int64 {
	limit := q.job.timeout
	if limit == 0 {
		limit = 60_000
	}
	return q.at + limit + grace
}

// expired notes that a RUN_JOB has expired: its job is removed, unless a later submission has replaced it.
func (l *Ledger) expired(c *Conn, q *Request) {
	if now := l.clock().Mono; now < l.expiryOf(q) {
		l.trace.Failf("the RUN_JOB of %v by c%d expires %d ms early", q.job, c.id, l.expiryOf(q)-now)
	}
	switch j := q.job; {
	case j.next == nil:
		l.end(j)
	case j.inServer != no:
		l.doubt(j)
	}
}

// noteExpired notes, when time has passed, the RUN_JOBs that may have expired without an answer that their peer reads.
func (l *Ledger) noteExpired() {
	for _, c := range l.net.conns {
		if !l.hasSettings2026(c.framing()) || !c.slow && !c.peer.Broken {
			continue
		}
		for _, q := range c.requests {
			if q.cmd == periodic.RunJob && !q.refused && q.job.owner == c && q.job.inServer != no && l.clock().Mono >= l.expiryOf(q) {
				l.doubt(q.job)
			}
		}
	}
}

// checkExpired checks, when time has passed, that every RUN_JOB that is due to expire has; the server looks every
// second.
func (l *Ledger) checkExpired() {
	for _, c := range l.net.conns {
		if !l.hasSettings2026(c.framing()) || c.gloom() || c.slow || c.peer.Broken || c.peer.Closed() {
			continue
		}
		for _, q := range c.requests {
			if q.cmd == periodic.RunJob && !q.refused && l.clock().Mono > l.expiryOf(q)+2000 {
				l.trace.Failf("the RUN_JOB of %v by c%d does not expire", q.job, c.id)
			}
		}
	}
}

// endResults are the results that a RUN_JOB of c gets when its job fails and when it is removed, and whether a failure
// ends it.
func (l *Ledger) endResults(c *Conn) (failed, removed string, failEnds bool) {
	if c.framing() == periodic.CRC && l.setup.periodicVersion >= "2023" {
		return "failed", "removed", true
	}
	return "", "", c.framing() == periodic.CRC && l.setup.periodicVersion != "2019-02"
}
