// Package client is a blocking client of the server's protocols, for the command line and for
// tests.
//
// In Periodic a Client submits jobs and administers the server, and a Worker does jobs; the 2018
// framing forbids one connection to be both. Both read continuously, so that a reply without a
// waiting call never blocks the server, and both ping, so that an idle connection outlives the
// server's keepalive. In Gloom a Master submits jobs and a Slave does them. A Hub speaks dwork. A
// Kts46 speaks the kts46 scheduler's XML-RPC.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"treadle/codec/periodic"
)

const (
	// defaultPingEvery is the interval of the protocol's client libraries. The server's keepalive
	// is three times as long.
	defaultPingEvery = 100 * time.Second
	// dialTimeout bounds connecting and the handshake, because a peer of another protocol may
	// accept the connection and send nothing.
	dialTimeout = 10 * time.Second
)

// CRC is the framing of 2019 and later.
const CRC = periodic.CRC

// Options are the settings of a connection. The zero value is the 2018 framing.
type Options struct {
	// Framing is periodic.Plain (2018) or periodic.CRC.
	Framing periodic.Framing
	// PreferCRC selects the CRC framing if the server speaks it, else Framing.
	PreferCRC bool
	// PingEvery is the time between two pings; default 100 s. The connection ends when no byte
	// arrives between two pings.
	PingEvery time.Duration
}

// Dial connects to the server at address as a client. An address is tcp://host:port, tls://host:port, unix:///path,
// host:port, a path, or a host with the protocol's default port. With TLS, ?ca=FILE&cert=FILE&key=FILE names the
// authorities of the server and the client's certificate. Connecting takes at most 10 s, or less by ctx. After Dial the
// connection does not depend on ctx.
func Dial(ctx context.Context, address string, o Options) (*Client, error) {
	c, err := dial(ctx, address, periodic.Client, o)
	if err != nil {
		return nil, err
	}
	c.start()
	return &Client{c}, nil
}

// DialWorker connects to the server at address as a worker; see Dial.
func DialWorker(ctx context.Context, address string, o Options) (*Worker, error) {
	c, err := dial(ctx, address, periodic.Worker, o)
	if err != nil {
		return nil, err
	}
	w := &Worker{c}
	c.unclaimed = w.handBack
	c.start()
	return w, nil
}

// hostSetting names a Periodic server on the command line.
const hostSetting = "-H or TREADLE_HOST"

// connectTo connects to an address as a user writes it, and returns the address as network://address.
func connectTo(ctx context.Context, address, setting string) (nc net.Conn, name string, err error) {
	network, target, err := splitAddress(address, defaultPorts[setting])
	if err != nil {
		return nil, "", &AddressError{address, setting, err}
	}
	if network == "tls" {
		return dialTLS(ctx, target, setting)
	}
	name = network + "://" + target
	if network == "unix" {
		if err := checkSocketOwner(target, os.Geteuid()); err != nil {
			return nil, name, &SocketError{name, err}
		}
	}
	nc, err = (&net.Dialer{}).DialContext(ctx, network, target)
	if err != nil {
		return nil, name, &DialError{name, setting, simplify(err)}
	}
	return nc, name, nil
}

// dial connects as a role. With Options.PreferCRC it tries the CRC framing first, and the plain one if the server does
// not understand it.
func dial(ctx context.Context, address string, role periodic.Role, o Options) (*conn, error) {
	if o.PreferCRC && o.Framing == periodic.Plain {
		crc := o
		crc.Framing = periodic.CRC
		short, cancel := context.WithTimeout(ctx, crcTimeout)
		c, err := dialFraming(short, address, role, crc)
		cancel()
		// An I/O deadline can pass shortly before its context ends.
		deadline, bounded := ctx.Deadline()
		over := ctx.Err() != nil || bounded && !time.Now().Before(deadline)
		// A server of 2018 takes the checksum for an unknown greeting.
		if err == nil || over || !errors.As(err, new(*PeerError)) {
			return c, err
		}
	}
	return dialFraming(ctx, address, role, o)
}

// crcTimeout is how long a server may take to answer in the CRC framing.
const crcTimeout = 3 * time.Second

// dialFraming connects and greets the server with the framing of o.
func dialFraming(ctx context.Context, address string, role periodic.Role, o Options) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := connectTo(ctx, address, hostSetting)
	if err != nil {
		return nil, err
	}
	if o.PingEvery <= 0 {
		o.PingEvery = defaultPingEvery
	}
	c := newConn(nc, name, o)
	if err := c.handshake(ctx, role); err != nil {
		nc.Close()
		return nil, newPeerError(name, hostSetting, err)
	}
	return c, nil
}

// splitAddress returns the arguments of net.Dial for an address as a user writes it. defaultPort is
// the port of a host without one.
func splitAddress(a, defaultPort string) (network, address string, err error) {
	switch scheme, rest, found := strings.Cut(a, "://"); {
	case found && scheme == "unix" && rest == "":
		return "", "", errors.New("the path is missing")
	case found && scheme == "unix":
		return "unix", rest, nil
	case found && scheme == "tcp":
		a = rest
	case found && scheme == "tls":
		host, query, asks := strings.Cut(rest, "?")
		if _, address, err = splitAddress("tcp://"+host, defaultPort); asks {
			address += "?" + query
		}
		return "tls", address, err
	case found:
		return "", "", fmt.Errorf("the scheme %q is none of tcp, tls and unix", scheme)
	case strings.Contains(a, "/"):
		return "unix", a, nil
	}
	if a == "" {
		return "", "", errors.New("the host is missing")
	}
	if host, alone := HostAlone(a); alone {
		return "tcp", net.JoinHostPort(host, defaultPort), nil
	}
	_, port, err := net.SplitHostPort(a)
	var syntax *net.AddrError // its text repeats the address
	if errors.As(err, &syntax) {
		return "", "", errors.New(syntax.Err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return "", "", fmt.Errorf("%q is no port", port)
	}
	return "tcp", a, nil
}
