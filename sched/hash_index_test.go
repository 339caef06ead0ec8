package sched

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// namesModel is a name table and the map that it is compared with.
type namesModel struct {
	t      *rapid.T
	n      hashIndex
	hashes map[uint32]uint32 // slot -> hash
}

func (w *namesModel) insert(hash, slot uint32) {
	if !w.n.insert(hash, slot) {
		w.t.Fatalf("no room for %x", hash)
	}
	w.hashes[slot] = hash
}

func (w *namesModel) remove(slot uint32) {
	w.n.remove(w.hashes[slot], slot)
	delete(w.hashes, slot)
}

// check looks up every slot by its hash, and an unused hash.
func (w *namesModel) check() {
	for slot, hash := range w.hashes {
		if _, ok := w.n.find(hash, func(s uint32) bool { return s == slot }); !ok {
			w.t.Fatalf("slot %d is not found under %x", slot, hash)
		}
		w.n.find(^hash, func(s uint32) bool {
			if w.hashes[s] != ^hash {
				w.t.Fatalf("slot %d of hash %x is offered for %x", s, w.hashes[s], ^hash)
			}
			return false
		})
	}
	if err := w.n.check(); err != nil {
		w.t.Fatal(err)
	}
}

// hashKinds are distributions of hashes: as a good hash gives them, crowded into few
// places of a segment, and crowded into few segments.
var hashKinds = map[string]func(r *rand.Rand) uint32{
	"even":             func(r *rand.Rand) uint32 { return r.Uint32() },
	"few places":       func(r *rand.Rand) uint32 { return r.Uint32()&^(segmentSize-1) | r.Uint32N(3) + segmentSize - 2 },
	"few segments":     func(r *rand.Rand) uint32 { return r.Uint32() & 0xe03fffff },
	"one deep segment": func(r *rand.Rand) uint32 { return r.Uint32() >> (r.Uint32N(12)) },
}

// TestNamesAgainstMap checks the table against a map while segments split and merge. An emptied
// table is one segment again.
func TestNamesAgainstMap(t *testing.T) {
	for name, hash := range hashKinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				w := namesModel{t, newHashIndex(), make(map[uint32]uint32)}
				next := uint32(0)
				for range rapid.IntRange(1, 5).Draw(t, "rounds") {
					for range rapid.IntRange(0, 3000).Draw(t, "inserts") {
						w.insert(hash(r), next)
						next++
					}
					w.check()
					removes := rapid.IntRange(0, 3000).Draw(t, "removes")
					for slot := range w.hashes {
						if removes--; removes < 0 {
							break
						}
						w.remove(slot)
					}
					w.check()
				}
				for slot := range w.hashes {
					w.remove(slot)
				}
				if len(w.n.dir) != 1 || w.n.depth != 0 || w.n.count != 0 || w.n.dir[0].count != 0 {
					t.Fatalf("%d entries, depth %d and %d names are left", len(w.n.dir), w.n.depth, w.n.count)
				}
			})
		})
	}
}

// TestNamesEqualTags checks that the caller's match tells equal tags apart, up to a full segment.
// Beyond that the table refuses more and still finds all that it has.
func TestNamesEqualTags(t *testing.T) {
	f := func(hash uint32) {
		t.Helper()
		n := newHashIndex()
		for slot := range uint32(segmentFull) {
			if !n.insert(hash, slot) {
				t.Fatalf("%x: no room for name %d", hash, slot)
			}
		}
		if n.insert(hash, segmentFull) {
			t.Fatalf("%x: a full segment took one more", hash)
		}
		if !n.insert(^hash, segmentFull) {
			t.Fatalf("%x: no room for another hash", hash)
		}
		for slot := range uint32(segmentFull) {
			if got, ok := n.find(hash, func(s uint32) bool { return s == slot }); !ok || got != slot {
				t.Fatalf("%x: slot %d is found as %d, %v", hash, slot, got, ok)
			}
		}
		for slot := range uint32(segmentFull) {
			n.remove(hash, slot)
			if _, ok := n.find(hash, func(s uint32) bool { return s == slot }); ok {
				t.Fatalf("%x: slot %d is found after it was removed", hash, slot)
			}
		}
		n.remove(^hash, segmentFull)
		if len(n.dir) != 1 {
			t.Fatalf("%x: %d entries are left", hash, len(n.dir))
		}
	}
	f(0)
	f(1<<32 - 1)
	f(segmentSize - 1) // its run wraps round
	f(0x80000000)
}

// TestNamesEmptyAndBack checks that one name that comes and goes costs the table no allocation.
func TestNamesEmptyAndBack(t *testing.T) {
	n := newHashIndex()
	if a := testing.AllocsPerRun(100, func() {
		n.insert(7, 1)
		n.remove(7, 1)
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
