package sched

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// failRules are the rules of two spaces. Jobs of the first have retries of their own, and expire or are followed when
// their workloads ask for it. The second is plain.
var failRules = [MaxSpaces]Rules{{
	Durable: true, LeaseNames: true,
	RetryRules: &RetryRules{
		Retries: 2, Keep: Keep{Jobs: 2, Age: 60 * minute}, Text: 1000,
		Backoff: func(retry int32, _ uint64) int64 { return int64(retry) * 10_000 },
	},
	Traits: func(workload []byte) Traits {
		return Traits{Expires: bytes.HasPrefix(workload, []byte("until ")), Hooked: bytes.HasPrefix(workload, []byte("tell"))}
	},
	Expiry: func(workload []byte) (at int64) {
		_, _ = fmt.Sscanf(string(workload), "until %d", &at)
		return at
	},
}, {Durable: true}}

func newFailSched(t testing.TB) (*testSched, memJournal) {
	kept := memJournal{{}}
	return newTestSched(t, Options{Rules: failRules, Journal: kept}), kept
}

// lessee returns a peer whose jobs are leased for a minute.
func (x *testSched) lessee(worker string, queues ...string) *Peer {
	x.t.Helper()
	x.id++
	p := x.s.NewPeer(x.id, LongNames)
	p.LeaseTo(LeaseTerms{Worker: worker, Secret: 5, For: minute})
	for _, q := range queues {
		x.ok(x.s.Watch(x.now, p, []byte(q), false, &x.rec))
	}
	return p
}

// leased reserves a job for a lessee and returns its token.
func (x *testSched) leased(p *Peer, name string) Token {
	x.t.Helper()
	x.reserve(p, 1)
	d := x.want(fmt.Sprint(p.id, " 1 assign ", name))
	return Token{d[0].job.run.Number, 5}
}

func withCount(n int32) func(*Submission) { return func(j *Submission) { j.Count = n } }

// TestFailures: jobs are tried again as often as they say, or else their space, after its delays, also in a queue
// without a policy. Then they are kept as failed, but those without retries.
func TestFailures(t *testing.T) {
	x, kept := newFailSched(t)
	p := x.peer("f")
	retries := func(name string, count int32, want int) {
		t.Helper()
		x.submit("f", name, withCount(count))
		for n := 0; ; n++ {
			x.ok(x.s.Fail(x.now, p, x.reserveJob(p, name), fmt.Append(nil, "error ", n), &x.rec))
			st, _ := x.s.StatusOf([]byte("f"))
			if st.Delayed == 0 {
				if n != want {
					t.Errorf("%s with count %d was tried again %d times, want %d", name, count, n, want)
				}
				break
			}
			if st.Retrying != 1 || st.Spaces != 1 {
				t.Errorf("the status is %+v", st)
			}
			x.pass(int64(n+1)*10_000 - 1)
			if st, _ = x.s.StatusOf([]byte("f")); st.Delayed != 1 {
				t.Errorf("retry %d of %s came early", n+1, name)
			}
			x.pass(1)
		}
		x.want()
	}
	retries("one", 1, 1)
	retries("three", 3, 3)
	retries("any", AnyRetries, 2)
	retries("none", 0, 0)
	retries("dead", -1, 0)
	x.s.ticks(x.now, &x.rec)
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[any: failed(error 0) failed(error 1) failed(error 2) dead: failed(error 0)]" { // two are kept
		t.Errorf("failed are %v", got)
	}
	y := x.restarted(failRules, kept)
	if got, _ := y.failedOf("f"); len(got) != 2 {
		t.Errorf("after a restart %v", got)
	}
	y.pass(60 * minute)
	if got, _ := y.failedOf("f"); len(got) != 0 {
		t.Errorf("after an hour %v", got)
	}
}

// TestFailuresUnderPolicy: what the policy of a queue says comes before what the space says, but a job's own retries.
func TestFailuresUnderPolicy(t *testing.T) {
	x, _ := newFailSched(t)
	x.under([3]string{"f", "retries", "0"}, [3]string{"g", "backoff", "1s"}, [3]string{"h", "keep-failed", "0"}, [3]string{"i", "dead-letter", "dead"}, [3]string{"j", "max-jobs", "9"})
	fail := func(queue string, count int32, want string) {
		t.Helper()
		p := x.peer(queue)
		x.submit(queue, "x", withCount(count))
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "x"), nil, &x.rec))
		x.s.ticks(x.now, &x.rec)
		st, _ := x.s.StatusOf([]byte(queue))
		x.pass(1000)
		late, _ := x.s.StatusOf([]byte(queue))
		if got := fmt.Sprint(st.Delayed, late.Delayed, st.Failed); got != want {
			t.Errorf("%s: delayed, delayed a second later and failed are %s, want %s", queue, got, want)
		}
	}
	fail("f", AnyRetries, "0 0 1")
	x.s.ChangeJobs(x.now, []JobRef{x.refOf("f", "x")}, &JobChange{Verb: RemoveJobs}, &x.rec, func(int, error) {})
	fail("f", 5, "1 1 0")
	fail("g", 5, "1 0 0")
	fail("h", -1, "0 0 0")
	fail("i", -1, "0 0 0")
	fail("j", -1, "0 0 1")
	if st, _ := x.s.StatusOf([]byte("dead")); st.Jobs != 1 {
		t.Errorf("the dead letters are %+v", st)
	}
	x.pass(59 * minute) // the space keeps them for an hour, the default of policies is longer
	if st, _ := x.s.StatusOf([]byte("j")); st.Failed != 1 {
		t.Errorf("within the hour %+v", st)
	}
	x.pass(minute)
	if st, _ := x.s.StatusOf([]byte("j")); st.Failed != 0 {
		t.Errorf("after the hour %+v", st)
	}
}

// TestFailureTexts: the newest text is kept as far as the space wants, the older ones are short, and the first entry
// stays when entries have no room.
func TestFailureTexts(t *testing.T) {
	x, kept := newFailSched(t)
	p := x.peer("f")
	x.submit("f", "x", withCount(100), func(j *Submission) {
		j.History = AppendHistory(nil, 1, []Attempt{{At: 5, Outcome: attemptFailed, Text: "long ago"}})
	})
	for n := range 30 {
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "x"), []byte(fmt.Sprint("é", n)+strings.Repeat("é", 2000)), &x.rec))
		x.pass(int64(n+2) * 10_000)
	}
	x.reserve(p, 1)
	look := func(h []byte) {
		t.Helper()
		tries, all := ParseHistory(h)
		last := all[len(all)-1]
		if tries != 31 || all[0].Text != "long ago" || !strings.HasPrefix(last.Text, "é29é") || len(last.Text) < 998 || len(last.Text) > 1000 {
			t.Errorf("%d tries, first %q, last of %d bytes", tries, all[0].Text, len(last.Text))
		}
		if older := all[len(all)-2]; len(older.Text) > olderText || !strings.HasPrefix(older.Text, "é28é") || len(all) < 8 || len(all) == 31 {
			t.Errorf("%d entries, the one before the last is %q", len(all), older.Text)
		}
	}
	look([]byte(x.rec.history))
	y := x.restarted(failRules, kept)
	y.reserve(y.peer("f"), 1)
	look([]byte(y.rec.history))
}

// TestLessee: the jobs of a lessee stay reserved when it leaves and over a restart, are found by their names, the
// newest first, and end by their own time-outs.
func TestLessee(t *testing.T) {
	x, kept := newFailSched(t)
	p := x.lessee("w", "f")
	x.submit("f", "a")
	x.submit("f", "a\x00second", withCount(1), func(j *Submission) { j.Timeout = 20 })
	x.submit("f", "b", func(j *Submission) { j.Space = 1 })
	first, second, other := x.leased(p, "a"), x.leased(p, "a\x00second"), x.leased(p, "b")
	find := func(x *testSched, space Space, name string, want Token) {
		t.Helper()
		if got, _ := x.s.FindLease(space, []byte(name)); got != want {
			t.Errorf("the lease of %q is %v, want %v", name, got, want)
		}
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
	}
	find(x, 0, "a", second)
	find(x, 0, "a\x00second", Token{})
	find(x, 1, "b", Token{})
	x.reserve(p, 2)
	x.s.Disconnect(x.now, p, &x.rec)
	x.s.ticks(x.now, &x.rec)
	if st, _ := x.s.StatusOf([]byte("f")); st.Running != 3 || st.Workers != 1 || x.s.CountInterruptible() != 0 {
		t.Errorf("after it left: %+v", st)
	}
	y := x.restarted(failRules, kept)
	find(y, 0, "a", second)
	y.pass(20_000)
	find(y, 0, "a", second)
	y.pass(grain)
	find(y, 0, "a", first)
	y.refused(second, ErrLeaseExpired)
	if st, _ := y.s.StatusOf([]byte("f")); st.Running != 2 || st.Retrying != 1 {
		t.Errorf("after a time-out: %+v", st)
	}
	y.ok(y.s.FinishLeased(y.now, first, nil, &y.rec))
	find(y, 0, "a", Token{})
	y.ok(y.s.FinishLeased(y.now, other, nil, &y.rec))
	y.pass(10_000)
	q := y.lessee("v", "f")
	if again := y.leased(q, "a\x00second"); again == second {
		t.Error("two runs have one token")
	}
}

// TestLesseeWaits: a job that comes while a lessee waits is leased, and journaled once with its lease.
func TestLesseeWaits(t *testing.T) {
	x, kept := newFailSched(t)
	p := x.lessee("w", "f")
	x.reserve(p, 1)
	x.submit("f", "a")
	d := x.want(fmt.Sprint(p.id, " 1 assign a"))
	if got, ok := x.s.FindLease(0, []byte("a")); !ok || got.Number != d[0].job.run.Number {
		t.Errorf("the lease is %v, %v", got, ok)
	}
	for _, j := range kept[0] {
		if j.Kind == KindJob && j.Lease.Worker != "w" {
			t.Errorf("the journal has %+v", j)
		}
	}
}

// TestExpiry: a job whose time is over is not handed out in any way, and ends as expired.
func TestExpiry(t *testing.T) {
	ways := map[string]func(x *testSched, p *Peer){
		"Reserve":        func(x *testSched, p *Peer) { x.reserve(p, 1) },
		"TryReserve":     func(x *testSched, p *Peer) { _, _ = x.s.TryReserve(x.now, p, 1, &x.rec) },
		"TryReserveUpTo": func(x *testSched, p *Peer) { _, _, _ = x.s.TryReserveUpTo(x.now, p, 1, 3, &x.rec) },
	}
	for name, way := range ways {
		x, kept := newFailSched(t)
		until := x.now.Wall + 5000
		for i := range 2 {
			x.submit("f", fmt.Sprint(i), func(j *Submission) { j.Workload = fmt.Append(nil, "until ", until) })
		}
		p := x.peer("f")
		x.pass(4999)
		way(x, p)
		if got := x.rec.take(); len(got) == 0 || got[0].effect != Assign {
			t.Errorf("%s before the time: %v", name, got)
		}
		x = x.restarted(failRules, kept)
		x.pass(1)
		p = x.peer("f")
		way(x, p)
		x.want()
		if st := x.s.Stats(); st.Expired != 2 || st.Jobs != 0 {
			t.Errorf("%s after the time: %+v", name, st)
		}
	}
	x, _ := newFailSched(t)
	p := x.peer("f")
	x.reserve(p, 1)
	x.submit("f", "old", func(j *Submission) { j.Workload = []byte("until 5") })
	x.want()
	x.submit("f", "new")
	x.want(fmt.Sprint(p.id, " 1 assign new"))
}

// TestJobHook: Options.JobHook is called for hand-outs and ends of the jobs of Traits.Hooked, also after a restart.
func TestJobHook(t *testing.T) {
	kept := memJournal{{}}
	var followed []string
	o := Options{Rules: failRules, Journal: kept, JobHook: func(j *Job, e Effect) {
		followed = append(followed, fmt.Sprintf("%s %s", j.Name, effects[e]))
	}}
	x := newTestSched(t, o)
	p := x.peer("f")
	for _, name := range []string{"a", "b", "c", "quiet"} {
		x.submit("f", name, withCount(-1), func(j *Submission) {
			if name != "quiet" {
				j.Workload = []byte("tell")
			}
		})
	}
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "b"), nil, &x.rec))
	y := newTestSched(t, o)
	for _, seq := range kept.order() {
		j := kept[0][seq]
		y.ok(y.s.Restore(y.now, &j))
	}
	y.s.Remove(y.now, 0, []byte("f"), []byte("c"), &y.rec)
	y.s.Remove(y.now, 0, []byte("f"), []byte("quiet"), &y.rec)
	if got := strings.Join(followed, ", "); got != "a assign, a result, b assign, b failed, c removed" {
		t.Errorf("followed %s", got)
	}
}

// TestOnlyNew: a name that is known is refused in any state, and stays as it is.
func TestOnlyNew(t *testing.T) {
	x, _ := newFailSched(t)
	p := x.peer("f")
	once := func(j *Submission) { j.OnlyNew = true }
	refuse := func(when string) {
		t.Helper()
		if _, err := x.submit("f", "a", once, func(j *Submission) { j.Workload = []byte("other") }); err != ErrDuplicate {
			t.Errorf("%s: %v", when, err)
		}
	}
	if _, err := x.submit("f", "a", once); err != nil {
		t.Error(err)
	}
	refuse("ready")
	run := x.reserveJob(p, "a")
	refuse("reserved")
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec)) // without retries: its Count is 0
	if _, err := x.submit("f", "a", once); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestGiveUpJobs: an operator gives up pending jobs, in any queue; they are failed, and can be retried.
func TestGiveUpJobs(t *testing.T) {
	x, _ := newFailSched(t)
	p := x.peer("f")
	x.submit("f", "plain", func(j *Submission) { j.Space = 1 })
	x.submit("f", "later", func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 50 })
	x.submit("f", "none", withCount(0))
	give := JobChange{Verb: GiveUpJobs}
	for _, name := range []string{"later", "none"} {
		if err := x.change(x.refOf("f", name), give); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := x.refOf("f", "plain")
	x.ok(x.change(plain, give))
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[plain: later: none:]" {
		t.Errorf("failed are %v", got)
	}
	if err := x.change(plain, give); err == nil {
		t.Error("a failed job was given up again")
	}
	x.ok(x.change(plain, JobChange{Verb: RetryJobs}))
	run := x.reserveJob(p, "plain")
	if err := x.change(x.refOf("f", "plain"), give); err == nil {
		t.Error("a running job was given up")
	}
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.want()
	if st := x.s.Stats(); st.GivenUp != 3 {
		t.Errorf("the counters are %+v", st)
	}
}
