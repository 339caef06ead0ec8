package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3"
)

// Pass sets how a leader opens a connection to its own port: the one with that ordinal of the addresses of a setting.
// nil: this node takes no passed connections.
func (n *Node) Pass(open func(setting string, ordinal int) (net.Conn, error)) {
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	n.port.pass = open
}

// DialLeader opens a connection to the port of the node that leads. What is written to it reaches that port as if it
// came from a client on the leader's machine.
func (n *Node) DialLeader(ctx context.Context, leader, setting string, ordinal int) (net.Conn, error) {
	h := n.port.hello(kindPass, leader)
	h.Setting, h.Ordinal = setting, ordinal
	number := n.o.number(leader)
	if number == 0 {
		return nil, errors.New("no leader is known")
	}
	return n.port.dial(ctx, n.o.Peers[number-1], h)
}

// takePassed connects a passed connection with the port that it names.
func (t *transport) takePassed(c net.Conn, h *hello) error {
	open := t.awaitPass()
	if open == nil {
		return errors.New("this node does not serve")
	}
	own, err := open(h.Setting, h.Ordinal)
	if err != nil {
		return err
	}
	if !t.hold(own) {
		return net.ErrClosed
	}
	defer t.release(own)
	Splice(c, own)
	return nil
}

// awaitPass returns what Pass has set. It waits while a leader starts, for passTimeout at most, and returns nil then.
func (t *transport) awaitPass() func(setting string, ordinal int) (net.Conn, error) {
	for end := time.Now().Add(passTimeout); time.Now().Before(end) && t.ctx.Err() == nil; time.Sleep(passPeriod) {
		t.mu.Lock()
		open := t.pass
		t.mu.Unlock()
		if open != nil || t.node.own().Role != roleName(raft.StateLeader) {
			return open
		}
	}
	return nil
}

// How long a passed connection waits for a leader that starts, and how often it looks.
const (
	passTimeout = 10 * time.Second
	passPeriod  = 10 * time.Millisecond
)

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
