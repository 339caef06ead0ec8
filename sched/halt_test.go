package sched

import "testing"

// TestHalt checks that after Halt no job is handed out and no peer woken by any verb, and that
// workers can end their jobs.
func TestHalt(t *testing.T) {
	rules := taskRules
	rules[3] = Rules{Owned: true, Untimed: true, MaxFailures: 4}
	x := newTestSched(t, Options{Shards: 4, Rules: rules})
	unfinished := func(want int) {
		t.Helper()
		if got := x.s.CountInterruptible(); got != want {
			t.Errorf("%d jobs are unfinished, want %d", got, want)
		}
	}
	owner, one, many, sleeper := x.peer(), x.peer("f"), x.peer("f", "g", "h"), x.peer("f", "g")
	for _, name := range []string{"a", "b", "c", "d"} {
		x.submit("f", name, func(j *Submission) { j.Timeout = int32(len(name)-1) * 7 })
	}
	x.submit("f", "owned", func(j *Submission) { j.Space, j.Await, j.Tag = 3, owner, 9 })
	x.reserve(one, 1)
	x.reserve(one, 2)
	x.reserve(one, 3)
	held := x.rec.take()
	if len(held) != 3 {
		t.Fatalf("handed out: %v", held)
	}
	x.submit("g", "later", func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 5 })
	x.reserve(many, 4)
	x.rec.take()
	x.ok(x.s.AddTasks(x.now, taskSpace, []byte("tasks"), []Task{{Name: []byte("t1")}, {Name: []byte("t2")}}, &x.rec))
	holder := x.s.NewHolderPeer("h")
	steals := func(want int) {
		t.Helper()
		got := 0
		x.s.Steal(x.now, holder, []byte("tasks"), 1, &x.rec, func(*TaskView) bool { got++; return true })
		if _, ok := x.s.Head([]byte("tasks")); ok != (want > 0) {
			t.Errorf("there is a first task: %v", ok)
		}
		if got != want {
			t.Errorf("%d tasks are stolen, want %d", got, want)
		}
	}
	steals(1)
	unfinished(4) // a task stays its holder's
	x.s.Halt()
	steals(0)

	solo := x.peer("only this")
	x.submit("only this", "ready")
	x.reserve(solo, 4) // the shortest way
	x.reserve(many, 5)
	x.reserve(one, 6)
	x.submit("g", "new")
	x.submit("h", "broadcast")
	x.ok(x.s.Watch(x.now, one, []byte("h"), true, &x.rec))
	x.ok(x.s.Sleep(x.now, sleeper, 7, &x.rec))
	if given, err := x.s.TryReserve(x.now, sleeper, 8, &x.rec); given || err != nil {
		t.Errorf("a TryReserve: %v, %v", given, err)
	}
	x.ok(x.s.Fail(x.now, one, held[0].job.run, nil, &x.rec))
	x.ok(x.s.Delay(x.now, one, held[1].job.run, 0, 0, &x.rec))
	x.now.Wall += 10_000
	x.now.Mono += 10_000
	x.s.ticks(x.now, &x.rec)
	x.s.Flushed(x.now, many, 0, &x.rec)
	x.s.Disconnect(x.now, many, &x.rec)
	unfinished(1)
	x.want()
	x.ok(x.s.Finish(x.now, one, held[2].job.run, []byte("done"), &x.rec))
	unfinished(0)
}
