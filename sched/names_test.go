package sched

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// namesModel is a name table and the map that it is compared with.
type namesModel struct {
	t    *rapid.T
	n    names
	tags map[uint32]uint32 // slot -> tag
}

func (w *namesModel) insert(tag, slot uint32) {
	if !w.n.insert(tag, slot) {
		w.t.Fatalf("no room for %x", tag)
	}
	w.tags[slot] = tag
}

func (w *namesModel) remove(slot uint32) {
	w.n.remove(w.tags[slot], slot)
	delete(w.tags, slot)
}

// check looks up every slot by its tag, and an unused tag.
func (w *namesModel) check() {
	for slot, tag := range w.tags {
		if _, ok := w.n.find(tag, func(s uint32) bool { return s == slot }); !ok {
			w.t.Fatalf("slot %d is not found under %x", slot, tag)
		}
		w.n.find(^tag, func(s uint32) bool {
			if w.tags[s] != ^tag {
				w.t.Fatalf("slot %d of tag %x is offered for %x", s, w.tags[s], ^tag)
			}
			return false
		})
	}
	if err := w.n.check(); err != nil {
		w.t.Fatal(err)
	}
}

// tagKinds are distributions of tags: as a good hash gives them, crowded into few
// places of a segment, and crowded into few segments.
var tagKinds = map[string]func(r *rand.Rand) uint32{
	"even":             func(r *rand.Rand) uint32 { return r.Uint32() },
	"few places":       func(r *rand.Rand) uint32 { return r.Uint32()&^(segmentSize-1) | r.Uint32N(3) + segmentSize - 2 },
	"few segments":     func(r *rand.Rand) uint32 { return r.Uint32() & 0xe03fffff },
	"one deep segment": func(r *rand.Rand) uint32 { return r.Uint32() >> (r.Uint32N(12)) },
}

// TestNamesAgainstMap checks the table against a map while segments split and merge. An emptied
// table is one segment again.
func TestNamesAgainstMap(t *testing.T) {
	for name, tag := range tagKinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				w := namesModel{t, newNames(), make(map[uint32]uint32)}
				next := uint32(0)
				for range rapid.IntRange(1, 5).Draw(t, "rounds") {
					for range rapid.IntRange(0, 3000).Draw(t, "inserts") {
						w.insert(tag(r), next)
						next++
					}
					w.check()
					removes := rapid.IntRange(0, 3000).Draw(t, "removes")
					for slot := range w.tags {
						if removes--; removes < 0 {
							break
						}
						w.remove(slot)
					}
					w.check()
				}
				for slot := range w.tags {
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
	f := func(tag uint32) {
		t.Helper()
		n := newNames()
		for slot := range uint32(segmentFull) {
			if !n.insert(tag, slot) {
				t.Fatalf("%x: no room for name %d", tag, slot)
			}
		}
		if n.insert(tag, segmentFull) {
			t.Fatalf("%x: a full segment took one more", tag)
		}
		if !n.insert(^tag, segmentFull) {
			t.Fatalf("%x: no room for another tag", tag)
		}
		for slot := range uint32(segmentFull) {
			if got, ok := n.find(tag, func(s uint32) bool { return s == slot }); !ok || got != slot {
				t.Fatalf("%x: slot %d is found as %d, %v", tag, slot, got, ok)
			}
		}
		for slot := range uint32(segmentFull) {
			n.remove(tag, slot)
			if _, ok := n.find(tag, func(s uint32) bool { return s == slot }); ok {
				t.Fatalf("%x: slot %d is found after it was removed", tag, slot)
			}
		}
		n.remove(^tag, segmentFull)
		if len(n.dir) != 1 {
			t.Fatalf("%x: %d entries are left", tag, len(n.dir))
		}
	}
	f(0)
	f(1<<32 - 1)
	f(segmentSize - 1) // its run wraps round
	f(0x80000000)
}

// TestNamesEmptyAndBack checks that one name that comes and goes costs the table no allocation.
func TestNamesEmptyAndBack(t *testing.T) {
	n := newNames()
	if a := testing.AllocsPerRun(100, func() {
		n.insert(7, 1)
		n.remove(7, 1)
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
