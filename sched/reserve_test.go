package sched

import "testing"

// TestTryReserveOf: a peer asks for the jobs of its queues in an order of its own, whatever their priorities.
func TestTryReserveOf(t *testing.T) {
	x := newTestSched(t, Options{Shards: 4})
	p := x.peer("low", "high")
	try := func(queue string, want bool) {
		t.Helper()
		if ok, err := x.s.TryReserveOf(x.now, p, []byte(queue), 7, &x.rec); ok != want || err != nil {
			t.Fatalf("TryReserveOf %s: %v, %v", queue, ok, err)
		}
	}
	try("low", false)
	for _, name := range []string{"a", "b"} {
		if _, err := x.submit("high", name, func(j *Submission) { j.Priority = 9 }); err != nil {
			t.Fatal(err)
		}
	}
	x.want()
	if _, err := x.submit("low", "c"); err != nil {
		t.Fatal(err)
	}
	try("low", true)
	x.want("1 7 assign c")
	try("low", false)
	try("none", false)
	x.want()
	try("high", true)
	x.want("1 7 assign a")
	x.reserve(p, 8)
	x.want("1 8 assign b")
}

// TestStopReserve: a Reserve that was stopped is not answered, the others are, and one that was answered cannot be
// stopped.
func TestStopReserve(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("f")
	x.reserve(p, 1)
	x.reserve(p, 2)
	if !x.s.StopReserve(p, 1) || x.s.StopReserve(p, 1) {
		t.Error("a waiting Reserve is stopped once")
	}
	for _, name := range []string{"a", "b"} {
		if _, err := x.submit("f", name); err != nil {
			t.Fatal(err)
		}
	}
	x.want("1 2 assign a")
	if x.s.StopReserve(p, 2) {
		t.Error("a Reserve that was answered was stopped")
	}
	x.reserve(p, 3)
	x.want("1 3 assign b")
}
