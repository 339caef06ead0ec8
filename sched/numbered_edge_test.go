package sched

import (
	"fmt"
	"testing"
)

// put submits a numbered job and returns its number.
func (x *testSched) put(queue string, priority int64, change ...func(*Submission)) uint64 {
	x.t.Helper()
	j := Submission{Space: numberedSpace, Queue: []byte(queue), Workload: []byte("body"), Priority: priority, Timeout: 2}
	for _, f := range change {
		f(&j)
	}
	if err := x.s.Submit(x.now, &j, &x.rec); err != nil {
		x.t.Fatal(err)
	}
	return j.Number
}

// autoDeletePeer makes a peer of the capabilities with which numbered jobs are served.
func (x *testSched) autoDeletePeer(queues ...string) *Peer {
	return x.capable(LongNames|NoGrace|AutoDelete, queues...)
}

// taken reserves a job for a peer and returns its run.
func (x *testSched) taken(p *Peer) deliveredJob {
	x.t.Helper()
	if ok, err := x.s.TryReserve(x.now, p, 1, &x.rec); !ok || err != nil {
		x.t.Fatalf("nothing is reserved: %v", err)
	}
	return x.rec.take()[0].job
}

// setRules sets the policies of a queue.
func (x *testSched) setRules(rules ...PolicyRule) {
	x.t.Helper()
	table, err := NewPolicies(rules)
	if err != nil {
		x.t.Fatal(err)
	}
	x.s.SetPolicies(table)
	x.s.ApplyPolicies(x.now, &x.rec)
}

// TestRenew checks that a renewed run has its whole time-out before it, by its own time-out and by the default one, and
// that only the holder renews it.
func TestRenew(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.s.SetTimeout(2000)
	p := x.autoDeletePeer("f")
	x.put("f", 0)
	x.submit("f", "plain")
	runs := []Run{x.taken(p).run, x.taken(p).run}
	x.pass(1500) // of the time-out of 2000
	for _, run := range runs {
		x.ok(x.s.Touch(x.now, p, run))
		if x.s.Touch(x.now, x.peer(), run) == nil {
			t.Error("another peer renews a run")
		}
	}
	x.pass(1500)
	if n := x.s.CountInterruptible(); n != 2 {
		t.Errorf("%d jobs run after 1.5 s of 2", n)
	}
	x.pass(500 + grain)
	if n := x.s.CountInterruptible(); n != 0 {
		t.Errorf("%d jobs run after their time-outs", n)
	}
	x.want()
}

// TestWatchedAgain: a queue that a peer ignored while it held a job there, and watches again when the queue is gone, is
// deleted with its last peer again.
func TestWatchedAgain(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	p := x.autoDeletePeer()
	x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
	x.put("f", 0)
	run := x.taken(p).run
	x.s.Unwatch(p, []byte("f"))
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	queues := func() (n int) {
		x.s.Status(func(QueueStatus) { n++ })
		return n
	}
	if queues() != 0 {
		t.Fatal("the queue stays without peers and jobs")
	}
	x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
	if x.s.Unwatch(p, []byte("f")); queues() != 0 {
		t.Error("the queue that was watched again stays")
	}
}

// TestPunctual checks that the time-out of a NoGrace peer has no grace, and that of another peer has.
func TestPunctual(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules, Grace: 1000})
	x.put("f", 0)
	x.put("f", 0)
	x.taken(x.autoDeletePeer("f"))
	x.taken(x.peer("f"))
	x.pass(2000 + grain)
	if n := x.s.CountInterruptible(); n != 1 {
		t.Errorf("%d jobs run, want that of the peer that is not NoGrace", n)
	}
}

// TestBuriedIsKept checks that a buried job stays for ever, under no policy and under one that says nothing of failed
// jobs, and that an explicit keep-failed bounds what is buried. A plain job that is buried is a failed one like others.
func TestBuriedIsKept(t *testing.T) {
	buried := func(rules ...PolicyRule) *testSched {
		x := newTestSched(t, Options{Rules: testRules})
		x.setRules(rules...)
		p := x.autoDeletePeer("f")
		for range 3 {
			x.put("f", 0)
			x.ok(x.s.Bury(x.now, p, x.taken(p).run, 7, &x.rec))
			x.now.Wall++
		}
		x.submit("f", "plain", func(j *Submission) { j.Space = durableSpace })
		x.ok(x.s.Bury(x.now, p, x.taken(p).run, 7, &x.rec))
		x.want()
		return x
	}
	count := func(x *testSched, want string) {
		t.Helper()
		x.pass(0)
		st, _ := x.s.StatusOf([]byte("f"))
		if got := fmt.Sprintf("%d failed, %d of them buried", st.Failed, st.Buried); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		x.want()
	}
	const age = 31 * 24 * 3600 * 1000 // more than defaultKept
	x := buried()
	count(x, "4 failed, 3 of them buried")
	x.pass(age)
	count(x, "3 failed, 3 of them buried")
	x = buried(PolicyRule{"f", FromFile, map[string]string{"retries": "1"}})
	x.pass(age)
	count(x, "3 failed, 3 of them buried")
	x = buried(PolicyRule{"f", FromFile, map[string]string{"keep-failed": "2"}})
	count(x, "3 failed, 2 of them buried")
	x = buried(PolicyRule{"f", FromFile, map[string]string{"keep-failed": "0"}})
	count(x, "0 failed, 0 of them buried")
}

// TestBuryByRules checks what a burial makes of a job that has rules of its own for failures: it has failed once.
func TestBuryByRules(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	p := x.autoDeletePeer("f")
	master := x.peer()
	x.submit("f", "a", owned(master, 7))
	for range testRules[ownedSpace].MaxFailures {
		x.ok(x.s.Bury(x.now, p, x.taken(p).run, 7, &x.rec))
	}
	x.want("2 7 failed ")
}

// TestGivenUpIsBuried checks that a numbered job that a policy gives up is found among the buried ones, and moves to a
// dead-letter queue under a number of its own when there is one.
func TestGivenUpIsBuried(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules, Shards: 3})
	x.setRules(PolicyRule{"f", FromFile, map[string]string{"retries": "0"}})
	p := x.autoDeletePeer("f", "g")
	n := x.put("f", 5)
	x.ok(x.s.Fail(x.now, p, x.taken(p).run, nil, &x.rec))
	if ref, ok := x.s.Peek([]byte("f"), PeekBuried); !ok || ref.Seq != n {
		t.Errorf("the job that was given up is not buried: %v", ref)
	}
	if n, _ := x.s.Kick(x.now, []byte("f"), 9, true, &x.rec); n != 1 {
		t.Errorf("%d jobs are kicked", n)
	}
	x.setRules(PolicyRule{"f", FromFile, map[string]string{"retries": "0", "dead-letter": "g"}})
	x.ok(x.s.Fail(x.now, p, x.taken(p).run, nil, &x.rec))
	x.pass(0)
	j := x.taken(p)
	if j.queue != "g" || j.ref.Seq == n || j.name != fmt.Sprint(j.ref.Seq) {
		t.Errorf("the dead letter is %+v", j)
	}
	x.s.View(x.now, j.ref, func(v *JobView) {
		if v.Counts.Runs != 3 || v.Counts.Buried != 2 || v.Counts.Kicked != 1 {
			t.Errorf("its counts are %+v", v.Counts)
		}
	})
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestNumberedNameIsNotKept checks that with unique-for nothing is kept of a numbered job that was kept as done long
// enough: its name is its number, which no other job has.
func TestNumberedNameIsNotKept(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.setRules(PolicyRule{"f", FromFile, map[string]string{"keep-done": "1s", "unique-for": "1h"}})
	p := x.autoDeletePeer("f")
	x.put("f", 0)
	x.ok(x.s.Finish(x.now, p, x.taken(p).run, nil, &x.rec))
	if got := x.s.Stats(); got.KeptDone != 1 {
		t.Errorf("%d jobs are kept as done, want 1", got.KeptDone)
	}
	x.pass(2000)
	if got := x.s.Stats(); got.KeptDone+got.KeptNames != 0 {
		t.Errorf("%d jobs are kept as done, and %d names, want none", got.KeptDone, got.KeptNames)
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestReserveNumberPolicies checks that a job of a number starts while its queue is paused by PauseFor, and not while
// an operator has paused the queue, or as many jobs of it run as may.
func TestReserveNumberPolicies(t *testing.T) {
	f := func(want bool, values map[string]string) {
		t.Helper()
		x := newTestSched(t, Options{Rules: testRules})
		p := x.autoDeletePeer()
		x.ok(x.s.PauseFor(x.now, []byte("f"), 5000))
		first, second := x.put("f", 0), x.put("f", 0)
		if !x.s.ReserveNumber(x.now, p, numberedSpace, first, 1, &x.rec) {
			t.Fatal("the first job does not start")
		}
		x.setRules(PolicyRule{"f", FromRunTime, values})
		if got := x.s.ReserveNumber(x.now, p, numberedSpace, second, 1, &x.rec); got != want {
			t.Errorf("%v: the second job starts: %v", values, got)
		}
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
	}
	f(true, nil)
	f(true, map[string]string{"concurrency": "2"})
	f(false, map[string]string{"concurrency": "1"})
	f(false, map[string]string{"paused": "hand-out"})
	x := newTestSched(t, Options{Rules: testRules})
	n := x.put("f", 0)
	x.s.Halt()
	if x.s.ReserveNumber(x.now, x.autoDeletePeer(), numberedSpace, n, 1, &x.rec) {
		t.Error("a halted scheduler hands out a job by its number")
	}
}

// TestPauseForAndRate checks that a queue with a rate that is paused hands out when both the pause is over and there is
// credit, and that another policy does not end the pause.
func TestPauseForAndRate(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.setRules(PolicyRule{"f", FromRunTime, map[string]string{"rate": "1/10s"}})
	p := x.autoDeletePeer("f")
	x.put("f", 0)
	x.put("f", 0)
	x.taken(p)
	x.ok(x.s.PauseFor(x.now, []byte("f"), 3000))
	ready := func(want bool) {
		t.Helper()
		x.pass(0)
		if got, _ := x.s.TryReserve(x.now, p, 1, &x.rec); got != want {
			t.Errorf("after %d ms a job starts: %v", x.now.Mono-10*grain, got)
		}
		x.rec.take()
	}
	x.pass(4000)
	ready(false)
	x.ok(x.s.PauseFor(x.now, []byte("f"), 20_000))
	x.pass(7000)
	ready(false)
	x.setRules(PolicyRule{"f", FromRunTime, map[string]string{"concurrency": "9"}})
	ready(false)
	x.setRules()
	ready(false)
	x.pass(14_000)
	ready(true)
}

// TestNumberedBeside checks where a numbered job stands beside jobs of other spaces: by priority, then by the second of
// its submission, whenever it came back.
func TestNumberedBeside(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	p := x.autoDeletePeer("f")
	x.put("f", 0)
	x.pass(1000)
	x.submit("f", "plain", func(j *Submission) { j.Space = durableSpace })
	x.pass(1000)
	late := x.put("f", 1)
	first := x.taken(p)
	if first.ref.Seq != late {
		t.Errorf("first is %s, want the larger priority", first.name)
	}
	one := x.taken(p)
	x.ok(x.s.Release(x.now, p, one.run, 0, 0, &x.rec))
	if again := x.taken(p); again.ref != one.ref {
		t.Errorf("a job that was returned stands behind %s", again.name)
	}
	if last := x.taken(p); last.name != "plain" {
		t.Errorf("last is %s", last.name)
	}
}

// TestNumberedNames checks that a NameOnly peer is not handed a numbered job whose number is the name of a job that it
// holds.
func TestNumberedNames(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	p := x.capable(NameOnly, "f")
	x.put("f", 0)
	x.put("f", 0)
	x.submit("f", "3", func(j *Submission) { j.Space, j.Priority = durableSpace, 5 })
	if j := x.taken(p); j.name != "3" {
		t.Fatalf("first is %s", j.name)
	}
	x.put("f", 3) // its number is taken below by a plain name
	for range 3 {
		if ok, _ := x.s.TryReserve(x.now, p, 1, &x.rec); !ok {
			break
		}
	}
	for _, d := range x.rec.take() {
		if d.job.name == "3" {
			t.Error("the peer holds two jobs of one name")
		}
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestNumberedExpires checks that numbered jobs expire by their due times, which are in no order in their index.
func TestNumberedExpires(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.setRules(PolicyRule{"f", FromFile, map[string]string{"job-ttl": "3s"}})
	p := x.autoDeletePeer("f")
	x.put("f", 0)
	back := x.taken(p).run
	for range 600 {
		x.put("f", 0)
	}
	x.pass(2000)
	x.put("f", 0)
	x.ok(x.s.Release(x.now, p, back, 0, 0, &x.rec))
	x.pass(3000)
	if got := x.s.Stats(); got.Numbered.Ready != 2 || got.Expired != 600 {
		t.Errorf("%d jobs are left and %d have expired, want those of the last 3 seconds", got.Numbered.Ready, got.Expired)
	}
	x.pass(1000)
	if got := x.s.Stats(); got.Numbered.Ready != 0 {
		t.Errorf("%d jobs are not expired in time", got.Numbered.Ready)
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestNumberedExpiresInLanes checks that a sweep of a queue with keys, where numbered jobs stand by their submission,
// ends the expired ones behind delayed ones that have not expired, in parts of any size.
func TestNumberedExpiresInLanes(t *testing.T) {
	for _, batch := range []int{0, 4} {
		x := newTestSched(t, Options{Rules: testRules, Batch: batch})
		x.setRules(PolicyRule{"f", FromFile, map[string]string{"job-ttl": "3s", "key": "json user", "fair": "key"}})
		for range 300 {
			x.put("f", 0, func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 4 })
		}
		x.pass(2000)
		for range 300 {
			x.put("f", 0)
		}
		x.pass(2000)
		for left := 600; left >= 0; left -= 300 {
			if got := x.s.Stats(); got.Numbered.Ready != left {
				t.Errorf("batch %d: %d jobs are left, want %d", batch, got.Numbered.Ready, left)
			}
			x.pass(2000)
			if err := x.s.check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNumberedAllocations checks that in the steady state the way of a numbered job allocates nothing.
func TestNumberedAllocations(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules, Shards: 4})
	p := x.autoDeletePeer("f", "g")
	var run Run
	sink := sinkFunc(func(d *Delivery) { run = d.Job.Run() })
	j := Submission{Space: numberedSpace, Queue: []byte("f"), Workload: []byte("body"), Timeout: 60}
	way := func() {
		x.now.Mono += 7
		x.now.Wall += 7
		_ = x.s.Submit(x.now, &j, sink)
		_, _ = x.s.TryReserve(x.now, p, 1, sink)
		_ = x.s.Touch(x.now, p, run)
		_ = x.s.Release(x.now, p, run, 3, 0, sink)
		x.s.ReserveNumber(x.now, p, numberedSpace, j.Number, 2, sink)
		_ = x.s.Finish(x.now, p, run, nil, sink)
	}
	for range 2000 {
		way()
	}
	if a := testing.AllocsPerRun(1000, way); a != 0 {
		t.Errorf("%v allocations", a)
	}
	if n := x.s.Stats().Jobs; n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// sinkFunc is a Sink.
type sinkFunc func(d *Delivery)

func (f sinkFunc) Deliver(d *Delivery) { f(d) }
