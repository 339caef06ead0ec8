//go:build invariants

package loop

import (
	"fmt"
	"testing"

	"treadle/sched"
)

// TestOfflineOrder: of several that have something to do each comes in its turn, the same in
// every play: the dwork hub before the tasks of Disbatch.
func TestOfflineOrder(t *testing.T) {
	t.Parallel()
	o, err := NewOffline(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for tag := uint64(1); tag <= 64; tag++ {
		heard := false
		if err := o.Functions().Submit("f", fmt.Sprint(tag), nil, func([]byte, error) { heard = !o.hub().Turn() }); err != nil {
			t.Fatal(err)
		}
		o.server.localPeers[0](&sched.Delivery{Tag: tag, Effect: sched.Result})
		o.hub().Wake()
		if o.Settle(); !heard {
			t.Fatalf("the result of task %d is not told, or before the hub's turn", tag)
		}
	}
}
