package sched

import "testing"

// TestDropOfQueueNotSaved checks that a dropped queue stays gone after a crash although the queue
// itself was not journaled: an import or a full disk may leave it out.
func TestDropOfQueueNotSaved(t *testing.T) {
	saved := memJournal{{}}
	o := Options{Shards: 1, Rules: [MaxSpaces]Rules{{Durable: true}}, Journal: saved}
	x := newTestSched(t, o)
	_, _ = x.submit("q", "a")
	_, _ = x.submit("q", "b")
	for seq, j := range saved[0] {
		if j.Kind == KindQueue {
			delete(saved[0], seq)
		}
	}
	restart := func() {
		t.Helper()
		x.s = New(o)
		for _, seq := range saved.order() {
			j := saved[0][seq]
			x.ok(x.s.Restore(x.now, &j))
		}
		x.s.Resume(x.now, 0, nil, &x.rec)
	}
	restart()
	if !x.s.Drop([]byte("q")) {
		t.Fatal("the queue is not dropped")
	}
	restart() // before any job was taken apart
	x.s.Tick(x.now, &x.rec)
	p := x.peer("q")
	x.reserve(p, 1)
	x.want()
	if len(saved[0]) != 1 { // the worker's queue
		t.Errorf("%v is left", saved[0])
	}
}

// TestRestoreOfUnknownSpace checks that a record of a space that no protocol uses, as an import may
// have, is refused.
func TestRestoreOfUnknownSpace(t *testing.T) {
	x := newTestSched(t, Options{Shards: 1, Rules: [MaxSpaces]Rules{1: {Durable: true}}, Journal: memJournal{{}}})
	for space, known := range map[Space]bool{0: false, 1: true, 2: false, MaxSpaces - 1: false, MaxSpaces: false, 255: false} {
		err := x.s.Restore(x.now, &Saved{Job: Job{Ref: JobRef{Seq: uint64(space) + 1}, Space: space, Queue: "q", Name: []byte("a")}})
		if (err == nil) != known {
			t.Errorf("space %d: %v", space, err)
		}
	}
}
