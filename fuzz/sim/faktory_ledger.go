//go:build invariants

package sim

import (
	"encoding/json"
	"slices"
	"strings"

	"treadle/codec/faktory"
	"treadle/codec/periodic"
)

// reservation is how long a job is reserved for a worker of Faktory, in milliseconds.
func (l *Ledger) reservation(j *Job) int64 {
	switch {
	case j.untimed():
		return reserveFor
	case j.timeout > 0:
		return j.timeout
	}
	return int64(l.config[timeoutSetting].now()) * 1000
}

// fetchedReported notes the arrival of an ACK or a FAIL, and returns how sure it is that it has an effect. A jid of
// Faktory means the job's present reservation, so that a late report may end a later run.
func (l *Ledger) fetchedReported(x *Lease, fails bool) (effect certainty) {
	j := x.job
	if y := j.lease(); y != nil && j.by == ofFaktory {
		x = y
	}
	may := l.reasons(x)
	unknown := j.by == ofFaktory && (j.holderUnknown || j.turn >= l.turn) && j.inServer != no // the ledger may not know its reservation
	if !slices.Contains(may, "") && !unknown {
		return no
	}
	if len(may) > 1 || unknown {
		if j.inServer != no {
			l.doubt(j)
		}
		j.results, j.failures = append(j.results, j.resultFor(x.conn, "")), j.failures+1
		x.unsure, x.disk = x.unsure || !x.over(), min(x.disk, maybe)
		return maybe
	}
	h := heldJob{job: j, run: x.run}
	if fails {
		l.returned(x.conn, h, 0)
	} else {
		l.finished(x.conn, h, "")
	}
	x.reported, x.disk = true, min(x.disk, maybe)
	return sure
}

// noteRetry notes a failure that a worker has reported of a job of Faktory.
func (l *Ledger) noteRetry(j *Job) {
	if j.failed++; j.failed > max(j.retries, 0) {
		l.trace.Logf("%v has no retries left", j)
		l.end(j)
		return
	}
	j.orderKnown, j.notBefore, j.delayMayBeLost = false, l.clock().Wall+leastBackoff, true
}

// noteGivenUp notes, at the end of a turn, the jobs of Faktory that may have no retries left.
func (l *Ledger) noteGivenUp() {
	for _, j := range l.jobs {
		if j.by == ofFaktory && j.inServer == sure && !l.holds(j.holder, j) && l.failuresOf(j) > max(j.retries, 0) {
			l.doubt(j)
		}
	}
}

// abandoned notes that a server that stops has closed the connections: for a job of Faktory on one that is a failure.
func (l *Ledger) abandoned() {
	for _, j := range l.jobs {
		if j.by == ofFaktory && j.holder != nil && j.lease() == nil {
			j.holder = nil
			j.failures++
		}
	}
	l.noteGivenUp()
}

// faktoryReply checks the next answer that a client has received, and returns its size; 0: it is not complete.
func (l *Ledger) faktoryReply(c *Conn) int {
	kind, data, n, err := faktory.NextReply(c.written, 1<<20)
	if err != nil {
		l.trace.Failf("c%d is sent %q: %v", c.id, brief(c.written), err)
	}
	if n == 0 {
		return 0
	}
	if c.wroteBytes += n; !c.greeted {
		if c.greeted = true; kind != faktory.Simple || string(data) != `HI {"v":2}` {
			l.trace.Failf("c%d is greeted by %q", c.id, data)
		}
		return n
	}
	r := l.answered(c, c.written[:n])
	ok := kind == faktory.Simple && string(data) == "OK"
	if !ok && kind != faktory.Error && r.cmd != periodic.GrabJob {
		l.trace.Failf("c%d is answered %c%q", c.id, kind, data)
	}
	switch {
	case r.refused:
		if ok || !strings.HasPrefix(string(data), r.word) {
			l.trace.Failf("c%d is answered %q, although %v must be refused", c.id, data, r.job)
		}
		l.trace.Logf("c%d is told that it is refused", c.id)
	case r.cmd == periodic.GrabJob && kind == faktory.Bulk:
		l.fetched(c, data)
	case r.cmd == periodic.GrabJob:
		if kind != faktory.Null || l.clock().Mono < r.until {
			l.trace.Failf("c%d is answered %c%q to a FETCH, %d ms before its time", c.id, kind, data, r.until-l.clock().Mono)
		}
		l.trace.Logf("c%d is told that there is no job", c.id)
	case r.cmd == periodic.WorkFail:
		l.checkEffect(c, r, ok)
	case !ok:
		l.trace.Failf("c%d is answered %q", c.id, data)
	case r.cmd == periodic.SubmitJob:
		l.acknowledged(r.job)
		l.trace.Logf("c%d is told that %v is there", c.id, r.job)
	}
	return n
}

// fetched checks a job that a client is handed.
func (l *Ledger) fetched(c *Conn, data []byte) {
	var seen struct {
		JID, Queue, Jobtype string
		Custom              struct{ Name string }
		Failure             *faktory.Failed
	}
	if err := json.Unmarshal(data, &seen); err != nil {
		l.trace.Failf("c%d is given %q: %v", c.id, brief(data), err)
	}
	j := l.exactJobOf(data, "a fetched job")
	name := seen.Custom.Name
	if j.by == ofFaktory {
		name = seen.JID
		l.checkFailure(c, j, seen.Failure)
	}
	length := l.reservation(j)
	x := l.leased(c, j, seen.Queue, name, l.clock().Wall+length, length)
	x.token = seen.JID
	c.unread = append(c.unread, readJob{at: c.wroteBytes, lease: x})
}

// checkFailure checks what a worker is told of the failures of a job, if they are known.
func (l *Ledger) checkFailure(c *Conn, j *Job, is *faktory.Failed) {
	n := int64(j.failed)
	if j.failures != j.failed || j.holder != nil || j.inServer != sure {
		return
	}
	if (is != nil) != (n > 0) || is != nil && (is.Count != n-1 || is.Remaining != max(int64(j.retries)-is.Count, 0)) {
		l.trace.Failf("c%d is given %v, which has failed %d times and has %d retries, with %+v", c.id, j, n, j.retries, is)
	}
}
