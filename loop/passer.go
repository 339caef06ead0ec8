package loop

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"treadle/loop/cluster"
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
	places    chan struct{} // a semaphore: --max-connections
	workers   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// newPasser opens the ports of s and passes their connections on until ctx ends.
func newPasser(ctx context.Context, node *cluster.Node, s *Server) (*passer, error) {
	p := &passer{ctx: ctx, node: node, places: make(chan struct{}, s.o.MaxConnections), conns: make(map[net.Conn]bool)}
	for _, port := range s.passPorts() {
		for ordinal, address := range port.addresses {
			l, err := openAddress(port.setting, address)
			if err != nil {
				p.close()
				return nil, err
			}
			p.listeners = append(p.listeners, l)
			p.workers.Go(func() { p.accept(l, port, ordinal) })
		}
	}
	p.workers.Go(p.followLeader)
	context.AfterFunc(ctx, p.close)
	return p, nil
}

// wait waits until everything is closed, after ctx has ended.
func (p *passer) wait() { p.workers.Wait() }

// close closes the ports and the connections.
func (p *passer) close() {
	for _, l := range p.listeners {
		_ = l.Close() // a second Close is harmless
	}
	p.closeConns()
}

func (p *passer) closeConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // its copying ends with an error
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
		p.closeConns()
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
	if !p.hold(c) {
		return
	}
	defer p.release(c)
	to, err := p.dial(setting, ordinal)
	if err != nil || !p.hold(to) {
		return
	}
	defer p.release(to)
	cluster.Splice(c, to)
}

// dial connects to the leader. It tries again for holdTime: a leader that cannot be reached has a successor soon.
func (p *passer) dial(setting string, ordinal int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, holdTime)
	defer cancel()
	for {
		leader, err := p.node.Leader(ctx)
		if err != nil {
			return nil, err
		}
		to, err := p.node.DialLeader(ctx, leader, setting, ordinal)
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

// hold keeps a connection to be closed with the others. It returns false if everything is closed.
func (p *passer) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.conns[c] = true
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
