package loop

import "testing"

// TestTrimmer: memory is given back once, when a backlog has been gone for a while; not
// while it lasts, comes back, or is too small to matter.
func TestTrimmer(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	f := func(what string, want int, backlog ...int) {
		t.Helper()
		var m trimmer
		got := 0
		for _, held := range backlog {
			if m.shouldTrim(held * mb) {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: memory is given back %d times, want %d", what, got, want)
		}
	}
	gone := func(from, to, looks int) (all []int) {
		for all = append(all, from); looks > 0; looks-- {
			all = append(all, to)
		}
		return all
	}
	f("a backlog that stays", 0, gone(120, 120, 100)...)
	f("one that is gone", 1, gone(120, 0, 100)...)
	f("one that is gone in part", 1, gone(120, 50, 100)...)
	f("most of it is left", 0, gone(120, 70, 100)...)
	f("not for long enough", 0, gone(120, 0, trimAfter-1)...)
	f("just long enough", 1, gone(120, 0, trimAfter)...)
	f("a small one", 0, gone(15, 0, 100)...)
	f("it comes back before", 0, append(gone(120, 0, trimAfter-1), gone(120, 0, trimAfter-1)...)...)
	f("it comes back after", 2, append(gone(120, 0, trimAfter), gone(120, 0, trimAfter)...)...)
}
