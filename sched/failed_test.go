package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func attempts(history []byte) []Attempt {
	_, all := ParseHistory(history)
	return all
}

// under gives all queues of a scheduler policies: pattern, key, value.
func (x *testSched) under(rules ...[3]string) {
	x.t.Helper()
	byPattern := make(map[string]map[string]string)
	for _, r := range rules {
		if byPattern[r[0]] == nil {
			byPattern[r[0]] = make(map[string]string)
		}
		byPattern[r[0]][r[1]] = r[2]
	}
	var all []PolicyRule
	for pattern, values := range byPattern {
		all = append(all, PolicyRule{Pattern: pattern, Values: values})
	}
	table, err := NewPolicies(all)
	if err != nil {
		x.t.Fatal(err)
	}
	x.s.SetPolicies(table)
	x.s.ticks(x.now, &x.rec)
}

// pass lets time pass.
func (x *testSched) pass(ms int64) {
	x.now.Wall += ms
	x.now.Mono += ms
	x.s.ticks(x.now, &x.rec)
}

// failedOf lists the failed jobs of a queue with their histories.
func (x *testSched) failedOf(queue string) (all []string, seqs []uint64) {
	x.t.Helper()
	x.s.kept(x.now, queue, failedStates, func(f *JobView) {
		var b strings.Builder
		fmt.Fprintf(&b, "%s:", f.Name)
		for _, a := range attempts(f.History) {
			fmt.Fprintf(&b, " %s(%s)", a.Outcome, a.Text)
		}
		all, seqs = append(all, b.String()), append(seqs, f.Ref.Seq)
	})
	return all, seqs
}

// TestRetries: a job fails by its worker, by its time-out and by a worker that leaves; each time it comes back later,
// and after the last it is kept as failed, with its history. Its name is free then. Retried by hand it is done.
func TestRetries(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "retries", "2"}, [3]string{"f", "backoff", "1s..1h x4"})
	p, waiter := x.peer("f"), x.peer()
	x.submit("f", "j", func(j *Submission) { j.Timeout, j.Await, j.Tag = 5, waiter, 7 })
	run := x.reserveJob(p, "j")
	x.ok(x.s.Fail(x.now, p, run, []byte("no disk"), &x.rec))
	x.reserve(p, 2)
	x.pass(999)
	x.want()
	x.pass(1)
	x.want("1 2 assign j")
	x.pass(5*1000 + grain)
	x.want() // timed out: 4 s later
	x.reserve(p, 3)
	x.pass(4000)
	x.want("1 3 assign j")
	x.s.Disconnect(x.now, p, &x.rec)
	x.want("2 7 failed ")
	got, seqs := x.failedOf("f")
	if want := "[j: failed(no disk) timed out() worker left()]"; fmt.Sprint(got) != want {
		t.Fatalf("failed are %v, want %s", got, want)
	}
	if st := x.s.Stats(); st.Failed != 1 || st.Jobs != 0 || st.GivenUp != 1 {
		t.Errorf("the counters are %+v", st)
	}

	x.submit("f", "j") // the name is free
	if err := x.s.changeKept(x.now, RetryJobs, seqs[0], &x.rec); err != ErrDuplicate {
		t.Errorf("a retry beside a job of its name: %v", err)
	}
	x.s.Remove(x.now, 0, []byte("f"), []byte("j"), &x.rec)
	x.ok(x.s.changeKept(x.now, RetryJobs, seqs[0], &x.rec))
	if err := x.s.changeKept(x.now, RetryJobs, seqs[0], &x.rec); err == nil {
		t.Errorf("a second retry: %v", err)
	}
	q := x.peer("f")
	for i := range 3 { // all retries are before it again
		run := x.reserveJob(q, "j")
		if i == 2 {
			x.ok(x.s.Finish(x.now, q, run, nil, &x.rec))
			break
		}
		x.ok(x.s.Fail(x.now, q, run, nil, &x.rec))
		x.pass(4000)
	}
	x.want()
	if st := x.s.Stats(); st.Failed != 0 || st.Jobs != 0 || st.Done != 1 || st.Retried != 1 {
		t.Errorf("the counters are %+v", st)
	}
}

// fails submits a job and has it fail for good, in a queue without retries.
func (x *testSched) fails(p *Peer, queue, name string) {
	x.t.Helper()
	x.submit(queue, name)
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, name), []byte(name), &x.rec))
}

// TestKeepFailed: failed jobs are kept by number and age, and go with their queue.
func TestKeepFailed(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "keep-failed", "2, 1h"}, [3]string{"g", "retries", "0"}, [3]string{"g", "keep-failed", "0"})
	p, g := x.peer("f"), x.peer("g")
	for _, name := range []string{"a", "b", "c"} {
		x.fails(p, "f", name)
		x.pass(1000)
	}
	x.fails(g, "g", "gone")
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[b: failed(b) c: failed(c)]" {
		t.Errorf("kept are %v", got)
	}
	x.pass(3_600_000 - 2000)
	if got, _ := x.failedOf("f"); fmt.Sprint(got) != "[c: failed(c)]" {
		t.Errorf("after an hour %v", got)
	}
	x.fails(p, "f", "d")
	_, seqs := x.failedOf("f")
	x.ok(x.s.changeKept(x.now, RemoveJobs, seqs[0], &x.rec))
	x.want()
	x.s.Disconnect(x.now, p, &x.rec)
	if !x.s.Drop([]byte("f")) {
		t.Error("a queue with a failed job is not dropped")
	}
	x.s.ticks(x.now, &x.rec)
	x.want()
	if st := x.s.Stats(); st.Failed != 0 || st.Evicted != 2 {
		t.Errorf("the counters are %+v", st)
	}
}

// TestDeadLetter: a job that failed for good is a job of the dead-letter queue, with its history; so are those that
// were kept before.
func TestDeadLetter(t *testing.T) {
	x := newTestSched(t, Options{Shards: 8})
	x.under([3]string{"f", "retries", "0"})
	p, d := x.peer("f"), x.peer("dead")
	x.fails(p, "f", "old")
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"}, [3]string{"dead", "retries", "0"})
	x.ok(x.s.Fail(x.now, d, x.reserveJob(d, "old"), []byte("again"), &x.rec))
	if got, _ := x.failedOf("dead"); fmt.Sprint(got) != "[old: failed(old) moved(f) failed(again)]" {
		t.Errorf("failed are %v", got)
	}
	x.fails(p, "f", "new")
	x.s.ticks(x.now, &x.rec)
	x.reserveJob(d, "new")
	if st := x.s.Stats(); st.Moved != 2 || st.Failed != 1 || st.Jobs != 1 {
		t.Errorf("the counters are %+v", st)
	}
}

// TestHistoryIsBounded: a history forgets its oldest entries and keeps the count of tries.
func TestHistoryIsBounded(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "retries", "100"})
	p := x.peer("f")
	x.submit("f", "j")
	text := []byte(strings.Repeat("x", 4000) + "end")
	for range 101 {
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "j"), text, &x.rec))
	}
	x.s.kept(x.now, "f", failedStates, func(f *JobView) {
		all := attempts(f.History)
		if len(f.History) > maxHistory || len(all) < 3 || len(all[0].Text) != lastTextBytes || !strings.HasSuffix(all[0].Text, "end") {
			t.Errorf("%d bytes of history with %d entries", len(f.History), len(all))
		}
	})
	if st := x.s.Stats(); st.Failed != 1 {
		t.Errorf("the counters are %+v", st)
	}
	x.want()
}

// TestHistoryRoundTrip: a history has the attempts that went in, with the clock set back and with texts that begin
// alike, and one that is cut off has a part of them.
func TestHistoryRoundTrip(t *testing.T) {
	all := []Attempt{
		{1_700_000_000_000, attemptFailed, "periodic 10.0.0.1:4001", "exit status 1"},
		{1_700_000_000_000, attemptFailed, "periodic 10.0.0.1:4001", "exit status 1"},
		{1_600_000_000_000, attemptTimedOut, "periodic 10.0.0.1:4002", "exit status 12"},
		{1_700_000_100_000, attemptLeft, "", "exit"},
		{1_700_000_100_001, attemptRetried, "gloom 10.0.0.1:4003", ""},
	}
	history := AppendHistory(nil, 300, all)
	if tries, got := ParseHistory(history); tries != 300 || !slices.Equal(got, all) {
		t.Errorf("got %d tries and %v", tries, got)
	}
	for n := range history {
		if _, got := ParseHistory(history[:n]); !slices.Equal(got, all[:len(got)]) {
			t.Errorf("the first %d bytes have %v", n, got)
		}
	}
}

// TestFailedAreRestored: a journal keeps failed jobs, histories and the tries of a job that waits for its retry.
func TestFailedAreRestored(t *testing.T) {
	kept := memJournal{make(map[uint64]Saved)}
	rules := [MaxSpaces]Rules{{Durable: true}}
	x := newTestSched(t, Options{Rules: rules, Journal: kept})
	x.under([3]string{"f", "retries", "1"}, [3]string{"f", "backoff", "10s"})
	p := x.peer("f")
	x.submit("f", "lost")
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "lost"), []byte("one"), &x.rec))
	x.pass(10_000)
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "lost"), []byte("two"), &x.rec))
	x.submit("f", "waits")
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "waits"), []byte("once"), &x.rec))
	x.want()

	y := x.restarted(rules, kept)
	y.under([3]string{"f", "retries", "1"}, [3]string{"f", "backoff", "10s"})
	if got, _ := y.failedOf("f"); fmt.Sprint(got) != "[lost: failed(one) failed(two)]" {
		t.Errorf("failed are %v", got)
	}
	q := y.peer("f")
	y.pass(10_000)
	y.ok(y.s.Fail(y.now, q, y.reserveJob(q, "waits"), []byte("twice"), &y.rec))
	got, seqs := y.failedOf("f")
	if fmt.Sprint(got) != "[lost: failed(one) failed(two) waits: failed(once) failed(twice)]" {
		t.Errorf("failed are %v", got)
	}
	for _, seq := range seqs {
		y.ok(y.s.changeKept(y.now, RemoveJobs, seq, &y.rec))
	}
	y.want()
	for seq, j := range kept[0] {
		if j.Kind == KindJob {
			t.Errorf("the journal has job %d, %s, still", seq, j.Name)
		}
	}
}

// restarted returns a scheduler that has restored what a journal kept.
func (x *testSched) restarted(rules [MaxSpaces]Rules, kept memJournal) *testSched {
	x.t.Helper()
	y := newTestSched(x.t, Options{Rules: rules, Journal: kept})
	y.now = x.now
	last := uint64(0)
	for _, seq := range kept.order() {
		j := kept[0][seq]
		y.ok(y.s.Restore(y.now, &j))
		last = j.Ref.Seq
	}
	y.s.Resume(y.now, last, nil, &y.rec)
	return y
}
