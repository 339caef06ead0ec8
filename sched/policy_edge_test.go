package sched

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeadLetterBesideRunningJob: a dead letter waits while a job of its name runs in the dead-letter queue.
func TestDeadLetterBesideRunningJob(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"a", "retries", "0"}, [3]string{"a", "dead-letter", "dead"}, [3]string{"b", "retries", "0"}, [3]string{"b", "dead-letter", "dead"})
	a, b, d := x.peer("a"), x.peer("b"), x.peer("dead")
	x.fails(a, "a", "monday")
	x.s.ticks(x.now, &x.rec)
	run := x.reserveJob(d, "monday")
	x.fails(b, "b", "monday")
	x.s.ticks(x.now, &x.rec)
	x.ok(x.s.Finish(x.now, d, run, nil, &x.rec))
	x.pass(10000)
	st := x.s.Stats()
	if st.Jobs+st.Failed == 0 {
		t.Error("the second dead letter is nowhere")
	}
}

// TestDeadLettersOfOneName: of two dead letters of one name both are there.
func TestDeadLettersOfOneName(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"?", "retries", "0"}, [3]string{"?", "dead-letter", "dead"})
	a, b := x.peer("a"), x.peer("b")
	x.fails(a, "a", "monday")
	x.s.ticks(x.now, &x.rec)
	x.fails(b, "b", "monday")
	x.s.ticks(x.now, &x.rec)
	st := x.s.Stats()
	if st.Jobs+st.Failed != 2 {
		t.Errorf("two jobs died, %d dead letters are there (moved %d)", st.Jobs+st.Failed, st.Moved)
	}
}

// TestPatternWithItsDeadLetterQueue: a dead-letter queue that the pattern matches as well does not move its jobs to
// itself.
func TestPatternWithItsDeadLetterQueue(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"mail.*", "retries", "0"}, [3]string{"mail.*", "dead-letter", "mail.dead"})
	d := x.peer("mail.dead")
	x.submit("mail.dead", "j")
	n := 0
	for range 50 {
		x.reserve(d, 1)
		x.s.ticks(x.now, &x.rec)
		all := x.rec.take()
		if len(all) == 0 {
			break
		}
		n++
		x.ok(x.s.Fail(x.now, d, all[0].job.run, nil, &x.rec))
		x.s.ticks(x.now, &x.rec)
	}
	if n > 1 {
		t.Errorf("with retries 0 the job ran %d times at one moment", n)
	}
}

// TestMoveKeepsHistory: a move that cannot be made leaves the history as it is.
func TestMoveKeepsHistory(t *testing.T) {
	x := newTestSched(t, Options{MaxQueues: 1})
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"})
	p := x.peer("f")
	x.submit("f", "j")
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "j"), []byte("the reason"), &x.rec))
	for range 300 {
		x.pass(1001)
	}
	got, _ := x.failedOf("f")
	if !strings.Contains(fmt.Sprint(got), "the reason") {
		t.Errorf("the error text is gone: %.150v", got)
	}
}

// TestPauseOverWithheld: a withheld job goes to the NameOnly peer that it fits when the pause ends.
func TestPauseOverWithheld(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, p := x.peer(), x.capable(NameOnly, "f")
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.submit("f", "a", owned(master, 7))
	ref := x.want("2 1 assign a")[0].job.run
	x.submit("f", "a") // clashes: withheld
	x.want()
	x.under([3]string{"f", "paused", "hand-out"})
	x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec))
	x.rec.take()
	x.under([3]string{"f", "paused", "no"})
	x.pass(100000)
	if got := len(x.rec.take()); got != 1 {
		t.Errorf("after the pause %d jobs are handed out; the worker waits with a free slot", got)
	}
}

// TestOldestGetsWithheld: when the pause ends, a withheld job goes to the oldest slot that it fits, of whatever class
// its peer is.
func TestOldestGetsWithheld(t *testing.T) {
	for _, classes := range [][2]Capabilities{{0, LongNames}, {LongNames, 0}} {
		x := newTestSched(t, Options{Rules: testRules})
		master, p := x.peer(), x.capable(NameOnly, "f")
		x.reserve(p, 1)
		x.reserve(p, 2)
		x.submit("f", "a", owned(master, 7))
		x.submit("f", "a") // clashes: withheld
		x.want("2 1 assign a")
		x.under([3]string{"f", "paused", "hand-out"})
		x.reserve(x.capable(classes[0], "f"), 3)
		x.reserve(x.capable(classes[1], "f"), 4)
		x.under([3]string{"f", "paused", "no"})
		x.want("3 3 assign a")
	}
}

// TestRateOverWithheld: a withheld job goes to the NameOnly peer that it fits when the rate allows it.
func TestRateOverWithheld(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	x.under([3]string{"f", "rate", "2/s"})
	master, p := x.peer(), x.capable(NameOnly, "f")
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.reserve(p, 3)
	x.submit("f", "a", owned(master, 7))
	ref := x.rec.take()[0].job.run
	x.submit("f", "a") // withheld
	x.submit("f", "b") // second of the burst: shut
	x.rec.take()
	x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec))
	x.rec.take()
	x.pass(100000)
	if got := len(x.rec.take()); got != 1 {
		t.Errorf("after the rate opened %d jobs are handed out; the worker waits", got)
	}
}

// TestStealPaused: a paused queue gives no tasks.
func TestStealPaused(t *testing.T) {
	x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{3: {Graph: true, Untimed: true}}})
	x.under([3]string{"dwork", "paused", "both"}, [3]string{"dwork", "concurrency", "1"}, [3]string{"dwork", "max-jobs", "1"})
	x.ok(x.s.AddTasks(x.now, 3, []byte("dwork"), []Task{{Name: []byte("a")}, {Name: []byte("b")}}, &x.rec))
	w := x.s.NewHolderPeer("w")
	n := 0
	x.s.Steal(x.now, w, []byte("dwork"), 5, &x.rec, func(*TaskView) bool { n++; return true })
	if n > 0 {
		t.Errorf("a paused queue with concurrency 1 hands out %d tasks; AddTasks took 2", n)
	}
}

// TestMaxJobsWithoutTasks: tasks do not count for max-jobs.
func TestMaxJobsWithoutTasks(t *testing.T) {
	x := newTestSched(t, Options{Rules: [MaxSpaces]Rules{3: {Graph: true, Untimed: true}}})
	x.under([3]string{"dwork", "max-jobs", "2"})
	x.ok(x.s.AddTasks(x.now, 3, []byte("dwork"), []Task{{Name: []byte("a")}, {Name: []byte("b")}}, &x.rec))
	if _, err := x.submit("dwork", "j"); err != nil {
		t.Errorf("no job is there but tasks: %v", err)
	}
}

// TestRefusedLongQueue: a refused submission leaves no queue behind.
func TestRefusedLongQueue(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"*", "paused", "submits"})
	for i := range 10 {
		x.submit(strings.Repeat("q", 1000)+fmt.Sprint(i), "j")
	}
	x.s.ticks(x.now, &x.rec)
	if n := x.s.Stats().Queues; n != 0 {
		t.Errorf("%d queues with long names stay after refused submissions", n)
	}
}

// TestEvictedLongQueue: a queue with a long name goes with its last failed job.
func TestEvictedLongQueue(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"*", "retries", "0"}, [3]string{"*", "keep-failed", "1h"})
	name := strings.Repeat("q", 1000)
	p := x.capable(LongNames, name)
	x.submit(name, "j")
	x.reserve(p, 1)
	run := x.rec.take()[0].job.run
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec))
	x.s.Disconnect(x.now, p, &x.rec)
	x.pass(7200_000)
	if n := x.s.Stats().Queues; n != 0 {
		t.Errorf("%d queues with long names stay", n)
	}
}

// TestPauseOverRestart: a queue is paused before the first peer is served.
func TestPauseOverRestart(t *testing.T) {
	kept := memJournal{make(map[uint64]Saved)}
	rules := [MaxSpaces]Rules{{Durable: true}}
	x := newTestSched(t, Options{Rules: rules, Journal: kept})
	x.submit("f", "a")
	y := x.restarted(rules, kept)
	table, _ := NewPolicies([]PolicyRule{{"f", FromRunTime, map[string]string{"paused": "hand-out"}}})
	y.s.SetPolicies(table)
	y.s.ApplyPolicies(y.now, &y.rec)
	y.s.ApplyKeys(y.now, &y.rec)
	p := y.peer("f")
	y.reserve(p, 1) // a worker that connects before the first Tick
	if got := y.rec.take(); len(got) > 0 {
		t.Errorf("a paused queue hands out %v after a restart", got[0].job.name)
	}
}

// TestMoveAfterCrash: a move that a crash has cut short is completed and doubles nothing.
func TestMoveAfterCrash(t *testing.T) {
	kept := memJournal{make(map[uint64]Saved)}
	rules := [MaxSpaces]Rules{{Durable: true}}
	x := newTestSched(t, Options{Rules: rules, Journal: kept})
	x.under([3]string{"f", "retries", "0"})
	p := x.peer("f")
	x.fails(p, "f", "j")
	before := map[uint64]Saved{}
	for k, v := range kept[0] {
		before[k] = v
	}
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"})
	// the journal that ends between: both
	for k, v := range before {
		kept[0][k] = v
	}
	y := x.restarted(rules, kept)
	d := y.peer("dead")
	y.reserve(d, 1)
	y.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"})
	st := y.s.Stats()
	if st.Jobs != 1 || st.Failed != 0 {
		t.Errorf("%d jobs and %d failed ones are there", st.Jobs, st.Failed)
	}
}

// TestRateOverEmptyBroadcast: a broadcast that reaches nobody, because the slot in line was served by another queue, is
// no start under the rate.
func TestRateOverEmptyBroadcast(t *testing.T) {
	x := newTestSched(t, Options{})
	x.submit("g", "a")
	p := x.peer("f")
	x.ok(x.s.Watch(x.now, p, []byte("g"), true, &x.rec))
	x.submit("f", "a", func(j *Submission) { j.Priority = 1 })
	x.reserve(p, 1) // the place in the line of g stays
	x.rec.take()
	x.under([3]string{"g", "rate", "1/h"})
	x.reserve(p, 2)
	if got := x.rec.take(); len(got) != 1 || got[0].effect != Broadcast {
		t.Errorf("a worker that waits is sent %+v", got)
	}
}

// TestBlockedDeadLetters: dead letters that cannot move do not keep later ones from moving, and are tried once a
// second. They can be removed meanwhile.
func TestBlockedDeadLetters(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1})
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"})
	p := x.peer("f")
	const blocked = maxMoves + 6
	for i := range blocked {
		x.submit("dead", fmt.Sprint(i))
		x.fails(p, "f", fmt.Sprint(i))
	}
	moved := func(when string, want uint64) {
		t.Helper()
		if n := x.s.Stats().Moved; n != want {
			t.Errorf("%s: %d jobs have moved, want %d", when, n, want)
		}
		x.check()
	}
	for i := range 5 {
		x.fails(p, "f", fmt.Sprint("free", i))
	}
	for range 5 {
		x.pass(1)
	}
	moved("free jobs behind blocked ones", 5)
	before := x.s.shards[0].mu.steps
	for range 500 {
		x.pass(1)
	}
	if n := x.s.shards[0].mu.steps - before; n > 0 {
		t.Errorf("%d steps in half a second", n)
	}
	x.fails(p, "f", "new")
	x.pass(0)
	moved("a new job", 6)
	x.now.Wall -= 3_600_000
	x.fails(p, "f", "before")
	for range 5 {
		x.pass(1)
	}
	moved("a new job after the clock was set back", 7)
	_, seqs := x.failedOf("f")
	x.ok(x.s.changeKept(x.now, RemoveJobs, seqs[0], &x.rec))
	if next := x.s.shards[0].nextDue(); next.Wall <= x.now.Wall {
		t.Error("a removal begins a pass")
	}
	if !x.s.Remove(x.now, 0, []byte("dead"), []byte("1"), &x.rec) {
		t.Error("a job of the dead-letter queue is not there")
	}
	x.pass(moveAgain)
	moved("a job that is free now", 8)
}
