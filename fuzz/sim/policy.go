//go:build invariants

package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
	"treadle/codec/periodic"
)

// policyJobs limits the jobs of the queue with a policy, policyWorkers its workers.
const policyJobs, policyWorkers = 12, 3

// namePolicyQueues chooses the queue with a policy and its dead-letter queue, of different shards if there are several.
func (s *Simulator) namePolicyQueues() {
	name := func(prefix string, shard int) string {
		for k := 0; ; k++ {
			if name := fmt.Sprintf("%s.%03d", prefix, k); s.server.ShardOf(name) == shard%s.setup.shards {
				return name
			}
		}
	}
	s.policy.queue, s.policy.dead = name("policed", 2), name("dead", 3)
}

// policyStep lets some things happen to the queue with a policy.
func (s *Simulator) policyStep() {
	s.settle()
	for range 1 + s.rng.IntN(5) {
		s.policyAct()
		s.settle()
	}
}

func (s *Simulator) policyAct() {
	m := s.policy
	live := 0
	for _, j := range m.jobs {
		live += oneUnless(j.now.place == nowhere)
	}
	switch n := s.rng.IntN(40); {
	case len(m.workers) == 0 || n < 3 && len(m.workers) < policyWorkers:
		s.policyJoin()
	case n < 12:
		if live < policyJobs && !s.full {
			s.policySubmit()
		}
	case n < 22:
		s.policyGrab(m.workers[s.rng.IntN(len(m.workers))])
	case n < 34:
		s.policyReport(s.rng.IntN(4) > 0)
	case n < 35:
		s.policyLeave(m.workers[s.rng.IntN(len(m.workers))])
	case n < 37:
		s.policyChange(policyRule{
			retries: s.rng.IntN(4) - 1, first: []int64{0, 1500, 4000}[s.rng.IntN(3)], most: 10_000,
			concurrency: s.rng.IntN(3), paused: s.rng.IntN(4) == 0, deadLetter: s.rng.IntN(3) == 0,
		})
	case n < 38:
		s.policyVerb("retry")
	case n < 39:
		s.policyVerb("remove")
	default:
		s.policyLook()
	}
}

// policyJoin connects a worker of both queues.
func (s *Simulator) policyJoin() {
	s.policy.joined++
	w := &policyWorker{number: s.policy.joined, peer: s.server.Connect("periodic")}
	w.peer.Written = func(b []byte) {
		w.heard = append(w.heard, b...)
		for len(w.heard) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(w.heard, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				break
			}
			s.policyHear(w, r.Body)
			w.heard = w.heard[n:]
		}
	}
	s.policy.workers = append(s.policy.workers, w)
	w.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: periodic.Worker}))
	for _, name := range []string{s.policy.queue, s.policy.dead} {
		w.says(periodic.CanDo, periodic.AppendStr8String(nil, name))
	}
	s.say("w%d joins", w.number)
}

// says sends a worker's message.
func (w *policyWorker) says(cmd periodic.Command, args []byte) {
	w.next++
	w.peer.Send(frame(periodic.Plain, w.next, cmd, args))
}

// policyHear takes a message to a worker.
func (l *Ledger) policyHear(w *policyWorker, body []byte) {
	switch {
	case !w.met:
		w.met = true
	case len(body) == 1 && body[0] == byte(periodic.NoJob):
		l.policyTurn()
		if j := l.policy.mayStart(); j != nil && !l.mixed && !l.stopping {
			l.fail("w%d is sent NO_JOB, and %v is ready for it", w.number, j)
		}
		w.grabs--
	case len(body) > 1 && body[0] == byte(periodic.JobAssign):
		handle, record, _ := periodic.Str8(body[1:])
		var job periodic.Job
		if _, err := periodic.ParseJob(record, &job); err != nil {
			l.fail("w%d is assigned %x: %v", w.number, body, err)
		}
		j := l.policyJob(&job)
		l.hands(w, j, string(job.Func), periodic.AppendStr8(nil, handle))
	default:
		l.fail("w%d is sent %x", w.number, body)
	}
}

// policyJob finds a job of the model by its record, in which its name is its workload.
func (l *Ledger) policyJob(job *periodic.Job) *policyJob {
	number := 0
	if _, err := fmt.Sscanf(string(job.Name), "p%d", &number); err != nil || number >= len(l.policy.jobs) || !bytes.Equal(job.Name, job.Workload) {
		l.fail("%q of %q with %q is nobody's", job.Name, job.Func, job.Workload)
	}
	return l.policy.jobs[number]
}

// policySubmit submits a job.
func (s *Simulator) policySubmit() {
	m := s.policy
	if m.client == nil || m.client.peer.Closed() {
		m.client = s.policyConnect()
	}
	c := m.client
	j := &policyJob{number: len(m.jobs), timeout: []int64{86_400, 3}[s.rng.IntN(2)]}
	j.becomes(fate{place: nowhere})
	j.becomes(fate{place: waiting})
	j.due, j.maybeDue = true, true
	m.jobs = append(m.jobs, j)
	s.say("%v is submitted, with a time-out of %d s", j, j.timeout)
	c.next++
	c.asked[c.next] = j
	name := []byte(j.String())
	c.peer.Send(frame(periodic.Plain, c.next, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{
		Func: []byte(m.queue), Name: name, Workload: name, Timeout: int32(j.timeout),
	})))
}

// policyConnect connects a client.
func (s *Simulator) policyConnect() *policyClient {
	c := &policyClient{peer: s.server.Connect("periodic"), asked: map[uint32]*policyJob{}}
	c.peer.Written = func(b []byte) {
		c.heard = append(c.heard, b...)
		for len(c.heard) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(c.heard, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				break
			}
			if j := c.asked[r.MsgID]; c.met && (j == nil || len(r.Body) != 1 || r.Body[0] != byte(periodic.Success)) {
				s.fail("the submission of %v is answered with %x", j, r.Body)
			} else if c.met {
				s.say("%v is acknowledged", j)
				j.acknowledged()
				delete(c.asked, r.MsgID)
			}
			c.met = true
			c.heard = c.heard[n:]
		}
	}
	c.peer.Send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.Plain, Role: periodic.Client}))
	return c
}

// policyGrab lets a worker ask for a job.
func (s *Simulator) policyGrab(w *policyWorker) {
	if w.grabs < 2 {
		s.say("w%d asks for a job", w.number)
		w.grabs++
		w.says(periodic.GrabJob, nil)
	}
}

// policyReport lets a worker report the first job that one has.
func (s *Simulator) policyReport(fails bool) {
	i := slices.IndexFunc(s.policy.jobs, func(j *policyJob) bool { return j.worker != nil })
	if i < 0 {
		return
	}
	j := s.policy.jobs[i]
	w, handle, now := j.worker, j.handle, s.server.Now().Wall
	if fails {
		s.say("w%d fails %v", w.number, j)
		s.fails(j, now, now)
		w.says(periodic.WorkFail, handle)
		return
	}
	s.say("w%d has done %v", w.number, j)
	j.becomes(fate{place: nowhere})
	w.says(periodic.WorkDone, handle)
}

// policyLeave lets a worker leave with what it has.
func (s *Simulator) policyLeave(w *policyWorker) {
	s.say("w%d leaves", w.number)
	now := s.server.Now().Wall
	for _, j := range s.policy.jobs {
		if j.worker == w {
			s.fails(j, now, now)
		}
	}
	s.policy.workers = slices.DeleteFunc(s.policy.workers, func(o *policyWorker) bool { return o == w })
	w.peer.Close()
	s.settle()
}

// policyLeaveAll lets all workers leave, before a stop or at the end.
func (s *Simulator) policyLeaveAll() {
	for len(s.policy.workers) > 0 {
		s.policyLeave(s.policy.workers[0])
	}
}

// policyChange gives the queue a policy, which is on disk then.
func (s *Simulator) policyChange(rule policyRule) {
	s.pass(0) // so that what was given up has moved under the policy of before
	values := rule.values()
	values["dead-letter"] = nil
	if rule.deadLetter {
		values["dead-letter"] = &s.policy.dead
	}
	s.say("the policy is %+v", rule)
	before := s.policy.rule
	s.policy.before = &before
	if s.policy.rule = rule; rule.deadLetter {
		for _, j := range s.policy.jobs {
			if j.now.place&failed != 0 {
				j.policyMove()
			}
		}
	}
	s.askOperator("PATCH", "/v1/policies", &admin.Change{Pattern: s.policy.queue, Values: values}, &admin.Rule{})
	s.policy.before = nil
	s.pass(0)
}

// policyMove notes that a job moves to the dead-letter queue if it has failed.
func (j *policyJob) policyMove() {
	might, due, maybeDue := slices.Clone(j.might), j.due, j.maybeDue
	for i := range might {
		if might[i].place == failed {
			might[i] = fate{place: dead}
		}
	}
	j.becomes(might...)
	j.due, j.maybeDue = due, maybeDue
}

// askOperator makes a request of the operators' interface and commits it.
func (s *Simulator) askOperator(method, path string, body, answer any) {
	text, err := json.Marshal(body)
	if err != nil {
		s.fail("%v", err)
	}
	r, err := http.NewRequest(method, path, bytes.NewReader(text))
	if err != nil {
		s.fail("%v", err)
	}
	answered := false
	s.server.Admin(r, func(status int, body []byte) {
		answered = true
		if err := json.Unmarshal(body, answer); status != http.StatusOK || err != nil {
			s.fail("%s %s %s is answered %d %q: %v", method, path, text, status, body, err)
		}
	})
	if method != http.MethodGet {
		s.commit()
	}
	if !answered {
		s.fail("%s %s is not answered", method, path)
	}
}

// policyFailed asks for the failed jobs.
func (s *Simulator) policyFailed() []admin.FailedJob {
	var page admin.FailedPage
	s.askOperator("GET", "/v1/failed?queue="+url.QueryEscape(s.policy.queue), nil, &page)
	return page.Jobs
}

// policyVerb retries or removes one failed job, or all.
func (s *Simulator) policyVerb(verb string) {
	s.policyLook()
	all := s.policyFailed()
	if len(all) == 0 {
		return
	}
	choice := &admin.Choice{Queue: s.policy.queue, All: s.rng.IntN(2) == 0}
	if !choice.All {
		all = all[s.rng.IntN(len(all)):][:1]
		choice.Jobs = []uint64{all[0].ID}
	}
	s.say("%s %d failed jobs", verb, len(all))
	f := fate{place: nowhere}
	if verb == "retry" {
		f.place = waiting
	}
	for _, k := range all {
		name := []byte(k.Name)
		j := s.policyJob(&periodic.Job{Name: name, Workload: name})
		j.becomes(f)
		j.due, j.maybeDue = true, true
	}
	var done admin.Done
	if s.askOperator("POST", "/v1/failed/"+verb, choice, &done); done.Done != len(all) {
		s.fail("to %s %d failed jobs comes to %+v", verb, len(all), done)
	}
}

// policyLook compares the server's jobs and policy with the model; false: it cannot yet.
func (s *Simulator) policyLook() bool {
	s.pass(0) // who has given up a job has moved it
	m, body := s.policy, s.dump(s.server, s.setup.era)
	if body == nil {
		return false
	}
	there := make([]place, len(m.jobs))
	sees := func(j *policyJob, at place) {
		if there[j.number] != 0 {
			s.fail("%v is %v, and also %v", j, at, there[j.number])
		}
		there[j.number] = at
	}
	for _, job := range s.parseAllOfDump(body) {
		switch string(job.Func) {
		case m.queue:
			sees(s.policyJob(&job), waiting)
		case m.dead:
			sees(s.policyJob(&job), dead)
		}
	}
	for _, f := range s.policyFailed() {
		name := []byte(f.Name)
		j := s.policyJob(&periodic.Job{Name: name, Workload: name})
		sees(j, failed)
		s.checkHistory(j, f.Attempts)
	}
	for i, j := range m.jobs {
		if there[i] == 0 {
			there[i] = nowhere
		}
		s.isAt(j, there[i])
	}
	s.checkPolicy()
	return true
}

// checkHistory checks that the history of a failed job has its failures since it was submitted or retried by hand.
func (l *Ledger) checkHistory(j *policyJob, all []admin.Attempt) {
	n := 0
	for i := range all {
		if n++; strings.HasPrefix(all[i].Outcome, "retried") {
			n = 0
		}
	}
	if f := &j.now; f.place == failed && (n < f.least || n > f.most) {
		l.fail("%v has failed, with a history of %d failures; it has %d to %d", j, n, f.least, f.most)
	}
}

// checkPolicy checks that the server has the policy that was set.
func (s *Simulator) checkPolicy() {
	var table admin.Table
	s.askOperator("GET", "/v1/policies?queue="+url.QueryEscape(s.policy.queue), nil, &table)
	n := 0
	for key, value := range s.policy.rule.values() {
		if value == nil {
			continue
		}
		n++
		if !slices.ContainsFunc(table.Values, func(v admin.Value) bool { return v.Key == key && v.Value == *value }) {
			s.fail("the policy has %s = %s, and is %+v", key, *value, table.Values)
		}
	}
	if n += oneUnless(!s.policy.rule.deadLetter); n != len(table.Values) {
		s.fail("the policy has %d values, and is %+v", n, table.Values)
	}
}

// policyRecovered compares a server that has started with the model. What it has now was on disk.
func (s *Simulator) policyRecovered() {
	if !s.policyLook() {
		s.fail("a dump is not answered")
	}
	s.policyCommitted()
}

// policyFinish has all jobs done or given up.
func (s *Simulator) policyFinish() {
	m := s.policy
	s.policyLeaveAll()
	s.policyChange(policyRule{})
	for range 4 * policyJobs {
		if len(m.workers) == 0 {
			s.policyJoin()
		}
		s.policyGrab(m.workers[0])
		s.policyReport(false)
		s.pass(time.Second)
	}
	for _, j := range m.jobs {
		if j.now.place&(waiting|dead) != 0 {
			s.fail("%v is never done, it is %v", j, j.now.place)
		}
	}
	s.policyLook()
	s.policyLeaveAll()
	if m.client != nil && !m.client.peer.Closed() {
		m.client.peer.Close()
		for _, j := range m.client.asked {
			s.fail("the submission of %v is never answered", j)
		}
	}
}
