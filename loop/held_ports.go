package loop

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// heldPorts are the ports of a node. They stay open while the role of the node changes, so that nobody is refused:
// connections wait in the system's queue meanwhile.
type heldPorts struct {
	mu  sync.Mutex
	all []*heldPort
}

// heldPort is one of them.
type heldPort struct {
	stoppable
	setting, address string
	lent             bool // to the present role
}

// stoppable is a listener whose Accept can be made to return.
type stoppable interface {
	net.Listener
	SetDeadline(time.Time) error
}

// open opens an address of a setting as openAddress does. The end of the listener leaves the port open for the next
// open of that address.
func (p *heldPorts) open(setting, address string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(h *heldPort) bool { return h.setting == setting && h.address == address && !h.lent })
	if i < 0 {
		l, err := openAddress(setting, address)
		if err != nil {
			return nil, err
		}
		i = len(p.all)
		p.all = append(p.all, &heldPort{stoppable: l.(stoppable), setting: setting, address: address})
	}
	port := p.all[i]
	port.lent = true
	return &lentPort{heldPort: port, of: p}, port.SetDeadline(time.Time{})
}

// closeUnused closes the ports that the present role has not opened: the settings have changed.
func (p *heldPorts) closeUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(h *heldPort) bool {
		if !h.lent {
			_ = h.Close() // nobody uses it
		}
		return !h.lent
	})
}

// close closes all ports.
func (p *heldPorts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.all {
		_ = h.Close() // a second Close is harmless
	}
	p.all = nil
}

// lentPort is a port as the present role has it.
type lentPort struct {
	*heldPort
	of        *heldPorts
	accepting sync.Mutex
	closed    atomic.Bool
}

// Accept implements net.Listener.
func (l *lentPort) Accept() (net.Conn, error) {
	l.accepting.Lock()
	defer l.accepting.Unlock()
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	c, err := l.heldPort.Accept()
	if err != nil && l.closed.Load() {
		err = net.ErrClosed
	}
	return c, err
}

// Close implements net.Listener. It waits until Accept has returned, so that the next role has all connections.
func (l *lentPort) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	err := l.SetDeadline(time.Unix(1, 0))
	l.accepting.Lock()
	defer l.accepting.Unlock()
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.lent = false
	return err
}
