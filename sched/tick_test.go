package sched

import (
	"fmt"
	"math"
	"testing"
)

// TestTickBatches checks that Ticks with more work than a batch do all of it, in order, and return
// no time in the past.
func TestTickBatches(t *testing.T) {
	alarms := 0
	x := newTestSched(t, Options{Alarm: func() { alarms++ }})
	const n = 3*defaultBatch + 7
	at := x.now.Wall/1000 + 5
	for i := range n {
		x.submit("f", fmt.Sprint(i), func(j *Submission) { j.SchedAt = at })
	}
	if alarms != 1 {
		t.Errorf("%d alarms", alarms)
	}
	x.now.Wall += 4999
	if next := x.s.ticks(x.now, &x.rec); next.Wall != at*1000 {
		t.Errorf("next %v, want %d", next, at*1000)
	}
	x.now.Wall++
	if next := x.s.ticks(x.now, &x.rec); next.Wall <= x.now.Wall || next.Mono <= x.now.Mono {
		t.Errorf("next %v, now %v", next, x.now)
	}
	p := x.peer("f")
	for i := range n {
		x.reserve(p, 1)
		if d := x.rec.take(); len(d) != 1 || d[0].job.name != fmt.Sprint(i) {
			t.Fatalf("%d: %v", i, d)
		}
	}
	x.now.Mono += 1000
	x.s.SetTimeout(1000)
	if next := x.s.ticks(x.now, &x.rec); next.Mono <= x.now.Mono {
		t.Errorf("next %v, now %v", next, x.now)
	}
	if st := x.s.Stats(); st.TimedOut != n {
		t.Errorf("%d timed out", st.TimedOut)
	}
	x.want()
}

// TestTickDropsQueues checks that Ticks remove the jobs of a dropped queue larger than a batch, and
// that the queue's name is free before that.
func TestTickDropsQueues(t *testing.T) {
	x := newTestSched(t, Options{MaxQueues: 1})
	client := x.peer()
	const n = 2*defaultBatch + 1
	for i := range n {
		x.submit("f", fmt.Sprint(i), func(j *Submission) { j.SchedAt = x.now.Wall/1000 + int64(i%3) })
	}
	x.submit("f", "awaited", func(j *Submission) { j.Await, j.Tag = client, 3 })
	if !x.s.Drop([]byte("f")) || x.s.Stats().Queues != 0 {
		t.Fatal("not dropped")
	}
	if out, err := x.submit("f", "0"); out != added || err != nil {
		t.Error(out, err)
	}
	x.want()
	x.s.ticks(x.now, &x.rec)
	x.want("1 3 removed ")
	if st := x.s.Stats(); st.Jobs != 1 || st.Removed != n+1 || st.Queues != 1 {
		t.Errorf("%+v", st)
	}
	x.reserve(x.peer("f"), 1)
	x.want("2 1 assign 0")
}

// TestTimeouts checks that a job times out no earlier than its time-out and less than a grain
// later, with its own time-out and with the default one, which applies at once when it changes.
func TestTimeouts(t *testing.T) {
	f := func(start, own, byDefault, after int64, over bool) {
		t.Helper()
		x := newTestSched(t, Options{})
		x.s.SetTimeout(byDefault)
		x.now.Mono = start
		p := x.peer("f")
		x.reserve(p, 1)
		x.submit("f", "a", func(j *Submission) { j.Timeout = int32(own) })
		x.want("1 1 assign a")
		x.now.Mono += after
		next := x.s.ticks(x.now, &x.rec)
		if got := x.s.Stats().TimedOut == 1; got != over || next.Mono <= x.now.Mono {
			t.Errorf("from %d, %d s, %d ms, after %d: over %v, next %v", start, own, byDefault, after, got, next)
		}
		x.want()
	}
	for start := int64(0); start < 2*grain; start += 19 {
		f(start, 2, 0, 1999, false)
		f(start, 2, 0, 2000+grain-1, true)
		f(start, 2, 500, 1999, false)
		f(start, 0, 500, 499, false)
		f(start, 0, 500, 500+grain-1, true)
		f(start, 0, 0, math.MaxInt32, false)
		f(start, -1, 500, 499, false)
		f(start, -1, 500, 500+grain-1, true)
	}
	f(0, math.MaxInt32, 0, int64(math.MaxInt32)*1000-1, false)
	f(0, math.MaxInt32, 0, int64(math.MaxInt32)*1000+grain, true)
}

// TestAlarm checks that the alarm is called when something is due before the time that Tick
// returned, and neither for Tick's own changes nor for what is due later.
func TestAlarm(t *testing.T) {
	alarms := 0
	x := newTestSched(t, Options{Shards: 4, Alarm: func() { alarms++ }})
	f := func(what string, want int) {
		t.Helper()
		if alarms != want {
			t.Errorf("%s: %d alarms, want %d", what, alarms, want)
		}
		alarms = 0
	}
	second := x.now.Wall / 1000
	x.s.SetTimeout(60_000)
	f("a new time-out", 1)
	x.s.ticks(x.now, &x.rec)
	x.submit("later", "a", func(j *Submission) { j.SchedAt = second + 2 })
	f("a job after the next tick", 0)
	x.now.Wall += 500
	x.submit("soon", "a", func(j *Submission) { j.SchedAt = second + 1 })
	f("a job at the next tick", 0)
	x.s.ticks(x.now, &x.rec)
	x.now.Wall += 100
	p := x.peer("soon", "late")
	x.reserve(p, 1)
	x.submit("late", "b")
	ref := x.rec.take()[0].job.run
	f("a reservation that ends later", 0)
	if err := x.s.Delay(x.now, p, ref, 0, 0, &x.rec); err != nil {
		t.Error(err)
	}
	x.reserve(p, 2)
	x.rec.take()
	x.reserve(p, 3)
	x.now.Wall = (second + 1) * 1000
	x.s.ticks(x.now, &x.rec)
	f("what a tick hands out", 0)
	x.want("1 3 assign a")
	x.s.Drop([]byte("later"))
	f("a dropped queue", 1)
	x.s.ticks(x.now, &x.rec)
	x.submit("soon", "c", func(j *Submission) { j.SchedAt = second + 2 })
	f("a job at the next tick", 0)
	x.now.Wall -= 5000
	x.submit("soon", "d", func(j *Submission) { j.SchedAt = second - 1 })
	f("an earlier job, the clock stepped back", 1)
	x.want()
}

// TestDelayFar checks that a delay of any size neither overflows nor loses the job.
func TestDelayFar(t *testing.T) {
	f := func(delay int64, shown func(int64) bool) {
		t.Helper()
		x := newTestSched(t, Options{})
		p := x.peer("f")
		x.reserve(p, 1)
		x.submit("f", "a")
		ref := x.rec.take()[0].job.run
		if err := x.s.Delay(x.now, p, ref, delay, 0, &x.rec); err != nil {
			t.Error(err)
		}
		x.s.Walk(Cursor{}, slabChunk, func(j *Job) {
			if !shown(j.SchedAt - x.now.Wall/1000) {
				t.Errorf("%d: shown as %d", delay, j.SchedAt)
			}
		})
		x.s.ticks(x.now, &x.rec)
		x.reserve(p, 2)
		if got := len(x.rec.take()) == 1; got != (delay <= 0) {
			t.Errorf("%d: handed out %v", delay, got)
		}
		x.want()
	}
	f(0, func(s int64) bool { return s == 0 })
	f(-7, func(s int64) bool { return s == -7 })
	f(1<<40, func(s int64) bool { return s == 1<<40 })
	f(math.MaxInt64, func(s int64) bool { return s >= 1<<40 })
	f(math.MinInt64, func(s int64) bool { return s <= -1<<40 })
}

// TestExpire checks that TimeOutAwait ends one await, and that the job goes with its last await in any
// state, unless a submission of it had none.
func TestExpire(t *testing.T) {
	f := func(what string, prepare func(x *testSched, a, b *Peer), jobs int, want ...string) {
		t.Helper()
		x := newTestSched(t, Options{})
		a, b := x.peer(), x.peer()
		x.submit("f", "n", func(j *Submission) { j.Await, j.Tag = a, 7 })
		prepare(x, a, b)
		x.rec.all = nil
		x.s.TimeOutAwait(x.now, a, 7, 0, []byte("f"), []byte("n"), &x.rec)
		x.want(want...)
		if n := x.s.Stats().Jobs; n != jobs {
			t.Errorf("%s: %d jobs are left, want %d", what, n, jobs)
		}
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		x.s.TimeOutAwait(x.now, a, 7, 0, []byte("f"), []byte("n"), &x.rec)
		x.want()
	}
	again := func(await bool) func(x *testSched, a, b *Peer) {
		return func(x *testSched, a, b *Peer) {
			x.submit("f", "n", func(j *Submission) {
				if j.Tag = 8; await {
					j.Await = b
				}
			})
		}
	}
	reserved := func(then func(x *testSched, a, b *Peer)) func(x *testSched, a, b *Peer) {
		return func(x *testSched, a, b *Peer) {
			x.reserve(x.peer("f"), 1)
			then(x, a, b)
		}
	}
	nothing := func(x *testSched, a, b *Peer) {}
	const expired = "1 7 expired "
	f("pending", nothing, 0, expired)
	f("running", reserved(nothing), 0, expired)
	f("another waits", again(true), 1, expired)
	f("it was submitted again", again(false), 1, expired)
	f("it runs, and was submitted again", reserved(again(false)), 1, expired)
	f("it was submitted before", func(x *testSched, a, b *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("n"), &x.rec)
		x.submit("f", "n")
		x.submit("f", "n", func(j *Submission) { j.Await, j.Tag = a, 7 })
	}, 1, expired)
	f("it is awaited under another tag", func(x *testSched, a, b *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("n"), &x.rec)
		x.submit("f", "n", func(j *Submission) { j.Await, j.Tag = a, 8 })
	}, 1)
	f("it is another peer's", func(x *testSched, a, b *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("n"), &x.rec)
		x.submit("f", "n", func(j *Submission) { j.Await, j.Tag = b, 7 })
	}, 1)
	f("it was submitted, runs, and is awaited since", func(x *testSched, a, b *Peer) {
		x.s.Remove(x.now, 0, []byte("f"), []byte("n"), &x.rec)
		x.submit("f", "n")
		x.reserve(x.peer("f"), 1)
		x.submit("f", "n", func(j *Submission) { j.Await, j.Tag = a, 7 })
	}, 1, expired)
}
