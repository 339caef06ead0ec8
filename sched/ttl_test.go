package sched

import (
	"fmt"
	"strings"
	"testing"
)

// TestJobTTL: a job that is too old is ended in every way in which jobs are handed out, and is never handed out. One
// that is not stays.
func TestJobTTL(t *testing.T) {
	for way, take := range map[string]func(x *testSched){
		"a Reserve":        func(x *testSched) { x.reserve(x.peer("f"), 1) },
		"a Reserve of two": func(x *testSched) { x.reserve(x.peer("f", "g"), 1) },
		"a TryReserve":     func(x *testSched) { _, _ = x.s.TryReserve(x.now, x.peer("f"), 1, &x.rec) },
		"a Sleep":          func(x *testSched) { x.ok(x.s.Sleep(x.now, x.peer("f"), 1, &x.rec)) },
		"a Watch": func(x *testSched) {
			p := x.peer("g")
			x.reserve(p, 1)
			x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
		},
		"a broadcast": func(x *testSched) {
			p := x.peer()
			x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
			x.reserve(p, 1)
		},
		"the Ticks":     func(x *testSched) { x.pass(0) },
		"a mixed queue": func(x *testSched) { x.submit("f", strings.Repeat("long", 64)); x.reserve(x.peer("f"), 1) },
		"a worker of long names": func(x *testSched) {
			p := x.s.NewPeer(99, LongNames)
			x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
			x.reserve(p, 1)
		},
	} {
		x := newTestSched(t, Options{})
		x.under([3]string{"f", "job-ttl", "10s"})
		waiter := x.peer()
		for i := range 3 {
			x.submit("f", fmt.Sprint("old", i), func(j *Submission) { j.Priority, j.Await, j.Tag = int64(i), waiter, uint64(i) })
		}
		x.now.Wall, x.now.Mono = x.now.Wall+10_999, x.now.Mono+10_999
		x.submit("f", "young", func(j *Submission) { j.SchedAt = x.now.Wall/1000 - 1; j.Priority = -1 })
		x.s.ticks(x.now, &x.rec)
		x.want() // the second in which they were due ends now
		x.now.Wall, x.now.Mono = x.now.Wall+1, x.now.Mono+1
		take(x)
		all := x.rec.take()
		for i, d := range all {
			if i < 3 && (d.to != waiter.id || d.tag != uint64(2-i) || d.effect != Failed) {
				t.Errorf("%s: delivery %d is %+v", way, i, d)
			}
		}
		if n := x.s.Stats().Expired; n != 3 || len(all) > 4 {
			t.Errorf("%s: %d jobs expired, %d deliveries", way, n, len(all))
		}
		x.check()
	}
}

// TestJobTTLOfTheLast: the only ready job of a queue expires at the very hand-out. It is not handed out, the queue is
// empty, and the worker that asked has the next job. A millisecond earlier it is handed out.
func TestJobTTLOfTheLast(t *testing.T) {
	for name, rule := range map[string][]string{
		"plain": {}, "fair": {"key", "name before -", "fair", "key"}, "limited": {"concurrency", "1", "rate", "9/s"},
		"kept": {"keep-done", "9"}, "of a key": {"key", "name before -", "key-concurrency", "1"},
	} {
		for _, early := range []int64{1, 0} {
			x := newTestSched(t, Options{})
			rules := [][3]string{{"f", "job-ttl", "10s"}}
			for i := 0; i < len(rule); i += 2 {
				rules = append(rules, [3]string{"f", rule[i], rule[i+1]})
			}
			x.under(rules...)
			waiter, p := x.peer(), x.peer("f")
			x.submit("f", "k-last", func(j *Submission) { j.Await, j.Tag = waiter, 7 })
			x.now.Wall, x.now.Mono = x.now.Wall+11_000-early, x.now.Mono+11_000-early
			if x.reserve(p, 3); early == 1 {
				x.want("2 3 assign k-last")
				continue
			}
			x.want("1 7 failed ")
			if st := x.s.Stats(); st.Expired != 1 || st.Jobs != 0 {
				t.Errorf("%s: the counters are %+v", name, st)
			}
			x.check()
			x.submit("f", "k-last")
			x.s.ticks(x.now, &x.rec)
			x.want("2 3 assign k-last")
			x.check()
		}
	}
}

// TestJobTTLOfTheLate: a job that has expired when it comes is not handed to a worker that waits.
func TestJobTTLOfTheLate(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "job-ttl", "10s"})
	x.reserve(x.peer("f"), 3)
	x.submit("f", "late", func(j *Submission) { j.SchedAt = x.now.Wall/1000 - 12 })
	x.pass(0)
	x.want()
	if st := x.s.Stats(); st.Expired != 1 || st.Jobs != 0 {
		t.Errorf("the counters are %+v", st)
	}
	x.check()
}

// TestJobTTLAndRetries: the time counts from the due time of the retry, a job that is not due does not expire, and a
// job that runs does not either.
func TestJobTTLAndRetries(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "job-ttl", "10s"}, [3]string{"f", "backoff", "1h"})
	p := x.peer("f")
	x.submit("f", "later", func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 3600 })
	x.submit("f", "j")
	run := x.reserveJob(p, "j")
	x.pass(3_000_000)
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec))
	x.pass(3_600_000 - 3_000_000 + 9000)
	x.reserveJob(p, "later")
	x.pass(3_000_000)
	x.reserveJob(p, "j")
	x.submit("f", "old")
	x.pass(11_000)
	if n := x.s.Stats().Expired; n != 1 {
		t.Errorf("%d jobs expired", n)
	}
	x.want()
}

// TestJobTTLOfOthers: a Gloom job expires too; one that has failed, which goes first, and a task do not.
func TestJobTTLOfOthers(t *testing.T) {
	rules := [MaxSpaces]Rules{1: {Global: true, Owned: true, Untimed: true, MaxFailures: 3}, 2: {Graph: true, Untimed: true}}
	x := newTestSched(t, Options{Rules: rules})
	x.under([3]string{"f", "job-ttl", "10s"})
	master, p := x.peer(), x.peer("f")
	owned := func(j *Submission) { j.Space, j.Await, j.Tag = 1, master, 7 }
	x.submit("f", "failed", owned)
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "failed"), nil, &x.rec))
	x.submit("f", "old", owned)
	x.ok(x.s.AddTasks(x.now, 2, []byte("f"), []Task{{Name: []byte("task")}}, &x.rec))
	x.pass(1_000_000)
	x.want("1 7 failed ")
	x.submit("f", "old", owned) // its name is free
	x.reserveJob(p, "failed")
	x.reserveJob(p, "task")
	x.reserveJob(p, "old")
	x.check()
}

// TestJobTTLClock: a clock set forth ends jobs, one set back does not keep the sweeps from what comes later.
func TestJobTTLClock(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "job-ttl", "1h"})
	x.submit("f", "a")
	year := int64(365 * 24 * 3_600_000)
	x.now.Wall -= year
	x.pass(0)
	x.submit("f", "b")
	for range 61 {
		x.pass(60_000)
	}
	if n := x.s.Stats().Expired; n != 1 {
		t.Errorf("%d jobs expired an hour after the clock was set back", n)
	}
	x.now.Wall += year
	for range 2 {
		x.pass(60_000)
	}
	if st := x.s.Stats(); st.Expired != 2 || st.Jobs != 0 {
		t.Errorf("the counters are %+v", st)
	}
	x.under([3]string{"f", "job-ttl", "1h"}, [3]string{"f", "job-ttl", "0"})
	x.submit("f", "kept")
	x.pass(year)
	if st := x.s.Stats(); st.Jobs != 1 {
		t.Errorf("without a job-ttl the counters are %+v", st)
	}
}

// TestJobTTLPastLock: a job that has waited for a lock expires by its due time, and lets the next one have the lock.
func TestJobTTLPastLock(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "job-ttl", "10s"})
	p := x.peer("f")
	for _, name := range []string{"holds", "waits"} {
		x.submit("f", name)
	}
	holds, waits := x.reserveJob(p, "holds"), x.reserveJob(p, "waits")
	if got, err := x.s.AcquireLock(x.now, p, holds, "l", 1, &x.rec); !got || err != nil {
		t.Fatal(got, err)
	}
	if got, err := x.s.AcquireLock(x.now, p, waits, "l", 1, &x.rec); got || err != nil {
		t.Fatal(got, err)
	}
	x.pass(20_000)
	x.ok(x.s.Finish(x.now, p, holds, nil, &x.rec))
	x.pass(0)
	x.submit("f", "next")
	if got, err := x.s.AcquireLock(x.now, p, x.reserveJob(p, "next"), "l", 1, &x.rec); !got || err != nil {
		t.Errorf("the lock is held by a job that has expired: %v, %v", got, err)
	}
	if n := x.s.Stats().Expired; n != 1 {
		t.Errorf("%d jobs expired", n)
	}
	x.check()
}

// TestShortJobTTL: a queue whose jobs expire at once is swept once a second while it has none.
func TestShortJobTTL(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1})
	x.under([3]string{"f", "job-ttl", "1ms"})
	x.submit("f", "a")
	x.pass(1001)
	if st := x.s.Stats(); st.Expired != 1 {
		t.Errorf("the counters are %+v", st)
	}
	before := x.s.shards[0].mu.steps
	for range 1000 {
		x.pass(1)
	}
	if n := x.s.shards[0].mu.steps - before; n > 10 {
		t.Errorf("%d steps in a second", n)
	}
}

// TestCronBeforeSweeps: the sweeps of many queues do not keep cron entries from their times.
func TestCronBeforeSweeps(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1, Batch: 8})
	x.now.Wall = cronStart
	x.under([3]string{"f*", "job-ttl", "1s"})
	for i := range 64 {
		x.submit(fmt.Sprint("f", i), "a", func(j *Submission) { j.SchedAt = cronStart/1000 + 1_000_000 })
	}
	x.cron("q", "c", "@every 10s")
	x.now.Wall, x.now.Mono = x.now.Wall+10_000, x.now.Mono+10_000
	x.s.Tick(x.now, &x.rec)
	x.cronIs("c", "ran ran=1")
}
