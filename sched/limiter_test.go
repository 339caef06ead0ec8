package sched

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestAdmission: what a policy refuses, and that it refuses nothing else.
func TestAdmission(t *testing.T) {
	x := newTestSched(t, Options{})
	f := func(why error, key, value, name string, workload int) {
		t.Helper()
		if key != "" {
			x.under([3]string{"f", key, value})
		}
		_, err := x.submit("f", name, func(j *Submission) { j.Workload = []byte(strings.Repeat("w", workload)) })
		if err != why {
			t.Errorf("under %s %s, %s with %d bytes: %v, want %v", key, value, name, workload, err, why)
		}
		if err != nil && !errors.Is(err, ErrPolicy) {
			t.Errorf("%v is no ErrPolicy", err)
		}
	}
	f(nil, "max-payload", "10", "a", 10)
	f(ErrPayload, "", "", "b", 11)
	f(ErrMaxJobs, "max-jobs", "1", "b", 1)
	f(nil, "", "", "a", 99) // it replaces
	f(ErrMaxBytes, "max-bytes", "102", "b", 1)
	f(ErrMaxBytes, "", "", "a", 101)
	f(nil, "", "", "a", 100)
	f(ErrPaused, "paused", "submits", "a", 1)
	x.under([3]string{"f", "paused", "submits"}, [3]string{"new", "paused", "both"})
	for queue, want := range map[string]error{"f": ErrPaused, "new": ErrPaused, "other": nil} {
		if err := x.s.CheckSubmits([]byte(queue)); err != want {
			t.Errorf("tasks of %s: %v, want %v", queue, err, want)
		}
	}
	f(nil, "paused", "hand-out", "a", 1)
	x.ok(x.s.CheckSubmits([]byte("f")))
	x.want()
}

// TestPause: a paused queue hands no job to peers that wait, ask or sleep. Once resumed, it does so at once.
func TestPause(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "paused", "hand-out"})
	p, many := x.peer("f"), x.peer("f", "g")
	x.reserve(p, 1)
	x.submit("f", "a")
	x.submit("f", "b")
	x.reserve(many, 2)
	if given, err := x.s.TryReserve(x.now, x.peer("f"), 3, &x.rec); given || err != nil {
		t.Error("a paused queue has given a job")
	}
	x.ok(x.s.Sleep(x.now, x.peer("f"), 4, &x.rec))
	x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec)) // broadcast
	x.want()
	x.ok(x.s.Watch(x.now, p, []byte("f"), false, &x.rec))
	x.submit("g", "c")
	x.want("2 2 assign c")
	x.under([3]string{"f", "paused", "no"})
	if got := x.rec.take(); len(got) < 2 || fmt.Sprint(got[0].job.name, got[0].to) != "a1" {
		t.Errorf("resumed it hands out %v", got)
	}
	x.want()
}

// TestConcurrency: so many jobs of a queue run at a time, whichever workers run them.
func TestConcurrency(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "concurrency", "2"})
	p, q := x.peer("f"), x.peer("f")
	for i := range 4 {
		x.submit("f", fmt.Sprint(i))
	}
	first := x.reserveJob(p, "0")
	second := x.reserveJob(q, "1")
	x.reserve(p, 2)
	x.reserve(q, 3)
	x.want()
	x.ok(x.s.Finish(x.now, p, first, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	x.want("1 2 assign 2")
	x.ok(x.s.Fail(x.now, q, second, nil, &x.rec))
	x.s.ticks(x.now, &x.rec)
	x.want("2 3 assign 3")
	x.s.Disconnect(x.now, q, &x.rec)
	x.s.ticks(x.now, &x.rec)
	x.reserveJob(p, "1")
}

// TestRate: a queue starts so many jobs in a time and, after a rest, a burst.
func TestRate(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "rate", "2/s burst 3"})
	p := x.peer("f")
	for i := range 20 {
		x.submit("f", fmt.Sprint(i))
		x.reserve(p, uint64(i))
	}
	if got := len(x.rec.take()); got != 3 {
		t.Errorf("a burst is %d jobs", got)
	}
	for ms := range 10_000 {
		x.pass(1)
		if got := len(x.rec.take()); got > 1 || got == 1 && (ms+1)%500 != 0 {
			t.Fatalf("after %d ms %d jobs start", ms+1, got)
		}
	}
	if st := x.s.Stats(); st.Assigned != 20 {
		t.Errorf("in ten seconds %d jobs have started", st.Assigned)
	}
	x.pass(1 << 50) // the clock of a machine that slept
	for i := range 5 {
		x.submit("f", fmt.Sprint("late", i))
		x.reserve(p, uint64(100+i))
	}
	if got := len(x.rec.take()); got != 3 {
		t.Errorf("after a long rest %d jobs start", got)
	}
	x.want()
}
