package loop

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"treadle/loop/cluster"
	"treadle/loop/splice"
)

// nodePorts are the ports of a node. They stay open while the role of the node changes, so that no client is refused:
// new connections wait meanwhile.
type nodePorts struct {
	openNew func(setting, address string) (net.Listener, error) // tlsPorts.openPort

	mu  sync.Mutex
	all []*nodePort
}

// nodePort is one port, with one address of a setting.
type nodePort struct {
	setting, address string
	listener         net.Listener
	accepted         chan acceptResult // connections that no role has accepted yet
	closed           chan struct{}
	role             *rolePorts // that has the port; nil: none. Under the mu of nodePorts
}

// acceptResult is the result of an Accept.
type acceptResult struct {
	net.Conn
	err error
}

// rolePorts are the ports as one role of the node uses them: as leader or as follower. There is one role at a time.
type rolePorts struct {
	ports     *nodePorts
	listeners []*roleListener // open ones, in the order in which they were opened
}

// beginRole returns the ports for a new role, which opens them.
func (p *nodePorts) beginRole() *rolePorts { return &rolePorts{ports: p} }

// open opens an address of a setting as openNew does. Closing the listener leaves the port open for the next role
// that opens the address.
func (r *rolePorts) open(setting, address string) (net.Listener, error) {
	p := r.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(h *nodePort) bool { return h.setting == setting && h.address == address && h.role == nil })
	if i < 0 {
		l, err := p.openNew(setting, address)
		if err != nil {
			return nil, err
		}
		i = len(p.all)
		p.all = append(p.all, &nodePort{setting: setting, address: address, listener: l, accepted: make(chan acceptResult), closed: make(chan struct{})})
		go p.all[i].accept()
	}
	port := &roleListener{nodePort: p.all[i], owner: r, forwarded: make(chan net.Conn), ended: make(chan struct{})}
	port.role = r
	r.listeners = append(r.listeners, port)
	return port, nil
}

// closeUnused closes the ports that the present role has not opened, since the settings have changed.
func (p *nodePorts) closeUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(h *nodePort) bool {
		if h.role == nil {
			h.close()
		}
		return h.role == nil
	})
}

// close closes all ports.
func (p *nodePorts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.all {
		h.close()
	}
	p.all = nil
}

func (h *nodePort) close() {
	close(h.closed)
	_ = h.listener.Close() // an error would change nothing
}

// accept accepts connections. It accepts one before the role asks for it.
func (h *nodePort) accept() {
	for {
		c, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		h.deliver(acceptResult{c, err})
	}
}

// deliver gives a connection to the role that accepts next.
func (h *nodePort) deliver(a acceptResult) {
	select {
	case h.accepted <- a:
	case <-h.closed:
		if a.Conn != nil {
			_ = a.Close() // it was not read
		}
	}
}

// roleListener is the listener of a port for one role.
type roleListener struct {
	*nodePort
	owner     *rolePorts
	forwarded chan net.Conn // connections that other nodes forward
	ended     chan struct{} // the role has closed it
}

// Accept implements net.Listener. It returns a *forwardedConn for a connection that another node forwards.
func (l *roleListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		select {
		case <-l.ended: // the connection came at the same moment
			go l.deliver(a)
			return nil, net.ErrClosed
		default:
			return a.Conn, a.err
		}
	case c := <-l.forwarded:
		return c, nil
	case <-l.ended:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (l *roleListener) Addr() net.Addr { return l.listener.Addr() }

// Close implements net.Listener.
func (l *roleListener) Close() error {
	p := l.owner.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(l.owner.listeners, l)
	if i < 0 {
		return nil
	}
	l.owner.listeners = slices.Delete(l.owner.listeners, i, i+1)
	l.role = nil
	close(l.ended)
	return nil
}

var errNoPort = errors.New("the leader has no such port")

// dialLocal implements cluster.LocalDialer: the listener accepts the other end of the connection.
func (r *rolePorts) dialLocal(setting string, ordinal int, from string, client cluster.Client) (net.Conn, error) {
	to := r.listener(setting, ordinal)
	if to == nil {
		return nil, errNoPort
	}
	c, accepted, err := splice.Pair()
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(cluster.ForwardTimeout)
	defer timer.Stop()
	err = errNoPort
	select {
	case to.forwarded <- &forwardedConn{accepted, newForwardedClient(from, client), to.Addr(), true}:
		return c, nil
	case <-timer.C:
		err = errors.New("the leader does not accept the connection")
	case <-to.ended:
	case <-to.closed:
	}
	_, _ = c.Close(), accepted.Close() // neither was used
	return nil, err
}

// listener returns the listener of the address with that ordinal of a setting, or nil.
func (r *rolePorts) listener(setting string, ordinal int) *roleListener {
	r.ports.mu.Lock()
	defer r.ports.mu.Unlock()
	for _, l := range r.listeners {
		if l.setting != setting {
			continue
		}
		if ordinal--; ordinal < 0 {
			return l
		}
	}
	return nil
}
