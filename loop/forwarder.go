package loop

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"treadle/loop/cluster"
	"treadle/loop/splice"
	"treadle/loop/web"
)

// leaderWait is how long a connection waits, unread, while no leader can be reached.
const leaderWait = 10 * time.Second

// redialPause is the time between two tries to reach the same leader: that of an election.
const redialPause = 500 * time.Millisecond

// maxDials is how many connections a follower opens to the leader at a time. When thousands of clients connect again at
// once, the goroutine that answers the other nodes waits for as many others at most: it must not miss an election time.
const maxDials = 32

// forwarder forwards the connections of a follower to the leader, byte for byte.
type forwarder struct {
	ctx        context.Context
	node       *cluster.Node
	listeners  []net.Listener
	http       *followerHTTP // nil: HTTP is off
	connSlots  chan struct{} // a semaphore: --max-connections
	dialSlots  chan struct{} // a semaphore: maxDials
	goroutines sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // open connections, and whether they have a leader: also those to it
}

// newForwarder opens the ports of s and forwards their connections until ctx ends.
func newForwarder(ctx context.Context, node *cluster.Node, s *Server, ports *nodePorts) (*forwarder, error) {
	f := &forwarder{
		ctx: ctx, node: node, conns: make(map[net.Conn]bool),
		connSlots: make(chan struct{}, s.o.MaxConnections), dialSlots: make(chan struct{}, maxDials),
	}
	role := ports.beginRole()
	for _, port := range s.forwardedPorts() {
		for ordinal, address := range port.addresses {
			l, err := role.open(port.setting, address)
			if err != nil {
				f.close()
				return nil, err
			}
			if port.setting == "http" {
				f.serveHTTP(s, l)
				continue
			}
			f.listeners = append(f.listeners, l)
			f.goroutines.Go(func() { f.accept(l, port, ordinal) })
		}
	}
	ports.closeUnused()
	f.goroutines.Go(f.closeOnChange)
	f.goroutines.Go(func() {
		<-ctx.Done()
		f.close()
	})
	return f, nil
}

// serveHTTP serves the port of --http.
func (f *forwarder) serveHTTP(s *Server, l net.Listener) {
	samples := func() []web.Sample { return clusterSamples(f.node.Health()) }
	f.http = s.serveFollower(l, f.node, f.node.Ready, samples, f.dialHTTP, f.takeConnSlot)
	f.goroutines.Go(func() {
		if err := f.http.run(); err != nil {
			s.log.Error("HTTP stopped", "error", err)
		}
	})
}

// takeConnSlot counts a connection of HTTP whose requests are forwarded. leave ends the count. It returns an error at
// the limit.
func (f *forwarder) takeConnSlot() (leave func(), err error) {
	select {
	case f.connSlots <- struct{}{}:
		return func() { <-f.connSlots }, nil
	default:
		return nil, errors.New("all of --max-connections of this node are open: close some, or raise it")
	}
}

// dialHTTP connects to the leader for a client of HTTP.
func (f *forwarder) dialHTTP(ctx context.Context, client cluster.Client) (net.Conn, error) {
	to, err := f.dial(ctx, "http", 0, client)
	if err != nil {
		return nil, err
	}
	return &trackedConn{to, f}, nil
}

// trackedConn is a connection to the leader whose Close ends trackConn.
type trackedConn struct {
	net.Conn
	forwarder *forwarder
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.forwarder.closeTracked(c.Conn)
	return nil
}

// wait waits until everything is closed. It is called when ctx ends.
func (f *forwarder) wait() { f.goroutines.Wait() }

// close closes the ports and the connections.
func (f *forwarder) close() {
	for _, l := range f.listeners {
		_ = l.Close() // a second Close is harmless
	}
	f.closeConns(true) // so that no request of HTTP waits for its leader
	if f.http != nil {
		f.http.close()
	}
}

// closeConns closes the connections that have a leader, or all.
func (f *forwarder) closeConns(all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, connected := range f.conns {
		if connected || all {
			_ = c.Close() // the goroutine that copies it ends with an error
		}
	}
}

// closeOnChange closes the connections each time that the leader changes. Clients then do what they do after a restart.
func (f *forwarder) closeOnChange() {
	for f.ctx.Err() == nil {
		leader, err := f.node.Leader(f.ctx)
		if err != nil {
			return
		}
		f.node.AwaitOtherLeader(f.ctx, leader)
		f.closeConns(false)
	}
}

// accept forwards the connections of one address.
func (f *forwarder) accept(l net.Listener, port forwardedPort, ordinal int) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
			continue
		case port.localOnly && !isLocal(c):
			_ = c.Close() // it was not read
			continue
		}
		select {
		case f.connSlots <- struct{}{}:
			f.goroutines.Go(func() {
				defer func() { <-f.connSlots }()
				f.forward(c, port.setting, ordinal)
			})
		default:
			_ = c.Close() // it was not read
		}
	}
}

// forward forwards a connection as soon as a leader is known.
func (f *forwarder) forward(c net.Conn, setting string, ordinal int) {
	if !f.trackConn(c, false) {
		return
	}
	defer f.closeTracked(c)
	to, err := f.dial(f.ctx, setting, ordinal, clientOf(c))
	if err != nil {
		return
	}
	defer f.closeTracked(to)
	if f.trackConn(c, true) {
		splice.Both(c, to)
	}
}

// dial connects to the leader, with a connection of trackConn. It tries for leaderWait: a leader that cannot be reached
// has a successor soon.
func (f *forwarder) dial(ctx context.Context, setting string, ordinal int, client cluster.Client) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	for {
		leader, err := f.node.Leader(ctx)
		if err != nil {
			return nil, err
		}
		to, err := f.dialLeader(ctx, leader, setting, ordinal, client)
		if err == nil {
			switch {
			case !f.trackConn(to, true):
				return nil, net.ErrClosed
			case f.node.LeaderIs(leader): // a later change closes it
				return to, nil
			}
			f.closeTracked(to)
			continue
		}
		if ctx.Err() != nil {
			return nil, err
		}
		wait, stop := context.WithTimeout(ctx, redialPause)
		f.node.AwaitOtherLeader(wait, leader)
		stop()
	}
}

// dialLeader connects to a node when fewer than maxDials others do. It gives up when the node no longer leads.
func (f *forwarder) dialLeader(ctx context.Context, leader, setting string, ordinal int, client cluster.Client) (net.Conn, error) {
	select {
	case f.dialSlots <- struct{}{}:
		defer func() { <-f.dialSlots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		f.node.AwaitOtherLeader(ctx, leader)
		cancel()
	}()
	return f.node.DialLeader(ctx, leader, setting, ordinal, client)
}

// trackConn lets close end the connection. It closes the connection and returns false if everything is closed.
func (f *forwarder) trackConn(c net.Conn, connected bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() == nil {
		f.conns[c] = connected
		return true
	}
	_ = c.Close() // it was not used
	return false
}

// closeTracked closes a connection of trackConn.
func (f *forwarder) closeTracked(c net.Conn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
	_ = c.Close() // a second Close is harmless
}
