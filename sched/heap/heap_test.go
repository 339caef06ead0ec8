package heap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// ranker is an element of a heap under test.
type ranker struct{ rank, at int }

func (r *ranker) Ahead(o *ranker) bool { return r.rank < o.rank }
func (r *ranker) HeapIndex() int       { return r.at }
func (r *ranker) SetHeapIndex(i int)   { r.at = i }

// TestHeapAgainstSort checks that the smallest rank is first and every element knows its index,
// while elements enter, leave and change rank at any index.
func TestHeapAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[*ranker]
		var all []*ranker
		for _, op := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 200).Draw(t, "ops") {
			rank := rapid.IntRange(0, 20).Draw(t, "rank")
			switch {
			case op < 5 || len(all) == 0:
				v := &ranker{rank: rank}
				all = append(all, v)
				h.Push(v)
			case op < 7:
				i := rank % len(all)
				h.Remove(all[i])
				if all[i].at != -1 {
					t.Fatalf("an element that left is at %d", all[i].at)
				}
				all = slices.Delete(all, i, i+1)
			default:
				v := all[op%len(all)]
				v.rank = rank
				h.Fix(v)
			}
			if err := h.Check(); err != nil || len(h) != len(all) {
				t.Fatalf("%d of %d elements: %v", len(h), len(all), err)
			}
			if len(all) > 0 && h[0].rank != slices.MinFunc(all, func(x, y *ranker) int { return x.rank - y.rank }).rank {
				t.Fatalf("rank %d is first", h[0].rank)
			}
		}
	})
}
