//go:build invariants

package sim

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
)

// anyRunTimeRule draws a rule that operators may change.
func (s *Simulator) anyRunTimeRule() *policyRule {
	rules := slices.DeleteFunc(slices.Clone(s.ledger.policy.rules), func(rule *policyRule) bool { return rule.source == "file" })
	return rules[s.rng.IntN(len(rules))]
}

// policyChange changes some keys of a run-time rule, which is on disk then.
func (s *Simulator) policyChange() {
	rule, values := s.anyRunTimeRule(), map[string]*policyValue{}
	for range 1 + s.rng.IntN(4) {
		key := policyKeys[s.rng.IntN(len(policyKeys))]
		if values[key] = nil; s.rng.IntN(5) > 1 {
			values[key] = drawPolicyValue(s.rng, key)
		}
		if values[policyWeights] != nil {
			values[policyFair] = fairByKey
		}
	}
	before := rule.values
	rule.values = maps.Clone(before)
	maps.Copy(rule.values, values)
	taken := areValid(s.ledger.policy.rules)
	if rule.values = before; taken {
		s.setPolicyRule(rule, values)
	}
}

// setPolicyRule gives a rule values; nil takes a key out of it.
func (s *Simulator) setPolicyRule(rule *policyRule, values map[string]*policyValue) {
	change := &admin.PolicyChange{Pattern: rule.pattern, Values: map[string]*string{}}
	for key, t := range values {
		if change.Values[key] = nil; t != nil {
			text := s.ledger.policy.text(t)
			change.Values[key] = &text
		}
	}
	s.setPolicyRuleBy(rule, values, func() { s.probeHTTP("PATCH", "/api/v1/policies", change, &admin.Rule{}) })
}

// policyPause pauses, drains or resumes the queue, or all queues of a pattern.
func (s *Simulator) policyPause() {
	m, rule := s.ledger.policy, s.anyRunTimeRule()
	t, c, verb := drawPolicyValue(s.rng, policyPaused), &admin.QueueChange{Queue: rule.pattern}, "pause"
	exact := rule.pattern == m.queue
	switch {
	case t.text == notPaused:
		verb = "resume"
		delete(rule.values, policyPaused)
		if by, _ := m.strongest(policyPaused); !exact || by == nil || by.text == notPaused {
			t = nil // the text is needed only where the queue's own rule overrides the pause of another rule
		}
	case t.text == pausedSubmits && exact && len(m.workers) > 0: // a worker keeps the queue
		verb = "drain"
	default:
		c.What = t.text
	}
	s.setPolicyRuleBy(rule, map[string]*policyValue{policyPaused: t}, func() { s.probeHTTP("POST", "/api/v1/queues/"+verb, c, new(any)) })
}

// setPolicyRuleBy is setPolicyRule with another request.
func (s *Simulator) setPolicyRuleBy(rule *policyRule, values map[string]*policyValue, ask func()) {
	s.pass(0) // let failed jobs move to the dead-letter queue by the earlier policy
	m := s.ledger.policy
	for key, t := range values {
		if rule.values[key] = t; t == nil {
			delete(rule.values, key)
		}
	}
	before := m.effective
	m.policyBefore, m.effective = &before, m.mergedPolicy()
	s.trace.Logf("the rule is %v; the policy is %+v", rule, m.effective)
	if m.effective.jobs != before.jobs || m.effective.per != before.per {
		m.starts = nil
	}
	m.turn = policyTurn{}
	for _, j := range m.jobs {
		if j.passed, j.tooOld = 0, 0; m.effective.deadLetter {
			j.policyMove()
		}
	}
	ask()
	s.pass(0)
	m.policyBefore = nil
	s.pass(0)
}

// policyClear takes everything out of the run-time rules, the stronger first: they may need the weaker.
func (s *Simulator) policyClear() {
	for _, rule := range slices.Backward(s.ledger.policy.rules) {
		values := map[string]*policyValue{}
		for key := range rule.values {
			values[key] = nil
		}
		if rule.source == "run time" && len(values) > 0 {
			s.setPolicyRule(rule, values)
		}
	}
}

// policyKept asks for the kept jobs that are in one of some states.
func (s *Simulator) policyKept(states string) (all []admin.JobDetails) {
	query := url.Values{"filter": {"queue:" + s.ledger.policy.queue + " state:" + states}, "limit": {"1000"}}
	for more := true; more; more = query.Get("after") != "" {
		var page admin.Jobs
		s.get("/api/v1/jobs?"+query.Encode(), &page)
		for i := range page.Jobs {
			var d admin.JobDetails
			s.get("/api/v1/job?id="+page.Jobs[i].ID, &d)
			all = append(all, d)
		}
		query.Set("after", page.Next)
	}
	return all
}

// policyFailed asks for the failed jobs.
func (s *Simulator) policyFailed() []admin.JobDetails { return s.policyKept(admin.StateFailed) }

// policyRetry retries one failed job, or all.
func (s *Simulator) policyRetry() {
	now := s.server.Now().Wall
	s.policyFailedVerb("retry", fate{place: inQueue, dueFrom: now, dueTo: now})
}

// policyRemove removes one failed job, or all.
func (s *Simulator) policyRemove() { s.policyFailedVerb("remove", fate{place: nowhere}) }

// policyFailedVerb does something to one failed job, or to all, by which each comes to a fate.
func (s *Simulator) policyFailedVerb(verb string, f fate) {
	s.policyLook()
	failed := s.policyFailed()
	chosen := s.chooseKept(failed)
	if len(chosen) == 0 {
		return
	}
	s.trace.Logf("%s %d failed jobs", verb, len(chosen))
	r := &s.ledger.policy.effective
	inSlices := len(chosen) == len(failed) && r.keepAge == 0 && r.keepJobs == 0 && !r.deadLetter && s.rng.IntN(2) == 0 // nothing else takes them meanwhile
	if inSlices {
		f.to = f.dueFrom + policySlices // without a delay the job is ready even if the clock is set back
		f.dueTo = f.to
	}
	for i := range chosen {
		j := s.ledger.policy.failedJob(&chosen[i])
		j.changeTo(f)
		j.due, j.maybeDue = !inSlices, true
	}
	if inSlices {
		s.changeFailed(verb, len(chosen))
		return
	}
	s.changeKept(verb, chosen)
}

// policySlices is for how many milliseconds an operation goes on at most: each slice takes one.
const policySlices = 4 * policyJobs

// changeFailed changes all failed jobs by an operation, until it has ended.
func (s *Simulator) changeFailed(verb string, failed int) {
	var started admin.OperationStarted
	c := &admin.JobsChange{Verb: verb, Filter: fmt.Sprintf("queue:%q state:failed", s.ledger.policy.queue)}
	s.probeHTTP("POST", "/api/v1/jobs/change", c, &started)
	for range policySlices {
		s.pass(time.Millisecond)
		s.commit()
		var all admin.Operations
		s.get("/api/v1/operations?id="+started.Operation, &all)
		if is := &all.Operations[0]; is.State == admin.OperationDone && is.Changed == failed {
			return
		} else if is.State != admin.OperationRunning {
			s.trace.Failf("%s of %[2]d failed jobs: got %+v, want %[2]d changed", verb, failed, is)
		}
	}
	s.trace.Failf("%s of %d failed jobs has not ended after %d slices", verb, failed, policySlices)
}

// policyForget removes one job that is kept as done or expired, or all.
func (s *Simulator) policyForget() {
	s.policyLook()
	chosen := s.chooseKept(s.policyDone())
	if len(chosen) == 0 {
		return
	}
	s.trace.Logf("forget %d ended jobs", len(chosen))
	there := make([]place, len(s.ledger.policy.jobs))
	for i := range chosen {
		j, at := s.ledger.policy.doneJob(&chosen[i], there)
		there[j.number] = at
		j.changeTo(fate{place: nowhere, endedFrom: chosen[i].Since, endedTo: chosen[i].Since})
	}
	s.changeKept(admin.VerbRemove, chosen)
}

// chooseKept draws one of the kept jobs, or all of them. Without jobs it draws nothing.
func (s *Simulator) chooseKept(jobs []admin.JobDetails) []admin.JobDetails {
	if len(jobs) == 0 || s.rng.IntN(2) == 0 {
		return jobs
	}
	return jobs[s.rng.IntN(len(jobs)):][:1]
}

// changeKept has the server change the chosen jobs, each of which it must find.
func (s *Simulator) changeKept(verb string, chosen []admin.JobDetails) {
	change := &admin.JobsChange{Verb: verb}
	for i := range chosen {
		change.IDs = append(change.IDs, chosen[i].ID)
	}
	var done admin.JobsChanged
	if s.probeHTTP("POST", "/api/v1/jobs/change", change, &done); done.Changed != len(chosen) {
		s.trace.Failf("%s of %[2]d jobs: got %+v, want %[2]d changed", verb, len(chosen), done)
	}
}

// policyLook compares the server's jobs and policy with the model; false: it cannot yet.
func (s *Simulator) policyLook() bool {
	s.pass(0) // let the server move failed jobs to the dead-letter queue
	m, body := s.ledger.policy, s.dump(s.server, s.ledger.setup.periodicVersion)
	if body == nil {
		return false
	}
	there := make([]place, len(m.jobs))
	sees := func(j *policyJob, at place) {
		if there[j.number] != 0 {
			s.trace.Failf("%v is %v, although it is also %v", j, at, there[j.number])
		}
		there[j.number] = at
	}
	for _, job := range s.ledger.parseAllOfDump(body) {
		switch string(job.Func) {
		case m.queue:
			sees(s.ledger.policy.jobOf(&job), inQueue)
		case m.dead:
			sees(s.ledger.policy.jobOf(&job), dead)
		}
	}
	all := s.policyFailed()
	for i := range all {
		j := s.ledger.policy.failedJob(&all[i])
		sees(j, failed)
		s.ledger.policy.seenAt(j, failed)
		s.ledger.policy.checkFailed(j, &all[i])
	}
	if r := &m.effective; !r.deadLetter && (r.keepNone && len(all) > 0 || r.keepJobs > 0 && len(all) > r.keepJobs) {
		s.trace.Failf("%d failed jobs are kept, want %d at most", len(all), r.keepJobs)
	}
	m.checkDone(s.policyDone(), sees, there)
	for i, j := range m.jobs {
		if there[i] == 0 {
			there[i] = nowhere | doneName
		}
		m.seenAt(j, there[i])
		m.checkSwept(j)
	}
	for _, j := range m.jobs {
		if j.awaited != nil && !j.awaited.peer.Closed() && j.now.place&inQueue == 0 {
			s.trace.Failf("the client that waits for %v has no answer, although the job is %v", j, j.now.place)
		}
	}
	s.checkPolicy()
	return true
}

// failedJob finds the job that the server shows as failed. A name that has failed is not submitted again.
func (m *PolicyModel) failedJob(seen *admin.JobDetails) *policyJob {
	return m.findJob(seen.Name, func(j *policyJob) bool { return j.name == seen.Name })
}

// checkFailed checks that a failed job is not too old, failed when it did, and has the history of its failures since it
// was submitted or retried by hand.
func (m *PolicyModel) checkFailed(j *policyJob, seen *admin.JobDetails) {
	n := 0
	for i := range seen.Attempts {
		if n++; strings.HasPrefix(seen.Attempts[i].Outcome, "retried") {
			n = 0
		}
	}
	f, r := &j.now, &m.effective
	if n < f.least || n > f.most {
		m.trace.Failf("%v has failed: got a history of %d failures, want %d to %d", j, n, f.least, f.most)
	}
	if seen.Since < f.endedFrom || seen.Since > f.endedTo {
		m.trace.Failf("%v has failed: got the time %[4]d, want %[2]d to %[3]d", j, f.endedFrom, f.endedTo, seen.Since)
	}
	if now := m.clock().Wall; !r.deadLetter && r.keepAge > 0 && seen.Since+r.keepAge <= now {
		m.trace.Failf("%v is kept, although it failed %d ms ago: want %d at most", j, now-seen.Since, r.keepAge)
	}
}

// checkPolicy checks that the server has the policy that the rules come to, and names the rule of each value.
func (s *Simulator) checkPolicy() {
	var table admin.Table
	s.get("/api/v1/policies?queue="+url.QueryEscape(s.ledger.policy.queue), &table)
	n := 0
	for _, key := range policyKeys {
		t, rule := s.ledger.policy.strongest(key)
		if t == nil {
			continue
		}
		n++
		want := admin.Value{Key: key, Value: s.ledger.policy.text(t), Source: rule.source, Pattern: rule.pattern}
		if !slices.ContainsFunc(table.Values, func(v admin.Value) bool { return reflect.DeepEqual(v, want) }) {
			s.trace.Failf("the policy: got %+[2]v, want %+[1]v", want, table.Values)
		}
	}
	if n != len(table.Values) {
		s.trace.Failf("the policy: got %+[2]v, want %[1]d values", n, table.Values)
	}
}
