package sched

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// taskAfter returns a task with n predecessors, named by a prefix and a number.
func taskAfter(name, prefix string, n int) Task {
	t := Task{Name: []byte(name)}
	for i := range n {
		t.After = append(t.After, fmt.Append(nil, prefix, i))
	}
	return t
}

// numbered makes n tasks, named by a prefix and their number. after returns the predecessors of
// each.
func (x *graphSched) numbered(prefix string, n int, after func(i int) string) {
	x.t.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i, "<", after(i))
	}
	x.extend(all...)
}

func waitless(int) string { return "" }

// chained returns an after for numbered by which each task waits for the one before.
func chained(prefix string) func(i int) string {
	return func(i int) string {
		if i == 0 {
			return ""
		}
		return fmt.Sprint(prefix, i-1)
	}
}

// TestRepeatedPredecessor checks that a predecessor that is named twice counts once, for tasks with
// few and with many predecessors, some of them complete.
func TestRepeatedPredecessor(t *testing.T) {
	x := newGraphSched(t)
	const n = 3 * fewEdges
	x.numbered("p", n, waitless)
	join := taskAfter("join", "p", n)
	x.ok(x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{join, join}, &x.rec))
	x.s.Steal(x.now, x.h, graphQueue, n, &x.rec, func(*TaskView) bool { return true })
	for i := range n {
		if err := x.s.check(); err != nil {
			t.Fatalf("with %d complete: %v", i, err)
		}
		if ins := x.s.shards[0].graph.edges.live; ins != n-i {
			t.Fatalf("with %d complete it waits for %d, want %d", i, ins, n-i)
		}
		x.complete(fmt.Sprint("p", i))
		x.ok(x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{join}, &x.rec))
	}
	x.wantStolen("join")
}

// TestRepeatedPredecessorCost checks that an edge between a task with very many predecessors and
// one with very many successors can be named again and again at the cost of other edges.
func TestRepeatedPredecessorCost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	const n = 200_000 // a quadratic time would be minutes
	x := newGraphSched(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.numbered("p", n, waitless)
		x.numbered("s", n, func(int) string { return "p0" })
		x.ok(x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{taskAfter("join", "p", n)}, &x.rec))
		again := Task{Name: []byte("join")}
		for range n {
			again.After = append(again.After, []byte("p0"))
		}
		x.ok(x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{again}, &x.rec))
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}

// TestOrderScansFew checks that an edge from a younger to an older task costs no more than the
// smaller of its two sides, however large the other is.
func TestOrderScansFew(t *testing.T) {
	const n, side = 20_000, 10 * fewEdges
	f := func(name, edge string, build func(x *graphSched)) {
		t.Helper()
		x := newGraphSched(t)
		build(x)
		sh, task := &x.s.shards[0], graphTask(edge)
		from, _ := sh.graph.lookup(sh.byName[string(graphQueue)], graphTasks, task.After[0])
		to, _ := sh.graph.lookup(sh.byName[string(graphQueue)], graphTasks, task.Name)
		budget := maxOrderSteps
		x.ok(sh.graph.makeOrder(from, to, &budget))
		if looks := maxOrderSteps - budget; looks == 0 || looks > 20*side {
			t.Errorf("%s: it looks at %d edges", name, looks)
		}
		x.extend(edge)
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f("the front of a chain behind another", fmt.Sprint("old0<new", side-1), func(x *graphSched) {
		x.numbered("old", n, chained("old"))
		x.numbered("new", side, chained("new"))
	})
	f("a short chain behind the end of a long one", fmt.Sprint("new0<old", n-1), func(x *graphSched) {
		x.numbered("new", side, chained("new"))
		x.numbered("old", n, chained("old"))
	})
	f("one that very many wait for", fmt.Sprint("new0<mid", side-1), func(x *graphSched) {
		x.numbered("new", 1, waitless)
		x.numbered("mid", side, chained("mid"))
		x.numbered("old", n, func(int) string { return "new0" })
	})
	f("in the middle of chains that grew together", fmt.Sprint("both", n/2, "<both", n/2+side+1), func(x *graphSched) {
		x.numbered("both", n, func(i int) string { return fmt.Sprint("both", i-2) })
	})
}

// TestCostlyRequest checks that a request whose order takes too many steps is refused and changes
// nothing, while the same edges one by one are accepted.
func TestCostlyRequest(t *testing.T) {
	const n = 20_000
	x := newGraphSched(t)
	x.numbered("a", n, chained("a"))
	x.numbered("b", n, chained("b"))
	var all []string
	for i := range maxOrderSteps/n + 1 {
		all = append(all, fmt.Sprint("z", i, "<b", n-1), fmt.Sprint("a0<z", i))
	}
	if err := x.s.AddTasks(x.now, graphTasks, graphQueue, graphTaskList(all...), &x.rec); !errors.Is(err, errCostly) {
		t.Fatalf("%d tasks: %v", len(all), err)
	}
	if active, ready := x.s.Backlog(graphQueue); active != 2*n || ready != 2 {
		t.Errorf("%d tasks, %d of them ready, are left", active, ready)
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
	for i := 0; i < 20; i += 2 {
		x.extend(all[i], all[i+1])
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
}

// TestCycleOfLongNames checks that the error about a cycle is short, whatever the names.
func TestCycleOfLongNames(t *testing.T) {
	x := newGraphSched(t)
	for _, tasks := range [][]string{{"a"}, {"a", "b"}} {
		for i := range tasks {
			tasks[i] = strings.Repeat(tasks[i], 1<<20)
		}
		x.extend(tasks...)
		var all []string
		for i, name := range tasks {
			all = append(all, name+"<"+tasks[(i+1)%len(tasks)])
		}
		err := x.s.AddTasks(x.now, graphTasks, graphQueue, graphTaskList(all...), &x.rec)
		if !errors.As(err, new(*cycleError)) || len(err.Error()) > 1<<10 {
			t.Errorf("%d tasks: an error of %d bytes: %.80v", len(tasks), len(fmt.Sprint(err)), err)
		}
	}
}

// TestRestartOfCostlyOrder checks that a restart orders the tasks in one pass, not edge by edge.
func TestRestartOfCostlyOrder(t *testing.T) {
	const n, edges = 20_000, 80_000
	x := newGraphSched(t)
	x.numbered("a", n, chained("a"))
	x.numbered("b", n, chained("b"))
	x.numbered("z", edges, func(int) string { return fmt.Sprint("b", n-1) })
	x.extend("z0<z1") // as the edges are journaled
	var form Saved
	for _, j := range x.journal[0] {
		if j.Kind == KindEdge {
			form = j
		}
	}
	seqs := make(map[string]uint64)
	for _, j := range x.journal[0] {
		seqs[string(j.Name)] = j.Ref.Seq
	}
	for i := range edges {
		form.Ref.Seq = x.s.lastSeq.Add(1)
		form.After, form.Task = []uint64{seqs[fmt.Sprint("z", i)]}, seqs["a0"]
		x.journal[0][form.Ref.Seq] = form
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.restart()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
	if live := x.s.shards[0].graph.edges.live; live != 2*(n-1)+2*edges+1 {
		t.Errorf("%d edges are there, want %d", live, 2*(n-1)+2*edges+1)
	}
}

// TestRestartOfCycle checks that a journal with a cycle is restored: the older task no longer waits
// for the younger one, and all other tasks wait as before.
func TestRestartOfCycle(t *testing.T) {
	x := newGraphSched(t)
	x.extend("a", "b<a", "c<b", "d<c", "e")
	x.extend("b<e")
	seqs := make(map[string]uint64)
	var late Saved
	for _, j := range x.journal[0] {
		if seqs[string(j.Name)] = j.Ref.Seq; j.Kind == KindEdge {
			late = j
		}
	}
	late.After, late.Task = []uint64{seqs["c"]}, seqs["b"] // b waits for c instead of e
	x.journal[0][late.Ref.Seq] = late
	x.restart()
	for _, wave := range []string{"a e", "b", "c", "d"} {
		names := strings.Fields(wave)
		x.wantStolen(names...)
		x.complete(names...)
	}
	if _, kept := x.journal[0][late.Ref.Seq]; kept {
		t.Error("the edge is still in the journal")
	}
}
