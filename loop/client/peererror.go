package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// A peer that accepts a connection and does not speak the protocol is most often another protocol's
// port. The errors therefore name the protocols of both default ports.

// portOwners describe the default ports.
var portOwners = map[string]string{
	"5000": "Periodic's", "5001": "that of HTTP", "9998": "that of Gloom's masters", "9999": "that of Gloom's slaves",
	"6125": "dwork's", "7419": "Faktory's", "46210": "that of kts46's XML-RPC", "46400": "that of kts46's JSON-RPC",
	"8080": "that of Disbatch's command interface", "11300": "beanstalkd's",
}

// defaultPorts are the default ports, by the setting that names the server on the command line.
var defaultPorts = map[string]string{
	hostSetting: "5000", mastersSetting: "9998", slavesSetting: "9999", hubSetting: "6125", ktsSetting: "46210", adminSetting: "5001",
	beanstalkSetting: "11300", beanstalkdSetting: "11300", FaktorySource: "7419", FaktoryTarget: "7419",
}

// PeerError reports a peer that was reached and does not answer as a server of the protocol.
type PeerError struct {
	Address string // as network://address
	Setting string // the setting that names the server on the command line
	Err     error
}

// newPeerError returns a PeerError unless the caller's ctx was cancelled.
func newPeerError(address, setting string, err error) error {
	if err = simplify(err); errors.Is(err, context.Canceled) {
		return fmt.Errorf("cannot talk to %s: %w", address, err)
	}
	return &PeerError{address, setting, err}
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("cannot talk to %s: %v (%s %s names the server)", e.Address, e.Err, e.hint(), e.Setting)
}

// Unwrap returns the cause.
func (e *PeerError) Unwrap() error { return e.Err }

// hint returns what may be wrong with the address: the port or the socket of another protocol.
func (e *PeerError) hint() string {
	right := defaultPorts[e.Setting]
	network, address, _ := strings.Cut(e.Address, "://")
	if network == "unix" {
		return "is it another protocol's socket?"
	}
	_, port, err := net.SplitHostPort(address)
	if said := portOwners[port]; err == nil && said != "" && port != right {
		return fmt.Sprintf("port %s is by default %s, %s is %s;", port, said, right, portOwners[right])
	}
	return fmt.Sprintf("is it another protocol's? By default port %s is %s;", right, portOwners[right])
}

// HostAlone returns the host of an address without scheme, port and path. An IPv6 address may be in
// brackets.
func HostAlone(address string) (host string, alone bool) {
	host = strings.Trim(address, "[]")
	if host == "" || strings.Contains(host, "/") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", false
	}
	return host, true
}

// guessProtocol guesses a peer's protocol from its first bytes; empty: unknown.
func guessProtocol(b []byte) string {
	switch text := string(b); {
	case strings.HasPrefix(text, "HTTP/"):
		return "HTTP"
	case len(b) > 0 && b[0] == 0xff:
		return "ZeroMQ, as dwork does"
	case len(b) > 4 && b[4] == '{':
		return "Gloom"
	case strings.HasPrefix(text, "\x00RES"):
		return "Periodic"
	}
	return ""
}
