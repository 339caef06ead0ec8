package sched

// ranked is an element of a heap: it knows its rank and is told its index.
type ranked[T any] interface {
	ahead(other T) bool
	place() int
	setPlace(int)
}

// heap is a binary heap whose elements know their index, so that an element that changes or leaves
// is found at once. container/heap would box every call of the hot path.
type heap[T ranked[T]] []T

func (h *heap[T]) push(v T) {
	*h = append(*h, v)
	v.setPlace(len(*h) - 1)
	h.up(len(*h) - 1)
}

// remove removes a value that is in the heap.
func (h *heap[T]) remove(v T) {
	i, last := v.place(), len(*h)-1
	if i != last {
		(*h)[i] = (*h)[last]
		(*h)[i].setPlace(i)
	}
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	v.setPlace(-1)
	if i != last {
		h.fix((*h)[i])
	}
}

// fix restores the order around an element whose rank has changed.
func (h heap[T]) fix(v T) {
	if i := v.place(); !h.down(i) {
		h.up(i)
	}
}

// up moves the value at i up to its place, and records the places of all values that it moves.
func (h heap[T]) up(i int) {
	v := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !v.ahead(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].setPlace(i)
		i = parent
	}
	h[i] = v
	v.setPlace(i)
}

// down moves the value at i down to its place, and records the places of all values that it moves. It reports whether
// the value has moved.
func (h heap[T]) down(i int) bool {
	v, start := h[i], i
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].ahead(h[c]) {
			c++
		}
		if !h[c].ahead(v) {
			break
		}
		h[i] = h[c]
		h[i].setPlace(i)
		i = c
	}
	h[i] = v
	v.setPlace(i)
	return i > start
}

// maxInOrder bounds the elements that inOrder visits.
const maxInOrder = 64

// inOrder visits the elements in their order until visit returns false, at most maxInOrder of them. whole is false when
// it ended at that bound.
func (h heap[T]) inOrder(visit func(v T) bool) (whole bool) {
	// open has the children of the visited elements.
	var open [maxInOrder + 1]int
	n := count(len(h) > 0)
	for visited := 1; n > 0; visited++ {
		k := 0
		for i := range n {
			if h[open[i]].ahead(h[open[k]]) {
				k = i
			}
		}
		switch {
		case !visit(h[open[k]]):
			return true
		case visited == maxInOrder:
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
