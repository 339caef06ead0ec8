package loop

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"treadle/loop/cluster"
)

// heldPorts are the ports of a node. They stay open while the role of the node changes, so that nobody is refused:
// connections wait meanwhile.
type heldPorts struct {
	mu  sync.Mutex
	all []*heldPort
}

// heldPort is one of them.
type heldPort struct {
	setting, address string
	listener         net.Listener
	accepted         chan accepted // that no role has yet
	closed           chan struct{}
	role             *portRole // that has it; nil: none
}

// accepted is the result of an Accept.
type accepted struct {
	net.Conn
	err error
}

// portRole is the use of the ports by one role of the node. There is one at a time.
type portRole struct {
	ports   *heldPorts
	present []*rolePort // in the order in which they were opened
}

// begin begins a role.
func (p *heldPorts) begin() *portRole { return &portRole{ports: p} }

// open opens an address of a setting as openAddress does. The end of the listener leaves the port open for the next
// role that opens the address.
func (r *portRole) open(setting, address string) (net.Listener, error) {
	p := r.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.all, func(h *heldPort) bool { return h.setting == setting && h.address == address && h.role == nil })
	if i < 0 {
		l, err := openAddress(setting, address)
		if err != nil {
			return nil, err
		}
		i = len(p.all)
		p.all = append(p.all, &heldPort{setting: setting, address: address, listener: l, accepted: make(chan accepted), closed: make(chan struct{})})
		go p.all[i].accept()
	}
	port := &rolePort{heldPort: p.all[i], of: r, passed: make(chan net.Conn), ended: make(chan struct{})}
	port.role = r
	r.present = append(r.present, port)
	return port, nil
}

// closeUnused closes the ports that the present role has not opened: the settings have changed.
func (p *heldPorts) closeUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(h *heldPort) bool {
		if h.role == nil {
			h.close()
		}
		return h.role == nil
	})
}

// close closes all ports.
func (p *heldPorts) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.all {
		h.close()
	}
	p.all = nil
}

func (h *heldPort) close() {
	close(h.closed)
	_ = h.listener.Close() // an error would change nothing
}

// accept accepts connections, one ahead of the role.
func (h *heldPort) accept() {
	for {
		c, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		h.hand(accepted{c, err})
	}
}

// hand hands a connection to a role.
func (h *heldPort) hand(a accepted) {
	select {
	case h.accepted <- a:
	case <-h.closed:
		if a.Conn != nil {
			_ = a.Close() // it was not read
		}
	}
}

// rolePort is a port as one role has it.
type rolePort struct {
	*heldPort
	of     *portRole
	passed chan net.Conn // connections that other nodes pass on
	ended  chan struct{} // the role has closed it
}

// Accept implements net.Listener. It returns a *passedConn for a connection that another node passes on.
func (l *rolePort) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		select {
		case <-l.ended: // it came at the same moment
			go l.hand(a)
			return nil, net.ErrClosed
		default:
			return a.Conn, a.err
		}
	case c := <-l.passed:
		return c, nil
	case <-l.ended:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (l *rolePort) Addr() net.Addr { return l.listener.Addr() }

// Close implements net.Listener.
func (l *rolePort) Close() error {
	p := l.of.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(l.of.present, l)
	if i < 0 {
		return nil
	}
	l.of.present = slices.Delete(l.of.present, i, i+1)
	l.role = nil
	close(l.ended)
	return nil
}

var errNoPort = errors.New("the leader has no such port")

// pass implements cluster.OpenPort: the server accepts one end of the connection.
func (r *portRole) pass(setting string, ordinal int, from string, client cluster.Client) (net.Conn, error) {
	to := r.port(setting, ordinal)
	if to == nil {
		return nil, errNoPort
	}
	own, servers, err := connectedPair()
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(cluster.PassTimeout)
	defer timer.Stop()
	err = errNoPort
	select {
	case to.passed <- &passedConn{servers, newPassedClient(from, client), to.Addr()}:
		return own, nil
	case <-timer.C:
		err = errors.New("the leader does not accept the connection")
	case <-to.ended:
	case <-to.closed:
	}
	_, _ = own.Close(), servers.Close() // nobody has used them
	return nil, err
}

// port returns the port of that ordinal of a setting, or nil.
func (r *portRole) port(setting string, ordinal int) *rolePort {
	r.ports.mu.Lock()
	defer r.ports.mu.Unlock()
	for _, l := range r.present {
		if l.setting != setting {
			continue
		}
		if ordinal--; ordinal < 0 {
			return l
		}
	}
	return nil
}

// connectedPair returns the two ends of a connection within the process.
func connectedPair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if a, err = unixConn(fds[0]); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	if b, err = unixConn(fds[1]); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// unixConn returns the connection of a descriptor, which it takes over.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "passed")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
