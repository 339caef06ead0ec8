package sched

import (
	"runtime"
	"strconv"
	"testing"
)

// graphBench builds graphs and completes them with one holder.
type graphBench struct {
	*benchSched
	h     *Peer
	task  [16]Task // the request at hand
	names [16][20]byte
	after [4][20]byte
	made  int
	got   int
}

func newGraphBench(b testing.TB) *graphBench {
	x := &graphBench{benchSched: &benchSched{b: b, s: New(Options{Rules: graphRules}), now: Time{Wall: 1_700_000_000_000}}}
	x.h = x.s.NewHolderPeer("h")
	for i := range x.task {
		x.task[i].After = make([][]byte, 0, len(x.after))
	}
	return x
}

// extend makes one more task. deps says how many tasks back its predecessors are.
func (x *graphBench) extend(deps ...int) {
	t := &x.task[0]
	t.Name = strconv.AppendInt(x.names[0][:0], int64(x.made), 10)
	t.After = t.After[:0]
	for i, back := range deps {
		if back > 0 && back <= x.made {
			t.After = append(t.After, strconv.AppendInt(x.after[i][:0], int64(x.made-back), 10))
		}
	}
	x.made++
	if err := x.s.AddTasks(x.now, graphTasks, graphQueue, x.task[:1], &x.sink); err != nil {
		x.b.Fatal(err)
	}
}

// round steals and completes up to n tasks.
func (x *graphBench) round(n int) int {
	x.got = 0
	x.s.Steal(x.now, x.h, graphQueue, n, &x.sink, x.take)
	x.s.Complete(x.now, x.h, graphTasks, graphQueue, x.task[:x.got], &x.sink, x.missing)
	return x.got
}

func (x *graphBench) take(v *TaskView) bool {
	x.task[x.got].Name = append(x.names[x.got][:0], v.Name...)
	x.got++
	return x.got < len(x.task)
}

func (x *graphBench) missing(int) { x.b.Fatal("a task that was stolen is not held") }

// grid makes n tasks with about four predecessors each. Many are ready at a time.
func (x *graphBench) grid(n int) {
	for range n {
		x.extend(1000, 1001, 1500, 2000)
	}
}

// BenchmarkExtend adds tasks with four predecessors each.
func BenchmarkExtend(b *testing.B) {
	b.ReportAllocs()
	x := newGraphBench(b)
	x.grid(b.N)
}

func BenchmarkStealComplete(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			x := newGraphBench(b)
			x.grid(b.N + 2000)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				done += x.round(n)
			}
		})
	}
}

// BenchmarkBackwardEdge adds an edge to an older task. Half of all tasks come before the edge and
// half after it.
func BenchmarkBackwardEdge(b *testing.B) {
	x := newGraphBench(b)
	const n = 10_000
	for i := range n {
		x.extend(1)
		if i == n/2 {
			x.made++ // a second chain
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		t := Task{Name: strconv.AppendInt(nil, int64(n/4-i%(n/8)), 10), After: [][]byte{strconv.AppendInt(nil, int64(n*3/4+i%(n/8)), 10)}}
		if err := x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{t}, &x.sink); err != nil {
			b.Fatal(err)
		}
	}
}

// heapBytes returns the bytes that live after a garbage collection.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestGraphBounds checks that a million tasks with four million edges fit in a gigabyte, and so do
// chains, and tasks that wait for one task or are waited for by one. All are done in the order of
// the graph. No memory is kept afterwards.
func TestGraphBounds(t *testing.T) {
	n := 1_000_000
	if testing.Short() || underRace {
		n = 50_000
	}
	f := func(name string, rounds int, build func(x *graphBench)) {
		t.Helper()
		before := heapBytes()
		x := newGraphBench(t)
		build(x)
		used := heapBytes() - before
		t.Logf("%s: %d bytes a task", name, used/uint64(n))
		if used > uint64(n)<<10 {
			t.Errorf("%s: %d bytes for %d tasks", name, used, n)
		}
		done, most := 0, 0
		for active, _ := x.s.Backlog(graphQueue); done < active+done; active, _ = x.s.Backlog(graphQueue) {
			k := x.round(16)
			if done, most = done+k, max(most, k); k == 0 {
				t.Fatalf("%s: nothing is ready and %d of %d tasks are not done", name, active, n)
			}
		}
		if done != x.made || most > rounds {
			t.Errorf("%s: %d of %d tasks were done, up to %d at once", name, done, x.made, most)
		}
		sh := &x.s.shards[0]
		if sh.graph.edges.live != 0 || len(sh.graph.edges.chunks) > 0 || sh.slab.live != 0 {
			t.Errorf("%s: %d edges, %d chunks of them and %d records are left", name, sh.graph.edges.live, len(sh.graph.edges.chunks), sh.slab.live)
		}
		if left := heapBytes() - before; left > 32<<20 {
			t.Errorf("%s: %d bytes are kept", name, left)
		}
		runtime.KeepAlive(x)
	}
	f("grid", 16, func(x *graphBench) { x.grid(n) })
	f("chain", 1, func(x *graphBench) {
		for range n {
			x.extend(1)
		}
	})
	f("hub", 16, func(x *graphBench) {
		for range n {
			x.extend(x.made)
		}
	})
	f("join", 16, func(x *graphBench) {
		join := Task{}
		for range n {
			join.After = append(join.After, strconv.AppendInt(nil, int64(x.made), 10))
			x.extend()
		}
		join.Name = strconv.AppendInt(nil, int64(x.made), 10)
		x.made++
		if err := x.s.AddTasks(x.now, graphTasks, graphQueue, []Task{join}, &x.sink); err != nil {
			t.Fatal(err)
		}
	})
}
