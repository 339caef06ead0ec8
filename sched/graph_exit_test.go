package sched

import (
	"fmt"
	"testing"
)

// TestCrashWhileExiting checks a holder that departs with very many tasks and releases them in
// parts. After a crash in between none of them is its own. A holder of its name that comes back
// meanwhile is handed no task until the exit has ended.
func TestCrashWhileExiting(t *testing.T) {
	const n = 3 * defaultBatch
	f := func(what string, ticks int, crash bool) {
		t.Helper()
		x := newGraphSched(t)
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("t%04d", i))
		}
		x.extend(all...)
		x.wantStolen(all...)
		x.s.Disconnect(x.now, x.h, &x.rec)
		x.h = x.s.NewHolderPeer("h")
		if got := x.steal(); got != 0 {
			t.Errorf("%s: %d tasks are stolen meanwhile", what, got)
		}
		for range ticks {
			x.s.Tick(x.now, &x.rec)
		}
		if crash {
			x.restart()
		}
		if _, ready := x.s.Backlog(graphQueue); ready != n {
			t.Errorf("%s: %d tasks are ready", what, ready)
		}
		if got := x.steal(); got != n {
			t.Errorf("%s: %d tasks are stolen", what, got)
		}
		for _, j := range x.journal[0] {
			if j.Kind == KindExit {
				t.Errorf("%s: the journal knows of an exit for ever", what)
			}
		}
		x.want()
		x.restart() // they are its own again
		x.complete(all...)
	}
	f("a crash at once", 0, true)
	f("all are released", 1, false)
	f("a crash behind all", 1, true)
}

// steal steals all tasks in line and counts them.
func (x *graphSched) steal() (n int) {
	x.s.Steal(x.now, x.h, graphQueue, 1<<20, &x.rec, func(*TaskView) bool {
		n++
		return true
	})
	return n
}
