//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/periodic"
	"treadle/loop"
)

// figures are the numbers of a job's record, as far as the ledger knows them.
type figures struct {
	schedAt     int64
	schedKnown  bool  // schedAt is known
	least, most int32 // its count is between the two
}

// addSteps adds the step of a SCHED_LATER to a job's count; not sure: it may not have counted.
func (j *Job) addSteps(by int32, sure bool) {
	j.record.most += by
	if sure {
		j.record.least += by
	}
}

// countSteps notes a worker's SCHED_LATER with a step to the count.
func (l *Ledger) countSteps(c *Conn, h heldJob, by int32) {
	for _, k := range l.sameName(h) {
		k.addSteps(by, false)
	}
	if last := h.isCurrent(); last || l.maybeLater(h) {
		h.job.addSteps(by, last && l.holds(c, h.job))
	}
}

// checkAssigned checks the record of a JOB_ASSIGN. In the CRC framing the server fills in defaults.
func (l *Ledger) checkAssigned(c *Conn, k *Job, j *periodic.Job) {
	as := *j
	if c.framing() == periodic.CRC && k.by == ofPeriodic {
		limits := l.config[timeoutSetting].values
		if !c.slow { // a slow reader's JOB_ASSIGN may have waited since another time-out was set
			limits = limits[len(limits)-1:]
		}
		if k.timeout == 0 && slices.Contains(limits, uint32(as.Timeout)) {
			as.Timeout = 0
		}
		if k.record.schedKnown && k.record.schedAt == 0 {
			as.SchedAt = 0 // which the server filled in
		}
	}
	l.checkRecord(k, &as, fmt.Sprintf("assigned to c%d", c.id))
}

// answerBody is the body of the answer to a DUMP or a STATUS, without the byte that later versions of the CRC framing
// put before it.
func (l *Ledger) answerBody(framing periodic.Framing, version string, body []byte) []byte {
	if framing == periodic.Plain || version < "2020" {
		return body
	}
	if len(body) == 0 || body[0] != byte(periodic.Data) {
		l.trace.Failf("a DUMP or a STATUS: got %x, want DATA", body)
	}
	return body[1:]
}

// noteOverdue notes that a job may have timed out without a message: then its record has changed.
func (l *Ledger) noteOverdue(j *Job) {
	if j.holder != nil && !l.holds(j.holder, j) {
		j.record.schedKnown = false
	}
}

// checkRecord checks the record of a Periodic job, without defaults.
func (l *Ledger) checkRecord(k *Job, j *periodic.Job, where string) {
	if k.by != ofPeriodic || k.inServer == no || k.strayReport.in(l.turn) {
		return
	}
	l.noteOverdue(k)
	r := &k.record
	if j.Count < r.least || j.Count > r.most || int64(j.Timeout)*1000 != k.timeout {
		l.trace.Failf("%v is %s: got count %d, time-out %d s; want count %d to %d, time-out %d ms", k, where, j.Count, j.Timeout, r.least, r.most, k.timeout)
	}
	r.least, r.most = j.Count, j.Count
	if r.schedKnown && j.SchedAt != r.schedAt { // a fault unless a worker left in this turn to which the job was on its way
		l.wrongSchedAt = fmt.Sprintf("%v is %s with sched_at %d; it has %d", k, where, j.SchedAt, r.schedAt)
		r.schedKnown = false
	}
}

// checkDump checks the answer to a DUMP that came in a turn. It must list once each job that the server has had since
// that turn, the running jobs last, and no other job.
func (l *Ledger) checkDump(since int, body []byte) map[*Job]bool {
	there, lastRunning := map[*Job]bool{}, (*Job)(nil)
	for _, j := range l.parseDump(body) {
		k := l.exactJobOf(j.Workload, "a job of a dump")
		if k.by != ofPeriodic || k.inServer == no && (k.turn < since || k.id == 0) || there[k] {
			l.trace.Failf("%v is in a dump, although it has ended, never came or is there twice", k)
		}
		if !l.hasName(k, string(j.Name)) || k.movedIn < since && !l.isIn(k, string(j.Func)) { // the DUMP may show where it was before
			l.trace.Failf("%v is in a dump: got %q of %q, want %q of %q", k, j.Name, j.Func, k.name, l.queues[k.queue])
		}
		there[k] = true
		if k.turn >= since {
			continue
		}
		l.checkRecord(k, &j, "in a dump")
		switch {
		case l.holds(k.holder, k):
			lastRunning = k
		case k.inServer == sure && k.holder == nil && !k.holderUnknown && !k.parked && lastRunning != nil:
			l.behindRunning = append(l.behindRunning, k) // a fault unless the job was handed out in this turn, which endTurn checks
		}
	}
	for _, j := range l.jobs {
		switch {
		case j.by != ofPeriodic || j.inServer != sure || j.came >= since || there[j]:
		case j.queue == broadcastQueue: // the job may have been broadcast in this turn; its assignment is read after the dump
			l.missingFromDump = append(l.missingFromDump, j)
		default:
			l.trace.Failf("%v of q%d is not in a dump: want it there", j, j.queue)
		}
	}
	l.lastDump = slices.Clone(body)
	return there
}

// checkStatus checks the counts of STATUS for each queue, when no Periodic job is in doubt.
func (s *Simulator) checkStatus() {
	if s.ledger.operation != nil {
		return
	}
	lines := s.askStatus()
	for queue, name := range s.ledger.queues[:periodicQueues] {
		least, most, workers, behind := 0, 0, 0, 0
		for _, j := range s.ledger.jobs {
			if j.queue == queue && j.inServer == sure && j.buried == no {
				least++
			}
			// The server counts an orphan until its run ends, and the worker may have yet to read the assignment.
			if j.queue == queue && (j.inServer != no || j.holder != nil || j.holderUnknown || j.parked || j.by == ofGloom && s.ledger.waitsUnread(j)) {
				most++
			}
		}
		for _, c := range s.net.conns {
			if c.slow && len(c.requests) > 0 { // the server may have to read its CAN_DO or CANT_DO yet
				behind += oneIf(c.servedQueues[queue] || c.stoppedServing[queue].happened)
			} else {
				workers += oneIf(c.servedQueues[queue])
			}
		}
		httpWorkers, unsure := s.ledger.httpWorkers(queue)
		workers += httpWorkers
		unsure += behind
		shown, jobs := 0, 0
		if _, err := fmt.Sscanf(lines[name], "%d,%d,", &shown, &jobs); lines[name] != "" && err != nil || shown < workers ||
			shown > workers+unsure || jobs < least || jobs > most {
			s.trace.Failf("the status of %s: got %q, want %d to %d workers and %d to %d jobs", name, lines[name], workers, workers+unsure, least, most)
		}
	}
}

// parseDump decodes a DUMP. It leaves out the jobs of the policy model and of cron entries.
func (l *Ledger) parseDump(body []byte) []periodic.Job {
	return slices.DeleteFunc(l.parseAllOfDump(body), func(j periodic.Job) bool {
		return slices.Contains([]string{l.policy.queue, l.policy.dead, l.cron.queue}, string(j.Func))
	})
}

// parseAllOfDump returns the jobs of a dump. It fails the simulation if the dump cannot be parsed.
func (l *Ledger) parseAllOfDump(body []byte) (all []periodic.Job) {
	n, rest, ok := periodic.Int64(body)
	for range n {
		var j periodic.Job
		k, err := periodic.ParseJob(rest, &j)
		if err != nil {
			l.trace.Failf("a dump of %d jobs has one that cannot be read: %v", n, err)
		}
		all, rest = append(all, j), rest[k:]
	}
	if !ok || len(rest) > 0 {
		l.trace.Failf("a dump of %d jobs has %x behind them: want nothing", n, rest)
	}
	return all
}

// dump takes a DUMP by a probe; nil: the server is still sending one to a slow reader.
func (s *Simulator) dump(server *loop.Offline, version string) (body []byte) {
	v := s.probe(server)
	defer v.peer.Close()
	if body = v.answer(v.send(periodic.Dump, nil)); body != nil {
		body = s.ledger.answerBody(v.framing, version, body)
	}
	return body
}
