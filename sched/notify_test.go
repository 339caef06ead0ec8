package sched

import (
	"fmt"
	"testing"
)

// TestNotifyLater checks that a result for very many awaits reaches each once, some by the Ticks.
func TestNotifyLater(t *testing.T) {
	const n = 3 * notifyBatches
	x := newTestSched(t, Options{Batch: 1})
	w := x.peer("f")
	x.reserve(w, 9)
	var all []*Peer
	for range n {
		p := x.peer()
		x.submit("f", "a", func(j *Submission) { j.Await, j.Tag = p, 7 })
		all = append(all, p)
	}
	run := x.want("1 9 assign a")[0].job.run
	result := []byte("result")
	x.ok(x.s.Finish(x.now, w, run, result, &x.rec))
	copy(result, "buffer") // the caller owns it again
	x.s.Disconnect(x.now, all[n-1], &x.rec)
	x.submit("f", "a") // its name is free
	if err := x.s.check(); err != nil {
		t.Error(err)
	}
	x.s.ticks(x.now, &x.rec)
	var want []string
	for _, p := range all {
		want = append(want, fmt.Sprint(p.id, " 7 result result"))
	}
	x.want(want...)
	for _, p := range all[:n-1] {
		if len(p.awaits) > 0 {
			t.Errorf("peer %d awaits something still", p.id)
		}
	}
}

// TestHaltDuringBroadcast checks that Halt ends a broadcast that is under way.
func TestHaltDuringBroadcast(t *testing.T) {
	x := newTestSched(t, Options{Batch: 1})
	for range 3 {
		p := x.peer()
		x.ok(x.s.Watch(x.now, p, []byte("f"), true, &x.rec))
		x.reserve(p, 1)
	}
	x.submit("f", "a")
	x.want("1 1 broadcast a")
	if n := x.s.Stats().Jobs; n != 1 {
		t.Errorf("%d jobs are there during the broadcast", n)
	}
	x.s.Halt()
	x.s.ticks(x.now, &x.rec)
	x.want()
	if n := x.s.Stats().Jobs; n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}
