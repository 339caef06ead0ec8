package protocol

import "testing"

// TestEveryAddress: ZeroMQ's word for all of a machine's addresses is understood.
func TestEveryAddress(t *testing.T) {
	if network, address, err := SplitAddress("tcp://*:6125"); network != "tcp" || address != ":6125" || err != nil {
		t.Errorf("got %s %s, %v", network, address, err)
	}
}
