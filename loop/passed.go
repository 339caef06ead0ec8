package loop

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"treadle/loop/cluster"
)

// passedClients are the clients whose connections other nodes of the cluster pass on to this one, by the address of the
// connection to this server's own port. A nil *passedClients has none.
type passedClients struct {
	mu  sync.RWMutex
	all map[string]*passedClient
}

// passedClient is a client of another node. It is the net.Addr of its connection.
type passedClient struct {
	network, address string
	user             *uint32 // of the process on a Unix socket
}

// Network implements net.Addr.
func (c *passedClient) Network() string { return c.network }

// String implements net.Addr. A client of a Unix socket has the id of its node.
func (c *passedClient) String() string { return c.address }

// remote is a connection that knows its other end.
type remote interface{ RemoteAddr() net.Addr }

// client returns the client of a connection, or nil if it was not passed on.
func (p *passedClients) client(c remote) *passedClient {
	if p == nil {
		return nil
	}
	a := c.RemoteAddr()
	if a == nil {
		return nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[a.Network()+"://"+a.String()]
}

var errNoPort = errors.New("the leader has no such port")

// open implements cluster.OpenPort for a server that listens on all. The other end finds the client as soon as it
// accepts the connection.
func (p *passedClients) open(all []Listening, setting string, ordinal int, from string, client cluster.Client) (net.Conn, func(), error) {
	passed := &passedClient{client.Network, client.Address, client.User}
	if client.Network == "unix" {
		passed.address = from
	}
	for _, l := range all {
		if l.Setting != setting {
			continue
		}
		if ordinal--; ordinal >= 0 {
			continue
		}
		network, address, _ := strings.Cut(l.Address, "://")
		if network == "http" {
			network = "tcp"
		}
		return p.dial(network, address, passed)
	}
	return nil, nil, errNoPort
}

// dial connects to a port of this server.
func (p *passedClients) dial(network, address string, client *passedClient) (net.Conn, func(), error) {
	var own string
	d := net.Dialer{Control: func(network, address string, c syscall.RawConn) (err error) {
		refused := c.Control(func(fd uintptr) { own, err = bindOwn(int(fd), network, address) })
		if err = errors.Join(refused, err); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.all[own] = client
		}
		return err
	}}
	c, err := d.Dial(network, address)
	if err != nil {
		p.forget(own, client)
		return nil, nil, err
	}
	// Log lines about the end of the connection may come a little later.
	return c, func() { time.AfterFunc(time.Second, func() { p.forget(own, client) }) }, nil
}

// forget forgets a client, unless another connection has its address since.
func (p *passedClients) forget(own string, client *passedClient) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all[own] == client {
		delete(p.all, own)
	}
}

// bindOwn gives a socket that is to be connected to an address of this machine an address of its own, and returns that
// with its network.
func bindOwn(fd int, network, to string) (string, error) {
	var any unix.Sockaddr = &unix.SockaddrUnix{} // the system makes a name
	if network != "unix" {
		at, err := netip.ParseAddrPort(to)
		if err != nil {
			return "", err
		}
		switch host := at.Addr(); {
		case host.Is4() && host.IsUnspecified():
			any = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		case host.Is4():
			any = &unix.SockaddrInet4{Addr: host.As4()}
		case host.IsUnspecified():
			any = &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}
		default:
			any = &unix.SockaddrInet6{Addr: host.As16()}
		}
	}
	if err := unix.Bind(fd, any); err != nil {
		return "", err
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	switch a := own.(type) {
	case *unix.SockaddrUnix:
		return "unix://" + a.Name, nil
	case *unix.SockaddrInet4:
		return "tcp://" + netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String(), nil
	case *unix.SockaddrInet6:
		return "tcp://" + netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String(), nil
	}
	return "", errNoPort // no other network has ports
}
