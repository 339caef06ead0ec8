package client

import (
	"strings"
	"testing"
)

// TestHints checks that the error names the protocol of a default port.
func TestHints(t *testing.T) {
	f := func(address, setting, want string) {
		t.Helper()
		err := &PeerError{address, setting, ErrClosed}
		if got := err.Error(); !strings.HasPrefix(got, "cannot talk to "+address+": the server closed the connection ("+want+"; "+setting+" names") {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f("tcp://a:9998", hostSetting, "port 9998 is by default that of Gloom's masters, 5000 is Periodic's")
	f("tcp://a:5000", hubSetting, "port 5000 is by default Periodic's, 6125 is dwork's")
	f("tcp://a:5000", hostSetting, "is it another protocol's? By default port 5000 is Periodic's")
	f("tcp://a:1234", slavesSetting, "is it another protocol's? By default port 9999 is that of Gloom's slaves")
	for setting, port := range defaultPorts {
		if portOwners[port] == "" {
			t.Errorf("no protocol is known for port %s of %s", port, setting)
		}
	}
}
