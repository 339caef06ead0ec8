package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// Status is what a node knows about itself and its cluster.
type Status struct {
	Cluster string       `json:"cluster"`
	Node    string       `json:"node"`
	Nodes   []NodeStatus `json:"nodes"` // in the order of Options.Peers
}

// NodeStatus is the state of one node. Of a node that does not answer, Error says why, and the numbers are 0.
type NodeStatus struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Role    string `json:"role,omitempty"`
	Leader  string `json:"leader,omitempty"`
	Term    uint64 `json:"term,omitempty"`
	Last    uint64 `json:"last,omitempty"`   // the last entry on its disk
	Commit  uint64 `json:"commit,omitempty"` // the last entry that it knows to be committed
	Applied uint64 `json:"applied,omitempty"`
	Error   string `json:"error,omitempty"`
}

// own returns the state of this node.
func (n *Node) own() NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, _ := n.storage.LastIndex() // of a MemoryStorage: it never fails
	s := NodeStatus{
		ID: n.o.ID, Address: n.o.Peers[n.number-1].Address, Role: roleName(n.role), Leader: n.o.id(n.leader),
		Term: n.term, Last: last, Commit: n.commit, Applied: n.storage.replica.Applied().Index,
	}
	if n.failed != nil {
		s.Error = n.failed.Error()
	}
	return s
}

// Status asks all nodes for their state. It returns after dialTimeout and helloTimeout at the latest.
func (n *Node) Status(ctx context.Context) Status {
	s := Status{Cluster: n.o.Cluster, Node: n.o.ID, Nodes: make([]NodeStatus, len(n.o.Peers))}
	done := make(chan struct{})
	for i, p := range n.o.Peers {
		go func() {
			defer func() { done <- struct{}{} }()
			if p.ID == n.o.ID {
				s.Nodes[i] = n.own()
				return
			}
			one, err := n.port.askStatus(ctx, p)
			if err != nil {
				one.Error = err.Error()
			}
			one.ID, one.Address = p.ID, p.Address
			s.Nodes[i] = one
		}()
	}
	for range n.o.Peers {
		<-done
	}
	return s
}

// askStatus asks a node for its state.
func (t *transport) askStatus(ctx context.Context, p Peer) (s NodeStatus, err error) {
	c, err := t.dial(ctx, p, t.hello(kindStatus, p.ID))
	if err != nil {
		return s, err
	}
	defer func() { _ = c.Close() }() // it was only read
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	b, err := readFrame(c, maxHello)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

func (t *transport) answerStatus(c net.Conn) error {
	b, err := json.Marshal(t.node.own())
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(helloTimeout))
		_, err = c.Write(appendFrame(nil, b))
	}
	return err
}

// ServeStatus answers each connection with Status in JSON, until the listener is closed.
func (n *Node) ServeStatus(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(tick)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(writeTimeout + dialTimeout + helloTimeout))
		_ = json.NewEncoder(c).Encode(n.Status(context.Background())) // a client that is gone needs no answer
		_ = c.Close()
	}
}

// HandOver asks the follower that has the most of the log to lead, and waits until this node no longer leads, ctx ends,
// or an election time has passed without one.
func (n *Node) HandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*electionTicks*tick)
	defer cancel()
	asked := false
	n.call(func() {
		status := n.raft.Status()
		var to, match uint64
		for number, p := range status.Progress {
			if number != n.number && p.RecentActive && p.State == tracker.StateReplicate && p.Match >= match {
				to, match = number, p.Match
			}
		}
		if asked = status.RaftState == raft.StateLeader && to != 0; asked {
			n.raft.TransferLeader(to)
		}
	})
	if asked {
		n.AwaitChange(ctx, n.o.ID)
	}
}
