package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3"
)

// Client is who has connected to a follower.
type Client struct {
	Network string  `json:"network"`        // tcp or unix
	Address string  `json:"address"`        // of TCP alone
	User    *uint32 `json:"user,omitempty"` // of the process on a Unix socket
}

// OpenPort opens a connection to the leader's own port, the one with that ordinal of the addresses of a setting, for a
// client of the node from. It takes up to PassTimeout.
type OpenPort func(setting string, ordinal int, from string, client Client) (net.Conn, error)

// Pass sets how a leader opens a connection to its own port. nil: this node takes no passed connections.
func (n *Node) Pass(open OpenPort) {
	n.transport.mu.Lock()
	defer n.transport.mu.Unlock()
	n.transport.pass = open
	close(n.transport.serves)
	n.transport.serves = make(chan struct{})
}

// DialLeader opens a connection to the port of the node that leads, for a client of this one. What is written to it
// reaches that port as if the client had connected there.
func (n *Node) DialLeader(ctx context.Context, leader, setting string, ordinal int, client Client) (net.Conn, error) {
	h := n.transport.hello(kindPass, leader)
	h.Setting, h.Ordinal, h.Client = setting, ordinal, client
	p, ok := n.member(leader)
	if !ok {
		return nil, errors.New("the node that leads is not known")
	}
	if leader == n.o.ID { // it waits for itself
		return nil, errors.New("this node does not serve yet")
	}
	return n.transport.dial(ctx, p, h)
}

// openPassed opens the port that a passed connection names.
func (t *transport) openPassed(h *hello) (net.Conn, error) {
	open := t.awaitPass()
	if open == nil {
		return nil, errors.New("this node does not serve")
	}
	own, err := open(h.Setting, h.Ordinal, h.From, h.Client)
	if err != nil {
		return nil, err
	}
	if !t.trackConn(own) {
		return nil, net.ErrClosed
	}
	return own, nil
}

// awaitPass returns what Pass has set. It waits while a leader starts, for PassTimeout at most, and returns nil then.
func (t *transport) awaitPass() OpenPort {
	end := time.After(PassTimeout)
	for {
		t.mu.Lock()
		open, changed := t.pass, t.serves
		t.mu.Unlock()
		led, lost := t.node.leads()
		if open != nil || !led {
			return open
		}
		select {
		case <-changed:
		case <-lost:
		case <-end:
			return nil
		case <-t.ctx.Done():
			return nil
		}
	}
}

// leads reports whether this node leads, and returns a channel that is closed when something has changed.
func (n *Node) leads() (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.role == raft.StateLeader, n.changed
}

// PassTimeout is how long a passed connection waits for a leader that starts, and then for its port.
const PassTimeout = 10 * time.Second

// Splice copies bytes in both directions until both have ended. The end of one direction is passed on; after an error
// both connections are closed.
func Splice(a, b net.Conn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		oneWay(a, b)
	}()
	oneWay(b, a)
	<-ended
	_ = errors.Join(a.Close(), b.Close())
}

func oneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = errors.Join(to.Close(), from.Close()) // the other direction ends, too
}
