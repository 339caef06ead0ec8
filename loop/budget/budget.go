// Package budget bounds the memory that peers make a server hold together.
package budget

import (
	"container/list"
	"sync"
)

// Budget bounds the bytes that its holdings have together: unread answers, or requests whose rest has not come. While
// they have more than Max, the budget evicts the holding that has not moved for the longest. The holding that moved
// last stays, whatever it has.
type Budget struct {
	Max  int // bytes that all may have
	Free int // a holding of at most Free bytes is never evicted

	mu       sync.Mutex
	holdings list.List // of *Holding; the front has not moved for the longest
	begun    int
	bytes    int
}

// Holding is the share of one peer or request. One goroutine uses it.
type Holding struct {
	budget  *Budget
	element *list.Element // nil when evicted or ended
	bytes   int
	onMove  func()
	onEvict func()
}

// Begin adds a holding of n bytes. The budget calls onEvict when it evicts the holding. It calls onMove, which may be
// nil, whenever the holding moves, and never after onEvict. Neither may call the budget.
func (b *Budget) Begin(bytes int, onMove, onEvict func()) *Holding {
	h := &Holding{budget: b, onMove: onMove, onEvict: onEvict}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	h.element = b.holdings.PushBack(h)
	b.set(h, bytes)
	return h
}

// Resize records that the holding has moved, and its new size. It returns false when the holding was evicted.
func (h *Holding) Resize(bytes int) bool {
	b := h.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.element == nil {
		return false
	}
	if h.onMove != nil {
		h.onMove()
	}
	b.holdings.MoveToBack(h.element)
	b.set(h, bytes)
	return true
}

// Moved is Resize to as many bytes as before.
func (h *Holding) Moved() bool { return h.Resize(h.bytes) }

// set changes the bytes of the last holding and evicts others while there are too many.
func (b *Budget) set(last *Holding, bytes int) {
	b.bytes += bytes - last.bytes
	last.bytes = bytes
	for at := b.holdings.Front(); b.bytes > b.Max && at != last.element; {
		stale := at.Value.(*Holding)
		at = at.Next()
		if stale.bytes > b.Free {
			stale.onEvict()
			b.remove(stale)
		}
	}
}

// End removes the holding. It may be called again.
func (h *Holding) End() {
	h.budget.mu.Lock()
	defer h.budget.mu.Unlock()
	if h.element != nil {
		h.budget.remove(h)
	}
}

func (b *Budget) remove(h *Holding) {
	b.bytes -= h.bytes
	b.holdings.Remove(h.element)
	h.element = nil
}

// State returns how many holdings have begun since the start, how many there are, and the bytes that these have.
func (b *Budget) State() (begun, held, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun, b.holdings.Len(), b.bytes
}
