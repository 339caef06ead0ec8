//go:build invariants

package sched

import (
	"fmt"
	"testing"
	"time"
)

// setPolicy gives the queue f a policy.
func setPolicy(x *loadedSched, values map[string]string) {
	t, err := NewPolicies([]PolicyRule{{"f", FromRunTime, values}})
	x.ok(err)
	x.SetPolicies(t)
	x.ticks(x.now, discardAll{})
}

// endHolds are of jobs that end or are limited by a policy.
var endHolds = holdCases{
	"large failed jobs move": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"retries": "0"})
		p := x.peer(LongNames, "f")
		sink := new(lastRun)
		for range 40 {
			x.submit(1, "f", func(_ int, j *Submission) { j.Workload = make([]byte, 8<<20) })
			x.ok(x.Reserve(x.now, p, 1, sink))
			x.ok(x.Fail(x.now, p, sink.run, nil, discardAll{}))
		}
		x.ticks(x.now, discardAll{})
		return func() { setPolicy(x, map[string]string{"retries": "0", "dead-letter": "dead"}) }
	},
	"a worker leaves with awaited jobs that are given up": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"retries": "0"})
		p := x.peer(LongNames, "f")
		var waiters []*Peer
		for range 1000 {
			waiters = append(waiters, x.peer(LongNames))
		}
		for i := range 500 {
			for _, w := range waiters {
				x.ok(x.Submit(x.now, &Submission{Queue: []byte("f"), Name: fmt.Append(nil, i), Await: w, Tag: uint64(i)}, discardAll{}))
			}
		}
		x.take(p, 500)
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"a million failed are evicted": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"retries": "0", "keep-failed": "4000000"})
		p := x.peer(LongNames, "f")
		sink := new(lastRun)
		for i := range 100000 {
			x.submit(1, "f", nil)
			x.ok(x.Reserve(x.now, p, uint64(i), sink))
			x.ok(x.Fail(x.now, p, sink.run, nil, discardAll{}))
		}
		return func() { setPolicy(x, map[string]string{"retries": "0", "keep-failed": "0"}) }
	},
	"very many finished jobs are kept for less, and no more": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"keep-results": "4000000"})
		p := x.peer(LongNames, "f")
		sink := new(lastRun)
		finish := func(n, size int) {
			for i := range n {
				x.submit(1, "f", nil)
				x.ok(x.Reserve(x.now, p, uint64(i), sink))
				x.ok(x.Finish(x.now, p, sink.run, make([]byte, size), discardAll{}))
			}
		}
		finish(50_000, 10)
		finish(40, maxKeptResult)
		return func() {
			setPolicy(x, map[string]string{"keep-done": "4000000"})
			setPolicy(x, map[string]string{"unique-for": "1h"})
			setPolicy(x, map[string]string{"retries": "1"})
			if st := x.Stats(); st.KeptDone+st.KeptNames > 0 {
				x.t.Errorf("the counters are %+v", st)
			}
		}
	},
	"a worker comes to awaited jobs that have expired": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"job-ttl": "1m"})
		for range 1000 {
			w := x.peer(LongNames)
			for i := range 500 {
				x.ok(x.Submit(x.now, &Submission{Queue: []byte("f"), Name: fmt.Append(nil, i), Await: w, Tag: uint64(i)}, discardAll{}))
			}
		}
		p := x.peer(LongNames)
		x.take(p, 1)
		return func() {
			x.now.Wall += 100_000
			x.ok(x.Watch(x.now, p, []byte("f"), false, discardAll{}))
		}
	},
	"very many jobs expire, each of its own priority": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"job-ttl": "1m", "keep-done": "4000000"})
		x.submit(100_000, "f", func(i int, j *Submission) { j.Priority = int64(i) })
		x.submit(100_000, "f", nil)
		p := x.peer(LongNames)
		x.take(p, 100)
		return func() {
			x.now.Wall += 100_000
			x.ok(x.Watch(x.now, p, []byte("f"), false, discardAll{}))
			x.now.Mono += 100_000
			x.ticks(x.now, discardAll{})
			if st := x.Stats(); st.Expired != 200_000 {
				x.t.Errorf("the counters are %+v", st)
			}
		}
	},
	"very many priorities are swept and stay": func(x *loadedSched) func() {
		x.submit(200_000, "f", func(i int, j *Submission) { j.Priority = int64(i) })
		return func() { setPolicy(x, map[string]string{"job-ttl": "1h"}) }
	},
	"concurrency": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"concurrency": "100"})
		p := x.peer(LongNames, "f")
		x.submit(100000, "f", nil)
		x.take(p, 10000)
		return func() { setPolicy(x, map[string]string{"concurrency": "100000"}) }
	},
}

// keyHolds are of jobs with keys.
var keyHolds = holdCases{
	"jobs of very many keys expire": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"job-ttl": "1m", "key": "name before :", "fair": "key"})
		x.submit(100_000, "f", manyKeys)
		return func() {
			x.now.Wall += 100_000
			x.now.Mono += 100_000
			x.ticks(x.now, discardAll{})
			if st := x.Stats(); st.Expired != 100_000 {
				x.t.Errorf("the counters are %+v", st)
			}
		}
	},
	"keys are told apart, with fair order": func(x *loadedSched) func() {
		x.submit(x.many, "f", manyKeys)
		return func() { setPolicy(x, map[string]string{"key": "name before :", "fair": "key"}) }
	},
	"very many keys with jobs that run are told apart in another way": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"key": "name before :", "fair": "key", "key-concurrency": "1"})
		p := x.peer(LongNames, "f")
		x.submit(x.many, "f", manyKeys)
		x.take(p, x.many/2)
		return func() { setPolicy(x, map[string]string{"key": "json id", "key-concurrency": "2"}) }
	},
	"very many keys are no longer told apart": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"key": "name before :", "fair": "key"})
		x.submit(x.many, "f", manyKeys)
		x.submit(x.many, "f", nil)
		return func() { setPolicy(x, map[string]string{"fair": "no"}) }
	},
	"a queue of very many keys is dropped": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"key": "name before :", "fair": "key"})
		x.submit(x.many, "f", manyKeys)
		return func() { x.Drop([]byte("f")) }
	},
	"very many keys have jobs to hand out again": func(x *loadedSched) func() {
		setPolicy(x, map[string]string{"key": "name before :", "key-concurrency": "1"})
		p := x.peer(LongNames, "f")
		x.submit(100_000, "f", manyKeys)
		x.submit(100_000, "f", func(i int, j *Submission) { j.Name = fmt.Append(nil, i, ":again") })
		x.take(p, 100_000)
		x.take(p, MaxSlots)
		return func() { x.Disconnect(x.now, p, discardAll{}) }
	},
	"jobs with large workloads are told apart": func(x *loadedSched) func() {
		x.submit(40, "f", func(_ int, j *Submission) { j.Workload = append([]byte(`{"x":"`), make([]byte, 8<<20)...) })
		return func() { setPolicy(x, map[string]string{"key": "json id", "fair": "key"}) }
	},
}

// TestPolicyHold measures the longest hold of a shard's lock, in steps, under policies over very many jobs.
func TestPolicyHold(t *testing.T) {
	many := manyItems(120_000)
	testHolds(t, many, endHolds)
	testHolds(t, many, keyHolds)
}

// manyKeys gives each job a key of its own.
func manyKeys(i int, j *Submission) { j.Name = fmt.Append(nil, i, ":") }

// TestCronHold measures the longest hold of a shard's lock, in steps, when very many cron entries are due at once, and
// when the clock is set back under them.
func TestCronHold(t *testing.T) {
	entries := func(x *loadedSched) {
		for i := range MaxCronEntries {
			x.ok(x.SetCron(x.now, &CronEntry{Name: fmt.Sprint(i), Queue: "f", Schedule: "* * * * *", Zone: time.UTC}))
		}
		x.ticks(x.now, discardAll{})
	}
	testHolds(t, 0, holdCases{
		"10000 entries are due": func(x *loadedSched) func() {
			entries(x)
			return func() { x.now.Wall += 60_000 }
		},
		"the clock is set back": func(x *loadedSched) func() {
			entries(x)
			return func() { x.now.Wall -= 10 * cronCorrection }
		},
	})
}
