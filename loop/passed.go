package loop

import (
	"net"

	"treadle/loop/cluster"
)

// passedClient is a client of another node, which passes its connection on to this one. It is the net.Addr of the
// connection's other end.
type passedClient struct {
	network, address string
	user             *uint32 // of the process on a Unix socket
}

// newPassedClient returns a client of a node. A client of a Unix socket has the id of the node as its address.
func newPassedClient(from string, c cluster.Client) *passedClient {
	if c.Network == "unix" {
		return &passedClient{c.Network, from, c.User}
	}
	return &passedClient{network: c.Network, address: c.Address}
}

// Network implements net.Addr.
func (c *passedClient) Network() string { return c.network }

// String implements net.Addr.
func (c *passedClient) String() string { return c.address }

// passedConn is the server's end of a passed connection.
type passedConn struct {
	*net.UnixConn
	client *passedClient
	port   net.Addr
}

// RemoteAddr implements net.Conn: with the address of the client itself.
func (c *passedConn) RemoteAddr() net.Addr { return c.client }

// LocalAddr implements net.Conn: with the address of the port.
func (c *passedConn) LocalAddr() net.Addr { return c.port }

// PassedUser returns the user of the client, see web.UserOf.
func (c *passedConn) PassedUser() (uid uint32, ok bool) {
	if c.client.user == nil {
		return 0, false
	}
	return *c.client.user, true
}
