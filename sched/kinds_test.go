package sched

import (
	"fmt"
	"strings"
	"testing"
)

// The tests of this file share a queue between jobs of several spaces and peers of several capabilities, by
// testRules.

func (x *testSched) capable(capabilities Capabilities, queues ...string) *Peer {
	p := x.peer(queues...)
	for _, q := range queues { // once more, with its capabilities
		x.s.Unwatch(p, []byte(q))
	}
	p.capabilities, p.class = capabilities, classFor(capabilities)
	for _, q := range queues {
		if err := x.s.Watch(x.now, p, []byte(q), false, &x.rec); err != nil {
			x.t.Fatal(err)
		}
	}
	return p
}

func owned(by *Peer, tag uint64) func(*Submission) {
	return func(j *Submission) { j.Space, j.Await, j.Tag = ownedSpace, by, tag }
}

func (x *testSched) ok(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Error(err)
	}
}

// report is a peer's report of a job by its name. held reports whether the peer holds such a job.
func (x *testSched) report(p *Peer, queue, name string, held bool) Run {
	x.t.Helper()
	run, ok := x.s.Report(x.now, p, []byte(queue), []byte(name), &x.rec)
	if ok != held {
		x.t.Errorf("%q of %q is held: %v, want %v", name, queue, ok, held)
	}
	return run
}

// TestNamedClash checks that a NameOnly peer that holds a job is not handed another of that name until
// the first has ended, in whatever way.
func TestNamedClash(t *testing.T) {
	f := func(name string, leave func(x *testSched, p, master *Peer, ref Run), want ...string) {
		t.Helper()
		x := newTestSched(t, Options{Rules: testRules})
		master, p := x.peer(), x.capable(NameOnly, "f")
		x.reserve(p, 1)
		x.reserve(p, 2)
		x.submit("f", "a", owned(master, 7))
		ref := x.want("2 1 assign a")[0].job.run
		x.submit("f", "a")
		x.want()
		leave(x, p, master, ref)
		x.want(want...)
	}
	f("finished", func(x *testSched, p, _ *Peer, ref Run) { x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec)) },
		"1 7 result ", "2 2 assign a")
	f("removed", func(x *testSched, p, _ *Peer, _ Run) {
		x.s.Remove(x.now, ownedSpace, []byte("f"), []byte("a"), &x.rec)
		x.want("1 7 removed ")
		x.report(p, "f", "a", false)
	}, "2 2 assign a")
	f("failed", func(x *testSched, p, _ *Peer, ref Run) { x.ok(x.s.Fail(x.now, p, ref, nil, &x.rec)) },
		"2 2 assign a")
	f("failed, its owner gone", func(x *testSched, p, master *Peer, ref Run) {
		x.s.Disconnect(x.now, master, &x.rec)
		x.ok(x.s.Fail(x.now, p, ref, nil, &x.rec))
	}, "2 2 assign a")
	f("delayed", func(x *testSched, p, _ *Peer, ref Run) { x.ok(x.s.Delay(x.now, p, ref, 5, 0, &x.rec)) },
		"2 2 assign a")
	f("parked", func(x *testSched, p, _ *Peer, ref Run) {
		if got, err := x.s.AcquireLock(x.now, p, ref, "lock", 0, &x.rec); got || err != nil {
			x.t.Error(got, err)
		}
	}, "2 2 assign a")
}

// TestManyClashes checks that no job is looked for behind very many ready jobs that clash. The job
// is found when the peer has ended enough of those that it holds.
func TestManyClashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	x := newTestSched(t, Options{Rules: testRules})
	master, p := x.peer(), x.capable(NameOnly, "f")
	const many = maxClashes + 2
	var held []Run
	for i := range many {
		x.reserve(p, uint64(i))
		x.submit("f", fmt.Sprint(i), owned(master, 7))
		held = append(held, x.want(fmt.Sprint("2 ", i, " assign ", i))[0].job.run)
	}
	x.submit("f", "other", func(j *Submission) { j.Priority = -1 }) // and the peer leaves the line
	for i := range many {
		x.submit("f", fmt.Sprint(i))
	}
	x.reserve(p, many)
	x.want()
	x.ok(x.s.Finish(x.now, p, held[many-1], nil, &x.rec)) // it is behind the scanned jobs
	x.want("1 7 result ")
	x.ok(x.s.Finish(x.now, p, held[0], nil, &x.rec))
	x.want("1 7 result ", fmt.Sprint("2 ", many, " assign 0"))
	x.reserve(p, many+1)
	x.want(fmt.Sprint("2 ", many+1, " assign ", many-1))
}

// TestBroadcastAmongKinds checks that each sleeping peer receives a broadcast, and leaves the line.
func TestBroadcastAmongKinds(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, first, named := x.peer(), x.peer("f"), x.capable(NameOnly, "f")
	x.reserve(named, 1)
	x.submit("f", "a", owned(master, 7))
	x.want("3 1 assign a")
	x.ok(x.s.Watch(x.now, first, []byte("f"), true, &x.rec))
	x.ok(x.s.Sleep(x.now, first, 2, &x.rec))
	x.ok(x.s.Sleep(x.now, named, 3, &x.rec))
	later := func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 1 }
	x.submit("f", "a", later) // not for named, which holds one of that name
	x.submit("f", "b", owned(master, 8), later)
	x.now.Wall += 1000
	x.s.ticks(x.now, &x.rec)
	x.want("2 2 wake-with a", "3 3 wake ") // of b
}

// TestGlobalBroadcast checks that a job with a Global name that is broadcast on submission frees
// its name at once.
func TestGlobalBroadcast(t *testing.T) {
	rules := testRules
	rules[5] = Rules{Global: true}
	x := newTestSched(t, Options{Rules: rules})
	p := x.peer("f")
	x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
	for range 2 {
		x.reserve(p, 1)
		if out, err := x.submit("f", "a", func(j *Submission) { j.Space = 5 }); out != added || err != nil {
			t.Error(out, err)
		}
		x.want("1 1 broadcast a")
	}
	x.submit("f", "b", func(j *Submission) { j.Space = 5 })
	if _, err := x.submit("g", "b", func(j *Submission) { j.Space = 5 }); err != ErrDuplicate {
		t.Error(err)
	}
	x.reserve(p, 1)
	x.want("1 1 broadcast b")
}

// nameChecker is a sink that checks that a job's name is free when its owner receives the job's
// end.
type nameChecker struct {
	t        *testing.T
	s        *Scheduler
	notified int
}

func (e *nameChecker) Deliver(d *Delivery) {
	if d.Effect != Result && d.Effect != Failed {
		return
	}
	e.notified++
	if !e.s.takeGlobalName(d.Job.Space, d.Job.Name) {
		e.t.Errorf("the end of %q is delivered while its name is taken", d.Job.Name)
		return
	}
	e.s.freeGlobalName(globalName{d.Job.Space, string(d.Job.Name)})
}

// TestNameIsFreeAtNotification checks that a peer may submit a job of the same name as soon as it
// receives the end of a job, without waiting for another goroutine.
func TestNameIsFreeAtNotification(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	owner, p := x.peer(), x.peer("f")
	sink := &nameChecker{t: t, s: x.s}
	x.submit("f", "done", owned(owner, 1))
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "done"), nil, sink))
	x.submit("f", "dies", owned(owner, 2))
	for range testRules[ownedSpace].MaxFailures {
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "dies"), nil, sink))
	}
	if sink.notified != 2 {
		t.Errorf("%d ends were delivered", sink.notified)
	}
}

// TestDepartedNames checks that a peer that comes back with all its jobs finds their names free,
// except those of running jobs, before the Ticks have reaped the departed peer.
func TestDepartedNames(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	first, second, p := x.peer(), x.peer(), x.peer("f")
	for i := range 2 * defaultBatch {
		x.submit("f", fmt.Sprint(i), owned(first, 1))
	}
	x.reserve(p, 9)
	x.want("3 9 assign 0")
	x.s.Disconnect(x.now, first, &x.rec)
	for i := range 2 * defaultBatch {
		out, err := x.submit("f", fmt.Sprint(i), owned(second, 2))
		if i == 0 && err != ErrDuplicate || i > 0 && (out != added || err != nil) {
			t.Fatalf("job %d: %v, %v", i, out, err)
		}
	}
	if _, err := x.submit("f", "1", owned(first, 1)); err != ErrDuplicate {
		t.Errorf("the name of one who is here: %v", err)
	}
	x.want()
	x.s.ticks(x.now, &x.rec)
	x.want()
	if n := x.s.Stats().Jobs; n != 2*defaultBatch {
		t.Errorf("%d jobs are left", n)
	}
}

// TestLeavingIsNoFailure checks that the departure of a worker is no failure: an await for the
// first failure goes on.
func TestLeavingIsNoFailure(t *testing.T) {
	x := newTestSched(t, Options{})
	patient, hasty, p := x.peer(), x.peer(), x.peer("f")
	x.reserve(p, 1)
	x.submit("f", "a", func(j *Submission) { j.Await, j.Tag = patient, 7 })
	x.submit("f", "a", func(j *Submission) { j.Await, j.Tag, j.OnFail = hasty, 8, true })
	x.want("3 1 assign a")
	x.s.Disconnect(x.now, p, &x.rec)
	x.want()
}

// TestReleaseNewest checks that Release gives back the job handed out last under a tag, over all
// queues.
func TestReleaseNewest(t *testing.T) {
	for _, order := range [][]string{{"f", "g"}, {"g", "f"}} {
		x := newTestSched(t, Options{Shards: 3})
		p := x.peer("f", "g")
		for _, q := range order {
			x.reserve(p, 5)
			x.submit(q, q)
		}
		x.want("1 5 assign "+order[0], "1 5 assign "+order[1])
		x.ok(x.s.ReleaseNewest(x.now, p, 5, &x.rec))
		x.reserve(p, 6)
		x.want("1 6 assign " + order[1])
		x.ok(x.s.ReleaseNewest(x.now, p, 5, &x.rec))
		x.reserve(p, 7)
		x.want("1 7 assign " + order[0])
		if err := x.s.ReleaseNewest(x.now, p, 5, &x.rec); err != ErrNotFound {
			t.Error(err)
		}
		x.want()
	}
}

// TestLockLine checks that a job that waits with a small count does not block a job with a larger
// one, and that a woken job gets the lock when it asks again.
func TestLockLine(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("f")
	var refs []Run
	for i, name := range []string{"a", "b", "c", "d"} {
		x.reserve(p, uint64(i))
		x.submit("f", name)
		refs = append(refs, x.rec.take()[0].job.run)
	}
	f := func(job, most int, want bool) {
		t.Helper()
		if got, err := x.s.AcquireLock(x.now, p, refs[job], "lock", most, &x.rec); got != want || err != nil {
			t.Errorf("job %d: %v, %v", job, got, err)
		}
	}
	f(0, 2, true)
	f(1, 2, true)
	f(2, 1, false)
	f(3, 2, false)
	x.reserve(p, 9)
	x.ok(x.s.ReleaseLock(x.now, p, refs[0], "lock", &x.rec))
	refs[3] = x.want("1 9 assign d")[0].job.run
	f(3, 2, true)
	x.ok(x.s.Finish(x.now, p, refs[1], nil, &x.rec))
	x.want()
	x.reserve(p, 10)
	x.ok(x.s.Finish(x.now, p, refs[3], nil, &x.rec))
	refs[2] = x.want("1 10 assign c")[0].job.run
	f(2, 1, true)
}

// TestParkedOrphan checks that a job whose owner leaves while it is running, and that is parked
// then, is not run again.
func TestParkedOrphan(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, p := x.peer(), x.peer("f")
	x.s.SetLockTimeout(1000)
	x.reserve(p, 1)
	x.submit("f", "a", owned(master, 7))
	ref := x.want("2 1 assign a")[0].job.run
	x.s.Disconnect(x.now, master, &x.rec)
	if got, err := x.s.AcquireLock(x.now, p, ref, "lock", 0, &x.rec); got || err != nil {
		t.Error(got, err)
	}
	x.reserve(p, 2)
	x.now.Mono += 2000
	x.s.ticks(x.now, &x.rec)
	x.want()
	if n := x.s.Stats().Jobs; n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// TestLeavingOwnerIsToldNothing checks that a peer that leaves receives nothing about its queued
// jobs.
func TestLeavingOwnerIsToldNothing(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, p := x.peer(), x.peer("f")
	x.reserve(p, 1)
	for _, name := range []string{"running", "queued", "queued too"} {
		x.submit("f", name, owned(master, 7))
	}
	x.want("2 1 assign running")
	x.s.Disconnect(x.now, master, &x.rec)
	x.want()
	if n := x.s.Stats().Jobs; n != 1 {
		t.Errorf("%d jobs are left, want the one that runs", n)
	}
}

// TestListenToNamesake checks that a listener receives the end of its job, not of a job of the same
// name in another space.
func TestListenToNamesake(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, listener, p := x.peer(), x.peer(), x.peer("f")
	x.ok(x.s.Listen(listener, 0, []byte("f"), []byte("a"), 5))
	x.submit("f", "a", owned(master, 7))
	x.reserve(p, 1)
	namesake := x.want("3 1 assign a")[0].job.run
	_, err := x.s.Publish(p, namesake, []byte("not for it"), 9, &x.rec)
	x.ok(err)
	x.ok(x.s.Finish(x.now, p, namesake, nil, &x.rec))
	x.want("1 7 result ")
	x.submit("f", "a")
	x.reserve(p, 2)
	ref := x.want("3 2 assign a")[0].job.run
	_, err = x.s.Publish(p, ref, []byte("data"), 9, &x.rec)
	x.ok(err)
	x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec))
	x.want("2 5 chunk ", "2 5 end ")
}

// TestLongNamesAreForgotten checks that a queue whose name is too long for the peers that call Drop
// goes with its last worker and its last job, in either order. Other queues stay.
func TestLongNamesAreForgotten(t *testing.T) {
	long := strings.Repeat("q", maxShortQueue+1)
	f := func(what string, use func(x *testSched, p *Peer)) {
		t.Helper()
		x := newTestSched(t, Options{Rules: testRules})
		p := x.capable(LongNames, long, long[1:])
		use(x, p)
		x.s.ticks(x.now, &x.rec)
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := x.s.Stats().Queues; n != 1 {
			t.Errorf("%s: there are %d queues, want that of the shorter name", what, n)
		}
		again := x.capable(LongNames, long)
		x.submit(long, "again")
		x.rec.take()
		x.reserve(again, 5)
		if all := x.rec.take(); len(all) != 1 || all[0].job.name != "again" {
			t.Errorf("%s: used again, it gives %v", what, all)
		}
	}
	job := func(x *testSched, p *Peer) Run {
		x.submit(long, "a")
		x.reserve(p, 1)
		return x.want("1 1 assign a")[0].job.run
	}
	f("left unused", func(x *testSched, p *Peer) { x.s.Unwatch(p, []byte(long)) })
	f("its worker has gone", func(x *testSched, p *Peer) { x.s.Disconnect(x.now, p, &x.rec) })
	f("a job outlives its worker's watch", func(x *testSched, p *Peer) {
		ref := job(x, p)
		x.s.Unwatch(p, []byte(long))
		x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec))
	})
	f("a job is removed", func(x *testSched, p *Peer) {
		x.s.Unwatch(p, []byte(long))
		x.submit(long, "a")
		x.s.Remove(x.now, 0, []byte(long), []byte("a"), &x.rec)
	})
	f("its job's owner has gone", func(x *testSched, p *Peer) {
		x.s.Unwatch(p, []byte(long))
		master := x.peer()
		x.submit(long, "a", owned(master, 7))
		x.s.Disconnect(x.now, master, &x.rec)
	})
}
