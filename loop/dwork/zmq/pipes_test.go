package zmq

import (
	"net"
	"sync"
	"testing"
)

// pipes is a listener whose connections are in memory, for tests in a bubble of simulated time: that passes when
// everybody waits, so however slow the machine is, nobody is late who has something to do.
type pipes struct {
	made chan net.Conn
	quit chan struct{}
	stop func()
}

// listenPipes is listen with pipes.
func listenPipes(t *testing.T, o Options) *testHub {
	t.Helper()
	p := &pipes{made: make(chan net.Conn), quit: make(chan struct{})}
	p.stop = sync.OnceFunc(func() { close(p.quit) })
	r := listenOn(t, p, o)
	r.pipes = p
	return r
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.made:
		return nc, nil
	case <-p.quit:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.stop()
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

func (p *pipes) connect() net.Conn {
	near, far := net.Pipe()
	p.made <- far
	s := &sender{Conn: near, more: make(chan struct{}, 1)}
	go s.run()
	return s
}

// sender is an end of a pipe whose Write does not wait for the other end to read, as that of a socket does not.
type sender struct {
	net.Conn
	mu   sync.Mutex
	out  []byte
	gone bool
	more chan struct{}
}

func (s *sender) run() {
	for range s.more {
		s.mu.Lock()
		out, gone := s.out, s.gone
		s.out = nil
		s.mu.Unlock()
		if _, err := s.Conn.Write(out); gone || err != nil {
			return // the waiting caller gets the error
		}
	}
}

// Write implements net.Conn.
func (s *sender) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.out = append(s.out, b...)
	s.mu.Unlock()
	s.wake()
	return len(b), nil
}

// Close implements net.Conn. What is still to be sent is lost.
func (s *sender) Close() error {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.wake()
	return s.Conn.Close()
}

func (s *sender) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
