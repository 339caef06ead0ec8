package web

import (
	"slices"
	"sync"
)

// Budget bounds what requests hold together, of bodies that are being read or of answers that are being written. Beyond
// Most bytes the request that has not moved for the longest is given up. A request alone may hold any number.
type Budget struct {
	Most int // bytes that all may hold
	Free int // bytes that each may hold without being given up

	mu    sync.Mutex
	all   []*Holding // first the one that has not moved for the longest
	begun int
	bytes int
}

// Holding is what one request holds of a budget. It has one user.
type Holding struct {
	of     *Budget
	bytes  int
	moved  func()
	giveUp func()
}

// Begin makes the holding of a request, of so many bytes. giveUp ends the request; moved, which may be nil, is called
// when it has moved, and not after giveUp. Neither may call the budget.
func (b *Budget) Begin(bytes int, moved, giveUp func()) *Holding {
	h := &Holding{of: b, bytes: bytes, moved: moved, giveUp: giveUp}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun++
	b.add(h)
	return h
}

// Hold says that the request has moved, and how many bytes it holds from now on. false: it was given up before.
func (h *Holding) Hold(bytes int) bool {
	b := h.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.remove(h) {
		return false
	}
	if h.moved != nil {
		h.moved()
	}
	h.bytes = bytes
	b.add(h)
	return true
}

// add puts a request behind all others, and gives up others while there is too much.
func (b *Budget) add(h *Holding) {
	b.bytes += h.bytes
	b.all = append(b.all, h)
	for b.bytes > b.Most {
		i := slices.IndexFunc(b.all, func(h *Holding) bool { return h.bytes > b.Free })
		if i < 0 || b.all[i] == h {
			break
		}
		b.all[i].giveUp()
		b.remove(b.all[i])
	}
}

// Moved is Hold of as many bytes as before.
func (h *Holding) Moved() bool { return h.Hold(h.bytes) }

// Add is Hold of n bytes more, or less.
func (h *Holding) Add(n int) bool { return h.Hold(h.bytes + n) }

// End gives back what the request holds. It may be called again.
func (h *Holding) End() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.remove(h)
}

// remove returns whether it was there.
func (b *Budget) remove(h *Holding) bool {
	i := slices.Index(b.all, h)
	if i < 0 {
		return false
	}
	b.bytes -= h.bytes
	b.all = slices.Delete(b.all, i, i+1)
	return true
}

// State is how many requests have begun since the start, how many are under way, and the bytes that these hold.
func (b *Budget) State() (begun, held, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun, len(b.all), b.bytes
}
