package loop

import (
	"net"
	"sync"
	"sync/atomic"

	"treadle/sched"
)

// serviceListener is the listener of a protocol without event loops. It counts its connections, and closes connections
// beyond the limit.
type serviceListener struct {
	net.Listener
	server   *Server
	protocol protocolID // whose share counts the connections
}

// Accept implements net.Listener.
func (l *serviceListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.takeConnSlot(c, l.protocol) {
			return l.server.conns.list(c, l), nil
		}
	}
}

// serviceConn is a connection of a protocol without event loops. It counts its bytes, and its Close frees its slot.
type serviceConn struct {
	net.Conn
	listener       *serviceListener
	number         uint64
	once           sync.Once
	opened         sched.Time
	received, sent atomic.Uint64 // bytes
	lastReceived   atomic.Int64  // Mono
}

// list makes a connection and puts it into the table of open connections.
func (s *connShares) list(c net.Conn, l *serviceListener) *serviceConn {
	conn := &serviceConn{Conn: c, listener: l, opened: l.server.now()}
	conn.lastReceived.Store(conn.opened.Mono)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastServiceConn++
	conn.number = s.lastServiceConn
	s.serviceConns.Set(conn.number, conn)
	return conn
}

// unlist takes a connection out of the table of open connections.
func (s *connShares) unlist(c *serviceConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serviceConns.Delete(c.number)
}

// NetConn returns the connection itself, as the NetConn of a tls.Conn does.
func (c *serviceConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *serviceConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.server.conns.protocols[c.listener.protocol].read.Add(uint64(n))
	c.received.Add(uint64(n))
	c.lastReceived.Store(c.listener.server.now().Mono)
	return n, err
}

// Write implements net.Conn.
func (c *serviceConn) Write(b []byte) (int, error) {
	if !c.listener.server.mayAnswer() {
		return 0, errStopping
	}
	n, err := c.Conn.Write(b)
	c.listener.server.conns.protocols[c.listener.protocol].written.Add(uint64(n))
	c.sent.Add(uint64(n))
	return n, err
}

// Close implements net.Conn.
func (c *serviceConn) Close() error {
	c.once.Do(func() {
		c.listener.server.conns.unlist(c)
		c.listener.server.conns.remove(c.listener.protocol)
		c.listener.server.counters.closeCounter(nil).n[c.listener.protocol].Add(1)
	})
	return c.Conn.Close()
}
