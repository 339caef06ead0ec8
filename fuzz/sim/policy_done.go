//go:build invariants

package sim

import (
	"math"
	"slices"

	"treadle/codec/admin"
)

// The policy model knows which jobs are kept after their end, and with what; whose names are still taken; and when a
// job is too old to start.

// finished are the places of jobs that are done or have expired, and that the server still knows.
const finished = doneName | doneKept | doneResult | expired

// policyKeep is a value of keep-done or keep-results.
type policyKeep struct {
	on   bool
	jobs int   // 0: any number
	age  int64 // milliseconds; 0: for ever
}

// over reports whether a job that ended at a time may go: it is too old, or enough others are kept before it.
func (k policyKeep) over(ended, now int64, others int) bool {
	return !k.on || k.jobs > 0 && others >= k.jobs || k.age > 0 && ended+k.age <= now
}

// runDone notes that a worker has done a job.
func (m *PolicyModel) runDone(j *policyJob) {
	m.unlock(j)
	now, r := m.clock().Wall, &m.effective
	f := fate{place: nowhere, endedFrom: now, endedTo: now}
	switch {
	case j.now.place == dead:
	case r.keepResults.on:
		f.place = doneResult
	case r.keepDone.on:
		f.place = doneKept
	case r.uniqueFor > 0:
		f.place = doneName
	}
	j.changeTo(f)
}

// afterEviction returns the fate of an ended job after the server has looked for jobs to evict. It is the same, or one
// place less: of too many such jobs, or because this one is too old.
func (m *PolicyModel) afterEviction(j *policyJob, f fate, now int64) fate {
	others := func(of, anyTime place) (n int) {
		for _, o := range m.jobs {
			n += oneIf(o != j && slices.ContainsFunc(o.fates, func(g fate) bool {
				return g.place&of != 0 && g.endedTo >= f.endedFrom || g.place&anyTime != 0
			}))
		}
		return n
	}
	r := &m.effective
	keptStill := !r.keepDone.over(f.endedFrom, now, 0)
	nameTaken := r.uniqueFor > 0 && f.endedFrom+r.uniqueFor > now
	goes := false
	switch f.place {
	case failed:
		goes = !r.deadLetter && policyKeep{!r.keepNone, r.keepJobs, r.keepAge}.over(f.endedFrom, now, others(failed, 0))
	case doneResult:
		goes = r.keepResults.over(f.endedFrom, now, others(doneResult, 0))
	case doneKept, expired:
		goes, keptStill = r.keepDone.over(f.endedFrom, now, others(doneKept|expired, doneResult)), false
	case doneName:
		again := slices.ContainsFunc(m.jobs[j.number+1:], func(o *policyJob) bool { return o.name == j.name })
		goes, keptStill, nameTaken = !nameTaken || again, false, false
	}
	switch {
	case !goes:
		return f
	case keptStill && f.place == doneResult:
		f.place = doneKept
	case nameTaken && f.place&(doneResult|doneKept) != 0:
		f.place = doneName
	default:
		f.place = nowhere
	}
	return f
}

// evict notes that the server may have evicted an ended job by now.
func (m *PolicyModel) evict(j *policyJob, now int64) {
	for i := 0; i < len(j.fates); i++ {
		if f := m.afterEviction(j, j.fates[i], now); !slices.Contains(j.fates, f) {
			j.addFate(f)
		}
	}
}

// addFate adds a possible fate of a job.
func (j *policyJob) addFate(f fate) {
	j.past = append(j.past, f)
	j.setFates(append(slices.Clone(j.fates), f))
}

// expiry returns when a job that is due at a time expires under a rule: its due second is over then.
func (r *effectivePolicy) expiry(due int64) int64 { return floorSecond(due) + 1000 + r.ttl }

func floorSecond(ms int64) int64 { return ms - (ms%1000+1000)%1000 }

// noteExpiry notes that a job may have expired, between the last turn and now.
func (m *PolicyModel) noteExpiry(j *policyJob) {
	now, r, first, last := m.clock(), &m.effective, int64(math.MaxInt64), int64(0)
	for _, f := range j.fates {
		if f.place == inQueue {
			first, last = min(first, f.dueFrom), max(last, f.dueTo)
		}
	}
	parked := j.parked && !m.lock.unsure // without the lock's order known, its turn may have come
	mayExpire := r.ttl > 0 && j.worker == nil && !parked && last > 0 && r.expiry(first) <= now.Wall
	switch {
	case !mayExpire || r.expiry(last) > now.Wall:
		j.tooOld = 0
	case j.tooOld == 0:
		j.tooOld = now.Mono
	}
	if !mayExpire {
		return
	}
	m.lock.unsure = m.lock.unsure || m.lock.isLocking(j) && len(m.lock.line) > 0 // the turn may have passed on
	f := fate{place: nowhere, endedFrom: min(m.last.Wall, now.Wall), endedTo: now.Wall}
	if r.keepDone.on {
		f.place = expired
	}
	was := slices.IndexFunc(j.fates, func(g fate) bool { return g.place == f.place })
	if was < 0 {
		j.addFate(f)
		return
	}
	old := j.fates[was]
	f.endedFrom, f.endedTo = min(old.endedFrom, f.endedFrom), max(old.endedTo, f.endedTo)
	if f != old {
		j.past = slices.DeleteFunc(j.past, func(g fate) bool { return g == old })
		j.past = append(j.past, f)
		fates := slices.Clone(j.fates)
		fates[was] = f
		j.setFates(fates)
	}
}

// isTooOld reports whether a job in the queue has expired for sure.
func (m *PolicyModel) isTooOld(j *policyJob) bool {
	inTime := func(f fate) bool { return f.place == inQueue && m.effective.expiry(f.dueTo) > m.clock().Wall }
	return m.effective.ttl > 0 && m.policyBefore == nil && !slices.ContainsFunc(j.fates, inTime)
}

// policySweep is the longest time in milliseconds between two sweeps for jobs that have expired, if job-ttl is no
// longer.
const policySweep = 1000

// checkSwept checks that a job that is seen in the queue is not one that was to be swept out of it.
func (m *PolicyModel) checkSwept(j *policyJob) {
	if now := m.clock().Mono; j.now.place == inQueue && j.tooOld > 0 && now > j.tooOld+max(m.effective.ttl, policySweep) {
		m.trace.Failf("%v is in the queue, although it expired %d ms ago", j, now-j.tooOld)
	}
}

// namesake is what the model knows, when a name is submitted again, of the job of that name that was done last.
type namesake struct {
	taken, maybe bool     // the submission is ignored, or may be
	results      []string // results that the job may have then
}

// namesakeOf returns what stands against a job's submission.
func (m *PolicyModel) namesakeOf(j *policyJob) (n namesake) {
	now := m.clock().Wall
	for _, d := range m.jobs[:j.number] {
		if d.name != j.name {
			continue
		}
		n.taken = true
		for _, f := range d.fates {
			age := now - f.endedFrom
			if f.place&(doneName|doneKept|doneResult) == 0 || max(age, -age) >= m.effective.uniqueFor {
				n.taken = false
				continue
			}
			n.maybe = true
			result := ""
			if f.place == doneResult {
				result = d.result
			}
			n.results = append(n.results, result)
		}
	}
	return n
}

// policyRepeatable chooses a job that has ended, and whose name may be submitted again; nil: none.
func (s *Simulator) policyRepeatable() *policyJob {
	all := s.ledger.policy.jobs
	ended := func(f fate) bool { return f.place&^(nowhere|finished) != 0 || f.endedTo >= s.server.Now().Wall }
	for i := len(all) - 1; i >= max(0, len(all)-policyJobs); i-- {
		j := all[i]
		again := slices.ContainsFunc(all[i+1:], func(o *policyJob) bool { return o.name == j.name })
		if !again && j.result != "" && !slices.ContainsFunc(j.fates, ended) && !slices.ContainsFunc(j.past, ended) && s.rng.IntN(3) == 0 {
			return j
		}
	}
	return nil
}

// policyDone asks for the jobs that are kept as done or expired.
func (s *Simulator) policyDone() []admin.JobDetails {
	return s.policyKept(admin.StateDone + "," + admin.StateExpired)
}

// doneJob finds the job that the server shows as done or expired, and where it is then.
func (m *PolicyModel) doneJob(seen *admin.JobDetails, there []place) (*policyJob, place) {
	at := doneKept
	switch {
	case seen.State == admin.StateExpired:
		at = expired
	case seen.Result != nil:
		at = doneResult
	}
	for _, j := range m.jobs {
		if j.name == seen.Name && there[j.number] == 0 && slices.ContainsFunc(j.fates, func(f fate) bool {
			return f.place == at && f.endedFrom <= seen.Since && seen.Since <= f.endedTo
		}) {
			return j, at
		}
	}
	m.trace.Failf("%q, %s at %d, is kept as %v: no job of that name may be that", seen.Name, seen.State, seen.Since, at)
	return nil, 0
}

// checkDone checks all that is kept of the jobs that are done or have expired.
func (m *PolicyModel) checkDone(all []admin.JobDetails, sees func(*policyJob, place), there []place) {
	results := 0
	for i := range all {
		seen := &all[i]
		j, at := m.doneJob(seen, there)
		sees(j, at)
		m.seenAt(j, at)
		if at == expired {
			f := j.now
			f.endedFrom, f.endedTo = seen.Since, seen.Since
			j.setFates([]fate{f})
		}
		keep := m.effective.keepDone
		if at == doneResult {
			keep = m.effective.keepResults
		}
		if now := m.clock().Wall; keep.age > 0 && seen.Since+keep.age <= now {
			m.trace.Failf("%v is %[3]v, although it ended %[2]d ms ago: want %[4]d at most", j, now-seen.Since, at, keep.age)
		}
		if seen.Result != nil {
			if results++; seen.ResultSize != len(j.result) {
				m.trace.Failf("%v is kept: got a result of %d bytes, want %q", j, seen.ResultSize, j.result)
			}
		}
	}
	r := &m.effective
	if !r.keepResults.on && results > 0 || r.keepResults.jobs > 0 && results > r.keepResults.jobs {
		m.trace.Failf("%d results are kept, want %d at most", results, r.keepResults.jobs)
	}
	if results < len(all) && (!r.keepDone.on || r.keepDone.jobs > 0 && len(all) > r.keepDone.jobs) {
		m.trace.Failf("%d ended jobs are kept, %d with results, want %d at most", len(all), results, r.keepDone.jobs)
	}
}
