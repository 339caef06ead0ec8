package sched

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// operateRules are the rules of the spaces of these tests: durable jobs, as Gloom's, tasks, tasks of a protocol that
// keeps track of them.
var operateRules = [MaxSpaces]Rules{
	{Durable: true}, {Owned: true, Untimed: true, MaxFailures: 2}, {Durable: true, Graph: true, Untimed: true}, {Durable: true, Graph: true, Untimed: true, Private: true},
}

func newOperated(t *testing.T, shards int) (*testSched, memJournal) {
	kept := make(memJournal, shards)
	for i := range kept {
		kept[i] = make(map[uint64]Saved)
	}
	return newTestSched(t, Options{Shards: shards, Rules: operateRules, Journal: kept}), kept
}

// joined returns the records of all shards as those of one.
func (b memJournal) joined() memJournal {
	all := make(map[uint64]Saved)
	for _, records := range b {
		maps.Copy(all, records)
	}
	return memJournal{all}
}

// refOf returns the reference of a job, also of a kept one.
func (x *testSched) refOf(queue, name string) (ref JobRef) {
	x.t.Helper()
	for i := range x.s.shards {
		sh := &x.s.shards[i]
		for slot := range uint32(len(sh.slab.chunks) << slabBits) {
			if r := sh.slab.find(slot); r != nil && r.state != free && sh.queueOf(r).name == queue && string(sh.nameView(slot)) == name {
				return sh.ref(slot, r)
			}
		}
	}
	x.t.Fatalf("there is no job %s in %s", name, queue)
	return ref
}

// change changes one job and returns why it stays as it was.
func (x *testSched) change(ref JobRef, c JobChange) (why error) {
	x.t.Helper()
	n := x.s.ChangeJobs(x.now, []JobRef{ref}, &c, &x.rec, func(_ int, err error) { why = err })
	if n != oneIf(why == nil) {
		x.t.Errorf("%d jobs are changed, and the error is %v", n, why)
	}
	return why
}

// stateOf returns the state of a job, free when there is none.
func (x *testSched) stateOf(queue, name string) state {
	sh := x.s.shardOf([]byte(queue))
	q := sh.byName[queue]
	if q == nil {
		return free
	}
	for slot := range uint32(len(sh.slab.chunks) << slabBits) {
		if r := sh.slab.find(slot); r != nil && r.state != free && sh.queueOf(r) == q && string(sh.nameView(slot)) == name {
			return r.state
		}
	}
	return free
}

// TestVerbsByState: each verb does what doc.go says with a job of each state, or refuses it and changes nothing. The
// journal has what is there afterwards.
func TestVerbsByState(t *testing.T) {
	const later = 1_700_000_100_000
	verbs := map[string]JobChange{
		"retry": {Verb: RetryJobs}, "run": {Verb: RunJobs}, "remove": {Verb: RemoveJobs}, "priority": {Verb: SetPriority, Priority: 5},
		"due": {Verb: SetDue, Due: later}, "move": {Verb: MoveJobs, Queue: "g"}, "stay": {Verb: MoveJobs, Queue: "f"},
	}
	states := map[string]func(x *testSched, p *Peer){
		"ready":    func(x *testSched, _ *Peer) { x.submit("f", "j") },
		"delayed":  func(x *testSched, _ *Peer) { x.submit("f", "j", func(j *Submission) { j.SchedAt = later / 1000 }) },
		"reserved": func(x *testSched, p *Peer) { x.submit("f", "j"); x.reserveJob(p, "j") },
		"parked": func(x *testSched, p *Peer) {
			x.submit("f", "j")
			_, err := x.s.AcquireLock(x.now, p, x.reserveJob(p, "j"), "lock", 0, &x.rec)
			x.ok(err)
		},
		"failed": func(x *testSched, p *Peer) { x.fails(p, "f", "j") },
		"finished": func(x *testSched, p *Peer) {
			x.submit("f", "j")
			x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "j"), nil, &x.rec))
		},
		"task": func(x *testSched, _ *Peer) { x.ok(x.s.AddTasks(x.now, 2, []byte("f"), graphTaskList("j"), &x.rec)) },
		"waiting": func(x *testSched, _ *Peer) {
			x.ok(x.s.AddTasks(x.now, 2, []byte("f"), graphTaskList("a", "j<a"), &x.rec))
		},
		"private": func(x *testSched, _ *Peer) { x.ok(x.s.AddTasks(x.now, 3, []byte("f"), graphTaskList("j"), &x.rec)) },
	}
	// The state after each verb, in the order of the states above; no is a refusal.
	order := strings.Fields("ready delayed reserved parked failed finished task waiting private")
	want := map[string]string{
		"retry":    "no no no no ready no no no no",
		"run":      "no ready no no ready no no no no",
		"remove":   "gone gone gone gone gone gone gone gone no",
		"priority": "ready delayed no no no no no no no",
		"due":      "delayed delayed no no no no no no no",
		"move":     "g-ready g-delayed no no g-ready no no no no",
		"stay":     "no no no no no no no no no",
	}
	names := map[state]string{free: "gone", ready: "ready", delayed: "delayed"}
	for verb, line := range want {
		for i, what := range strings.Fields(line) {
			from := order[i]
			t.Run(verb+" "+from, func(t *testing.T) {
				x, kept := newOperated(t, 2)
				x.under([3]string{"f", "retries", "0"}, [3]string{"f", "keep-done", "9"})
				states[from](x, x.peer("f"))
				x.rec.take()
				before, was := x.stateOf("f", "j"), kept.joined()
				err := x.change(x.refOf("f", "j"), verbs[verb])
				got := names[x.stateOf("f", "j")]
				switch {
				case errors.Is(err, ErrUnfit):
					if got = "no"; x.stateOf("f", "j") != before || fmt.Sprint(was) != fmt.Sprint(kept.joined()) {
						t.Error("a verb that is refused changes the job")
					}
				case err != nil:
					t.Error(err)
				case verb == "move" && got == "gone":
					got = "g-" + names[x.stateOf("g", "j")]
				}
				if got != what {
					t.Errorf("the job is %s, want %s (%v)", got, what, err)
				}
				x.check()
				if what == "no" {
					return
				}
				y := x.restarted(operateRules, kept.joined())
				queue := "f"
				if verb == "move" {
					queue = "g"
				}
				if had, has := x.stateOf(queue, "j"), y.stateOf(queue, "j"); had != has {
					t.Errorf("the job was in state %d, after a restart in %d", had, has)
				}
				y.check()
			})
		}
	}
}

// TestForgedRefs: references that no job has, or whose job has gone, change nothing.
func TestForgedRefs(t *testing.T) {
	x, _ := newOperated(t, 2)
	x.submit("f", "j")
	x.submit("f", "other")
	ref := x.refOf("f", "j")
	x.s.Remove(x.now, 0, []byte("f"), []byte("j"), &x.rec)
	x.submit("f", "next") // in the same slot
	for _, forged := range []JobRef{ref, {}, {Shard: 1}, {Shard: 9, Seq: 1}, {Record: 1 << 31, Seq: ref.Seq}, {Record: none, Seq: none64}} {
		for verb := RetryJobs; verb <= MoveJobs; verb++ {
			if err := x.change(forged, JobChange{Verb: verb, Queue: "g"}); err != ErrNoJob {
				t.Errorf("verb %d of %v: %v", verb, forged, err)
			}
		}
	}
	if st := x.s.Stats(); st.Jobs != 2 || st.Removed != 1 {
		t.Errorf("%+v", st)
	}
	x.want()
}

const none64 = ^uint64(0)

// TestKeptRefAfterRestart: the reference of a failed job is good after a restart, which gives it another shard and
// record.
func TestKeptRefAfterRestart(t *testing.T) {
	x, kept := newOperated(t, 64)
	x.under([3]string{"*", "retries", "0"})
	var refs []JobRef
	for i := range 20 {
		queue := fmt.Sprint("q", i)
		x.fails(x.peer(queue), queue, "j")
		refs = append(refs, x.refOf(queue, "j"))
	}
	y := x.restarted(operateRules, kept.joined())
	n := y.s.ChangeJobs(y.now, refs, &JobChange{Verb: RetryJobs}, &y.rec, func(n int, why error) { t.Errorf("job %d: %v", n, why) })
	if st := y.s.Stats(); n != len(refs) || st.Jobs != len(refs) || st.Failed != 0 {
		t.Errorf("%d jobs are retried: %+v", n, st)
	}
	y.want()
}

// TestMovedRef: the reference that a job had before it was moved finds it, however often it was moved, as long as the
// moves are remembered. After a restart it finds nothing.
func TestMovedRef(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	x, kept := newOperated(t, 8)
	x.submit("a", "j")
	refs := []JobRef{x.refOf("a", "j")}
	for _, queue := range []string{"b", "c", "a"} {
		x.ok(x.change(refs[0], JobChange{Verb: MoveJobs, Queue: queue}))
		refs = append(refs, x.refOf(queue, "j"))
	}
	finds := func(y *testSched, want ...bool) {
		t.Helper()
		for i, ref := range refs {
			found := y.s.View(y.now, ref, func(v *JobView) {
				if v.Ref != refs[3] && y == x || v.Queue != "a" {
					t.Errorf("%v is %v in %s", ref, v.Ref, v.Queue)
				}
			})
			if found != want[i] {
				t.Errorf("%v is found: %v", ref, found)
			}
		}
	}
	finds(x, true, true, true, true)
	y := x.restarted(operateRules, kept.joined())
	if y.change(refs[0], JobChange{Verb: RemoveJobs}) != ErrNoJob {
		t.Error("a move is remembered over a restart")
	}
	x.submit("a", "other")
	other := x.refOf("a", "other")
	for range maxRememberedMoves / 2 {
		x.ok(x.change(other, JobChange{Verb: MoveJobs, Queue: "b"}))
		x.ok(x.change(x.refOf("b", "other"), JobChange{Verb: MoveJobs, Queue: "a"}))
		other = x.refOf("a", "other")
	}
	finds(x, false, false, false, true)
	x.ok(x.change(refs[3], JobChange{Verb: RemoveJobs}))
	x.check()
}

// TestMovedJob: a moved job keeps what it is, and its history says where it came from. It is handed out by its new
// queue.
func TestMovedJob(t *testing.T) {
	for _, shards := range []int{1, 8} {
		x, kept := newOperated(t, shards)
		x.under([3]string{"f", "retries", "3"}, [3]string{"f", "backoff", "1500ms"})
		p := x.peer("f")
		x.submit("f", "j", func(j *Submission) { j.Workload, j.Priority, j.Count, j.Timeout = []byte("w"), 7, 3, 9 })
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "j"), []byte("no disk"), &x.rec))
		before := x.refOf("f", "j")
		x.ok(x.change(before, JobChange{Verb: MoveJobs, Queue: "g"}))
		if ref := x.refOf("g", "j"); ref.Seq <= before.Seq || x.change(before, JobChange{Verb: RetryJobs}) == ErrNoJob {
			t.Errorf("the job was %v, is %v", before, ref)
		}
		for _, y := range []*testSched{x, x.restarted(operateRules, kept.joined())} {
			q := y.peer("g")
			y.reserve(q, 1)
			y.pass(1499)
			y.want()
			y.pass(1)
			got := y.want(fmt.Sprint(q.id, " 1 assign j"))[0].job
			if got.workload != "w" || got.priority != 7 || got.count != 3 || got.timeout != 9 {
				t.Errorf("%+v", got)
			}
			y.under([3]string{"g", "retries", "0"})
			y.ok(y.s.Fail(y.now, q, got.run, []byte("still"), &y.rec))
			if all, _ := y.failedOf("g"); fmt.Sprint(all) != "[j: failed(no disk) moved(f) failed(still)]" {
				t.Error(all)
			}
			y.want()
		}
	}
}

// TestRefusedMoves: a move to a queue that has a job of the name, or whose policy refuses it, changes nothing; nor does
// one of a job that belongs to a client or is awaited.
func TestRefusedMoves(t *testing.T) {
	x, _ := newOperated(t, 8)
	x.under([3]string{"full", "max-jobs", "1"}, [3]string{"shut", "paused", "submits"}, [3]string{"small", "max-payload", "3"}, [3]string{"taken", "unique-for", "1h"})
	client, worker := x.peer(), x.peer("taken")
	x.submit("full", "a")
	x.submit("taken", "done")
	x.ok(x.s.Finish(x.now, worker, x.reserveJob(worker, "done"), nil, &x.rec))
	x.submit("taken", "j")
	x.submit("f", "j", func(j *Submission) { j.Workload = []byte("four") })
	x.submit("f", "waits", func(j *Submission) { j.Await, j.Tag = client, 1 })
	x.submit("f", "owned", func(j *Submission) { j.Space, j.Await, j.Tag = 1, client, 2 })
	x.submit("f", "done")
	for _, c := range []struct {
		name, to string
		want     error
	}{
		{"j", "taken", ErrDuplicate}, {"j", "full", ErrPolicy}, {"j", "shut", ErrPolicy}, {"j", "small", ErrPolicy},
		{"waits", "g", errAwaited}, {"owned", "g", errOwnedQueue}, {"j", "f", errSameQueue},
	} {
		if err := x.change(x.refOf("f", c.name), JobChange{Verb: MoveJobs, Queue: c.to}); !errors.Is(err, c.want) {
			t.Errorf("%s to %s: %v, want %v", c.name, c.to, err, c.want)
		}
	}
	if st := x.s.Stats(); st.Moved != 0 || st.Jobs != 6 {
		t.Errorf("%+v", st)
	}
	x.ok(x.change(x.refOf("f", "done"), JobChange{Verb: MoveJobs, Queue: "taken"})) // unique-for is about submissions
	x.want()
}

// TestRemovedAwaits: the awaits of a job that an operator removes end, those of a job of an owner as failed. A lease
// ends as with Remove, and the successors of a task no longer wait for it.
func TestRemovedAwaits(t *testing.T) {
	x, _ := newOperated(t, 2)
	client := x.peer()
	x.submit("f", "run-job", func(j *Submission) { j.Await, j.Tag = client, 1 })
	x.submit("f", "owned", func(j *Submission) { j.Space, j.Await, j.Tag = 1, client, 2 })
	x.submit("f", "leased")
	token := x.leases("w", 1, "run-job", "f")[0]
	x.ok(x.s.AddTasks(x.now, 2, []byte("t"), graphTaskList("a", "b<a"), &x.rec))
	for _, name := range []string{"run-job", "owned", "leased"} {
		x.ok(x.change(x.refOf("f", name), JobChange{Verb: RemoveJobs}))
	}
	x.ok(x.change(x.refOf("t", "a"), JobChange{Verb: RemoveJobs}))
	x.want("1 1 removed ", "1 2 failed ")
	if err := x.s.FinishLeased(x.now, token, nil, &x.rec); err != ErrLeaseRemoved {
		t.Errorf("the lease of a removed job: %v", err)
	}
	if s := x.stateOf("t", "b"); s != ready {
		t.Errorf("the successor of a removed task is in state %d", s)
	}
}

// TestDuePassesOnALock: a job that was woken for a lock and gets another due time leaves its turn to the next one.
func TestDuePassesOnALock(t *testing.T) {
	x, _ := newOperated(t, 1)
	p := x.peer("f")
	var runs []Run
	for i, name := range []string{"holder", "second", "third"} {
		x.submit("f", name)
		run := x.reserveJob(p, name)
		got, err := x.s.AcquireLock(x.now, p, run, "lock", 1, &x.rec)
		if x.ok(err); got != (i == 0) {
			t.Fatalf("%s has the lock: %v", name, got)
		}
		runs = append(runs, run)
	}
	x.under([3]string{"f", "paused", "hand-out"})
	x.ok(x.s.Finish(x.now, p, runs[0], nil, &x.rec))
	if s := x.stateOf("f", "second"); s != ready {
		t.Fatalf("the second job is in state %d", s)
	}
	x.ok(x.change(x.refOf("f", "second"), JobChange{Verb: SetDue, Due: x.now.Wall + 1000}))
	if s := x.stateOf("f", "third"); s != ready {
		t.Errorf("the third job is in state %d: the lock is free", s)
	}
	x.want()
}

// TestOrderAfterChanges: priorities and due times that an operator sets order jobs as those of submissions do. Waiting
// workers are handed jobs that become ready.
func TestOrderAfterChanges(t *testing.T) {
	x, kept := newOperated(t, 1)
	for i, name := range []string{"a", "b", "c", "d"} {
		x.submit("f", name, func(j *Submission) { j.SchedAt = int64(i / 3 * 1_800_000_000) })
	}
	x.ok(x.change(x.refOf("f", "c"), JobChange{Verb: SetPriority, Priority: 1}))
	x.ok(x.change(x.refOf("f", "b"), JobChange{Verb: SetDue, Due: x.now.Wall + 2500}))
	for _, y := range []*testSched{x, x.restarted(operateRules, kept.joined())} {
		p := y.peer("f")
		for tag := range uint64(4) {
			y.reserve(p, tag)
		}
		y.want(fmt.Sprint(p.id, " 0 assign c"), fmt.Sprint(p.id, " 1 assign a"))
		y.pass(2499)
		y.want()
		y.pass(1)
		y.want(fmt.Sprint(p.id, " 2 assign b"))
		y.ok(y.change(y.refOf("f", "d"), JobChange{Verb: RunJobs}))
		y.want(fmt.Sprint(p.id, " 3 assign d"))
	}
}
