// Package heap has a binary heap whose elements know their places. So an element that changes or leaves is found at
// once. container/heap would box every call of the hot path.
package heap

// Ranked is an element of a Heap: it knows its rank and is told its index.
type Ranked[T any] interface {
	Ahead(other T) bool
	HeapIndex() int
	SetHeapIndex(int)
}

// Heap has its first element at index 0. Elements of the same rank are in no order.
type Heap[T Ranked[T]] []T

// Push adds an element.
func (h *Heap[T]) Push(v T) {
	*h = append(*h, v)
	v.SetHeapIndex(len(*h) - 1)
	h.up(len(*h) - 1)
}

// Remove removes an element of the heap and sets its place to -1.
func (h *Heap[T]) Remove(v T) {
	i, last := v.HeapIndex(), len(*h)-1
	if i != last {
		(*h)[i] = (*h)[last]
		(*h)[i].SetHeapIndex(i)
	}
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	v.SetHeapIndex(-1)
	if i != last {
		h.Fix((*h)[i])
	}
}

// Fix restores the order around an element whose rank has changed.
func (h Heap[T]) Fix(v T) {
	if i := v.HeapIndex(); !h.down(i) {
		h.up(i)
	}
}

// Down is Fix for an element whose rank has become later.
func (h Heap[T]) Down(v T) { h.down(v.HeapIndex()) }

// up moves the value at i up to its place, and records the places of all values that it moves.
func (h Heap[T]) up(i int) {
	v := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !v.Ahead(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].SetHeapIndex(i)
		i = parent
	}
	h[i] = v
	v.SetHeapIndex(i)
}

// down moves the value at i down to its place, and records the places of all values that it moves. It reports whether
// the value has moved.
func (h Heap[T]) down(i int) bool {
	v, start := h[i], i
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].Ahead(h[c]) {
			c++
		}
		if !h[c].Ahead(v) {
			break
		}
		h[i] = h[c]
		h[i].SetHeapIndex(i)
		i = c
	}
	h[i] = v
	v.SetHeapIndex(i)
	return i > start
}

// MaxInOrder bounds the elements that InOrder visits.
const MaxInOrder = 64

// InOrder visits the elements in their order until visit returns false, and at most MaxInOrder of them. whole is false
// when InOrder has ended at this bound.
func (h Heap[T]) InOrder(visit func(v T) bool) (whole bool) {
	// open has the children of the visited elements.
	var open [MaxInOrder + 1]int
	n := min(len(h), 1)
	for visited := 1; n > 0; visited++ {
		k := 0
		for i := range n {
			if h[open[i]].Ahead(h[open[k]]) {
				k = i
			}
		}
		switch {
		case !visit(h[open[k]]):
			return true
		case visited == MaxInOrder:
			return false
		}
		child := 2*open[k] + 1
		n--
		open[k] = open[n]
		for i := child; i < min(child+2, len(h)); i++ {
			open[n] = i
			n++
		}
	}
	return true
}
