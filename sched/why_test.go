package sched

import (
	"fmt"
	"strings"
	"testing"
)

// why returns the reasons of a job as text: each with its numbers, names and times from now on in milliseconds.
func (x *testSched) why(space Space, queue, name string) string {
	x.t.Helper()
	ref, ok := x.s.Find(space, []byte(queue), []byte(name))
	if !ok {
		x.t.Fatalf("there is no job %s", name)
	}
	return x.whyOf(ref)
}

func (x *testSched) whyOf(ref JobRef) string {
	x.t.Helper()
	reasons, ok := x.s.Why(x.now, ref)
	if !ok {
		x.t.Fatalf("there is no job %v", ref)
	}
	var all []string
	for _, w := range reasons {
		text := w.Reason.String()
		for _, at := range []int64{w.At, w.Until} {
			if at != 0 {
				text += fmt.Sprintf(" %+d", at-x.now.Wall)
			}
		}
		for _, s := range []string{w.Worker, w.Name, w.Text} {
			if s != "" {
				text += " " + s
			}
		}
		if w.Count > 0 || w.Total > 0 {
			text += fmt.Sprintf(" %d/%d", w.Count, w.Total)
		}
		if w.More {
			text += " and more"
		}
		for _, j := range w.Jobs {
			text += fmt.Sprintf(" [%s %s %s %+d]", j.Queue, j.Name, j.Worker, j.Since-x.now.Wall)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// wantWhy compares the reasons of a job of space 0.
func (x *testSched) wantWhy(queue, name, want string) {
	x.t.Helper()
	if got := x.why(0, queue, name); got != want {
		x.t.Errorf("%s: %q, want %q", name, got, want)
	}
}

func (x *testSched) worker(label string, queues ...string) *Peer {
	x.t.Helper()
	x.id++
	p := x.s.NewPeer(x.id)
	p.SetLabel(label, label)
	for _, q := range queues {
		x.ok(x.s.Watch(x.now, p, []byte(q), false, &x.rec))
	}
	return p
}

// TestWhyReady: reasons of ready and delayed jobs, and what becomes of them.
func TestWhyReady(t *testing.T) {
	x := newTestSched(t, Options{Shards: 3})
	later := func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 60 }
	x.submit("f", "a")
	x.submit("f", "b")
	x.submit("f", "later", later)
	x.wantWhy("f", "a", "no-worker")
	x.wantWhy("f", "b", "no-worker; behind 1/0")
	x.wantWhy("f", "later", "delayed +60000; no-worker")
	p := x.worker("w", "f")
	x.wantWhy("f", "b", "busy 0/1; behind 1/0")
	x.wantWhy("f", "later", "delayed +60000")
	x.reserve(p, 1)
	run := x.want(fmt.Sprint(p.id, " 1 assign a"))[0].job.run
	x.pass(1000)
	x.wantWhy("f", "a", "running -1000 w")
	x.wantWhy("f", "b", "busy 1/1")
	x.under([3]string{"f", "paused", "hand-out"})
	x.wantWhy("f", "b", "paused; busy 1/1")
	x.wantWhy("f", "later", "delayed +59000; paused")
	x.under([3]string{"f", "concurrency", "1"})
	x.wantWhy("f", "b", "concurrency 1/1; busy 1/1")
	x.under([3]string{"f", "concurrency", "2"})
	x.wantWhy("f", "b", "busy 1/1")
	x.ok(x.s.Finish(x.now, p, run, nil, &x.rec))
	x.under([3]string{"f", "rate", "1/m burst 1"})
	x.submit("f", "c")
	x.reserveJob(p, "b")
	x.wantWhy("f", "c", "rate +60000; busy 1/1")
	x.reserve(p, 5)
	x.wantWhy("f", "c", "rate +60000")
	x.under()
	x.want(fmt.Sprint(p.id, " 5 assign c"))
	x.submit("f", "d")
	for i := range 3 * maxWhySteps {
		x.submit("f", fmt.Sprint(i))
	}
	x.s.Halt()
	x.wantWhy("f", "d", "halted; busy 1/1")
	x.wantWhy("f", "9", "halted; busy 1/1; behind 10/0")
	x.wantWhy("f", fmt.Sprint(2*maxWhySteps), fmt.Sprintf("halted; busy 1/1; behind %d/0 and more", maxWhySteps))
	for i := range 5 {
		x.submit("h", fmt.Sprint(i), func(j *Submission) { j.Priority = -int64(i / 4) })
	}
	x.wantWhy("h", "4", "halted; no-worker; behind 4/0")
	for i := range 3 * maxWhySteps {
		x.submit("g", fmt.Sprint(i), func(j *Submission) { j.SchedAt = int64(1 + i) })
	}
	x.wantWhy("g", "255", "halted; no-worker; behind 255/0")
	x.wantWhy("g", "600", fmt.Sprintf("halted; no-worker; behind %d/0 and more", maxWhySteps))
}

// TestWhyTimeouts: of a running job the end of its run, of a leased one the end of its lease.
func TestWhyTimeouts(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.worker("w", "f")
	x.s.SetTimeout(10 * grain)
	x.submit("f", "default")
	x.reserveJob(p, "default")
	x.submit("f", "own", func(j *Submission) { j.Timeout = 16 })
	x.reserveJob(p, "own")
	x.submit("f", "leased")
	x.leases("crane", 1, "leased", "f")
	x.pass(grain)
	for name, want := range map[string]string{
		"default": fmt.Sprintf("running -%d %+d w", grain, 9*grain), "own": fmt.Sprintf("running -%d %+d w", grain, 16000-grain),
		"leased": fmt.Sprintf("leased -%d %+d crane", grain, minute-grain),
	} {
		x.wantWhy("f", name, want)
	}
	if got := len(x.rec.take()); got != 0 {
		t.Errorf("%d deliveries", got)
	}
}

// TestWhyLocks: a parked job names the lock and the jobs that hold it; a woken one has its turn.
func TestWhyLocks(t *testing.T) {
	x, p, holder := newLockSched(t, "a", "b")
	p.SetLabel("w", "w")
	x.pass(1000)
	x.wantWhy("g", "a", fmt.Sprintf("locked -%d lock [f holder w -1000]", 1000))
	ref, _ := x.s.Find(0, []byte("f"), []byte("holder"))
	if got := x.s.HeldLocks(ref); fmt.Sprint(got) != "[lock]" {
		t.Errorf("the holder has %q", got)
	}
	x.submit("f", "never")
	run := x.reserveJob(p, "never")
	if got, err := x.s.AcquireLock(x.now, p, run, "none has it", 0, &x.rec); got || err != nil {
		t.Error(got, err)
	}
	x.wantWhy("f", "never", "locked +0")
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.wantWhy("g", "a", "busy 0/1")
}

// TestWhyLockFree: a job whose lock is free is woken by the Ticks when many locks are freed at once.
func TestWhyLockFree(t *testing.T) {
	x := newTestSched(t, Options{Batch: 1})
	p := x.worker("w", "f")
	x.submit("f", "holder")
	holder := x.reserveJob(p, "holder")
	locks := []string{"one", "two", "three"}
	for _, lock := range locks {
		if got, err := x.s.AcquireLock(x.now, p, holder, lock, 1, &x.rec); !got || err != nil {
			t.Fatal(got, err)
		}
	}
	for _, lock := range locks {
		x.submit("f", lock)
		if got, err := x.s.AcquireLock(x.now, p, x.reserveJob(p, lock), lock, 1, &x.rec); got || err != nil {
			t.Fatal(got, err)
		}
	}
	x.ok(x.s.Finish(x.now, p, holder, nil, &x.rec))
	x.wantWhy("f", "one", "busy 0/1")
	x.wantWhy("f", "two", "lock-free two")
	x.wantWhy("f", "three", "lock-free three")
}

// TestWhyBroadcast: a job on its way to very many workers.
func TestWhyBroadcast(t *testing.T) {
	x := newTestSched(t, Options{Batch: 1})
	for range 3 {
		p := x.peer()
		x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
		x.reserve(p, 1)
	}
	x.submit("f", "all")
	x.wantWhy("f", "all", "broadcast")
	if got, err := x.s.listed(x.now, &Match{}, "f", false, 1, 1); err != nil || fmt.Sprint(got) != "[1 f all running]" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestWhyKinds: jobs that workers cannot take, because of their names, or the keys that run.
func TestWhyKinds(t *testing.T) {
	x := newTestSched(t, Options{Rules: testRules})
	master, p := x.peer(), x.capable(NameOnly, "f")
	x.submit("f", "a", owned(master, 7))
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.submit("f", "a")
	x.wantWhy("f", "a", "name-clash")
	long := strings.Repeat("long", 64)
	x.submit("f", long, owned(master, 8))
	if got := x.why(ownedSpace, "f", long); got != "long-name" {
		t.Errorf("a long name: %s", got)
	}
	x.capable(LongNames, "f")
	if got := x.why(ownedSpace, "f", long); got != "next" {
		t.Errorf("a long name, with a worker for it: %s", got)
	}
	x.under([3]string{"k", "key", "name before :"}, [3]string{"k", "key-concurrency", "1"})
	q := x.worker("w", "k")
	x.rec.take()
	x.submit("k", "x:1")
	x.reserveJob(q, "x:1")
	x.submit("k", "x:2")
	x.reserve(q, 3)
	x.wantWhy("k", "x:2", "key-concurrency 1/1")
}

// TestWhyTasks: a waiting task names its predecessors; a private one is only stolen.
func TestWhyTasks(t *testing.T) {
	x := newGraphSched(t)
	x.extend("a", "b", "c", "d", "e", "f", "last<a,b,c,d,e,f", "one<a")
	f := func(name, want string) {
		t.Helper()
		if got := x.why(graphTasks, string(graphQueue), name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("last", "predecessors 6/6 [dwork f ")
	f("one", "predecessors 1/1 [dwork a ")
	f("b", "no-worker; behind 1/0")
	x.wantStolen("a", "b", "c", "d", "e", "f")
	x.complete("a", "b", "c")
	f("last", "predecessors 3/6 [dwork f h ")
	f("d", "running +0 h")
	x.extend("g", "last<g,a,f") // f is known, a is complete
	f("last", "predecessors 4/7 [dwork g ")
	rules := graphRules
	rules[graphTasks].Private = true
	y := newTestSched(t, Options{Rules: rules})
	y.ok(y.s.AddTasks(y.now, graphTasks, graphQueue, graphTaskList("a"), &y.rec))
	if got := y.why(graphTasks, string(graphQueue), "a"); got != "steal-only" {
		t.Errorf("a private task: %s", got)
	}
	if got := strings.Count(x.why(graphTasks, string(graphQueue), "last"), "["); got != 4 {
		t.Errorf("%d predecessors are named", got)
	}
}

// TestWhyEnded: a kept job says how it ended.
func TestWhyEnded(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "keep-done", "9"}, [3]string{"f", "job-ttl", "1m"})
	p := x.worker("w", "f")
	x.fails(p, "f", "it hurts")
	x.does(p, "f", "did", "r")
	x.submit("f", "late")
	x.s.Unwatch(p, []byte("f"))
	x.pass(90_000)
	x.pass(0)
	var got []string
	for _, m := range []StateSet{StatesOf(JobFailed), StatesOf(JobDone), StatesOf(JobExpired)} {
		l, err := NewListing(&Match{States: m}, []byte("f"), false, "")
		x.ok(err)
		var ref JobRef
		for done := false; !done; {
			done = x.s.List(x.now, l, 256, func(v *JobView) bool { ref = v.Ref; return true })
		}
		got = append(got, x.whyOf(ref))
	}
	if want := "[failed -90000 w it hurts 1/0 done -90000 w expired +0]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "dead-letter", "dead"})
	l, _ := NewListing(&Match{States: StatesOf(JobFailed)}, []byte("f"), false, "")
	x.s.List(x.now, l, 256, func(v *JobView) bool {
		t.Errorf("%q is not moved", v.Name)
		return true
	})
	if _, ok := x.s.Why(x.now, JobRef{Seq: 1}); !ok {
		t.Error("the dead letter is not found by the id that it had")
	}
	if _, ok := x.s.Why(x.now, JobRef{Seq: 99}); ok {
		t.Error("a job that is gone has a reason")
	}
	if got := x.why(0, "dead", "it hurts"); got != "no-worker" {
		t.Errorf("the dead letter: %s", got)
	}
}

// TestCauses: a failure without an error text has how it ended as its error, and the last failure counts.
func TestCauses(t *testing.T) {
	x := newTestSched(t, Options{})
	x.s.SetTimeout(2000)
	x.under([3]string{"*", "retries", "0"}, [3]string{"again", "retries", "1"})
	give := func(queue string) (*Peer, Run) {
		p := x.worker("w", queue)
		x.submit(queue, "j")
		return p, x.reserveJob(p, "j")
	}
	_, _ = give("slow")
	x.pass(2000 + grain)
	p, _ := give("left")
	x.s.Disconnect(x.now, p, &x.rec)
	p, run := give("mute")
	x.ok(x.s.Fail(x.now, p, run, nil, &x.rec))
	p, run = give("again")
	x.ok(x.s.Fail(x.now, p, run, []byte("no disk"), &x.rec))
	x.pass(0)
	x.reserveJob(p, "j")
	x.s.Disconnect(x.now, p, &x.rec)
	for queue, want := range map[string]string{"slow": "timed out", "left": "worker left", "mute": "failed", "again": "worker left"} {
		found := ""
		l, err := NewListing(&Match{Texts: []string{want}}, []byte(queue), false, "")
		x.ok(err)
		for done := false; !done; {
			done = x.s.List(x.now, l, 256, func(v *JobView) bool {
				_, all := ParseHistory(v.History)
				found += LastCause(all)
				return true
			})
		}
		if found != want {
			t.Errorf("the jobs of %s with the error %q: got %q", queue, want, found)
		}
		if reasons, _ := x.s.Why(x.now, x.refOf(queue, "j")); len(reasons) != 1 || reasons[0].Text != want {
			t.Errorf("why of %s: got %+v, want the text %q", queue, reasons, want)
		}
	}
	if moved := []Attempt{{Outcome: attemptLeft}, {Outcome: attemptMoved, Text: "f"}, {Outcome: attemptRetried}}; LastCause(moved) != "worker left" {
		t.Errorf("the last error is %q", LastCause(moved))
	}
}
