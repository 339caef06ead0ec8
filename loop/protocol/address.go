package protocol

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"treadle/loop/certs"
)

// SplitAddress splits tcp://host:port, tls://host:port or unix:///path into a network and an address as of net.Listen.
// It leaves out what certs.FilesOf returns.
func SplitAddress(a string) (network, address string, err error) {
	network, address, ok := strings.Cut(a, "://")
	switch {
	case !ok || (network != "tcp" && network != "tls" && network != "unix"):
		return "", "", fmt.Errorf("%q is neither tcp://host:port nor tls://host:port nor unix:///path", a)
	case network == "unix" && !strings.HasPrefix(address, "/"):
		return "", "", fmt.Errorf("%q: the socket's path must be absolute, as in unix:///run/periodic.sock", a)
	case network != "unix":
		if _, err := certs.FilesOf(a); err != nil {
			return "", "", err
		}
		if network == "tls" {
			address, _, _ = strings.Cut(address, "?")
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return "", "", fmt.Errorf("%q: %w", a, err)
		}
		if host == "*" { // ZeroMQ's word for every address
			address = ":" + port
		}
	}
	return network, address, nil
}

// NoTLS is a split of CheckAddresses for ports that are not served over TLS. why says what to do instead.
func NoTLS(why string) func(a string) (network, address string, err error) {
	return func(a string) (network, address string, err error) {
		network, address, err = SplitAddress(a)
		if network == "tls" {
			err = errors.New(why)
		}
		return network, address, err
	}
}

// CheckAddresses validates the addresses of a setting with split, which is SplitAddress for most. The
// one word off becomes no address.
func CheckAddresses(setting string, addresses *[]string, split func(string) (network, address string, err error)) error {
	if len(*addresses) == 1 && (*addresses)[0] == "off" {
		*addresses = nil
	}
	for _, a := range *addresses {
		if a == "off" {
			return BadOption(setting, "\"off\" stands beside other addresses; give it alone, or leave it out")
		}
		if _, _, err := split(a); err != nil {
			return &OptionError{Setting: setting, Err: err}
		}
	}
	return nil
}

// FillAddress gives a setting without addresses its default one, tcp:// at a host and port.
func FillAddress(addresses *[]string, host, port string) {
	if len(*addresses) == 0 {
		*addresses = []string{"tcp://" + net.JoinHostPort(host, port)}
	}
}
