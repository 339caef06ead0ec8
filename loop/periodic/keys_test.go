package periodic

import (
	"testing"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
)

// TestReasons: the first reasons of the codec are those of the server, with their numbers and labels.
func TestReasons(t *testing.T) {
	for why := range protocol.Reasons {
		if got := codec.Reason(why).String(); got != why.String() {
			t.Errorf("reason %d is %q to clients and %q in the metrics", why, got, why)
		}
	}
	if codec.ReasonMalformed != codec.Reason(protocol.Reasons) {
		t.Errorf("the reasons of the protocol alone begin at %d, not %d", codec.ReasonMalformed, protocol.Reasons)
	}
}
