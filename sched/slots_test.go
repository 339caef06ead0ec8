package sched

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSlotLineAgainstSlice checks a slot line against a slice: it is a queue that finds a tag and
// removes the newest slot of a tag out of turn.
func TestSlotLineAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l slotLine
		var want []slot
		for i := range rapid.IntRange(1, 300).Draw(t, "ops") {
			tag, wake := rapid.Uint64Range(0, 20).Draw(t, "tag"), rapid.Bool().Draw(t, "wake")
			same := func(s slot) bool { return s.tag == tag && s.wake == wake }
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 5:
				if l.has(tag, wake) != slices.ContainsFunc(want, same) {
					t.Fatalf("has(%d, %v): %v", tag, wake, l.has(tag, wake))
				}
				l.push(slot{tag, uint64(i), wake})
				want = append(want, slot{tag, uint64(i), wake})
			case op < 8 && len(want) > 0:
				if first, s := *l.first(), l.pop(); s != want[0] || s != first {
					t.Fatalf("pop: %v, %v, want %v", s, first, want[0])
				}
				want = want[1:]
			case op == 9:
				wake = false
				k := -1
				for n := range want {
					if same(want[n]) {
						k = n
					}
				}
				if l.removeNewest(tag) != (k >= 0) {
					t.Fatalf("drop(%d) of %v", tag, want)
				}
				if k >= 0 {
					want = slices.Delete(slices.Clone(want), k, k+1)
				}
			}
			if l.len() != len(want) || !slices.Equal(l.slots[l.head:], want) {
				t.Fatalf("%v, want %v", l.slots[l.head:], want)
			}
		}
	})
}

// TestSlotLineMemory checks a line of many slots: one at a time is served and added again.
// It takes a few times the room of its slots at most, and moves them only after as many were added.
func TestSlotLineMemory(t *testing.T) {
	f := func(standing int) {
		t.Helper()
		var l slotLine
		for range standing {
			l.push(slot{})
		}
		moves := 0
		for range 100 * standing {
			head := l.head + 1
			l.pop()
			l.push(slot{})
			moves += oneIf(l.head < head && standing > 1)
		}
		if moves > 101 || cap(l.slots) > 5*standing+16 {
			t.Errorf("%d slots: moved %d times, room for %d", standing, moves, cap(l.slots))
		}
	}
	f(1)
	f(2)
	f(63)
	f(64)
	f(1000)
	f(5000)
}
