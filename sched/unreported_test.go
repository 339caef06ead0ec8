package sched

import (
	"fmt"
	"testing"

	"treadle/sched/heap"
)

// newRevokedRun returns a worker of queue f that runs job a. The caller then revokes the run.
func newRevokedRun(t *testing.T, capabilities Capabilities) (x *testSched, p *Peer, old Run) {
	x = newTestSched(t, Options{Rules: testRules})
	x.s.SetTimeout(2000)
	client := x.peer()
	p = x.capable(capabilities, "f")
	x.reserve(p, 1)
	x.submit("f", "a", func(j *Submission) { j.Await, j.Tag = client, 7 })
	old = x.want("2 1 assign a")[0].job.run
	return x, p, old
}

// TestLateReportOfARun checks that a report by an overdue run finds nothing: neither the run of
// that job that the same worker has meanwhile, nor a later job of that name.
func TestLateReportOfARun(t *testing.T) {
	f := func(name string, again func(x *testSched, p *Peer), want string) {
		t.Helper()
		x, p, old := newRevokedRun(t, 0)
		again(x, p)
		x.reserve(p, 2)
		run := x.want(want)[0].job.run
		for _, err := range []error{
			x.s.Finish(x.now, p, old, []byte("late"), &x.rec), x.s.Fail(x.now, p, old, nil, &x.rec),
			x.s.Delay(x.now, p, old, 9, 1, &x.rec),
		} {
			if err != ErrNotFound {
				t.Errorf("%s: a late report: %v", name, err)
			}
		}
		x.want()
		x.ok(x.s.Finish(x.now, p, run, []byte("in time"), &x.rec))
	}
	timeOut := func(x *testSched, _ *Peer) {
		x.now.Mono += 2500
		x.s.ticks(x.now, &x.rec)
	}
	f("its own job again", timeOut, "2 2 assign a")
	f("what replaced it", func(x *testSched, p *Peer) {
		timeOut(x, p)
		x.submit("f", "a", func(j *Submission) { j.Workload = []byte("another") })
	}, "2 2 assign a")
	f("what came when it was removed", func(x *testSched, _ *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
		x.want("1 7 removed ")
		x.submit("f", "a")
	}, "2 2 assign a")
}

// TestRunsOfTwoProcesses checks that the first run of a process is not the first run of another.
func TestRunsOfTwoProcesses(t *testing.T) {
	runs := make(map[Run]bool)
	for range 10 {
		x := newTestSched(t, Options{})
		p := x.peer("f")
		x.reserve(p, 1)
		x.submit("f", "a")
		runs[x.want("1 1 assign a")[0].job.run] = true
	}
	if len(runs) != 10 {
		t.Errorf("10 schedulers have %d first runs", len(runs))
	}
}

// TestUnreportedName checks that a NameOnly peer is not handed a job of the name of its revoked run,
// however the run was revoked, while another peer is. It is handed the job when it has reported the
// run, or when another time-out has passed.
func TestUnreportedName(t *testing.T) {
	f := func(name string, capabilities Capabilities, take func(x *testSched, p *Peer), until func(x *testSched, p *Peer), want ...string) {
		t.Helper()
		x, p, _ := newRevokedRun(t, capabilities)
		take(x, p)
		x.reserve(p, 2)
		x.want()
		until(x, p)
		x.want(want...)
		x.t = t
	}
	timeOut := func(x *testSched, _ *Peer) {
		x.now.Mono += 2200
		x.s.ticks(x.now, &x.rec)
	}
	remove := func(x *testSched, _ *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
		x.submit("f", "a")
		x.want("1 7 removed ")
	}
	report := func(x *testSched, p *Peer) { x.report(p, "f", "a", false) }
	f("timed out, reported", NameOnly, timeOut, report, "2 2 assign a")
	f("timed out, reported twice", NameOnly, timeOut, func(x *testSched, p *Peer) {
		report(x, p)
		x.report(p, "f", "a", true)
	}, "2 2 assign a")
	f("timed out, and out again", NameOnly, timeOut, timeOut, "2 2 assign a")
	f("removed, reported", NameOnly, remove, report, "2 2 assign a")
	f("removed, its time is over", NameOnly, remove, timeOut, "2 2 assign a")
	f("another worker", NameOnly, timeOut, func(x *testSched, _ *Peer) { x.reserve(x.capable(NameOnly, "f"), 1) }, "3 1 assign a")
	f("another job", NameOnly, timeOut, func(x *testSched, _ *Peer) { x.submit("f", "b") }, "2 2 assign b")
	f("another name is reported", NameOnly, timeOut, func(x *testSched, p *Peer) { x.report(p, "f", "b", false) })
	f("declined", NameOnly, timeOut, func(x *testSched, p *Peer) {
		if err := x.s.ReleaseNewest(x.now, p, 1, &x.rec); err != ErrNotFound {
			t.Error(err)
		}
	}, "2 2 assign a")
	f("it stops serving and begins again", NameOnly, timeOut, func(x *testSched, p *Peer) {
		x.s.Unwatch(p, []byte("f"))
		x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
		x.want()
		report(x, p)
	}, "2 2 assign a")
	f("meanwhile the queue is dropped", NameOnly, remove, func(x *testSched, p *Peer) {
		x.s.Unwatch(p, []byte("f"))
		if !x.s.Drop([]byte("f")) {
			t.Error("the queue is not dropped")
		}
		x.s.ticks(x.now, &x.rec)
		x.submit("g", "takes the number")
		x.submit("f", "a")
		x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
		x.want()
		report(x, p)
	}, "2 2 assign a")
	f("it leaves", NameOnly, timeOut, func(x *testSched, p *Peer) {
		x.s.Disconnect(x.now, p, &x.rec)
		x.reserve(x.capable(NameOnly, "f"), 1)
	}, "3 1 assign a")
	f("another time-out has passed when it serves nothing", NameOnly, timeOut, func(x *testSched, p *Peer) {
		x.s.Unwatch(p, []byte("f"))
		timeOut(x, p)
		x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
	}, "2 2 assign a")
}

// TestUnreportedForEver checks that without a time-out the name of a removed job stays unreported
// until its worker reports it.
func TestUnreportedForEver(t *testing.T) {
	x, p, _ := newRevokedRun(t, NameOnly)
	x.s.SetTimeout(0)
	x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	x.submit("f", "a")
	x.reserve(p, 2)
	x.now.Mono += 1 << 50
	x.s.ticks(x.now, &x.rec)
	x.want("1 7 removed ")
	x.report(p, "f", "a", false)
	x.want("2 2 assign a")
}

// TestUnreportedBroadcast checks that a NameOnly worker's report of a broadcast job does not end a
// later run by that name, which it is handed when the queue is no longer broadcast.
func TestUnreportedBroadcast(t *testing.T) {
	x := newTestSched(t, Options{})
	x.s.SetTimeout(2000)
	p, other := x.capable(NameOnly, "f"), x.peer()
	x.ok(x.s.Watch(x.now, other, []byte("f"), true, &x.rec))
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.submit("f", "a")
	x.want("1 1 broadcast a", "1 2 broadcast a")
	x.s.Disconnect(x.now, other, &x.rec)
	x.submit("f", "a")
	x.reserve(p, 3)
	x.want()
	x.report(p, "f", "a", false)
	x.want()
	x.report(p, "f", "a", false)
	x.want("1 3 assign a")
	x.report(p, "f", "a", true)
}

// TestBroadcastBesideAHeldName checks that a NameOnly peer that holds a job is not sent a broadcast of
// that name. When no other peer waits, the broadcast waits until the job is done.
func TestBroadcastBesideAHeldName(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, p, other := x.peer(), x.capable(NameOnly, "f"), x.peer()
	x.reserve(p, 1)
	x.submit("f", "a", owned(master, 7))
	run := x.want("2 1 assign a")[0].job.run
	x.ok(x.s.Watch(x.now, other, []byte("f"), true, &x.rec))
	x.reserve(p, 2)
	x.submit("f", "a")
	x.submit("f", "b")
	x.want("2 2 broadcast b")
	x.reserve(p, 3)
	x.want()
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.want("1 7 result ", "2 3 broadcast a")
}

// TestWithheldIsBroadcast checks that withheld jobs are broadcast when a worker registers for
// broadcasts.
func TestWithheldIsBroadcast(t *testing.T) {
	x, p, _ := newRevokedRun(t, NameOnly)
	x.reserve(p, 2)
	x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	x.submit("f", "a")
	x.want("1 7 removed ")
	other := x.peer()
	x.ok(x.s.Watch(x.now, other, []byte("f"), true, &x.rec))
	x.s.ticks(x.now, &x.rec)
	x.want("2 2 broadcast a")
}

// TestReleaseThatMayBeLate checks a release by tag (JOB_UNASSIGNED has the message id alone) that
// may be about a revoked run. It releases the job that the peer holds, and the peer is not handed
// that job again before it has reported it.
func TestReleaseThatMayBeLate(t *testing.T) {
	x, p, _ := newRevokedRun(t, NameOnly)
	x.now.Mono += 2200
	x.s.ticks(x.now, &x.rec)
	x.submit("f", "b")
	x.reserve(p, 1) // the same id
	x.want("2 1 assign b")
	x.ok(x.s.ReleaseNewest(x.now, p, 1, &x.rec))
	x.reserve(p, 2)
	x.want()
	x.report(p, "f", "b", false)
	x.want("2 2 assign b")
	other := x.capable(NameOnly, "f")
	x.reserve(other, 1)
	x.want("3 1 assign a")
}

// TestVeryManyUnreported checks that a peer with too many unreported names is handed no job of the
// queue until a time-out has passed, and takes no more memory.
func TestVeryManyUnreported(t *testing.T) {
	x := newTestSched(t, Options{Window: 1 << 30})
	x.s.SetTimeout(2000)
	p := x.capable(NameOnly, "f", "g")
	const many = maxUnreported + 10
	for i := range many {
		x.reserve(p, uint64(i))
		x.submit("f", fmt.Sprint(i))
	}
	x.rec.take()
	x.now.Mono += 2200
	x.s.ticks(x.now, &x.rec)
	x.reserve(p, many)
	x.submit("f", "other")
	x.want()
	if n := len(x.s.shards[0].byGraceEnd); n != maxUnreported+1 {
		t.Errorf("%d names are remembered", n)
	}
	x.submit("g", "of another queue")
	x.want(fmt.Sprint("1 ", many, " assign of another queue"))
	x.reserve(p, many+1)
	for i := range many {
		x.report(p, "f", fmt.Sprint(i), false)
	}
	x.want()
	x.now.Mono += 2200
	x.s.ticks(x.now, &x.rec)
	x.want(fmt.Sprint("1 ", many+1, " assign 0"))
	x.s.Disconnect(x.now, p, &x.rec)
	if n := len(x.s.shards[0].byGraceEnd) + int(x.s.sharedQuota.Load()); n != 0 {
		t.Errorf("%d are left of a peer that has left", n)
	}
}

// TestJobForOneOfMany checks that the Ticks find the only worker, of very many, that may have a
// job.
func TestJobForOneOfMany(t *testing.T) {
	x := newTestSched(t, Options{})
	var peers []*Peer
	for i := range 3 * heap.MaxInOrder {
		p := x.capable(NameOnly, "f")
		peers = append(peers, p)
		x.reserve(p, 1)
		x.submit("f", "a")
		x.s.ticks(x.now, &x.rec) // those before it stand in line still
		x.want(fmt.Sprint(i+1, " 1 assign a"))
		x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	}
	for _, p := range peers {
		x.reserve(p, 2)
	}
	free := x.capable(NameOnly, "f")
	x.reserve(free, 9)
	for i := range 2 {
		x.submit("f", "a")
		x.submit("f", "b")
		x.want(fmt.Sprint(i+1, " 2 assign b"))
		x.s.ticks(x.now, &x.rec)
		x.want(fmt.Sprint(free.id, " 9 assign a"))
		x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
		x.s.Remove(x.now, 0, []byte("f"), []byte("b"), &x.rec)
		x.report(free, "f", "a", false)
		x.reserve(free, 9)
	}
	x.report(peers[2*heap.MaxInOrder], "f", "a", false)
	x.s.Disconnect(x.now, free, &x.rec)
	x.submit("f", "a")
	x.want()
	x.s.ticks(x.now, &x.rec)
	x.want(fmt.Sprint(2*heap.MaxInOrder+1, " 2 assign a"))
}
