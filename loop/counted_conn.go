package loop

import (
	"net"
	"sync"
	"sync/atomic"

	"treadle/sched"
)

// countedListener counts its connections as connections of the server, and closes connections beyond the limit.
type countedListener struct {
	net.Listener
	server   *Server
	protocol protocolID // whose share counts the connections
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.server.takePlace(c, l.protocol) {
			return l.server.conns.list(c, l), nil
		}
	}
}

// countedConn counts its bytes, and gives its place back when it is closed.
type countedConn struct {
	net.Conn
	listener       *countedListener
	number         uint64
	once           sync.Once
	opened         sched.Time
	received, sent atomic.Uint64 // bytes
	lastReceived   atomic.Int64  // Mono
}

// list makes a connection and puts it into the table of open connections.
func (s *connShares) list(c net.Conn, l *countedListener) *countedConn {
	counted := &countedConn{Conn: c, listener: l, opened: l.server.now()}
	counted.lastReceived.Store(counted.opened.Mono)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCounted++
	counted.number = s.lastCounted
	s.counted.Set(counted.number, counted)
	return counted
}

// unlist takes a connection out of the table of open connections.
func (s *connShares) unlist(c *countedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted.Delete(c.number)
}

// NetConn returns the connection itself, as the NetConn of a tls.Conn does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.listener.server.conns.protocols[c.listener.protocol].read.Add(uint64(n))
	c.received.Add(uint64(n))
	c.lastReceived.Store(c.listener.server.now().Mono)
	return n, err
}

// Write implements net.Conn.
func (c *countedConn) Write(b []byte) (int, error) {
	if !c.listener.server.mayAnswer() {
		return 0, errStopping
	}
	n, err := c.Conn.Write(b)
	c.listener.server.conns.protocols[c.listener.protocol].written.Add(uint64(n))
	c.sent.Add(uint64(n))
	return n, err
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.listener.server.conns.unlist(c)
		c.listener.server.conns.remove(c.listener.protocol)
		c.listener.server.counters.closeCounter(nil).n[c.listener.protocol].Add(1)
	})
	return c.Conn.Close()
}
