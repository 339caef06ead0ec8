package budget

import (
	"strings"
	"testing"
)

// TestBudget: over its limit the budget evicts the holding that has not moved for the longest, unless it has no more
// than Free. An evicted holding cannot move and has no bytes.
func TestBudget(t *testing.T) {
	b := Budget{Max: 100, Free: 10}
	var log strings.Builder
	begin := func(name string, bytes int) *Holding {
		return b.Begin(bytes, func() { log.WriteString(name) }, func() { log.WriteString("-" + name) })
	}
	want := func(events string, held, bytes int) {
		t.Helper()
		if _, h, n := b.State(); log.String() != events || h != held || n != bytes {
			t.Errorf("%q, %d hold %d, want %q, %d, %d", log.String(), h, n, events, held, bytes)
		}
		log.Reset()
	}
	small, first, second := begin("s", 10), begin("a", 40), begin("b", 50)
	want("", 3, 100)
	if !first.Moved() {
		t.Error("it was evicted")
	}
	third := begin("c", 11)
	want("a-b", 3, 61)
	if second.Resize(1) || second.Moved() {
		t.Error("an evicted holding moves")
	}
	second.End()
	if !third.Resize(71) {
		t.Error("it was evicted")
	}
	want("c-a", 2, 81)
	if !small.Resize(200) || !small.Resize(300) {
		t.Error("the last to move is evicted")
	}
	want("s-cs", 1, 300)
	small.End()
	small.End()
	want("", 0, 0)
}
