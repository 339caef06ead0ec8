package sched

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// TestQuota checks that the charged bytes of all peers together are bounded, that each peer has its
// own part, and that refunded bytes can be charged by other peers.
func TestQuota(t *testing.T) {
	for _, most := range []int64{maxShared, 8 << 20} {
		testQuota(t, newTestSched(t, Options{Shards: 2, PeerMemory: most}), most)
	}
	if n := New(Options{PeerMemory: 2 * maxShared}).sharedQuota.limit; n != maxShared {
		t.Errorf("%d bytes may be borrowed", n)
	}
}

func testQuota(t *testing.T, x *testSched, most int64) {
	taken := most - 2*quotaStep // by peers that are not here
	x.s.sharedQuota.Add(taken)
	register := map[string]func(p *Peer, i int) error{
		"queues":   func(p *Peer, i int) error { return x.s.Watch(x.now, p, fmt.Append(nil, "q", i), false, &x.rec) },
		"reserves": func(p *Peer, i int) error { return x.s.Reserve(x.now, p, uint64(i), &x.rec) },
		"data": func(p *Peer, i int) error {
			return x.s.Listen(p, 0, []byte("f"), fmt.Append(nil, "job", i), uint64(i))
		},
	}
	x.peer("f")
	for what, one := range register {
		until := func(p *Peer) (n int) {
			for ; n < MaxSlots; n++ {
				switch err := one(p, n); err {
				case nil:
				case errQuota:
					return n
				default:
					t.Fatal(what, n, err)
				}
			}
			t.Fatalf("%s: %d of one peer", what, n)
			return n
		}
		greedy, late := x.peer("f"), x.peer("f")
		if n := until(greedy); n*600 < ownQuota+2*quotaStep || n*slotCost > ownQuota+2*quotaStep {
			t.Errorf("%s: %d of a peer that was the first", what, n)
		}
		if n := until(late); n*600 < ownQuota || n*slotCost > ownQuota {
			t.Errorf("%s: %d of a peer that came when others had all there is", what, n)
		}
		x.s.Disconnect(x.now, greedy, &x.rec)
		if err := one(late, MaxSlots+1); err != nil {
			t.Errorf("%s: %v with room", what, err)
		}
		x.s.Disconnect(x.now, late, &x.rec)
		if n := x.s.sharedQuota.Load(); n != taken {
			t.Errorf("%s: %d bytes are counted for peers that have left", what, n-taken)
		}
		x.rec.take()
	}
}

// TestQuotaRefund checks the same for bytes that are refunded one by one.
func TestQuotaRefund(t *testing.T) {
	x := newTestSched(t, Options{Shards: 2})
	name := func(i int) []byte { return fmt.Append(nil, "q", i) }
	worker, listener := x.peer(), x.peer()
	const n = 1000
	for i := range n {
		if err := x.s.Watch(x.now, worker, name(i), false, &x.rec); err != nil {
			t.Fatal(err)
		}
		x.submit(string(name(i)), "a")
		for tag := range uint64(2) { // the same data twice
			if err := x.s.Listen(listener, 0, name(i), []byte("a"), tag); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		x.reserve(worker, uint64(i))
		for _, d := range x.rec.take() {
			if d.effect != Assign {
				continue // the listener's End
			}
			if err := x.s.Finish(x.now, worker, d.job.run, nil, &x.rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n - 1 {
		x.s.Unwatch(worker, name(i))
	}
	if got := [...]int{worker.charged, worker.borrowed, listener.charged, listener.borrowed}; got[0] != watchCost || got[2] != 0 {
		t.Errorf("registered and drawn are %v", got)
	}
	if n := x.s.sharedQuota.Load(); n > 2*quotaStep {
		t.Errorf("%d bytes are counted", n)
	}
	x.rec.take()
	x.want()
}

// TestQuotaCosts checks that the charged bytes are those that slots, watches and topics take.
func TestQuotaCosts(t *testing.T) {
	const n = 60_000 // in maps just grown, the worst case
	x := newTestSched(t, Options{Shards: 2})
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	first := x.peer()
	names := make([][]byte, n)
	for i := range names {
		names[i] = fmt.Append(nil, "q", i)
	}
	watch := func(p *Peer) {
		for _, name := range names {
			if err := x.s.Watch(x.now, p, name, false, &x.rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	watch(first) // makes the queues
	before := heap()
	var peers [3]*Peer
	for i := range peers {
		peers[i] = x.peer()
		watch(peers[i])
	}
	after := heap()
	each := int64(after-before) / int64(n*len(peers))
	t.Logf("a watch takes %d bytes", each)
	if each > watchCost {
		t.Errorf("a watch takes %d bytes, %d are counted", each, watchCost)
	}
	runtime.KeepAlive(peers)
}

// discardSink is a Sink that ignores everything.
type discardSink struct{}

func (discardSink) Deliver(*Delivery) {}

// TestReleaseDuringAssign checks that a peer's held jobs are counted under the lock while other
// goroutines hand it more. The race detector would report it.
func TestReleaseDuringAssign(t *testing.T) {
	s := New(Options{Shards: 2})
	now := Time{Wall: 1, Mono: 1, WallMicros: 1}
	p := s.NewPeer(1)
	name := func(i int) []byte { return fmt.Append(nil, "f", i%4) }
	for i := range 4 {
		if err := s.Watch(now, p, name(i), false, discardSink{}); err != nil {
			t.Fatal(err)
		}
	}
	var other sync.WaitGroup
	other.Go(func() {
		for i := range 2000 {
			if err := s.Submit(now, &Submission{Space: 1, Queue: name(i), Name: fmt.Append(nil, i)}, discardSink{}); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range uint64(2000) {
		if err := s.Reserve(now, p, i, discardSink{}); err != nil {
			t.Fatal(err)
		}
		_ = s.ReleaseNewest(now, p, i, discardSink{}) // it may have got none yet
	}
	other.Wait()
	if p.TakeCost() < 4*2000 {
		t.Error("what a Release looks through is not counted")
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}
