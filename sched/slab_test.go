package sched

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSlabAgainstMap checks that slots in use are distinct, zeroed at first, and keep what is
// written to them, over several chunks that fill and empty in any order. At the end few chunks are
// left.
func TestSlabAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSlab()
		used := make(map[uint32]uint64)
		var order []uint32
		seq := uint64(0)
		take := func(n int) {
			for range n {
				slot, r := s.alloc()
				if _, ok := used[slot]; ok || *r != (record{}) {
					t.Fatalf("slot %d was in use, or not zeroed: %+v", slot, *r)
				}
				seq++
				r.seq, r.state = seq, ready
				used[slot] = seq
				order = append(order, slot)
			}
		}
		give := func(n, from int) {
			for ; n > 0 && len(order) > 0; n-- {
				i := from % len(order)
				slot := order[i]
				order[i] = order[len(order)-1]
				order = order[:len(order)-1]
				if r := s.find(slot); r == nil || r.seq != used[slot] || r != s.at(slot) {
					t.Fatalf("slot %d was overwritten", slot)
				}
				s.free(slot)
				if r := s.find(slot); r != nil && (r.state != free || r.seq != 0) {
					t.Fatalf("freed slot %d looks used: %+v", slot, *r)
				}
				delete(used, slot)
				from += n
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			take(rapid.IntRange(0, 2*slabChunk).Draw(t, "take"))
			give(rapid.IntRange(0, 3*slabChunk).Draw(t, "give"), rapid.IntRange(0, 1<<20).Draw(t, "from"))
			if s.live != len(used) {
				t.Fatalf("%d live, want %d", s.live, len(used))
			}
			c := checker{sh: &shard{slab: s}}
			if err := c.slab(); err != nil {
				t.Fatal(err)
			}
		}
		give(len(order), 0)
		kept := 0
		for i := range s.chunks {
			kept += oneIf(s.chunks[i].records != nil)
		}
		if s.live != 0 || kept > keepEmpty || kept != s.empty {
			t.Fatalf("%d live, %d chunks kept, %d counted", s.live, kept, s.empty)
		}
	})
}

// TestSlabFind checks that find answers for every slot number, with or without a chunk.
func TestSlabFind(t *testing.T) {
	s := newSlab()
	f := func(slot uint32, want bool) {
		t.Helper()
		if got := s.find(slot) != nil; got != want {
			t.Errorf("find(%d): %v, want %v", slot, got, want)
		}
	}
	f(0, false)
	f(none, false)
	const kept = keepEmpty * slabChunk // slots in the empty chunks that are kept
	for range kept + slabChunk + 1 {
		s.alloc()
	}
	f(0, true)
	f(kept+2*slabChunk-1, true)
	f(kept+2*slabChunk, false)
	for slot := uint32(0); slot < kept+slabChunk; slot++ {
		s.free(slot)
	}
	f(0, true)
	f(kept, false) // its chunk was freed: enough chunks are empty, and another is open
	f(kept+slabChunk, true)
}
