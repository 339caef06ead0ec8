package periodic

import (
	"fmt"
	"slices"
	"testing"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// TestReasons: the codec's first reasons have the numbers and labels of the server's.
func TestReasons(t *testing.T) {
	for why := range protocol.ReasonPolicy {
		if got := codec.Reason(why).String(); got != why.String() {
			t.Errorf("reason %d is %q to clients and %q in the metrics", why, got, why)
		}
	}
	for why := protocol.Reason(1); why < protocol.Reasons; why++ {
		if at := slices.Index(serverReasons[:], why); at < 0 || codec.Reason(at).String() != why.String() {
			t.Errorf("clients get reason %d for %q", at, why)
		}
	}
	if codec.ReasonMalformed != codec.Reason(protocol.ReasonPolicy) {
		t.Errorf("the reasons of Periodic alone begin at %d, not %d", codec.ReasonMalformed, protocol.ReasonPolicy)
	}
	for err, want := range map[error]codec.Reason{
		sched.ErrPaused: codec.ReasonPaused, sched.ErrPayload: codec.ReasonPayload, sched.ErrMaxJobs: codec.ReasonMaxJobs, sched.ErrMaxBytes: codec.ReasonMaxBytes,
	} {
		if got := reasonOf(fmt.Errorf("f: %w", err)); got != want || serverReasons[got] != protocol.ReasonPolicy {
			t.Errorf("%v is %q to clients", err, got)
		}
	}
	if got := reasonOf(sched.ErrPolicy); got != codec.ReasonPolicy || got.String() != protocol.ReasonPolicy.String() {
		t.Errorf("a policy's reason is %q to clients and %q in the metrics", got, protocol.ReasonPolicy)
	}
}
