//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/admin"
	"treadle/fuzz/sim/play"
)

// Operators change jobs over HTTP, some by their ids. The server does that at once. See operation.go for the rest.

// jobChange is what an operator does with jobs.
type jobChange struct {
	verb     string
	priority int64
	due      int64 // Unix milliseconds
	to       int   // index of Ledger.queues
}

var operatorVerbs = play.NewTable(
	play.Of(2, admin.VerbRun), play.Of(2, admin.VerbRemove), play.Of(3, admin.VerbPriority), play.Of(3, admin.VerbDue), play.Of(4, admin.VerbMove),
)

// httpOperate lets an operator change some jobs of a queue by their ids, or all that a filter means.
func (s *Simulator) httpOperate() {
	s.settle()
	s.checkConnections()
	c := &jobChange{
		verb: operatorVerbs.Draw(s.rng), priority: int64(s.rng.IntN(5) - 2),
		due: s.server.Now().Wall + int64(s.rng.IntN(20_000)-5000), to: s.rng.IntN(workedQueues),
	}
	if s.rng.IntN(3) == 0 {
		s.operateOnAll(c)
		return
	}
	s.operateOnSome(c)
}

// checkConnections compares the connections that an operator sees with those of the play. Each of these is there, with
// as many bytes as have arrived on it, and no other one is.
func (s *Simulator) checkConnections() {
	type key struct {
		protocol string
		received uint64
	}
	var page admin.Connections
	s.get("/api/v1/connections?limit=1000", &page)
	unmatched, others := map[key]int{}, 0
	for _, c := range page.Connections {
		unmatched[key{c.Protocol, c.Received}]++
	}
	for _, c := range s.net.conns {
		protocol, _, _ := strings.Cut(c.port(), "-")
		k := key{protocol, uint64(c.passed)}
		if unmatched[k]--; unmatched[k] < 0 {
			s.trace.Failf("c%d, on which %d bytes have arrived, is not among the connections %+v", c.id, c.passed, page.Connections)
		}
	}
	for _, n := range unmatched {
		others += n
	}
	if want := s.ledger.policy.connected(); others != want {
		s.trace.Failf("the connections %+v: got %d that are no peer's of the network, want %d", page.Connections, others, want)
	}
}

// request returns a change as the API has it, without the jobs.
func (s *Simulator) request(c *jobChange) *admin.JobsChange {
	r := &admin.JobsChange{Verb: c.verb, RequestedBy: admin.RequestedBy{By: "ana"}}
	switch c.verb {
	case admin.VerbPriority:
		r.Priority = &c.priority
	case admin.VerbDue:
		r.At = admin.Moment{Time: time.UnixMilli(c.due).UTC()}
	case admin.VerbMove:
		r.To = s.ledger.queues[c.to]
	}
	return r
}

// maxChanged is the largest number of jobs that an operator names.
const maxChanged = 3

// operateOnSome lets an operator change some jobs of a queue by their ids.
func (s *Simulator) operateOnSome(c *jobChange) {
	queue := s.rng.IntN(spareQueue + 1)
	seen := s.seeJobs(fmt.Sprintf("queue:%q", s.ledger.queues[queue]))
	r := s.request(c)
	var changed []*Job
	for range min(maxChanged, len(seen)) {
		x := &seen[s.rng.IntN(len(seen))]
		does, known := s.ledger.willChange(c, x)
		if !known || slices.Contains(r.IDs, x.ID) {
			continue
		}
		if r.IDs = append(r.IDs, x.ID); does {
			changed = append(changed, x.job)
		}
	}
	if len(r.IDs) == 0 {
		return
	}
	call := s.operatorCall("/api/v1/jobs/change", r)
	call.onArrival = func() {
		for _, j := range changed {
			s.ledger.changed(call, c, j)
		}
	}
	call.onAnswer = func(status int, all []byte) {
		var answer admin.JobsChanged
		s.ledger.httpRead(call, status, all, &answer)
		if answer.Changed != len(changed) || len(answer.Left) != len(r.IDs)-len(changed) {
			s.trace.Failf("h%d changes jobs: want %v of %d changed, got %q", call.number, changed, len(r.IDs), all)
		}
		s.ledger.removed(changed)
		s.trace.Logf("h%d is told that %v are changed", call.number, changed)
	}
	s.trace.Logf("h%d is an operator's: %+v of %v, and of %d other jobs in vain", call.number, *c, changed, len(r.IDs)-len(changed))
	s.httpArrive(call)
	s.settle()
}

// operatorCall makes a call that arrives at once: the operator has looked at the jobs.
func (s *Simulator) operatorCall(path string, body any) *httpCall {
	s.net.http.made++
	return &httpCall{number: s.net.http.made, path: path, kind: jsonBody, body: s.httpBody(body)}
}

// isPending reports whether the server shows a job as ready or delayed.
func (x *seenJob) isPending() bool {
	return x.State == admin.StateReady || x.State == admin.StateDelayed
}

// willChange reports whether the server changes a job that it shows. known reports whether the ledger can tell.
func (l *Ledger) willChange(c *jobChange, x *seenJob) (does, known bool) {
	j, running := x.job, x.State == admin.StateRunning
	if j.inServer != sure || j.by != ofPeriodic && j.by != ofGloom || j.holderUnknown || j.moving || l.waitsUnread(j) || !running && !x.isPending() ||
		running != (j.holder != nil) {
		return false, false
	}
	if !l.hasName(j, x.Name) {
		l.trace.Failf("%v is shown as %q, want %q", j, x.Name, j.name)
	}
	switch c.verb {
	case admin.VerbRemove:
		return true, j.by == ofPeriodic // a Gloom master would be told
	case admin.VerbRun:
		return x.State == admin.StateDelayed, true
	case admin.VerbMove:
		return l.willMove(c, x)
	}
	return !running, true
}

// willMove is willChange for a move.
func (l *Ledger) willMove(c *jobChange, x *seenJob) (does, known bool) {
	j := x.job
	if j.by != ofPeriodic || !x.isPending() || j.queue == c.to {
		return false, true
	}
	does, known = true, !j.awaited // a job whose end is awaited must stay, until the last that awaits it has gone
	for _, o := range l.names[j.keyIn(c.to)] {
		switch {
		case o == j || o.inServer == no: // it may have been there before
		case o.inServer == sure && !o.moving && !o.holderUnknown:
			does = false
		default:
			known = false
		}
	}
	return does, known
}

// changed notes that an operator has changed a job.
func (l *Ledger) changed(call *httpCall, c *jobChange, j *Job) {
	// The journal is never told of a job that is submitted and removed in one group.
	if same := c.verb == admin.VerbPriority && c.priority == j.priority; j.durable() && !same && (c.verb != admin.VerbRemove || j.onDisk == sure) {
		call.group = l.group()
	}
	j.turn = l.turn
	j.changedByID++
	switch c.verb {
	case admin.VerbRemove:
		l.end(j)
	case admin.VerbPriority:
		j.priorities = append(j.priorities, j.priority)
		j.priority = c.priority
	case admin.VerbMove:
		l.move(j, c.to)
	default:
		j.due = l.clock().Wall
		if c.verb == admin.VerbDue {
			j.due = max(j.due, c.due)
		}
		j.notBefore, j.delayMayBeLost = j.due, true
		j.orderKnown = j.orderKnown || j.by == ofPeriodic && len(j.priorities) == 0
		j.record.schedAt, j.record.schedKnown = j.due/1000, true
	}
}

// keyIn is the job's key of Ledger.names if it were in a queue.
func (j *Job) keyIn(queue int) string { return fmt.Sprint(queue, j.by, j.name) }

// move notes that a job is in another queue. A crash may leave it in a queue in which it was before.
func (l *Ledger) move(j *Job, queue int) {
	for _, q := range append(j.otherQueues, j.queue) {
		l.names[j.keyIn(q)] = slices.DeleteFunc(l.names[j.keyIn(q)], func(o *Job) bool { return o == j })
	}
	if j.queue != queue && !slices.Contains(j.otherQueues, j.queue) {
		j.otherQueues = append(j.otherQueues, j.queue)
	}
	if j.queue, j.moving, j.movedIn = queue, false, l.turn; !j.nameless {
		l.names[j.key()] = append(l.names[j.key()], j)
	}
}

// isIn reports whether a job may be in the queue of a name. It is there from then on.
func (l *Ledger) isIn(j *Job, queue string) bool {
	for _, q := range j.otherQueues {
		if l.queues[q] == queue {
			l.trace.Logf("%v is in q%d", j, q)
			l.move(j, q)
			return true
		}
	}
	return l.queues[j.queue] == queue
}

// mayBeIn reports whether a job may be in a queue.
func (j *Job) mayBeIn(queue int) bool {
	return j.queue == queue || slices.Contains(j.otherQueues, queue)
}

// changesRecovered settles, after a restart, in which queue jobs are and which priorities they have. What an operator
// has changed last may be lost.
func (s *Simulator) changesRecovered() {
	for queue := range spareQueue + 1 {
		mayHaveChanged := func(j *Job) bool { return j.mayBeIn(queue) && (len(j.otherQueues) > 0 || len(j.priorities) > 0) }
		if !slices.ContainsFunc(s.ledger.jobs, mayHaveChanged) {
			continue
		}
		for _, x := range s.seeJobs(fmt.Sprintf("queue:%q protocol:periodic", s.ledger.queues[queue])) {
			j := x.job
			if !s.ledger.isIn(j, x.Queue) || x.Priority != j.priority && !slices.Contains(j.priorities, x.Priority) {
				s.trace.Failf("%v is in %s since the restart, of priority %d; it was in q%d or %v, of priority %d or %v", j, x.Queue, x.Priority,
					j.queue, j.otherQueues, j.priority, j.priorities)
			}
			j.priority = x.Priority
		}
	}
	for _, j := range s.ledger.jobs {
		s.ledger.changesCommitted(j)
	}
}

// changesCommitted notes that what operators have changed of a job is on disk.
func (l *Ledger) changesCommitted(j *Job) {
	if j.otherQueues != nil && !j.moving {
		j.otherQueues = nil
	}
	j.priorities = nil
}
