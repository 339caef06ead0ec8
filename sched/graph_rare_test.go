package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// graphSched is a test scheduler for tasks, with a journal. Tasks are written "name" or
// "name<first,second", which are their predecessors.
type graphSched struct {
	*testSched
	journal memJournal
	h       *Peer
}

func newGraphSched(t testing.TB) *graphSched {
	x := &graphSched{journal: memJournal{make(map[uint64]Saved)}}
	x.testSched = newTestSched(t, Options{Rules: graphRules, Journal: x.journal})
	x.h = x.s.NewHolderPeer("h")
	return x
}

func graphTask(text string) Task {
	name, after, _ := strings.Cut(text, "<")
	t := Task{Name: []byte(name)}
	for a := range strings.SplitSeq(after, ",") {
		if a != "" {
			t.After = append(t.After, []byte(a))
		}
	}
	return t
}

func graphTaskList(texts ...string) (tasks []Task) {
	for _, t := range texts {
		tasks = append(tasks, graphTask(t))
	}
	return tasks
}

func (x *graphSched) extend(tasks ...string) {
	x.t.Helper()
	x.ok(x.s.AddTasks(x.now, graphTasks, graphQueue, graphTaskList(tasks...), &x.rec))
}

func (x *graphSched) complete(names ...string) {
	x.t.Helper()
	x.s.Complete(x.now, x.h, graphTasks, graphQueue, graphTaskList(names...), &x.rec, func(i int) { x.t.Errorf("%s is missing", names[i]) })
}

// wantStolen steals all tasks in line and checks their names.
func (x *graphSched) wantStolen(want ...string) {
	x.t.Helper()
	var got []string
	x.s.Steal(x.now, x.h, graphQueue, 1<<20, &x.rec, func(v *TaskView) bool {
		got = append(got, string(v.Name))
		return true
	})
	if !slices.Equal(got, want) {
		x.t.Errorf("stolen: got %q, want %q", got, want)
	}
	if err := x.s.check(); err != nil {
		x.t.Error(err)
	}
}

// restart makes a new scheduler from the journal, with the same holder.
func (x *graphSched) restart() {
	x.t.Helper()
	last := x.s.lastSeq.Load()
	x.s = New(Options{Rules: graphRules, Journal: x.journal})
	x.h = x.s.NewHolderPeer("h")
	for _, seq := range x.journal.order() {
		j := x.journal[0][seq]
		x.ok(x.s.Restore(x.now, &j))
	}
	x.s.Resume(x.now, last, func(Space, string) *Peer { return x.h }, &x.rec)
}

func (b memJournal) order() (seqs []uint64) {
	for seq := range b[0] {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// TestTaskNameClash checks that a NameOnly worker is handed a job of a task's name as soon as the task
// is complete, and that the task's listeners receive its end.
func TestTaskNameClash(t *testing.T) {
	x := newGraphSched(t)
	p, listener := x.capable(NameOnly, string(graphQueue)), x.peer()
	x.extend("a")
	x.reserve(p, 1)
	ref := x.want("1 1 assign a")[0].job.run
	x.ok(x.s.Listen(listener, graphTasks, graphQueue, []byte("a"), 9))
	x.submit(string(graphQueue), "a", func(j *Submission) { j.Space = graphPlain })
	x.reserve(p, 2)
	x.want()
	x.ok(x.s.Finish(x.now, p, ref, nil, &x.rec))
	x.want("2 9 end ", "1 2 assign a")
}

// TestDisconnectHolderServesInOrder checks that of the tasks that a departed holder releases the
// largest name comes first, also when a worker waits.
func TestDisconnectHolderServesInOrder(t *testing.T) {
	x := newGraphSched(t)
	x.extend("a", "b", "c")
	x.wantStolen("a", "b", "c")
	p := x.peer(string(graphQueue))
	x.reserve(p, 1)
	x.reserve(p, 2)
	x.s.Disconnect(x.now, x.h, &x.rec)
	x.want("1 1 assign c", "1 2 assign b")
}

// TestDropTasks checks that a queue of tasks cannot be dropped, complete or not.
func TestDropTasks(t *testing.T) {
	x := newGraphSched(t)
	x.s.SetRemember(1000)
	f := func(when string) {
		t.Helper()
		if x.s.Drop(graphQueue) {
			t.Errorf("the queue was dropped: %s", when)
		}
	}
	x.extend("a")
	f("a task is ready")
	x.wantStolen("a")
	x.complete("a")
	x.s.Disconnect(x.now, x.h, &x.rec)
	f("a task is remembered")
	x.now.Mono += 5000
	x.s.ticks(x.now, &x.rec)
	x.want()
}

// TestDelayedTaskWaits checks that a delayed task keeps its due time, to the millisecond, while it
// waits for a predecessor, also across a restart.
func TestDelayedTaskWaits(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		x := newGraphSched(t)
		x.now.Wall += 600
		p := x.peer(string(graphQueue))
		x.reserve(p, 1)
		x.extend("a")
		ref := x.want("1 1 assign a")[0].job.run
		x.ok(x.s.Delay(x.now, p, ref, 5, 2, &x.rec))
		x.extend("b", "a<b")
		x.wantStolen("b")
		if restarts {
			x.restart()
		}
		x.now.Wall += 4999
		x.complete("b")
		x.s.ticks(x.now, &x.rec)
		x.wantStolen()
		x.now.Wall++
		x.s.ticks(x.now, &x.rec)
		x.s.LookupTask(graphTasks, graphQueue, []byte("a"), func(v *TaskView) {
			if v.Count != 2 {
				t.Errorf("count %d", v.Count)
			}
		})
		x.wantStolen("a")
	}
}

// TestDelayedWhileNoted checks that a delayed task that waits is journaled again with its due time.
func TestDelayedWhileNoted(t *testing.T) {
	x := newGraphSched(t)
	x.now.Wall += 600
	p := x.peer(string(graphQueue))
	x.reserve(p, 1)
	x.extend("a")
	ref := x.want("1 1 assign a")[0].job.run
	x.extend("b", "a<b")
	x.ok(x.s.Delay(x.now, p, ref, 5, 0, &x.rec))
	x.wantStolen("b")
	x.restart()
	x.complete("b")
	x.now.Wall += 4999
	x.s.ticks(x.now, &x.rec)
	x.wantStolen()
	x.now.Wall++
	x.s.ticks(x.now, &x.rec)
	x.wantStolen("a")
}

// TestTornEdges checks a crash between the end of a task and the end of its edges, which are
// more than a batch. No edge is left after a restart.
func TestTornEdges(t *testing.T) {
	const n = 2*defaultBatch + 5
	x := newGraphSched(t)
	x.extend("hub", "other")
	x.wantStolen("hub", "other")
	for i := range n {
		x.extend(fmt.Sprint("task ", i, "<other"))
		x.extend(fmt.Sprint("task ", i, "<hub"))
	}
	sh := &x.s.shards[0]
	sh.graph.complete(x.now, x.h, graphTasks, graphQueue, graphTaskList("hub"), &x.rec, nil)
	before := len(x.journal[0])
	x.restart()
	if got := before - len(x.journal[0]); got != n-defaultBatch {
		t.Errorf("%d records of edges were dropped, want %d", got, n-defaultBatch)
	}
	x.wantStolen()
	x.complete("other")
	x.s.ticks(x.now, &x.rec)
	if active, ready := x.s.Backlog(graphQueue); active != n || ready != n {
		t.Errorf("%d active, %d ready", active, ready)
	}
}

// TestRecreatedWhileFreeing checks that a remembered task's name can be used again while its
// successors are being freed: they become ready, and the successors of the new task wait.
func TestRecreatedWhileFreeing(t *testing.T) {
	for _, remember := range []int64{0, 1000} {
		const n = 2*defaultBatch + 5
		x := newGraphSched(t)
		x.s.SetRemember(remember)
		x.extend("hub")
		x.wantStolen("hub")
		for i := range n {
			x.extend(fmt.Sprint("task ", i, "<hub"))
		}
		sh := &x.s.shards[0]
		sh.graph.complete(x.now, x.h, graphTasks, graphQueue, graphTaskList("hub"), &x.rec, nil)
		x.extend("hub", "late<hub")
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
		x.now.Mono += 5000 // the old one would be forgotten now
		x.s.ticks(x.now, &x.rec)
		if active, ready := x.s.Backlog(graphQueue); active != n+2 || ready != n+1 {
			t.Errorf("%d active, %d ready", active, ready)
		}
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
	}
}

// newLockedTasks makes three tasks: the first has a lock, and the others wait for it. It also makes a
// worker that reserves more.
func newLockedTasks(t *testing.T) (x *graphSched, p *Peer, first Run) {
	x = newGraphSched(t)
	p = x.peer(string(graphQueue))
	for i, name := range []string{"a", "b", "c"} {
		x.reserve(p, uint64(i))
		x.extend(name)
		ref := x.rec.take()[0].job.run
		if got, err := x.s.AcquireLock(x.now, p, ref, "lock", 1, &x.rec); got != (i == 0) || err != nil {
			t.Error(name, got, err)
		}
		if i == 0 {
			first = ref
		}
	}
	return x, p, first
}

// TestWokenTaskWaits checks that a task that is woken for a lock but has to wait for a predecessor,
// which may want that lock itself, passes the lock on.
func TestWokenTaskWaits(t *testing.T) {
	x, p, a := newLockedTasks(t)
	x.ok(x.s.Finish(x.now, p, a, nil, &x.rec)) // b is ready
	x.extend("b<c")
	x.reserve(p, 7)
	x.want("1 7 assign c")

	x, p, a = newLockedTasks(t)
	x.extend("b<c") // while it is parked
	x.ok(x.s.Finish(x.now, p, a, nil, &x.rec))
	x.reserve(p, 7)
	x.want("1 7 assign c")
}

// TestRemoveLockedTask checks that the locks forget a task that is removed while it waits for a
// lock, was woken for it, or has it.
func TestRemoveLockedTask(t *testing.T) {
	f := func(name string, calledFirst bool, want ...string) {
		t.Helper()
		x, p, a := newLockedTasks(t)
		if calledFirst {
			x.ok(x.s.Finish(x.now, p, a, nil, &x.rec))
		}
		if !x.s.RemoveTask(x.now, graphTasks, graphQueue, []byte(name), &x.rec) {
			t.Errorf("%q is not there", name)
		}
		x.reserve(p, 7)
		x.want(want...)
	}
	f("a", false, "1 7 assign b")
	f("b", false)
	f("b", true, "1 7 assign c")
	f("c", true, "1 7 assign b")
}

// TestTaskLogBounded checks that a task's log keeps its newest entries.
func TestTaskLogBounded(t *testing.T) {
	x := newGraphSched(t)
	f := func(when string) {
		t.Helper()
		x.s.LookupTask(graphTasks, graphQueue, []byte("a"), func(v *TaskView) {
			if last := v.Log[len(v.Log)-1]; len(v.Log) != maxEvents || last.Micros != x.now.WallMicros {
				t.Errorf("%s: %d entries, the last %+v", when, len(v.Log), last)
			}
		})
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	x.extend("a")
	for range maxEvents {
		x.now.WallMicros++
		x.wantStolen("a")
		x.s.Disconnect(x.now, x.h, &x.rec)
		x.h = x.s.NewHolderPeer("h")
	}
	f("after many turns")
	x.restart()
	f("after a restart")
	x.wantStolen("a")
	back := graphTaskList("a")
	for i := range maxEvents + 5 {
		x.now.WallMicros++
		back[0].Log = append(back[0].Log, Event{StageOther, int64(i)})
	}
	x.ok(x.s.Transfer(x.now, x.h, graphTasks, graphQueue, back, &x.rec))
	f("after a long Transfer")
	x.s.LookupTask(graphTasks, graphQueue, []byte("a"), func(v *TaskView) {
		if got := v.Log[maxEvents-2]; got != (Event{StageOther, maxEvents + 4}) {
			t.Errorf("the newest that was sent is %+v", got)
		}
	})
}

// TestFreeingInBatches checks that no verb removes more than a batch of edges under one hold of the
// lock.
func TestFreeingInBatches(t *testing.T) {
	const n = 10 * defaultBatch
	x := newGraphSched(t)
	x.extend("first", "second")
	x.wantStolen("first", "second")
	for i := range n { // that wait for a third, so that no verb is content with the first batch
		x.extend(fmt.Sprint("task ", i, "<first,second"))
	}
	sh := &x.s.shards[0]
	f := func(verb string, most int, one func()) {
		t.Helper()
		before := sh.graph.edges.live
		one()
		if got := before - sh.graph.edges.live; got != most {
			t.Errorf("%s ended %d edges, want %d", verb, got, most)
		}
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
	}
	f("Complete", defaultBatch, func() {
		sh.graph.complete(x.now, x.h, graphTasks, graphQueue, graphTaskList("first", "second"), &x.rec, nil)
	})
	f("Steal", defaultBatch, func() { sh.graph.steal(x.now, x.h, graphQueue, 9, &x.rec, nil) })
	f("Tick", defaultBatch, func() { x.s.Tick(x.now, &x.rec) })
	f("all of a Steal", stealTries*defaultBatch, func() {
		x.s.Steal(x.now, x.h, graphQueue, 1, &x.rec, func(*TaskView) bool { return false })
	})
}

// TestGraphOrders checks the orders for edges in any direction, with short and long searches, and
// that exactly the edges that close a cycle are refused.
func TestGraphOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{40, 400} {
		x := newGraphSched(t)
		waits := make(map[int][]int)
		var reached func(from, to int, seen map[int]bool) bool
		reached = func(from, to int, seen map[int]bool) bool {
			seen[from] = true
			return from == to || slices.ContainsFunc(waits[from], func(a int) bool { return !seen[a] && reached(a, to, seen) })
		}
		for i := range n {
			x.extend(fmt.Sprint(i))
		}
		refused := 0
		for range 4 * n {
			to, from := r.IntN(n), r.IntN(n)
			closes := reached(from, to, make(map[int]bool))
			var cycle *cycleError
			err := x.s.AddTasks(x.now, graphTasks, graphQueue, graphTaskList(fmt.Sprint(to, "<", from)), &x.rec)
			if errors.As(err, &cycle) != closes || err != nil && cycle == nil {
				t.Fatalf("%d after %d: %v, want a cycle: %v", to, from, err, closes)
			}
			if !closes {
				waits[to] = append(waits[to], from)
				continue
			}
			refused++
			last := len(cycle.Names) - 1
			for i := range last {
				a, b := atoi(t, cycle.Names[i]), atoi(t, cycle.Names[i+1])
				if !slices.Contains(waits[a], b) && (a != to || b != from) && last < maxCycleNames {
					t.Fatalf("%v: %d does not come after %d", err, a, b)
				}
			}
		}
		if err := x.s.check(); err != nil || refused < n/2 {
			t.Errorf("%d refused, %v", refused, err)
		}
	}
}

func atoi(t *testing.T, s string) (n int) {
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBackwardEdges checks that few tasks get new orders when a chain is built from its end, and
// when tasks get new predecessors that come before everything that waits for them.
func TestBackwardEdges(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 300
	}
	f := func(name string, most int, build, then func(i int) []string) {
		t.Helper()
		x := newGraphSched(t)
		for i := range n {
			x.extend(build(i)...)
		}
		for i := range n - 1 {
			before, moved := x.orders(), 0
			x.extend(then(i)...)
			for job, order := range x.orders() {
				moved += oneIf(before[job] != 0 && before[job] != order)
			}
			if moved > most {
				t.Fatalf("%s: step %d moved %d tasks", name, i, moved)
			}
		}
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone := func(i int) []string { return []string{fmt.Sprint(i)} }
	chained := func(i int) []string { return []string{fmt.Sprint(i, "<", i-1)} }
	f("a chain from its end", 1, alone, func(i int) []string { return []string{fmt.Sprint(i, "<", i+1)} })
	f("a chain from its start", fewEdges+1, alone, func(i int) []string { return []string{fmt.Sprint(n-2-i, "<", n-1-i)} })
	f("subtasks of the first of a chain", 0, chained, func(i int) []string {
		return []string{fmt.Sprint("sub", i), fmt.Sprint("subsub", i, "<sub", i), fmt.Sprint("0<subsub", i)}
	})
	f("the last of a chain waits for one more", fewEdges+1, chained, func(i int) []string {
		return []string{"new", fmt.Sprint("new", i, "<new,500"), fmt.Sprint(n-1, "<new", i)}
	})
}

func (x *graphSched) orders() map[uint32]int64 {
	all := make(map[uint32]int64)
	for c, done := (Cursor{}), false; !done; {
		c, done = x.s.WalkTasks(c, slabChunk, graphTasks, func(v *TaskView) { all[v.Ref.Record] = x.s.shards[0].slab.node(v.Ref.Record).order })
	}
	return all
}
