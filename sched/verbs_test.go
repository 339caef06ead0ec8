package sched

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// testSched is a scheduler under test, with the clock and the recorder of its verbs.
type testSched struct {
	t   testing.TB
	s   *Scheduler
	rec recorder
	now Time
	id  SessionID
}

func newTestSched(t testing.TB, o Options) *testSched {
	return &testSched{t: t, s: New(o), now: Time{Wall: 1_700_000_000_000, Mono: 10 * grain}}
}

func (x *testSched) peer(queues ...string) *Peer {
	x.t.Helper()
	x.id++
	p := x.s.NewPeer(x.id)
	for _, q := range queues {
		if err := x.s.Watch(x.now, p, []byte(q), false, &x.rec); err != nil {
			x.t.Fatal(err)
		}
	}
	return p
}

// outcome says what a Submit did.
type outcome uint8

const (
	added    outcome = iota + 1
	replaced         // a pending job of that name took the new values
	ignored          // a job of that name is running or waits for a lock: nothing was changed
)

// outcome is Submit. It returns what the counters say that Submit did.
func (s *Scheduler) outcome(now Time, j *Submission, sink Sink) (outcome, error) {
	before := s.Stats()
	err := s.Submit(now, j, sink)
	switch after := s.Stats(); {
	case after.Submitted > before.Submitted:
		return added, err
	case after.Replaced > before.Replaced:
		return replaced, err
	case after.Ignored > before.Ignored:
		return ignored, err
	}
	return 0, err
}

// submit submits a job to a queue, as changed by change.
func (x *testSched) submit(queue, name string, change ...func(*Submission)) (outcome, error) {
	j := Submission{Queue: []byte(queue), Name: []byte(name)}
	for _, f := range change {
		f(&j)
	}
	return x.s.outcome(x.now, &j, &x.rec)
}

func (x *testSched) reserve(p *Peer, tag uint64) {
	x.t.Helper()
	if err := x.s.Reserve(x.now, p, tag, &x.rec); err != nil {
		x.t.Fatal(err)
	}
}

// ticks calls Tick until no deferred work is left.
func (s *Scheduler) ticks(now Time, sink Sink) (next Time) {
	n := 0
	for next = s.Tick(now, sink); next.Mono <= now.Mono || next.Wall <= now.Wall; next = s.Tick(now, sink) {
		if n++; n > 100_000 {
			panic("the Ticks never end")
		}
	}
	return next
}

// want compares the deliveries since the last call, written as "session tag effect name-or-data",
// and checks the structures.
func (x *testSched) want(want ...string) []delivered {
	x.t.Helper()
	all := x.rec.take()
	got := make([]string, len(all))
	for i, d := range all {
		got[i] = fmt.Sprint(d.to, " ", d.tag, " ", effects[d.effect], " ", d.job.name, d.data)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Errorf("got %q, want %q", got, want)
	}
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
	return all
}

var effects = map[Effect]string{
	Assign: "assign", Broadcast: "broadcast", Wake: "wake", WakeWith: "wake-with", Result: "result", Removed: "removed", Failed: "failed",
	Chunk: "chunk", End: "end", Proceed: "proceed", AwaitTimedOut: "expired",
}

// TestZeroOptions checks that the zero Options make a working scheduler.
func TestZeroOptions(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("f")
	x.reserve(p, 7)
	if out, err := x.submit("f", "a"); out != added || err != nil {
		t.Fatal(out, err)
	}
	d := x.want("1 7 assign a")
	if err := x.s.Finish(x.now, p, d[0].job.run, nil, &x.rec); err != nil {
		t.Error(err)
	}
	x.want()
}

// TestSubmitFull checks that a submission that is refused for lack of room changes nothing: the job
// that it would have replaced stays, and the submitter awaits nothing.
func TestSubmitFull(t *testing.T) {
	x := newTestSched(t, Options{})
	client, worker := x.peer(), x.peer("f")
	await := func(j *Submission) { j.Await, j.Tag = client, 9 }
	if _, err := x.submit("f", "a", func(j *Submission) { j.Workload = make([]byte, 20) }); err != nil {
		t.Fatal(err)
	}
	a := &x.s.shards[0].arena
	full := *a
	a.chunks = append(a.chunks[:len(a.chunks):len(a.chunks)], make([]arenaPart, maxChunks-len(a.chunks))...)
	for _, name := range []string{"a", "b"} {
		if out, err := x.submit("f", name, await, func(j *Submission) { j.Workload = make([]byte, 200) }); err != errFull || out != 0 {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	a.chunks = full.chunks
	x.reserve(worker, 1)
	d := x.want("2 1 assign a")
	if n := len(d[0].job.workload); n != 20 {
		t.Errorf("the workload has %d bytes", n)
	}
	if err := x.s.Finish(x.now, worker, d[0].job.run, []byte("done"), &x.rec); err != nil {
		t.Error(err)
	}
	x.want()
}

// TestAwaitLimit checks the limit of awaits of one job. A refused peer receives no result.
func TestAwaitLimit(t *testing.T) {
	x := newTestSched(t, Options{})
	client := x.peer()
	await := func(j *Submission) { j.Await, j.Tag = client, j.Tag+1 }
	for i := range MaxAwaits {
		if _, err := x.submit("f", "a", await); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := x.submit("f", "a", await, func(j *Submission) { j.Workload = []byte("w") }); err != ErrAwaits {
		t.Error(err)
	}
	if _, err := x.submit("f", "a", func(j *Submission) { j.Workload = []byte("x") }); err != nil {
		t.Error(err)
	}
	x.s.Disconnect(x.now, client, &x.rec)
	x.want()
	if !x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec) {
		t.Error("not removed")
	}
	x.want()
}

// TestPeerLimits checks the limits of a peer's slots and queues. A repeated tag adds no slot.
func TestPeerLimits(t *testing.T) {
	x := newTestSched(t, Options{MaxQueues: 3})
	p := x.peer("f")
	for tag := range uint64(MaxSlots) {
		x.s.lastSlotSeq.Add(1) // reserving each would read all of them each time
		p.slots.push(slot{tag: tag, seq: x.s.lastSlotSeq.Load()})
		p.charge(slotCost)
	}
	if err := x.s.Reserve(x.now, p, MaxSlots, &x.rec); err != ErrSlots {
		t.Error(err)
	}
	if ok, err := x.s.TryReserve(x.now, p, MaxSlots, &x.rec); ok || err != ErrSlots {
		t.Error(ok, err)
	}
	if err := x.s.Sleep(x.now, p, MaxSlots, &x.rec); err != ErrSlots {
		t.Error(err)
	}
	x.reserve(p, 5)
	x.want()
	x.peer("g", "h")
	if err := x.s.Watch(x.now, p, []byte("i"), false, &x.rec); err != ErrQueues {
		t.Error(err)
	}
	if _, err := x.submit("i", "a"); err != ErrQueues {
		t.Error(err)
	}
	if !x.s.Drop([]byte("none")) && x.s.Stats().Queues != 3 {
		t.Error(x.s.Stats().Queues)
	}
	x.want()
}

// TestWatchLimit checks the limit of a peer's watches. An ended watch counts as long as the peer
// holds one of its jobs.
func TestWatchLimit(t *testing.T) {
	x := newTestSched(t, Options{Shards: 2})
	p := x.peer()
	watch := func(i int) error { return x.s.Watch(x.now, p, fmt.Append(nil, "q", i), false, &x.rec) }
	var refs []Run
	for i := range maxWatches {
		if err := watch(i); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 3 {
		x.reserve(p, uint64(i))
		x.submit(fmt.Sprint("q", i), "a")
		refs = append(refs, x.rec.take()[0].job.run)
		x.s.Unwatch(p, fmt.Append(nil, "q", i))
	}
	if err := watch(maxWatches); err != ErrWatches {
		t.Error(err)
	}
	for _, ref := range refs {
		if err := x.s.Finish(x.now, p, ref, nil, &x.rec); err != nil {
			t.Error(err)
		}
	}
	if n := watching(p); n != maxWatches-3 {
		t.Errorf("watching %d", n)
	}
	for i := range 3 {
		if err := watch(maxWatches + i); err != nil {
			t.Error(i, err)
		}
	}
	if err := watch(maxWatches + 3); err != ErrWatches {
		t.Error(err)
	}
	x.s.Disconnect(x.now, p, &x.rec)
	x.want()
}

// watching counts the queues that the peer serves.
func watching(p *Peer) (n int) {
	for _, w := range p.watches {
		n += oneIf(!w.ended)
	}
	return n
}

// TestPeerView checks that a queue that the peer no longer serves is not counted, although the peer holds a job of it.
func TestPeerView(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("a", "b", "c")
	want := func(want string) {
		t.Helper()
		if got := fmt.Sprint(p.View(1)); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	want("{[a] 2 0 0}")
	x.submit("a", "job")
	run := x.reserveJob(p, "job")
	want("{[a] 2 0 1}")
	x.s.Unwatch(p, []byte("a"))
	want("{[b] 1 0 1}")
	x.ok(x.s.Watch(x.now, p, []byte("a"), false, &x.rec))
	want("{[a] 2 0 1}")
	x.s.Unwatch(p, []byte("a"))
	x.s.Unwatch(p, []byte("b"))
	want("{[c] 0 0 1}")
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.reserve(p, 1) // drops the watch of a
	want("{[c] 0 1 0}")
	x.ok(x.s.Watch(x.now, p, []byte("d"), false, &x.rec))
	want("{[c] 1 1 0}")
}

// TestEndedWatchesGo checks that a Reserve removes ended watches without jobs.
func TestEndedWatchesGo(t *testing.T) {
	x := newTestSched(t, Options{Shards: 2})
	p := x.peer("stays", "stays too")
	for i := range 10 {
		q := fmt.Sprint("q", i)
		if err := x.s.Watch(x.now, p, []byte(q), false, &x.rec); err != nil {
			t.Fatal(err)
		}
		x.reserve(p, 1)
		x.submit(q, "a")
		ref := x.rec.take()[0].job.run
		x.s.Unwatch(p, []byte(q))
		if err := x.s.Finish(x.now, p, ref, nil, &x.rec); err != nil {
			t.Error(err)
		}
	}
	x.reserve(p, 1)
	if len(p.watches) != 2 || len(p.byQueue) != 2 || watching(p) != 2 {
		t.Errorf("%d watches, %d by queue, watching %d", len(p.watches), len(p.byQueue), watching(p))
	}
	x.want()
}

// TestStaleReferences checks that references that never were, or whose jobs are gone, reach
// nothing.
func TestStaleReferences(t *testing.T) {
	x := newTestSched(t, Options{Shards: 2})
	p, other := x.peer("f"), x.peer("f")
	x.reserve(p, 1)
	x.submit("f", "a")
	ref := x.want("1 1 assign a")[0].job.run
	f := func(who *Peer, ref Run, want error) {
		t.Helper()
		for _, err := range []error{
			x.s.Finish(x.now, who, ref, nil, &x.rec), x.s.Fail(x.now, who, ref, nil, &x.rec),
			x.s.Delay(x.now, who, ref, 1, 1, &x.rec),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", ref, err, want)
			}
		}
	}
	f(p, Run{}, ErrNotFound)
	f(p, Run{Shard: math.MaxUint16, Record: ref.Record, Number: ref.Number}, ErrNotFound)
	f(p, Run{Shard: ref.Shard ^ 1, Record: ref.Record, Number: ref.Number}, ErrNotFound)
	f(p, Run{Shard: ref.Shard, Record: none, Number: ref.Number}, ErrNotFound)
	f(p, Run{Shard: ref.Shard, Record: ref.Record + 1, Number: ref.Number}, ErrNotFound)
	f(p, Run{Shard: ref.Shard, Record: ref.Record, Number: ref.Number + 1}, ErrNotFound)
	f(p, Run{Shard: ref.Shard, Record: ref.Record, Number: ref.Number, Space: ref.Space + 1}, ErrNotFound)
	f(other, ref, errNotHolder)
	if err := x.s.Finish(x.now, p, ref, nil, &x.rec); err != nil {
		t.Error(err)
	}
	f(p, ref, ErrNotFound)
	x.submit("f", "b") // takes the same slot
	f(p, ref, ErrNotFound)
	x.want()
}

// TestDisconnectOwnJob checks that a departed peer receives nothing, not even the end of a job that it
// both awaits and holds.
func TestDisconnectOwnJob(t *testing.T) {
	x := newTestSched(t, Options{})
	p, other := x.peer("f"), x.peer("f")
	x.reserve(p, 1)
	x.submit("f", "a", func(j *Submission) { j.Await, j.Tag = p, 9 })
	x.want("1 1 assign a")
	x.reserve(other, 2)
	if err := x.s.Watch(x.now, other, []byte("f"), true, &x.rec); err != nil {
		t.Error(err)
	}
	x.s.Disconnect(x.now, p, &x.rec)
	x.want("2 2 broadcast a")
}

// TestWithdraw checks that Withdraw removes a job that no peer holds, and no other.
func TestWithdraw(t *testing.T) {
	x := newTestSched(t, Options{})
	withdraw := func(name string) bool { return x.s.Withdraw(x.now, 0, []byte("f"), []byte(name), &x.rec) }
	p := x.peer("f")
	x.submit("f", "held")
	x.reserve(p, 1)
	job := x.want("1 1 assign held")[0].job.run
	x.submit("f", "pending")
	if withdraw("held") || !withdraw("pending") || withdraw("pending") {
		t.Error("a held job was withdrawn, or a pending one was not, or twice")
	}
	if err := x.s.Finish(x.now, p, job, nil, &x.rec); err != nil {
		t.Errorf("the held job: %v", err)
	}
	x.want()
}

// TestKeptQueues checks that a queue that has had a job of a Kept space is never dropped.
func TestKeptQueues(t *testing.T) {
	x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{1: {NeverDropped: true}}})
	x.submit("kept", "a", func(j *Submission) { j.Space = 1 })
	x.submit("other", "a")
	if x.s.Drop([]byte("kept")) || !x.s.Drop([]byte("other")) {
		t.Error("the kept queue was dropped, or the other was not")
	}
}
