package loop

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"treadle/loop/cluster"
	"treadle/loop/web"
)

// holdTime is how long a connection waits, unread, while no leader is known.
const holdTime = 10 * time.Second

// redialPause is the time between two tries to reach the same leader: that of an election.
const redialPause = 500 * time.Millisecond

// passer passes the connections of a follower on to the leader, byte for byte.
type passer struct {
	ctx       context.Context
	node      *cluster.Node
	listeners []net.Listener
	http      *followerHTTP // nil: HTTP is off
	places    chan struct{} // a semaphore: --max-connections
	workers   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // whether they are connected with the leader, or are connections to it
}

// newPasser opens the ports of s and passes their connections on until ctx ends.
func newPasser(ctx context.Context, node *cluster.Node, s *Server, ports *heldPorts) (*passer, error) {
	p := &passer{ctx: ctx, node: node, places: make(chan struct{}, s.o.MaxConnections), conns: make(map[net.Conn]bool)}
	role := ports.begin()
	for _, port := range s.passPorts() {
		for ordinal, address := range port.addresses {
			l, err := role.open(port.setting, address)
			if err != nil {
				p.close()
				return nil, err
			}
			if port.setting == "http" {
				p.serveHTTP(s, l)
				continue
			}
			p.listeners = append(p.listeners, l)
			p.workers.Go(func() { p.accept(l, port, ordinal) })
		}
	}
	ports.closeUnused()
	p.workers.Go(p.followLeader)
	p.workers.Go(func() {
		<-ctx.Done()
		p.close()
	})
	return p, nil
}

// serveHTTP serves the port of HTTP.
func (p *passer) serveHTTP(s *Server, l net.Listener) {
	samples := func() []web.Sample { return clusterSamples(p.node.Health()) }
	p.http = s.serveFollower(l, p.node.Ready, samples, p.dialHTTP, p.admit)
	p.workers.Go(func() {
		if err := p.http.run(); err != nil {
			s.log.Error("HTTP stopped", "error", err)
		}
	})
}

// admit counts a connection of HTTP whose requests are passed on.
func (p *passer) admit() (leave func(), err error) {
	select {
	case p.places <- struct{}{}:
		return func() { <-p.places }, nil
	default:
		return nil, errors.New("all of --max-connections of this node are open: close some, or raise it")
	}
}

// dialHTTP connects to the leader for a client of HTTP.
func (p *passer) dialHTTP(ctx context.Context, client cluster.Client) (net.Conn, error) {
	to, err := p.dial(ctx, "http", 0, client)
	if err != nil {
		return nil, err
	}
	if !p.hold(to, true) {
		return nil, net.ErrClosed
	}
	return &heldConn{to, p}, nil
}

// heldConn is a connection to the leader that hold keeps.
type heldConn struct {
	net.Conn
	of *passer
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	c.of.release(c.Conn)
	return nil
}

// wait waits until everything is closed, after ctx has ended.
func (p *passer) wait() { p.workers.Wait() }

// close closes the ports and the connections.
func (p *passer) close() {
	for _, l := range p.listeners {
		_ = l.Close() // a second Close is harmless
	}
	p.closeConns(true) // so that no request of HTTP waits for its leader
	if p.http != nil {
		p.http.close()
	}
}

// closeConns closes the connections that a leader has, or all.
func (p *passer) closeConns(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, connected := range p.conns {
		if connected || all {
			_ = c.Close() // its copying ends with an error
		}
	}
}

// followLeader closes the connections whenever the leader changes. Clients do then what they do at a restart.
func (p *passer) followLeader() {
	for p.ctx.Err() == nil {
		leader, err := p.node.Leader(p.ctx)
		if err != nil {
			return
		}
		p.node.AwaitChange(p.ctx, leader)
		p.closeConns(false)
	}
}

// accept passes the connections of one address on.
func (p *passer) accept(l net.Listener, port passPort, ordinal int) {
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
		case p.places <- struct{}{}:
			p.workers.Go(func() {
				defer func() { <-p.places }()
				p.pass(c, port.setting, ordinal)
			})
		default:
			_ = c.Close() // it was not read
		}
	}
}

// pass passes a connection on, as soon as a leader is known.
func (p *passer) pass(c net.Conn, setting string, ordinal int) {
	if !p.hold(c, false) {
		return
	}
	defer p.release(c)
	to, err := p.dial(p.ctx, setting, ordinal, clientOf(c))
	if err != nil || !p.hold(to, true) {
		return
	}
	defer p.release(to)
	if p.hold(c, true) {
		cluster.Splice(c, to)
	}
}

// dial connects to the leader. It tries again for holdTime: a leader that cannot be reached has a successor soon.
func (p *passer) dial(ctx context.Context, setting string, ordinal int, client cluster.Client) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for {
		leader, err := p.node.Leader(ctx)
		if err != nil {
			return nil, err
		}
		to, err := p.dialLeader(ctx, leader, setting, ordinal, client)
		if err == nil {
			return to, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		wait, stop := context.WithTimeout(ctx, redialPause)
		p.node.AwaitChange(wait, leader)
		stop()
	}
}

// dialLeader connects to a node for as long as it leads.
func (p *passer) dialLeader(ctx context.Context, leader, setting string, ordinal int, client cluster.Client) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		p.node.AwaitChange(ctx, leader)
		cancel()
	}()
	return p.node.DialLeader(ctx, leader, setting, ordinal, client)
}

// hold keeps a connection to be closed with the others. It returns false if everything is closed.
func (p *passer) hold(c net.Conn, connected bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.conns[c] = connected
		return true
	}
	_ = c.Close() // it was not used
	return false
}

func (p *passer) release(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // a second Close is harmless
}
