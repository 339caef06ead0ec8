package sched

import (
	"slices"

	"treadle/sched/heap"
)

// sorter sorts very many elements a part at a time. Adding sorts elements in runs, and taking merges the runs. A step
// takes time logarithmic in the number of elements.
type sorter[T any] struct {
	compare  func(a, b T) int
	unsorted []T // a run that is not sorted yet
	runs     heap.Heap[*sortedRun[T]]
}

// runLength is how many elements are sorted at once.
const runLength = 256

type sortedRun[T any] struct {
	sorter    *sorter[T]
	elements  []T
	heapIndex int
}

func (r *sortedRun[T]) Ahead(o *sortedRun[T]) bool {
	return r.sorter.compare(r.elements[0], o.elements[0]) < 0
}
func (r *sortedRun[T]) HeapIndex() int     { return r.heapIndex }
func (r *sortedRun[T]) SetHeapIndex(i int) { r.heapIndex = i }

func (s *sorter[T]) add(v T) {
	if s.unsorted = append(s.unsorted, v); len(s.unsorted) == runLength {
		s.sortRun()
	}
}

func (s *sorter[T]) sortRun() {
	slices.SortFunc(s.unsorted, s.compare)
	s.runs.Push(&sortedRun[T]{sorter: s, elements: s.unsorted})
	s.unsorted = nil
}

// take removes the first element. No element is added after the first take.
func (s *sorter[T]) take() (first T, ok bool) {
	if len(s.unsorted) > 0 {
		s.sortRun()
	}
	if len(s.runs) == 0 {
		return first, false
	}
	r := s.runs[0]
	first = r.elements[0]
	if r.elements = r.elements[1:]; len(r.elements) == 0 {
		s.runs.Remove(r)
	} else {
		s.runs.Down(s.runs[0])
	}
	return first, true
}
