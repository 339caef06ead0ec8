package sched

import (
	"fmt"
	"testing"
)

// TestOwnerComesBack: an owner that has left, and comes back before the Ticks have removed its jobs, finds their names
// free. Its jobs stay when the Ticks remove the old ones.
func TestOwnerComesBack(t *testing.T) {
	x := newTestSched(t, Options{Batch: 1, Rules: [MaxSpaces]Rules{1: {Global: true, Owned: true, Untimed: true}}})
	submit := func(owner *Peer) {
		t.Helper()
		for i := range 5 {
			if got, err := x.submit("f", fmt.Sprint(i), func(j *Submission) { j.Space, j.Await = 1, owner }); got != added || err != nil {
				t.Errorf("job %d of owner %d: outcome %d, %v", i, owner.id, got, err)
			}
		}
	}
	first, second := x.peer(), x.peer()
	submit(first)
	x.s.Disconnect(x.now, first, &x.rec)
	submit(second)
	x.s.ticks(x.now, &x.rec)
	if st := x.s.Stats(); st.Jobs != 5 {
		t.Errorf("%d jobs are left, want 5", st.Jobs)
	}
}
