package loop

import (
	"net"

	"treadle/loop/cluster"
)

// forwardedClient is a client of another node, which forwards its connection to this one. It is the net.Addr of the
// connection's other end.
type forwardedClient struct {
	network, address string
	user             *uint32 // of the process on a Unix socket
}

// newForwardedClient returns a client of a node. A client of a Unix socket has the id of the node as its address.
func newForwardedClient(from string, c cluster.Client) *forwardedClient {
	if c.Network == "unix" {
		return &forwardedClient{c.Network, from, c.User}
	}
	return &forwardedClient{network: c.Network, address: c.Address}
}

// Network implements net.Addr.
func (c *forwardedClient) Network() string { return c.network }

// String implements net.Addr.
func (c *forwardedClient) String() string { return c.address }

// forwardedConn is the server's end of a connection that another node forwards, or that this one decrypts.
type forwardedConn struct {
	*net.UnixConn
	client *forwardedClient
	port   net.Addr
	byNode bool // another node forwards it, and has checked its requests if it is of HTTP
}

// RemoteAddr implements net.Conn. It returns the address of the client itself.
func (c *forwardedConn) RemoteAddr() net.Addr { return c.client }

// LocalAddr implements net.Conn. It returns the address of the port.
func (c *forwardedConn) LocalAddr() net.Addr { return c.port }

// ForwardedUser returns the user of the client, see web.UserOf.
func (c *forwardedConn) ForwardedUser() (uid uint32, ok bool) {
	if c.client.user == nil {
		return 0, false
	}
	return *c.client.user, true
}
