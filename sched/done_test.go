package sched

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// does submits a job and has it done.
func (x *testSched) does(p *Peer, queue, name, result string) {
	x.t.Helper()
	x.submit(queue, name, func(j *Submission) { j.Workload = []byte("work") })
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, name), []byte(result), &x.rec))
}

// doneOf lists the finished jobs of a queue: name, attempts, workload and result.
func (x *testSched) doneOf(queue string) (all []string, seqs []uint64) {
	x.t.Helper()
	x.s.kept(x.now, queue, doneStates, func(k *JobView) {
		var b strings.Builder
		fmt.Fprintf(&b, "%s(%s)", k.Name, k.Workload)
		for _, a := range attempts(k.History) {
			fmt.Fprintf(&b, " %s", a.Outcome)
		}
		if k.Result != nil {
			fmt.Fprintf(&b, " %q", k.Result)
		}
		all, seqs = append(all, b.String()), append(seqs, k.Ref.Seq)
	})
	return all, seqs
}

func (x *testSched) wantDone(queue string, want ...string) {
	x.t.Helper()
	if got, _ := x.doneOf(queue); !slices.Equal(got, want) {
		x.t.Errorf("finished are %q, want %q", got, want)
	}
	x.check()
}

func (x *testSched) check() {
	x.t.Helper()
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
}

// TestKeepDone: finished jobs are kept by count and age, with their results as long as those are kept, and without
// afterwards. An expired job is kept without a result.
func TestKeepDone(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "keep-done", "3, 1h"}, [3]string{"f", "keep-results", "1, 10m"}, [3]string{"f", "job-ttl", "1m"})
	p := x.peer("f")
	x.does(p, "f", "a", "A")
	x.wantDone("f", `a(work) done "A"`)
	x.does(p, "f", "a", "") // its name is free
	x.pass(1000)
	x.wantDone("f", "a(work) done", `a(work) done ""`)
	x.submit("f", "late")
	x.pass(61_000)
	x.does(p, "f", "big", strings.Repeat("x", maxKeptResult+1))
	x.pass(0)
	x.wantDone("f", `a(work) done ""`, "late() expired", "big(work) done")
	x.pass(600_000)
	x.wantDone("f", "a(work) done", "late() expired", "big(work) done")
	_, seqs := x.doneOf("f")
	if !x.s.View(x.now, JobRef{Seq: seqs[1]}, func(*JobView) {}) {
		t.Error("a finished job is not found by its number")
	}
	if err := x.s.changeKept(x.now, RetryJobs, seqs[1], &x.rec); !errors.Is(err, ErrUnfit) {
		t.Errorf("a finished job is retried: %v", err)
	}
	x.ok(x.s.changeKept(x.now, RemoveJobs, seqs[1], &x.rec))
	x.pass(3_600_000 - 600_000 - 61_000 - 1000 + 61_000)
	x.wantDone("f", "big(work) done")
	x.under() // no rule matches the queue any more
	x.wantDone("f", "big(work) done")
	x.under([3]string{"f", "retries", "1"})
	x.wantDone("f")
	if st := x.s.Stats(); st.KeptDone != 0 || st.Done != 3 || st.Expired != 1 || st.Removed != 0 {
		t.Errorf("the counters are %+v", st)
	}
}

// TestUniqueFor: a submission of a name that was done lately is ignored; a RUN_JOB has the kept result, or an empty
// one. Names of jobs that failed, were removed or have expired do not count.
func TestUniqueFor(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "unique-for", "10m"}, [3]string{"f", "retries", "0"}, [3]string{"f", "job-ttl", "1m"}, [3]string{"g", "unique-for", "10m"})
	p, waiter := x.peer("f", "g"), x.peer()
	again := func(name string, want outcome) {
		t.Helper()
		if got, err := x.submit("f", name, func(j *Submission) { j.Await, j.Tag = waiter, 7 }); got != want || err != nil {
			t.Errorf("%s again: %v, %v, want %v", name, got, err, want)
		}
		x.check()
	}
	x.does(p, "f", "a", "A")
	again("a", ignored)
	x.want("2 7 result ")
	x.submit("g", "a") // another queue
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
	x.wantDone("f")
	x.under([3]string{"f", "unique-for", "10m"}, [3]string{"f", "retries", "0"}, [3]string{"f", "job-ttl", "1m"}, [3]string{"f", "keep-results", "2"})
	again("a", ignored) // it is still remembered
	x.want("2 7 result ")
	x.does(p, "f", "b", "B")
	again("b", ignored)
	x.want("2 7 result B")
	x.pass(599_999)
	again("a", ignored)
	x.want("2 7 result ")
	x.pass(1)
	again("a", added)
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), []byte("A2"), &x.rec))
	x.want("2 7 result A2")
	again("b", added)
	again("b", replaced)
	x.s.Remove(x.now, 0, []byte("f"), []byte("b"), &x.rec)
	x.want("2 7 removed ", "2 7 removed ")
	again("b", added)
	x.pass(61_000)
	x.want("2 7 failed ")
	again("b", added)
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "b"), nil, &x.rec))
	x.want("2 7 failed ")
	again("b", added)
	x.s.Remove(x.now, 0, []byte("f"), []byte("b"), &x.rec)
	x.rec.take()
	_, seqs := x.doneOf("f")
	x.ok(x.s.changeKept(x.now, RemoveJobs, seqs[len(seqs)-1], &x.rec))
	again("a", added) // an operator has removed it
}

// TestUniqueForKeepsTheLast: of several done jobs of a name the last counts, and names outlast the jobs that are kept.
func TestUniqueForKeepsTheLast(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "unique-for", "2s"}, [3]string{"f", "keep-done", "1"})
	p := x.peer("f")
	for i := range 5 {
		x.does(p, "f", "a", "")
		x.does(p, "f", fmt.Sprint(i), "")
		x.pass(2000)
	}
	x.does(p, "f", "a", "")
	x.does(p, "f", "b", "")
	x.pass(0)
	x.wantDone("f", "b(work) done")
	if st := x.s.Stats(); st.KeptNames != 1 || st.KeptDone != 1 || st.Forgotten != 0 {
		t.Errorf("the counters are %+v", st)
	}
	if got, _ := x.submit("f", "a"); got != ignored {
		t.Errorf("a name that is kept alone: %v", got)
	}
	x.pass(2000)
	if st := x.s.Stats(); st.KeptNames != 0 {
		t.Errorf("the counters are %+v", st)
	}
}

// TestUniqueForWithoutWorkers: a name that was done lately needs no worker, and any other does.
func TestUniqueForWithoutWorkers(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "unique-for", "10m"}, [3]string{"f", "keep-results", "2"})
	p, waiter := x.peer("f"), x.peer()
	x.does(p, "f", "a", "A")
	x.s.Disconnect(x.now, p, &x.rec)
	run := func(j *Submission) { j.Await, j.Tag, j.NeedWorker = waiter, 7, true }
	if got, err := x.submit("f", "a", run); got != ignored || err != nil {
		t.Errorf("a name that was done: %v, %v", got, err)
	}
	x.want("2 7 result A")
	x.submit("f", "pending")
	for _, name := range []string{"new", "pending"} {
		if _, err := x.submit("f", name, run); err != ErrNoWorker {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := x.submit("g", "a", run); err != ErrNoWorker {
		t.Errorf("another queue: %v", err)
	}
	x.check()
}

// TestUniqueForClock: a clock set back does not make names block longer than twice the time.
func TestUniqueForClock(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "unique-for", "10m"})
	p := x.peer("f")
	x.does(p, "f", "a", "")
	x.now.Wall -= 60_000
	if got, _ := x.submit("f", "a"); got != ignored {
		t.Errorf("a minute back: %v", got)
	}
	x.now.Wall -= 540_000
	if got, _ := x.submit("f", "a"); got != added {
		t.Errorf("ten minutes back: %v", got)
	}
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), nil, &x.rec)) // earlier than the time before
	if got, _ := x.submit("f", "a"); got != ignored {
		t.Errorf("done again: %v", got)
	}
	x.check()
}

// TestDoneAreRestored: a journal keeps finished jobs, results and names, and they go with their queue.
func TestDoneAreRestored(t *testing.T) {
	kept := memJournal{make(map[uint64]Saved)}
	rules := [MaxSpaces]Rules{{Durable: true}}
	policy := [][3]string{{"f", "keep-done", "4"}, {"f", "keep-results", "2"}, {"f", "unique-for", "10m"}, {"f", "job-ttl", "1m"}}
	x := newTestSched(t, Options{Rules: rules, Journal: kept})
	x.under(policy...)
	p := x.peer("f")
	x.does(p, "f", "name", "")
	x.submit("f", "expired")
	x.pass(61_000)
	for _, name := range []string{"done", "empty", "result"} {
		x.does(p, "f", name, strings.TrimPrefix(name, "empty"))
		x.pass(1000)
	}
	x.submit("f", "name") // ignored
	x.want()
	want := []string{"expired() expired", "done(work) done", `empty(work) done ""`, `result(work) done "result"`}
	x.wantDone("f", want...)

	y := x.restarted(rules, kept)
	y.under(policy...)
	y.wantDone("f", want...)
	for _, name := range []string{"name", "done", "empty", "result"} {
		if got, err := y.submit("f", name); got != ignored || err != nil {
			t.Errorf("%s again: %v, %v", name, got, err)
		}
	}
	if got, _ := y.submit("f", "expired"); got != added {
		t.Errorf("a job that has expired again: %v", got)
	}
	y.s.Drop([]byte("f"))
	y.s.ticks(y.now, &y.rec)
	y.check()
	if st := y.s.Stats(); len(kept[0]) != 0 || st.KeptDone+st.KeptNames+st.Jobs != 0 {
		t.Errorf("the journal has %v still, the counters are %+v", kept[0], st)
	}
}

// TestResultIsOfItsJob: a result that is read is whole, whatever comes between.
func TestResultIsOfItsJob(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "keep-results", "10"})
	p := x.peer("f")
	for i := range 30 {
		x.does(p, "f", fmt.Sprint(i), strings.Repeat(fmt.Sprint(i%10), i*900))
		x.pass(1)
	}
	_, seqs := x.doneOf("f")
	if len(seqs) != 10 {
		t.Fatalf("%d results are kept", len(seqs))
	}
	for k, seq := range seqs {
		x.s.View(x.now, JobRef{Seq: seq}, func(j *JobView) {
			i := k + 20
			if string(j.Name) != fmt.Sprint(i) || !bytes.Equal(j.Result, bytes.Repeat(fmt.Append(nil, i%10), i*900)) {
				t.Errorf("%s has %d bytes", j.Name, len(j.Result))
			}
		})
	}
	x.check()
}
