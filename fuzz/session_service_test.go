//go:build invariants

package fuzz

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"treadle/loop"
)

// servicePorts are the ports that goroutines of the server's own serve.
var servicePorts = []string{"dwork", "kts46", "kts46-json"}

func isServicePort(port string) bool { return slices.Contains(servicePorts, port) }

// memListener is a listener in memory.
type memListener struct {
	t      *testing.T
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// openServices has a server serve its service ports until the test ends.
func openServices(t *testing.T, server *loop.Offline, ports []string) map[string]*memListener {
	all, listeners := make(map[string]*memListener), make(map[string]net.Listener)
	for _, port := range ports {
		if isServicePort(port) && all[port] == nil {
			all[port] = &memListener{t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
			listeners[port] = all[port]
		}
	}
	if len(all) > 0 {
		server.Serve(listeners)
		t.Cleanup(server.Close)
	}
	return all
}

// Accept implements net.Listener.
func (d *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (d *memListener) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr implements net.Listener.
func (d *memListener) Addr() net.Addr { return &net.TCPAddr{} }

// connect connects a peer.
func (d *memListener) connect() *memConn {
	ours, theirs := net.Pipe()
	p := &memConn{t: d.t, conn: ours, out: make(chan []byte)}
	d.conns <- readLimitConn{theirs, d.t}
	go p.write()
	go p.read()
	synctest.Wait()
	return p
}

// readLimitConn is the server's end of a connection. Scripts are short: a server that reads into more memory than this
// has believed what a peer announced.
type readLimitConn struct {
	net.Conn
	t *testing.T
}

const maxRead = 64 << 10

// Read implements net.Conn.
func (c readLimitConn) Read(b []byte) (int, error) {
	if len(b) > maxRead {
		c.t.Errorf("the server reads into %d bytes", len(b))
	}
	return c.Conn.Read(b)
}

// memConn is a connection through a memListener, whose peer takes all that it is sent.
type memConn struct {
	t       *testing.T
	conn    net.Conn
	out     chan []byte
	writing atomic.Bool
	ended   atomic.Bool
	left    bool

	mu     sync.Mutex
	unread []byte
}

// write sends on a goroutine: the server reads when it has the time to.
func (p *memConn) write() {
	for b := range p.out {
		_, _ = p.conn.Write(b) // what the server has closed takes nothing more
		p.writing.Store(false)
	}
}

func (p *memConn) read() {
	buffer := make([]byte, 4<<10)
	for {
		n, err := p.conn.Read(buffer)
		p.mu.Lock()
		p.unread = append(p.unread, buffer[:n]...)
		p.mu.Unlock()
		if err != nil {
			p.ended.Store(true)
			return
		}
	}
}

// serviceRest is longer than any pause that the server makes between a peer's requests: ZeroMQ's flood of nothing, and
// net/http's before it closes.
const serviceRest = time.Second

// Send returns when the server has dealt with the bytes.
func (p *memConn) Send(b []byte) {
	if p.left || len(b) == 0 {
		return
	}
	p.writing.Store(true)
	p.out <- bytes.Clone(b)
	synctest.Wait()
	for range 10 {
		if !p.writing.Load() {
			return
		}
		time.Sleep(serviceRest)
		synctest.Wait()
	}
	p.t.Fatal("the server reads no further")
}

// Read returns all that the peer has been sent since the last Read.
func (p *memConn) Read() []byte {
	time.Sleep(serviceRest)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.unread
	p.unread = nil
	return b
}

// Closed reports whether the connection has ended.
func (p *memConn) Closed() bool { return p.left || p.ended.Load() }

// Close is the peer's leaving.
func (p *memConn) Close() {
	if !p.left {
		p.left = true
		close(p.out)
		_ = p.conn.Close()
	}
	time.Sleep(serviceRest)
	synctest.Wait()
}
