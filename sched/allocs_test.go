package sched

import (
	"fmt"
	"testing"
)

// TestNoAllocations checks that in the steady state no verb of a job's way allocates: not with a
// worker of one queue or of several, with one slot or many; not with a backlog of constant depth;
// not with failures, sleeping peers, and windows that fill and empty.
func TestNoAllocations(t *testing.T) {
	f := func(name string, queues, slots, backlog int, way func(x *benchSched, p *Peer)) {
		t.Helper()
		x := newBenchSched(t, 4, queues)
		for range backlog {
			x.submit(0, 0)
		}
		p := x.worker(0, queues)
		for tag := range slots {
			x.reserve(p, uint64(100+tag))
		}
		for range 300 { // lines, lists and pools reach their size
			way(x, p)
		}
		if a := testing.AllocsPerRun(300, func() { way(x, p) }); a != 0 {
			t.Errorf("%s: %v allocations", name, a)
		}
		if err := x.s.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	handOff := func(x *benchSched, p *Peer) {
		x.now.Mono += 7
		x.now.Wall += 7
		x.reserve(p, 1)
		x.submit(int(x.next)%len(x.queues), 0)
		x.finish(p)
	}
	f("hand-off", 1, 0, 0, handOff)
	f("hand-off, five queues", 5, 0, 0, handOff)
	backlog := func(x *benchSched, p *Peer) {
		x.now.Mono += 7
		x.now.Wall += 7
		x.submit(0, 0)
		x.reserve(p, 1)
		x.finish(p)
	}
	f("backlog", 1, 0, 100, backlog)
	f("backlog, five queues", 5, 0, 2000, backlog)
	f("64 slots", 1, 64, 0, func(x *benchSched, p *Peer) {
		x.submit(0, 0)
		tag := x.sink.tags[0]
		x.finish(p)
		x.reserve(p, tag)
	})
	f("replaced", 1, 0, 0, func(x *benchSched, p *Peer) {
		x.next = 7
		x.submit(0, 0)
	})
	f("failed", 1, 0, 0, func(x *benchSched, p *Peer) {
		x.reserve(p, 1)
		x.submit(0, 0)
		if err := x.s.Fail(x.now, p, x.sink.refs[0], nil, &x.sink); err != nil {
			x.b.Error(err)
		}
		x.sink.refs = x.sink.refs[:0]
		x.reserve(p, 2)
		x.finish(p)
	})
	f("delayed", 1, 0, 0, func(x *benchSched, p *Peer) {
		x.submit(0, x.now.Wall/1000+1)
		x.reserve(p, 1)
		x.now.Wall += 1000
		x.s.ticks(x.now, &x.sink)
		x.finish(p)
	})
	f("asleep", 3, 0, 0, func(x *benchSched, p *Peer) {
		if err := x.s.Sleep(x.now, p, 1, &x.sink); err != nil {
			x.b.Error(err)
		}
		x.submit(1, 0)
		if ok, err := x.s.TryReserve(x.now, p, 1, &x.sink); !ok || err != nil {
			x.b.Error(ok, err)
		}
		x.finish(p)
		if ok, err := x.s.TryReserve(x.now, p, 1, &x.sink); ok || err != nil {
			x.b.Error(ok, err)
		}
	})
	f("window", 2, 0, 0, func(x *benchSched, p *Peer) {
		x.s.Flushed(x.now, p, 1<<62, &x.sink)
		x.reserve(p, 1)
		x.submit(0, 0)
		x.s.Flushed(x.now, p, 0, &x.sink)
		x.finish(p)
	})
}

// TestMemoryReturned checks that a stream of jobs through a queue of varying depth leaves no more
// memory behind than a few chunks.
func TestMemoryReturned(t *testing.T) {
	x := newBenchSched(t, 1, 1)
	p := x.worker(0, 1)
	for round := range 3 {
		for range 20_000 {
			x.submit(0, x.now.Wall/1000+int64(x.next%100))
		}
		x.now.Wall += 100_000
		x.s.ticks(x.now, &x.sink)
		for range 20_000 {
			x.reserve(p, 1)
			x.finish(p)
		}
		sh := &x.s.shards[0]
		slabs := 0
		for i := range sh.slab.chunks {
			slabs += oneIf(sh.slab.chunks[i].records != nil)
		}
		got := fmt.Sprint(sh.slab.live, slabs <= keepEmpty, sh.arena.bytes <= keepEmpty*arenaChunk, len(sh.names.dir))
		if got != "0 true true 1" {
			t.Errorf("round %d: live, few slab chunks, little arena, name segments: %s", round, got)
		}
		if err := x.s.check(); err != nil {
			t.Error(err)
		}
	}
}
