package sched

import (
	"fmt"
	"strings"
	"testing"
)

// grantRules are durable jobs, jobs of an owner with a rule for failures, and tasks.
var grantRules = [MaxSpaces]Rules{{Durable: true}, {Global: true, Owned: true, Untimed: true, MaxFailures: 3}, {Durable: true, Graph: true, Untimed: true}, {}}

const minute = 60_000

// newGrantSched returns a scheduler with a journal.
func newGrantSched(t testing.TB) (*testSched, memJournal) {
	kept := memJournal{{}}
	return newTestSched(t, Options{Rules: grantRules, Journal: kept}), kept
}

// request returns a request that watches queues.
func (x *testSched) request(queues ...string) *Peer {
	x.t.Helper()
	x.id++
	p := x.s.NewRequestPeer(x.id, fmt.Sprint("http ", x.id))
	for _, q := range queues {
		x.ok(x.s.Watch(x.now, p, []byte(q), false, &x.rec))
	}
	return p
}

// takes asks for up to n jobs that are ready, as a request, and compares their names.
func (x *testSched) takes(p *Peer, n int, want string) (runs []Run) {
	x.t.Helper()
	got, _, err := x.s.TryReserveUpTo(x.now, p, 9, n, &x.rec)
	x.ok(err)
	var names []string
	for _, d := range x.rec.take() {
		if d.to == p.id && d.effect == Assign && d.tag == 9 {
			names, runs = append(names, d.job.name), append(runs, d.job.run)
		}
	}
	if s := strings.Join(names, " "); s != want || got != len(names) {
		x.t.Errorf("%d jobs, %q, want %q", got, s, want)
	}
	return runs
}

// leases has a request of a worker lease up to n jobs for a minute. The request has ended.
func (x *testSched) leases(worker string, n int, want string, queues ...string) []Token {
	x.t.Helper()
	p := x.request(queues...)
	tokens := x.s.Grant(x.now, p, x.takes(p, n, want), LeaseTerms{Worker: worker, Secret: 7, For: minute})
	x.s.Disconnect(x.now, p, &x.rec)
	x.want()
	return tokens
}

// lease leases the job that is ready in queue f.
func (x *testSched) lease(job string) Token {
	x.t.Helper()
	if all := x.leases("w", 1, job, "f"); len(all) == 1 {
		return all[0]
	}
	x.t.Fatalf("%q is not leased", job)
	return Token{}
}

// refused checks that each verb with a token returns an error and changes nothing.
func (x *testSched) refused(token Token, want error) {
	x.t.Helper()
	before, journal := fmt.Sprint(x.jobs(), x.s.Stats().Jobs), fmt.Sprint(x.s.journal)
	finish := x.s.FinishLeased(x.now, token, nil, &x.rec)
	fail := x.s.FailLeased(x.now, token, nil, -1, &x.rec)
	release := x.s.ReleaseLeased(x.now, token, &x.rec)
	_, extend := x.s.ExtendLease(x.now, token, minute)
	_, publish := x.s.PublishLeased(token, []byte("x"), &x.rec)
	view := x.s.ViewLeased(token, func(*Job, string, int64) {})
	for _, err := range []error{finish, fail, release, extend, publish, view} {
		if err != want {
			x.t.Errorf("got %v, want %v", err, want)
		}
	}
	if after := fmt.Sprint(x.jobs(), x.s.Stats().Jobs); after != before || fmt.Sprint(x.s.journal) != journal {
		x.t.Errorf("%s has become %s", before, after)
	}
	x.want()
}

// TestLeaseVerbs: a leased job is reserved without a peer. Each verb with its token does what the verb of a holder
// does.
func TestLeaseVerbs(t *testing.T) {
	x, _ := newGrantSched(t)
	waiter := x.peer()
	x.submit("f", "a", func(j *Submission) { j.Await, j.Tag = waiter, 5 })
	x.submit("f", "b", func(j *Submission) { j.Await, j.Tag, j.OnFail = waiter, 6, true })
	x.submit("f", "c")
	all := x.leases("mailer", 5, "a b c", "f")
	x.ok(x.s.Listen(waiter, 0, []byte("f"), []byte("a"), 8)) // a leased job's queue is served
	if wait, err := x.s.PublishLeased(all[0], []byte("half"), &x.rec); wait || err != nil {
		t.Error(wait, err)
	}
	x.want("1 8 chunk ")
	x.ok(x.s.ViewLeased(all[0], func(j *Job, worker string, until int64) {
		if string(j.Name) != "a" || worker != "mailer" || until != x.now.Wall+minute {
			t.Errorf("%s of %s until %d", j.Name, worker, until)
		}
	}))
	x.ok(x.s.FinishLeased(x.now, all[0], []byte("done"), &x.rec))
	x.want("1 5 result done", "1 8 end ")
	x.ok(x.s.FailLeased(x.now, all[1], []byte("no"), 1500, &x.rec))
	x.want("1 6 failed ")
	x.ok(x.s.ReleaseLeased(x.now, all[2], &x.rec))
	x.want()
	p := x.request("f")
	c := x.s.Grant(x.now, p, x.takes(p, 5, "c"), LeaseTerms{For: minute})
	x.pass(1499)
	x.takes(p, 5, "")
	x.pass(1)
	x.takes(p, 5, "b")
	x.ok(x.s.FinishLeased(x.now, c[0], nil, &x.rec))
	if st := x.s.Stats(); st.Jobs != 1 || st.Done != 2 || st.Released != 2 {
		t.Errorf("the counters are %+v", st)
	}
	x.want()
}

// TestLateTokens: a token that is late, doubled, forged or of an earlier run gets its error and reaches no other run.
func TestLateTokens(t *testing.T) {
	x, _ := newGrantSched(t)
	x.submit("f", "a")
	first := x.lease("a")
	x.refused(Token{first.Number, first.Secret + 1}, ErrNoLease)
	x.refused(Token{first.Number + 1, first.Secret}, ErrNoLease)
	x.refused(Token{}, ErrNoLease)
	x.pass(minute + grain)
	x.refused(first, ErrLeaseExpired)
	second := x.lease("a")
	x.refused(first, ErrLeaseExpired)
	err := x.s.ReleaseLeased(x.now, second, &x.rec)
	x.ok(err)
	x.refused(second, ErrLeaseDone)
	third := x.lease("a")
	x.refused(first, ErrLeaseExpired)
	x.refused(second, ErrLeaseDone)
	x.refused(Token{second.Number, second.Secret + 1}, ErrNoLease)
	err = x.s.FinishLeased(x.now, third, nil, &x.rec)
	x.ok(err)
	x.refused(third, ErrLeaseDone)
	x.submit("f", "b")
	fourth := x.lease("b")
	x.s.Remove(x.now, 0, []byte("f"), []byte("b"), &x.rec)
	x.refused(fourth, ErrLeaseRemoved)
	p := x.request("f")
	for range leaseParts * (maxEndedLeases + 1) {
		x.submit("f", "n")
		_, _, _ = x.s.TryReserveUpTo(x.now, p, 9, 1, &x.rec)
		token := x.s.Grant(x.now, p, []Run{x.rec.take()[0].job.run}, LeaseTerms{For: minute})[0]
		if err := x.s.FinishLeased(x.now, token, nil, &x.rec); err != nil {
			t.Fatal(err)
		}
	}
	x.refused(first, ErrNoLease) // it ended long ago
}

// TestLeaseExpiry: an expiry is a time-out. The policy of the queue counts it, and the history has the worker's name. A
// lease goes by the monotonic clock, and an extension begins it again.
func TestLeaseExpiry(t *testing.T) {
	var late []string
	x := newTestSched(t, Options{TimedOut: func(j *Job, _ SessionID, worker string) { late = append(late, string(j.Name)+" "+worker) }})
	x.under([3]string{"f", "retries", "1"}, [3]string{"f", "backoff", "1s"})
	x.submit("f", "a", func(j *Submission) { j.Timeout = 1 })
	token := x.lease("a")
	x.now.Wall += 10 * minute // an administrator sets the clock
	x.pass(minute - 1)
	until, err := x.s.ExtendLease(x.now, token, 2*minute)
	if until != x.now.Wall+2*minute || err != nil {
		t.Error(until, err)
	}
	x.now.Wall -= 60 * minute
	x.pass(2*minute - 1)
	x.ok(x.s.ViewLeased(token, func(*Job, string, int64) {}))
	x.pass(1 + grain)
	x.refused(token, ErrLeaseExpired)
	x.pass(1000)
	x.lease("a")
	x.pass(minute + grain)
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[a: timed out() timed out()]" {
		t.Error(got)
	}
	x.s.kept(x.now, "f", failedStates, func(f *JobView) {
		if all := attempts(f.History); all[0].Worker != "w" {
			t.Errorf("the worker is %q", all[0].Worker)
		}
	})
	if st := x.s.Stats(); st.TimedOut != 2 || st.GivenUp != 1 || fmt.Sprint(late) != "[a w a w]" {
		t.Errorf("the counters are %+v, late were %q", st, late)
	}
}

// TestLeaseFails: a failure under a token counts as a worker's, and its delay replaces the back-off of the policy.
func TestLeaseFails(t *testing.T) {
	x := newTestSched(t, Options{Rules: grantRules})
	x.under([3]string{"f", "retries", "2"}, [3]string{"f", "backoff", "9s"})
	x.submit("f", "a")
	for i, wait := range []int64{9000, 250, 0} {
		err := x.s.FailLeased(x.now, x.lease("a"), []byte("no disk"), []int64{-1, 250, 0}[i], &x.rec)
		x.ok(err)
		if i == 2 {
			break
		}
		x.pass(wait - 1)
		x.leases("w", 1, "", "f")
		x.pass(1)
	}
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[a: failed(no disk) failed(no disk) failed(no disk)]" {
		t.Error(got)
	}
	owner := x.peer() // Gloom's rule counts failures itself
	x.submit("g", "b", func(j *Submission) { j.Space, j.Await = 1, owner })
	for range 3 {
		err := x.s.FailLeased(x.now, x.leases("w", 1, "b", "g")[0], nil, -1, &x.rec)
		x.ok(err)
	}
	x.want(fmt.Sprint(owner.id, " 0 failed "))
}

// TestLeaseFailsDelayed: a delay holds for a job whose space counts failures, and for a task.
func TestLeaseFailsDelayed(t *testing.T) {
	x := newTestSched(t, Options{Rules: operateRules})
	x.submit("owned", "a", func(j *Submission) { j.Space, j.Await = ownedSpace, x.peer() })
	x.ok(x.s.AddTasks(x.now, 2, []byte("tasks"), graphTaskList("a"), &x.rec))
	fail := func(queue string, delay int64) state {
		x.ok(x.s.FailLeased(x.now, x.leases("w", 1, "a", queue)[0], nil, delay, &x.rec))
		x.check()
		return x.stateOf(queue, "a")
	}
	for _, queue := range []string{"owned", "tasks"} {
		if got := fail(queue, 1500); got != delayed {
			t.Errorf("%s: state %d", queue, got)
		}
	}
	x.pass(1499)
	x.leases("w", 1, "", "owned", "tasks")
	x.pass(1)
	if got := fail("tasks", 0); got != ready {
		t.Errorf("without a delay: state %d", got)
	}
	if got := fail("owned", 1500); got != free { // the second failure is the last
		t.Errorf("the last failure: state %d", got)
	}
}

// TestLeaseSurvivesRestart: after a restart a durable job is reserved under the same token, worker and end, which is in
// the journal after each change. A lease that has expired meanwhile ends with the first Tick. Other jobs are ready.
func TestLeaseSurvivesRestart(t *testing.T) {
	x, kept := newGrantSched(t)
	x.submit("f", "a")
	x.submit("f", "b", func(j *Submission) { j.SchedAt = x.now.Wall/1000 - 5 })
	x.submit("f", "c")
	all := x.leases("mailer", 3, "b a c", "f")
	b, a, c := all[0], all[1], all[2]
	x.pass(30_000)
	until, err := x.s.ExtendLease(x.now, a, 2*minute)
	x.ok(err)
	err = x.s.FinishLeased(x.now, c, nil, &x.rec)
	x.ok(err)
	if n := x.s.CountInterruptible(); n != 0 {
		t.Errorf("a stop waits for %d jobs", n)
	}
	x.now.Mono = 0 // that clock begins again
	x.now.Wall += 31_000
	y := x.restarted(grantRules, kept)
	y.s.Status(func(st QueueStatus) {
		if st.Running != 2 || st.Workers != 1 || st.Interruptible != 0 {
			t.Errorf("the queue has %+v", st)
		}
	})
	y.refused(c, ErrNoLease)
	y.ok(y.s.ViewLeased(b, func(*Job, string, int64) {}))
	y.s.ticks(y.now, &y.rec)
	y.pass(grain)
	y.refused(b, ErrLeaseExpired)
	y.ok(y.s.ViewLeased(a, func(j *Job, worker string, end int64) {
		if string(j.Name) != "a" || worker != "mailer" || end != until {
			t.Errorf("%s of %s until %d, want %d", j.Name, worker, end, until)
		}
	}))
	y.lease("b")
	z := y.restarted(grantRules, kept) // the journal has the record of the second lease of b
	z.refused(b, ErrNoLease)
	z.pass(until - z.now.Wall - 1)
	err = z.s.FinishLeased(z.now, a, nil, &z.rec)
	z.ok(err)
	z.want()
	for _, j := range kept[0] {
		if string(j.Name) == "a" {
			t.Errorf("a job that is done is in the journal: %+v", j)
		}
	}
}

// TestRestoredLeaseKeepsItsLength: a clock that was set back before a restart does not make a lease longer, and a
// record whose run is another's is of a ready job.
func TestRestoredLeaseKeepsItsLength(t *testing.T) {
	x, kept := newGrantSched(t)
	x.submit("f", "a")
	token := x.lease("a")
	x.now.Wall -= 60 * minute
	for _, seq := range kept.order() {
		if j := kept[0][seq]; j.Kind == KindJob {
			j.Ref.Seq, j.Name = seq+100, []byte("same")
			kept[0][seq+100] = j
		}
	}
	y := x.restarted(grantRules, kept)
	y.pass(minute - 1)
	y.leases("w", 9, "same", "f")
	y.pass(1 + grain)
	y.refused(token, ErrLeaseExpired)
	y.leases("w", 9, "a", "f")
}

// TestRestoredDropEndsLeases: a record that drops the queue of a leased job, as a repaired journal may have it, wins.
func TestRestoredDropEndsLeases(t *testing.T) {
	x, kept := newGrantSched(t)
	x.submit("f", "a")
	token := x.lease("a")
	kept[0][99] = Saved{Kind: KindDropped, Job: Job{Ref: JobRef{Seq: 99}, Queue: "f"}}
	y := x.restarted(grantRules, kept)
	y.pass(1)
	y.refused(token, ErrLeaseRemoved)
	if y.jobs() != "" {
		t.Errorf("%s is left", y.jobs())
	}
}

// TestRequestHangsUp: the jobs that a request holds when it ends are released and have not failed, also one that comes
// while it waits. Leased ones stay.
func TestRequestHangsUp(t *testing.T) {
	x := newTestSched(t, Options{Rules: grantRules, Batch: 2})
	x.under([3]string{"f", "retries", "0"})
	for i := range 5 {
		x.submit("f", fmt.Sprint("j", i))
	}
	p := x.request("f", "g")
	runs := x.takes(p, 5, "j0 j1 j2 j3 j4")
	x.s.Grant(x.now, p, runs[1:2], LeaseTerms{For: minute})
	x.s.Disconnect(x.now, p, &x.rec)
	x.pass(1)
	x.leases("w", 5, "j0 j2 j3 j4", "f")
	if st := x.s.Stats(); st.Failed != 0 || st.Jobs != 5 {
		t.Errorf("the counters are %+v", st)
	}

	first, second := x.request("f", "g"), x.request("g")
	for _, p := range []*Peer{first, second} {
		x.takes(p, 2, "")
		x.reserve(p, 1)
	}
	x.want()
	x.submit("g", "late") // on its way to the older request
	d := x.want(fmt.Sprint(first.id, " 1 assign late"))
	x.s.Disconnect(x.now, first, &x.rec)
	x.pass(1)
	x.want(fmt.Sprint(second.id, " 1 assign late")) // it waits in line with its age
	if token := x.s.Grant(x.now, second, []Run{d[0].job.run}, LeaseTerms{})[0]; token != (Token{}) {
		t.Error("an earlier run is leased")
	}
	x.s.Disconnect(x.now, second, &x.rec)
	x.submit("g", "next")
	x.want()
}

// TestRequestPolicies: pauses, limits and the order of several queues hold for requests, and leased jobs count as
// running.
func TestRequestPolicies(t *testing.T) {
	x := newTestSched(t, Options{Rules: grantRules})
	x.under([3]string{"f", "concurrency", "2"}, [3]string{"h", "paused", "hand-out"})
	for i := range 3 {
		x.submit("f", fmt.Sprint("f", i))
		x.submit("g", fmt.Sprint("g", i), func(j *Submission) { j.Priority = int64(i - 1) })
		x.submit("h", fmt.Sprint("h", i))
	}
	tokens := x.leases("w", 9, "g2 f0 f1 g1 g0", "f", "g", "h")
	p := x.request("f", "g", "h")
	x.reserve(p, 1)
	x.want()
	err := x.s.FinishLeased(x.now, tokens[1], nil, &x.rec)
	x.ok(err)
	x.pass(1)
	x.want(fmt.Sprint(p.id, " 1 assign f2"))
	if x.s.Drop([]byte("g")) || x.s.Drop([]byte("f")) {
		t.Error("a queue with leased jobs is dropped")
	}
	for _, token := range tokens[:1] {
		err := x.s.FinishLeased(x.now, token, nil, &x.rec)
		x.ok(err)
	}
	x.s.Status(func(st QueueStatus) {
		if want := map[string]int{"f": 2, "g": 2, "h": 1}[st.Name]; st.Workers != want {
			t.Errorf("queue %s has %d workers, want %d", st.Name, st.Workers, want)
		}
	})
}

// TestLeasedTask: a task is leased as a job is, but for its journal: a restart makes it ready.
func TestLeasedTask(t *testing.T) {
	x, kept := newGrantSched(t)
	x.ok(x.s.AddTasks(x.now, 2, []byte("f"), graphTaskList("a", "b<a", "c"), &x.rec))
	tokens := x.leases("cook", 9, "a c", "f")
	x.s.LookupTask(2, []byte("f"), []byte("a"), func(v *TaskView) {
		if v.Stage != StageReserved || v.Holder != "cook" || v.By != 0 {
			t.Errorf("%d by %s", v.Stage, v.Holder)
		}
	})
	y := x.restarted(grantRules, kept)
	y.refused(tokens[0], ErrNoLease)
	y.leases("cook", 9, "a c", "f")
	err := x.s.FinishLeased(x.now, tokens[0], nil, &x.rec)
	x.ok(err)
	x.pass(1)
	x.leases("cook", 9, "b", "f")
	x.pass(minute + grain)
	x.leases("cook", 9, "b c", "f")
	x.want()
}

// TestTokenText: a token is written as 32 digits, and other texts are no tokens.
func TestTokenText(t *testing.T) {
	token := Token{1, 1<<64 - 2}
	if got, err := ParseToken(token.String()); got != token || err != nil {
		t.Error(got, err)
	}
	for _, text := range []string{"", "0", token.String()[2:], token.String() + "00", strings.Repeat("g", 32)} {
		if _, err := ParseToken(text); err != ErrNoLease {
			t.Errorf("%q: %v", text, err)
		}
	}
}
