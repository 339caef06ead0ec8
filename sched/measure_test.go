package sched

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// measured returns what Measure shows of the queues with a tally, by name, and the sum of the others at "". StatsOf
// shows the same of each.
func (x *testSched) measured() (all map[string]QueueStats, folded int) {
	var read []QueueStats
	tally := x.s.Measure(func(q *QueueStats) { read = append(read, *q) })
	all = make(map[string]QueueStats)
	others := QueueStats{Oldest: math.MaxInt64, Tally: tally}
	for i := range read {
		q := &read[i]
		if one, ok := x.s.StatsOf([]byte(q.Name)); !ok || one != *q {
			x.t.Errorf("StatsOf shows %+v of %s, %v, Measure %+v", one, q.Name, ok, *q)
		}
		if q.Counted {
			all[q.Name] = *q
			continue
		}
		others.Add(q)
		folded++
	}
	all[""] = others
	return all, folded
}

// TestMeasureCounts: the jobs, workers and endings of a queue.
func TestMeasureCounts(t *testing.T) {
	x := newTestSched(t, Options{MaxTallies: 9})
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "keep-failed", "9"}, [3]string{"f", "job-ttl", "1h"})
	p, idle := x.peer("f"), x.peer("f")
	f := func(name string, want QueueStats, ended [JobEnds]uint64) {
		t.Helper()
		all, _ := x.measured()
		got := all["f"]
		tally := got.Tally
		if got.Tally, want.Name, want.Counted = (Tally{}), "f", true; got != want || tally.Ended != ended {
			t.Errorf("%s: %+v %v, want %+v %v", name, got, tally.Ended, want, ended)
		}
	}
	none := int64(math.MaxInt64)
	f("empty", QueueStats{Workers: 2, Oldest: none}, [JobEnds]uint64{})
	x.submit("f", "j")
	x.submit("f", "k")
	x.submit("f", "later", func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 60 })
	f("submitted", QueueStats{Workers: 2, Ready: 2, Delayed: 1, Bytes: 2 + 2 + 6, Oldest: x.now.Wall / 1000}, [JobEnds]uint64{})
	run := x.reserveJob(p, "j")
	f("reserved", QueueStats{Workers: 2, Busy: 1, Ready: 1, Running: 1, Delayed: 1, Bytes: 10, Oldest: x.now.Wall / 1000}, [JobEnds]uint64{})
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	run = x.reserveJob(p, "k")
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec))
	f("done and failed", QueueStats{Workers: 2, Delayed: 1, Failed: 1, Bytes: 6, Oldest: none}, [JobEnds]uint64{EndDone: 1, EndFailed: 1})
	x.submit("f", "t", func(j *Submission) { j.Timeout = 1 })
	x.reserveJob(p, "t")
	x.pass(1000 + grain)
	x.s.Remove(x.now, 0, []byte("f"), []byte("later"), &x.rec)
	x.s.Disconnect(x.now, idle, &x.rec)
	x.s.Unwatch(p, []byte("f"))
	x.submit("f", "old")
	x.pass(3600_000 + 2000)
	x.rec.take()
	f("gone", QueueStats{Failed: 2, Oldest: none}, [JobEnds]uint64{EndDone: 1, EndFailed: 1, EndTimedOut: 1, EndRemoved: 1, EndExpired: 1})
	if st := x.s.Stats(); st.RunsFailed != 1 {
		t.Errorf("%d runs failed, want 1", st.RunsFailed)
	}
	x.want()
}

// TestMeasureBroadcast: a job that was broadcast is done. A job is removed when its owner leaves while it runs, whether
// its worker fails it or its wait for a lock ends it.
func TestMeasureBroadcast(t *testing.T) {
	x := newTestSched(t, Options{MaxTallies: 9, Rules: [MaxSpaces]Rules{1: {Owned: true}}})
	p := x.peer()
	x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
	x.reserve(p, 1)
	x.submit("f", "j")
	x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
	owner := x.peer()
	x.submit("f", "o", func(j *Submission) { j.Space, j.Await = 1, owner })
	x.s.ticks(x.now, &x.rec)
	x.rec.take()
	run := x.reserveJob(p, "o")
	x.s.Disconnect(x.now, owner, &x.rec)
	x.s.ticks(x.now, &x.rec)
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec))

	owner = x.peer()
	x.submit("f", "holder")
	holder := x.reserveJob(p, "holder")
	x.acquire(p, holder, 1, true)
	x.submit("f", "waits", func(j *Submission) { j.Space, j.Await = 1, owner })
	run = x.reserveJob(p, "waits")
	x.s.Disconnect(x.now, owner, &x.rec)
	x.s.ticks(x.now, &x.rec)
	x.acquire(p, run, 1, false)
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	all, _ := x.measured()
	if got, want := all["f"].Tally.Ended, [JobEnds]uint64{EndDone: 2, EndRemoved: 2}; got != want {
		t.Errorf("endings %v, want %v", got, want)
	}
}

// TestTallies: the first queues have tallies of their own, and keep them. The others share one, which never falls: not
// when a queue of them gets its own, and not when a queue goes.
func TestTallies(t *testing.T) {
	x := newTestSched(t, Options{Shards: 4, Batch: 2, MaxTallies: 3, Tallied: func(name string) bool { return name != "never" }})
	f := func(name string, folded int, others uint64, want ...string) {
		t.Helper()
		all, n := x.measured()
		if n != folded || all[""].Tally.Submitted[0] != others {
			t.Errorf("%s: %d are folded with %d jobs, want %d with %d", name, n, all[""].Tally.Submitted[0], folded, others)
		}
		delete(all, "")
		var got []string
		for name, q := range all {
			got = append(got, fmt.Sprint(name, " ", q.Tally.Submitted[0]))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		x.want()
	}
	for range 2 {
		for _, q := range []string{"never", "a", "b", "c", "d", "e"} {
			x.submit(q, "j")
			x.s.Remove(x.now, 0, []byte(q), []byte("j"), &x.rec)
			x.submit(q, "j")
		}
	}
	x.rec.take()
	// The second round replaces one job and adds one: 3 in all.
	f("full", 3, 9, "a 3", "b 3", "c 3")
	x.s.Drop([]byte("b"))
	x.s.ticks(x.now, &x.rec)
	all, _ := x.measured()
	got := "d"
	if _, ok := all["e"]; ok {
		got = "e"
	}
	x.submit(got, "k")
	f("one is free", 2, 9, "a 3", "c 3", got+" 1")
	x.s.Drop([]byte("d"))
	x.s.Drop([]byte("e"))
	x.submit("z", "j")
	x.s.ticks(x.now, &x.rec)
	f("others go", 1, 9, "a 3", "c 3", "z 1")
}

// TestOldestDue: the oldest job of a queue has any priority and key. What is looked at is bounded.
func TestOldestDue(t *testing.T) {
	x := newTestSched(t, Options{MaxTallies: 1})
	now := x.now.Wall / 1000
	oldest := func(want int64) {
		t.Helper()
		all, _ := x.measured()
		if got := all["f"].Oldest; got != want {
			t.Errorf("the oldest is due %d s ago, want %d", now-got, now-want)
		}
		x.want()
	}
	at := func(priority, due int64) func(*Submission) {
		return func(j *Submission) { j.Priority, j.SchedAt = priority, due }
	}
	x.submit("f", "now")
	oldest(now)
	x.submit("f", "high", at(7, now-5))
	oldest(now - 5)
	x.submit("f", "low", at(-7, now-9))
	x.submit("f", "low2", at(-7, now-3))
	oldest(now - 9)
	x.submit("f", "middle", at(3, now-20))
	oldest(now - 20)
	x.s.Remove(x.now, 0, []byte("f"), []byte("middle"), &x.rec)
	x.s.Remove(x.now, 0, []byte("f"), []byte("low"), &x.rec)
	oldest(now - 5)
	x.fairly("fair=key")
	oldest(now - 5)
	x.submit("f", "a:1", at(0, now-30))
	x.submit("f", "b:1", at(4, now-40))
	oldest(now - 40)

	for i := range 8 * maxOldest {
		x.submit("f", fmt.Sprint("lane", i, ":"))
	}
	for i := range 8 * maxOldest { // the places of these lanes are free now, and many to look at
		x.s.Remove(x.now, 0, []byte("f"), fmt.Append(nil, "lane", i, ":"), &x.rec)
	}
	sh := &x.s.shards[0]
	before := sh.mu.steps
	x.s.Measure(func(*QueueStats) {})
	if steps := sh.mu.steps - before; steps > 6*maxOldest/entriesPerStep {
		t.Errorf("%d steps for many keys", steps)
	}

	for i := range int64(2 * maxOldest) {
		x.submit("f", fmt.Sprint("many", i), at(100+i, now-1000+i))
	}
	before = sh.mu.steps
	x.s.Measure(func(q *QueueStats) {
		if got := q.Oldest; got < now-1000 || got > now {
			t.Errorf("among very many priorities the oldest is due %d s ago", now-got)
		}
	})
	if steps := sh.mu.steps - before; steps > 2*maxOldest {
		t.Errorf("%d steps", steps)
	}
}

// TestDurations: waits are whole seconds from the due time, runs milliseconds from the hand-out to the report.
func TestDurations(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("f")
	x.now.Wall += 400
	x.submit("f", "a")
	x.submit("f", "late", func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 10 })
	x.pass(3000)
	run := x.reserveJob(p, "a")
	x.pass(7)
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.pass(7000)
	run = x.reserveJob(p, "late")
	x.pass(61_000)
	x.ok(x.s.Delay(x.now, p, run, 1, 0, &x.rec))
	st := x.s.Stats()
	if w := st.Waits; w.Sum != 3000 || w.Counts[2] != 1 || w.Counts[0] != 1 {
		t.Errorf("waits %v", w)
	}
	if r := st.Runs; r.Sum != 61_007 || r.Counts[2] != 1 || r.Counts[10] != 1 {
		t.Errorf("runs %v", r)
	}
	x.s.ticks(x.now, &x.rec)
	x.want()
}

// TestMeasureBatches: no hold of a shard's lock reads more than a batch of queues.
func TestMeasureBatches(t *testing.T) {
	x := newTestSched(t, Options{Batch: 10, MaxTallies: 5})
	for i := range 95 {
		x.submit(fmt.Sprint("q", i), "j")
	}
	sh, others, folded, holds := &x.s.shards[0], QueueStats{}, 0, 0
	add := func(q *QueueStats) {
		if !q.Counted {
			others.Add(q)
			folded++
		}
	}
	for next := 0; next >= 0; holds++ {
		before := sh.mu.steps
		next = sh.measure(next, &others.Tally, add)
		if n := sh.mu.steps - before; n > 10+1 {
			t.Errorf("%d steps under one hold", n)
		}
	}
	if holds != 10 || folded != 90 || others.Ready != 90 || others.Tally.Submitted[0] != 90 {
		t.Errorf("%d holds, %d folded, %+v", holds, folded, others)
	}
}
