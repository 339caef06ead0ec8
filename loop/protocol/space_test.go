package protocol

import "testing"

// TestTableOf: each space has an ID of its own, and 0 is none.
func TestTableOf(t *testing.T) {
	f := func(want bool, spaces ...Space) {
		t.Helper()
		defer func() {
			if ok := recover() == nil; ok != want {
				t.Errorf("%v: accepted is %v, want %v", spaces, ok, want)
			}
		}()
		TableOf(spaces...)
	}
	f(true, Space{ID: 1}, Space{ID: 2})
	f(false, Space{ID: 1}, Space{ID: 1})
	f(false, Space{})
}
