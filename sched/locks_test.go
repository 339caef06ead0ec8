package sched

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// newLockSched returns a worker with a job that has a lock, and jobs that are parked for it.
func newLockSched(t *testing.T, parked ...string) (x *testSched, p *Peer, holder Run) {
	t.Helper()
	x = newTestSched(t, Options{Shards: 3})
	p = x.peer("f", "g")
	for i, name := range append([]string{"holder"}, parked...) {
		queue := "fg"[i%2 : i%2+1]
		x.submit(queue, name)
		ref := x.reserveJob(p, name)
		if i == 0 {
			holder = ref
		}
		x.acquire(p, ref, 1, i == 0)
	}
	return x, p, holder
}

// reserveJob reserves the job that is ready for a peer.
func (x *testSched) reserveJob(p *Peer, name string) Run {
	x.t.Helper()
	x.reserve(p, 1)
	all := x.want(fmt.Sprintf("%d 1 assign %s", p.id, name))
	if len(all) != 1 {
		x.t.FailNow()
	}
	return all[0].job.run
}

func (x *testSched) acquire(p *Peer, ref Run, most int, want bool) {
	x.t.Helper()
	if got, err := x.s.AcquireLock(x.now, p, ref, "lock", most, &x.rec); got != want || err != nil {
		x.t.Errorf("acquire: %v, %v, want %v", got, err, want)
	}
}

// TestWokenJobPassesLockOn checks that a job that is woken for a free lock and does not take it
// wakes the next, in whatever way it ends: the others in line do not wait for their time-outs.
func TestWokenJobPassesLockOn(t *testing.T) {
	f := func(how string, leave func(x *testSched, p *Peer)) {
		t.Helper()
		x, p, holder := newLockSched(t, "a", "b", "c")
		x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec)) // wakes a
		other := x.peer("g")
		x.s.Unwatch(p, []byte("f"))
		x.want()
		leave(x, other)
		x.reserve(x.peer("f"), 9)
		if got := x.rec.take(); len(got) != 1 || got[0].job.name != "b" {
			t.Errorf("%s: got %v, want b", how, got)
		}
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
	f("removed", func(x *testSched, _ *Peer) { x.s.Remove(x.now, 0, []byte("g"), []byte("a"), &x.rec) })
	f("done without the lock", func(x *testSched, p *Peer) {
		x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
	})
	f("failed", func(x *testSched, p *Peer) { x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "a"), nil, &x.rec)) })
	f("put off", func(x *testSched, p *Peer) { x.ok(x.s.Delay(x.now, p, x.reserveJob(p, "a"), 60, 0, &x.rec)) })
	f("released", func(x *testSched, p *Peer) {
		x.reserveJob(p, "a")
		x.ok(x.s.ReleaseNewest(x.now, p, 1, &x.rec))
	})
	f("its worker has gone", func(x *testSched, p *Peer) {
		x.reserveJob(p, "a")
		x.s.Disconnect(x.now, p, &x.rec)
	})
	f("its time is over", func(x *testSched, p *Peer) {
		x.s.SetTimeout(1000)
		x.reserveJob(p, "a")
		x.now.Mono += 2000
		x.s.ticks(x.now, &x.rec)
	})
	f("unlocks", func(x *testSched, p *Peer) {
		x.ok(x.s.ReleaseLock(x.now, p, x.reserveJob(p, "a"), "lock", &x.rec))
	})
	f("wants another lock, in vain", func(x *testSched, p *Peer) {
		if got, err := x.s.AcquireLock(x.now, p, x.reserveJob(p, "a"), "other", 0, &x.rec); got || err != nil {
			t.Error(got, err)
		}
	})
	f("broadcast", func(x *testSched, p *Peer) {
		x.ok(x.s.Watch(x.now, p, []byte("g"), true, &x.rec))
		x.reserve(p, 1)
		x.want(fmt.Sprintf("%d 1 broadcast a", p.id))
	})
}

// TestWokenJobTakesLock checks that a job that takes the lock for which it was woken wakes no
// other. Its end wakes the next.
func TestWokenJobTakesLock(t *testing.T) {
	x, p, holder := newLockSched(t, "a", "b")
	x.ok(x.s.ReleaseLock(x.now, p, holder, "lock", &x.rec))
	a := x.reserveJob(p, "a")
	x.acquire(p, a, 1, true)
	x.reserve(p, 2)
	x.want()
	x.ok(x.s.ReleaseLock(x.now, p, holder, "lock", &x.rec)) // it has none
	x.want()
	x.ok(x.s.Finish(x.now, p, a, nil, &x.rec))
	x.want("1 2 assign b")
}

// TestFreeLockIsNotReserved checks that a job that asks for a free lock gets it although another job was woken for it.
// The woken job is then refused, and is woken again when the lock is free.
func TestFreeLockIsNotReserved(t *testing.T) {
	x, p, holder := newLockSched(t, "a")
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec)) // wakes a
	x.submit("f", "newcomer")
	other := x.peer("f")
	newcomer := x.reserveJob(other, "newcomer")
	x.acquire(other, newcomer, 1, true)
	x.acquire(p, x.reserveJob(p, "a"), 1, false)
	x.reserve(p, 2)
	x.want()
	x.ok(x.s.Finish(x.now, other, newcomer, nil, &x.rec))
	x.acquire(p, x.want("1 2 assign a")[0].job.run, 1, true)
}

// TestLockLineIsLeft checks that a parked job that is removed, or whose lock time-out passes, is
// not woken.
func TestLockLineIsLeft(t *testing.T) {
	x, p, holder := newLockSched(t, "a", "b", "c")
	x.s.Remove(x.now, 0, []byte("g"), []byte("a"), &x.rec)
	x.want()
	x.s.SetLockTimeout(1000)
	x.now.Mono += 2000
	x.s.ticks(x.now, &x.rec)
	for _, name := range []string{"b", "c"} {
		x.acquire(p, x.reserveJob(p, name), 1, false)
	}
	x.reserve(p, 2)
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.want("1 2 assign b")
}

// TestLockLineIsDropped checks that parked jobs are dropped with their queue, and that those of
// other queues stay in line.
func TestLockLineIsDropped(t *testing.T) {
	x, p, holder := newLockSched(t, "a", "b", "c", "d", "e")
	client := x.peer()
	x.submit("g", "c", func(j *Submission) { j.Await, j.Tag = client, 7 })
	x.s.Remove(x.now, 0, []byte("g"), []byte("a"), &x.rec)
	x.s.Unwatch(p, []byte("g"))
	if !x.s.Drop([]byte("g")) {
		t.Fatal("not dropped")
	}
	x.submit("g", "c") // in the next queue of that name
	x.s.ticks(x.now, &x.rec)
	x.want("2 7 removed ")
	if st := x.s.Stats(); st.Jobs != 4 || st.Removed != 3 || st.Queues != 2 {
		t.Errorf("%+v", st)
	}
	x.reserve(p, 2)
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.want("1 2 assign b")
	x.reserve(x.peer("g"), 1)
	x.want("3 1 assign c")
}

// TestLongLockLineIsDropped checks that a very long line is emptied from its end in linear time. A
// quadratic time would keep the mutex of all named locks for minutes.
func TestLongLockLineIsDropped(t *testing.T) {
	many := 1 << 18
	if testing.Short() {
		many = 1 << 12
	}
	x, p, _ := newLockSched(t)
	for i := range many {
		x.submit("g", fmt.Sprint(i))
		x.reserve(p, 1)
		x.acquire(p, x.rec.take()[0].job.run, i%2, false)
		x.s.Flushed(x.now, p, 0, &x.rec)
	}
	x.s.Unwatch(p, []byte("g"))
	over := make(chan struct{})
	go func() {
		defer close(over)
		x.s.Drop([]byte("g"))
		x.s.ticks(x.now, &x.rec)
	}()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("the line is still being left")
	}
	if st := x.s.Stats(); st.Jobs != 1 {
		t.Errorf("%+v", st)
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestLockLineIsDroppedForGood checks that a drop is journaled before the parked jobs are removed.
func TestLockLineIsDroppedForGood(t *testing.T) {
	b := memJournal{{}}
	x := newTestSched(t, Options{Rules: testRules, Journal: b})
	p := x.peer("f")
	durable := func(j *Submission) { j.Space = durableSpace }
	x.submit("f", "a", durable)
	ref := x.reserveJob(p, "a")
	x.acquire(p, ref, 0, false)
	x.s.Unwatch(p, []byte("f"))
	if !x.s.Drop([]byte("f")) {
		t.Fatal("not dropped")
	}
	w := randomSched{s: x.s, journal: b, now: x.now}
	if got := w.durable(w.restored()); len(got) > 0 {
		t.Errorf("restored before the Tick: %q", got)
	}
	x.s.ticks(x.now, &x.rec)
	x.want()
	if len(b[0]) > 0 {
		t.Errorf("the journal keeps %v", b[0])
	}
}

// handoff is a peer that leaves and another that receives its jobs at that moment.
type handoff struct {
	t           *testing.T
	s           *Scheduler
	sink        inboxes
	first, next *Peer
}

func (x *handoff) watch(p *Peer, queue string) {
	if err := x.s.Watch(testNow, p, []byte(queue), false, x.sink); err != nil {
		x.t.Error(err)
	}
}

// take submits jobs and waits until a peer has them.
func (x *handoff) take(p *Peer, queue string, names ...string) (refs []Run) {
	for i, name := range names {
		if err := x.s.Submit(testNow, &Submission{Queue: []byte(queue), Name: []byte(name)}, x.sink); err != nil {
			x.t.Error(err)
		}
		x.reserve(p, i)
	}
	return x.given(p, len(names))
}

func (x *handoff) reserve(p *Peer, tag int) {
	if err := x.s.Reserve(testNow, p, uint64(tag), x.sink); err != nil {
		x.t.Error(err)
	}
}

// given waits for n jobs.
func (x *handoff) given(p *Peer, n int) (refs []Run) {
	for len(refs) < n {
		all := x.sink[p.id>>inboxShift].wait(nil)
		if all == nil {
			x.t.Fatalf("got %d of %d jobs", len(refs), n)
		}
		for _, d := range all {
			refs = append(refs, d.job.run)
		}
		x.s.Flushed(testNow, p, 0, x.sink)
	}
	return refs
}

func (x *handoff) acquire(p *Peer, ref Run, name string) bool {
	got, err := x.s.AcquireLock(testNow, p, ref, name, 1, x.sink)
	if err != nil {
		x.t.Error(err)
	}
	return got
}

func (x *handoff) finish(p *Peer, ref Run) {
	if err := x.s.Finish(testNow, p, ref, nil, x.sink); err != nil {
		x.t.Error(err)
	}
}

// TestLockOfNextHolder checks that a lock taken by the next holder of a job stays taken: the end of
// the run before, which takes a while with many locks, does not free it.
func TestLockOfNextHolder(t *testing.T) {
	const many = 64
	x := &handoff{t: t, s: New(Options{Shards: 2}), sink: newInboxes(2)}
	x.next = x.s.NewPeer(1 << inboxShift)
	var other Run
	var left atomic.Int64 // rounds in which the first has left
	before := func(int) {
		x.first = x.s.NewPeer(0)
		x.watch(x.first, "f")
		refs := x.take(x.first, "f", "a", "b")
		for i := range many {
			x.acquire(x.first, refs[0], fmt.Sprint(i))
		}
		if !x.acquire(x.first, refs[1], "lock") {
			t.Error("a free lock is refused")
		}
		x.watch(x.next, "g")
		other = x.take(x.next, "g", "other")[0]
		x.watch(x.next, "f")
		x.reserve(x.next, 1)
		x.reserve(x.next, 2)
	}
	leave := func(round int) {
		x.s.Disconnect(testNow, x.first, x.sink)
		left.Store(int64(round + 1))
	}
	duel(t, before, leave, func(round int) bool {
		refs := x.given(x.next, 2)
		got := x.acquire(x.next, refs[1], "lock")
		for left.Load() <= int64(round) {
			runtime.Gosched()
		}
		if !got || x.acquire(x.next, other, "lock") {
			t.Errorf("the next holder has the lock: %v; another has it too: %v", got, got)
			return false
		}
		x.finish(x.next, refs[0])
		x.finish(x.next, refs[1])
		x.reserve(x.next, 3)
		x.finish(x.next, x.given(x.next, 1)[0])
		return !t.Failed()
	})
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestLocksWakeLater checks that the end of a job with more locks than a batch wakes the next
// waiter of each, some by the Ticks that follow.
func TestLocksWakeLater(t *testing.T) {
	const locks = 9
	x := newTestSched(t, Options{Batch: 2})
	p := x.peer("f", "g")
	x.submit("f", "holder")
	holder := x.reserveJob(p, "holder")
	for i := range locks {
		name := fmt.Sprint("lock ", i)
		if got, err := x.s.AcquireLock(x.now, p, holder, name, 1, &x.rec); !got || err != nil {
			t.Fatal(got, err)
		}
		x.submit("g", fmt.Sprint("job ", i))
		if got, err := x.s.AcquireLock(x.now, p, x.reserveJob(p, fmt.Sprint("job ", i)), name, 1, &x.rec); got || err != nil {
			t.Fatal(got, err)
		}
	}
	x.want()
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	for range locks {
		x.reserve(p, 2)
	}
	if got := x.rec.take(); len(got) != locks {
		t.Errorf("%d jobs are woken, want %d", len(got), locks)
	}
}
