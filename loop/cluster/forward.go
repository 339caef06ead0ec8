package cluster

import (
	"context"
	"errors"
	"net"
	"time"

	"go.etcd.io/raft/v3"
)

// Client is a client that has connected to a follower.
type Client struct {
	Network string  `json:"network"`        // tcp or unix
	Address string  `json:"address"`        // of TCP alone
	User    *uint32 `json:"user,omitempty"` // of the process on a Unix socket
}

// LocalDialer opens a connection to a port of the leader itself: to the address with that ordinal in the setting, for a
// client of the node from. It takes up to ForwardTimeout.
type LocalDialer func(setting string, ordinal int, from string, client Client) (net.Conn, error)

// SetLocalDialer sets how the leader connects to its own ports. With nil the node takes no forwarded connections.
func (n *Node) SetLocalDialer(dial LocalDialer) {
	n.transport.mu.Lock()
	defer n.transport.mu.Unlock()
	n.transport.dialLocal = dial
	close(n.transport.dialerChanged)
	n.transport.dialerChanged = make(chan struct{})
}

// DialLeader opens a connection to a port of the node that leads, for a client of this node. The port serves it like a
// connection of the client itself.
func (n *Node) DialLeader(ctx context.Context, leader, setting string, ordinal int, client Client) (net.Conn, error) {
	h := n.transport.hello(kindForward, leader)
	h.Setting, h.Ordinal, h.Client = setting, ordinal, client
	p, ok := n.member(leader)
	if !ok {
		return nil, errors.New("the node that leads is not known")
	}
	if leader == n.o.ID { // it would wait for itself
		return nil, errors.New("this node does not serve yet")
	}
	return n.transport.dial(ctx, p, h)
}

// dialForwarded opens the port that the hello of a forwarded connection names.
func (t *transport) dialForwarded(h *hello) (net.Conn, error) {
	dial := t.awaitDialer()
	if dial == nil {
		return nil, errors.New("this node does not serve")
	}
	own, err := dial(h.Setting, h.Ordinal, h.From, h.Client)
	if err != nil {
		return nil, err
	}
	if !t.trackConn(own) {
		return nil, net.ErrClosed
	}
	return own, nil
}

// awaitDialer returns the dialer that SetLocalDialer has set. It waits up to ForwardTimeout while this node starts as
// the leader, and then returns nil.
func (t *transport) awaitDialer() LocalDialer {
	end := time.After(ForwardTimeout)
	for {
		t.mu.Lock()
		dial, changed := t.dialLocal, t.dialerChanged
		t.mu.Unlock()
		leads, leadChanged := t.node.leads()
		if dial != nil || !leads {
			return dial
		}
		select {
		case <-changed:
		case <-leadChanged:
		case <-end:
			return nil
		case <-t.ctx.Done():
			return nil
		}
	}
}

// leads reports whether this node leads. changed is closed when that may have changed.
func (n *Node) leads() (leads bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.role == raft.StateLeader, n.changed
}

// ForwardTimeout bounds the time in which a forwarded connection waits for a leader that starts, and again the time in
// which it waits for the leader's port.
const ForwardTimeout = 10 * time.Second
