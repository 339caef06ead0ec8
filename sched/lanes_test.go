package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fairly gives the queue f a policy with keys: those before ":", and what else the values say.
func (x *testSched) fairly(values ...string) {
	x.t.Helper()
	rules := [][3]string{{"f", "key", "name before :"}}
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		rules = append(rules, [3]string{"f", key, value})
	}
	x.under(rules...)
}

// backlog submits n jobs of a key, from the number first on.
func (x *testSched) backlog(key string, first, n int, change ...func(*Submission)) {
	x.t.Helper()
	for i := range n {
		x.submit("f", fmt.Sprint(key, ":", first+i), change...)
	}
}

// order reserves n jobs for a peer and returns their keys, joined. Jobs are written by key alone.
func (x *testSched) order(p *Peer, n int) string {
	x.t.Helper()
	var keys []string
	for range n {
		x.reserve(p, uint64(len(keys)))
	}
	for _, d := range x.rec.take() {
		if d.effect == Assign {
			key, _, _ := strings.Cut(d.job.name, ":")
			keys = append(keys, key)
		}
	}
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
	return strings.Join(keys, "")
}

func (x *testSched) wantOrder(p *Peer, want string) {
	x.t.Helper()
	if got := x.order(p, len(want)); got != want {
		x.t.Errorf("jobs of the keys %s are handed out, want %s", got, want)
	}
}

// TestFairOrder: no key waits behind the backlog of another for more than one of its turns.
func TestFairOrder(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("fair=key")
	p := x.peer("f")
	x.backlog("a", 0, 10_000)
	x.wantOrder(p, "aaa")
	x.backlog("b", 0, 1)
	x.wantOrder(p, "abaa")
	x.backlog("b", 1, 2)
	x.backlog("c", 0, 3)
	x.wantOrder(p, "abcabcacaa")
	x.backlog("b", 3, 1) // a key that was away has no turns left over, and owes none
	x.backlog("c", 3, 1)
	x.wantOrder(p, "abcaa")
}

// TestWeights: a key has as many jobs in a turn as its weight says.
func TestWeights(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("fair=key", "weights=gold=3 silver=2")
	p := x.peer("f")
	for _, key := range []string{"gold", "free", "silver"} {
		x.backlog(key, 0, 100)
	}
	round := "goldgoldgoldfreesilversilver"
	if got := x.order(p, 60); got != strings.Repeat(round, 10) {
		t.Errorf("the order is %s", got)
	}
	x.order(p, 2)                                          // two of gold
	x.fairly("fair=key", "weights=gold=1 free=2 silver=2") // its turn is over now
	if got := x.order(p, 5); got != "freefreesilversilvergold" {
		t.Errorf("after a change of weights a round is %s", got)
	}
}

// TestFairPriorities: the larger priority is first whatever the keys are, and keys take turns among equals.
func TestFairPriorities(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("fair=key")
	p := x.peer("f")
	high := func(j *Submission) { j.Priority = 5 }
	x.backlog("a", 0, 4)
	x.backlog("b", 0, 2)
	x.backlog("a", 10, 3, high)
	x.backlog("c", 0, 2, high)
	x.wantOrder(p, "acaca")
	x.wantOrder(p, "babaaa")
	x.backlog("a", 20, 2, func(j *Submission) { j.SchedAt = x.now.Wall/1000 - 5 }) // within a key the earlier due second
	x.backlog("b", 20, 1)
	x.wantOrder(p, "aba")
}

// TestKeyConcurrency: so many jobs of a key run at a time, and a job counts until it ends, whichever way.
func TestKeyConcurrency(t *testing.T) {
	for what, end := range map[string]func(x *testSched, p *Peer, run Run){
		"done":      func(x *testSched, p *Peer, run Run) { x.ok(x.s.Finish(x.now, p, run, nil, &x.rec)) },
		"failed":    func(x *testSched, p *Peer, run Run) { x.ok(x.s.Fail(x.now, p, run, nil, &x.rec)) },
		"delayed":   func(x *testSched, p *Peer, run Run) { x.ok(x.s.Delay(x.now, p, run, 5, 0, &x.rec)) },
		"released":  func(x *testSched, p *Peer, _ Run) { x.ok(x.s.ReleaseNewest(x.now, p, 1, &x.rec)) },
		"timed out": func(x *testSched, _ *Peer, _ Run) { x.pass(2000 + grain) },
		"left":      func(x *testSched, p *Peer, _ Run) { x.s.Disconnect(x.now, p, &x.rec) },
		"removed":   func(x *testSched, _ *Peer, _ Run) { x.s.Remove(x.now, 0, []byte("f"), []byte("a:0"), &x.rec) },
		"parked": func(x *testSched, p *Peer, run Run) {
			other := x.peer("g")
			x.submit("g", "holder")
			_, err := x.s.AcquireLock(x.now, other, x.reserveJob(other, "holder"), "lock", 1, &x.rec)
			x.ok(err)
			_, err = x.s.AcquireLock(x.now, p, run, "lock", 1, &x.rec)
			x.ok(err)
		},
	} {
		for _, fair := range []string{"no", "key"} {
			t.Run(what+" "+fair, func(t *testing.T) {
				x := newTestSched(t, Options{})
				x.fairly("key-concurrency=1", "fair="+fair)
				p, q := x.peer("f"), x.peer("f")
				x.submit("f", "a:0", func(j *Submission) { j.Timeout = 2 })
				x.backlog("a", 1, 2)
				run := x.reserveJob(p, "a:0")
				x.reserve(q, 2)
				x.want()
				end(x, p, run)
				x.s.ticks(x.now, &x.rec)
				if got := x.rec.take(); len(got) != 1 || !strings.HasPrefix(got[0].job.name, "a:") {
					t.Errorf("when it is %s, %v is handed out", what, got)
				}
				x.reserve(q, 3)
				x.want() // the other one runs
			})
		}
	}
}

// TestKeyConcurrencySkips: a key at its limit holds up no other, and a job of it goes to a worker that waits as soon as
// one ends.
func TestKeyConcurrencySkips(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("key-concurrency=2")
	p := x.peer("f")
	x.backlog("a", 0, 5)
	x.backlog("b", 0, 1)
	x.backlog("c", 0, 3)
	x.wantOrder(p, "aabcc")
	x.submit("f", "b:1")
	x.wantOrder(p, "b")
	x.reserve(p, 9)
	x.want()
	if st := x.s.Stats(); st.Assigned != 6 {
		t.Errorf("%d jobs run", st.Assigned)
	}
}

// TestKeyRetries: a job in its back-off does not count, and comes back to its key.
func TestKeyRetries(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("key-concurrency=1", "fair=key", "retries=5", "backoff=10s")
	p := x.peer("f")
	x.backlog("a", 0, 2)
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "a:0"), nil, &x.rec))
	run := x.reserveJob(p, "a:1")
	x.reserve(p, 1)
	x.pass(11_000)
	x.want()
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	x.want("1 1 assign a:0")
}

// TestKeyStates: the other places of a job: broadcasts, failures that go ahead, drops, replacements.
func TestKeyStates(t *testing.T) {
	x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{1: {Global: true, Owned: true, Untimed: true, MaxFailures: 9}}})
	x.fairly("key-concurrency=1", "fair=key")
	p := x.peer("f")
	owned := func(j *Submission) { j.Space, j.Await = 1, p }
	x.backlog("a", 0, 1)
	x.backlog("a", 5, 2, owned)
	x.backlog("a", 0, 1, func(j *Submission) { j.SchedAt = x.now.Wall / 1000 }) // replaced: it stands behind them
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "a:5"), nil, &x.rec))
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a:5"), nil, &x.rec)) // ahead of its equals
	x.rec.take()
	x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a:6"), nil, &x.rec))
	x.rec.take()
	x.reserve(p, 7)
	x.want("1 7 broadcast a:0")
	x.backlog("a", 0, 3)
	x.backlog("b", 0, 3)
	x.s.Unwatch(p, []byte("f"))
	if !x.s.Drop([]byte("f")) {
		t.Error("the queue is not dropped")
	}
	x.s.ticks(x.now, &x.rec)
	if st := x.s.Stats(); st.Jobs != 0 {
		t.Errorf("%d jobs are left", st.Jobs)
	}
	x.want()
}

// TestKeyStatus: the jobs of lanes are counted, and the earliest due second among them is shown.
func TestKeyStatus(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("fair=key")
	at := func(s int64) func(*Submission) { return func(j *Submission) { j.SchedAt = s } }
	x.submit("f", "a:1", at(50))
	x.submit("f", "b:1", at(30))
	x.submit("f", "b:2", at(40))
	want := QueueStatus{Name: "f", Jobs: 3, SchedAt: 30}
	x.s.Status(func(st QueueStatus) {
		if st.Spaces = 0; st != want {
			t.Errorf("%+v, want %+v", st, want)
		}
	})
	x.want()
}

// TestLowerKeyConcurrency: the withheld jobs of a key wait, too, when fewer of its jobs may run than before.
func TestLowerKeyConcurrency(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.fairly("key-concurrency=2")
	master, p := x.peer(), x.capable(NameOnly, "f")
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.submit("f", "a:0", owned(master, 7))
	run := x.want("2 1 assign a:0")[0].job.run
	x.submit("f", "a:0") // clashes: withheld
	x.fairly("key-concurrency=1")
	x.reserve(x.peer("f"), 3)
	x.want()
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	if got := x.rec.take(); !slices.ContainsFunc(got, func(d delivered) bool { return d.effect == Assign }) {
		t.Errorf("when the other job has ended, %v", got)
	}
}

// TestKeyChange: jobs that are ready, run, or are delayed while the rules change are all handed out, by the new rules.
func TestKeyChange(t *testing.T) {
	x := newTestSched(t, Options{Batch: 1})
	p := x.peer("f")
	x.backlog("a", 0, 3)
	x.backlog("b", 0, 2)
	run := x.reserveJob(p, "a:0")
	x.fairly("key-concurrency=1") // the job that runs counts
	x.wantOrder(p, "b")
	x.reserve(p, 9)
	x.want()
	x.under([3]string{"f", "key", "json id"}, [3]string{"f", "key-concurrency", "3"}) // all have the empty key
	one := func(tag uint64) {
		t.Helper()
		if got := x.rec.take(); len(got) != 1 || got[0].tag != tag {
			t.Errorf("%v is handed out", got)
		}
		x.want()
	}
	one(9) // two ran
	x.reserve(p, 10)
	x.want()
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	one(10)
	x.fairly("fair=key")
	x.reserve(p, 11)
	one(11)
	x.backlog("a", 5, 4)
	x.backlog("b", 5, 2)
	table, _ := NewPolicies(nil)
	x.s.SetPolicies(table)
	x.s.Tick(x.now, &x.rec) // a part of the change
	x.fairly("fair=key")    // taken back
	x.wantOrder(p, "abab")
	x.under()
	x.backlog("a", 10, 1)
	x.wantOrder(p, "aaa")
	for i := range x.s.shards {
		for _, q := range x.s.shards[i].queues {
			if q.keyed != nil {
				t.Errorf("queue %q has %d lanes without a policy", q.name, q.keyed.count)
			}
		}
	}
}

// TestKeysAreForgotten: a key without jobs takes no memory.
func TestKeysAreForgotten(t *testing.T) {
	x := newTestSched(t, Options{})
	x.fairly("fair=key", "key-concurrency=1")
	p := x.peer("f")
	for i := range 1000 {
		x.submit("f", fmt.Sprint(i, ":"))
	}
	for range 1000 {
		x.reserve(p, 1)
		x.ok(x.s.Finish(x.now, p, x.rec.take()[0].job.run, nil, &x.rec))
	}
	for i := range x.s.shards {
		for _, q := range x.s.shards[i].queues {
			if k := q.keyed; k.count+len(k.lanes)+len(k.byKey)+len(k.levels)+len(k.open) > 0 {
				t.Errorf("%d lanes are left", k.count)
			}
		}
	}
	x.want()
}
