//go:build invariants

package loop

import (
	"testing"

	"treadle/sched"
)

// TestOfflineOrder: of several that have something to do each comes in its turn, the same in
// every play: the dwork hub before the tasks of Disbatch.
func TestOfflineOrder(t *testing.T) {
	o, err := NewOffline(Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := o.server.functions
	for tag := range uint64(64) {
		heard := false
		f.waiting[tag] = func([]byte, error) { heard = !o.hub().Turn() }
		f.put(&sched.Delivery{Tag: tag, Effect: sched.Result})
		o.hub().Wake()
		if o.Settle(); !heard {
			t.Fatalf("the result of task %d is not told, or before the hub's turn", tag)
		}
	}
}
