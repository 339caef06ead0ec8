package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3"
)

// Status is the state of the cluster, as one node has learned it from all.
type Status struct {
	Cluster string       `json:"cluster"`
	Node    string       `json:"node"`
	Nodes   []NodeStatus `json:"nodes"` // in the order of their numbers
}

// NodeStatus is the state of one node. If the node does not answer, Error is the reason and the numbers are 0.
type NodeStatus struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Role    string `json:"role,omitempty"`
	Leader  string `json:"leader,omitempty"`
	Term    uint64 `json:"term,omitempty"`
	Last    uint64 `json:"last,omitempty"`   // the last entry on its disk
	Commit  uint64 `json:"commit,omitempty"` // the last entry that it knows to be committed
	Applied uint64 `json:"applied,omitempty"`
	Time    int64  `json:"time,omitempty"`    // on its clock, in Unix microseconds
	Write   int64  `json:"write,omitempty"`   // microseconds that its disk has taken on average for a write to the log of late; 0: it had few
	Serves  bool   `json:"serves,omitempty"`  // it leads, and its server is ready
	Contact int64  `json:"contact,omitempty"` // milliseconds since it has heard of a leader; of a leader, since it asked the majority that has answered last
	Learner bool   `json:"learner,omitempty"` // it does not count for a majority yet, as the node knows that was asked
	Ahead   int64  `json:"ahead,omitempty"`   // microseconds that its clock is ahead of that of the node that was asked
	Error   string `json:"error,omitempty"`
}

// Leader returns the node that leads, or nil. After an election an old leader may not know of the new one yet.
func (s *Status) Leader() (leader *NodeStatus) {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Role == roleName(raft.StateLeader) && (leader == nil || n.Term > leader.Term) {
			leader = n
		}
	}
	return leader
}

// ownStatus returns the state of this node.
func (n *Node) ownStatus() NodeStatus {
	serves := n.transport != nil && n.transport.isServing()
	n.mu.Lock()
	defer n.mu.Unlock()
	last, _ := n.storage.LastIndex() // of a MemoryStorage: it never fails
	m, _ := n.members.withID(n.o.ID) // without an address while it joins
	s := NodeStatus{
		ID: n.o.ID, Address: m.Address, Role: roleName(n.role), Leader: n.members.id(n.leader),
		Term: n.term, Last: last, Commit: n.commit, Applied: n.storage.replica.Applied().Index,
		Time: n.clocks.now().UnixMicro(), Write: n.disk.average.Load() / 1000, Serves: serves,
	}
	if s.Contact = n.contact().Milliseconds(); m.Learner {
		s.Role = "learner"
	}
	if n.failed != nil {
		s.Error = n.failed.Error()
	}
	return s
}

// contact is the time since the node has heard of a leader; of a leader, since it asked the majority that has answered
// last. The caller holds mu.
func (n *Node) contact() time.Duration {
	if n.lead != nil {
		return time.Duration(max(0, n.uptime()-n.lead.lastAsked()))
	}
	return time.Duration(n.uptime() - n.observed.lastContact.Load())
}

// Status asks all nodes for their state. It returns after twice helloTimeout at the latest.
func (n *Node) Status(ctx context.Context) Status {
	n.mu.Lock()
	all := n.members.Nodes
	n.mu.Unlock()
	s := Status{Cluster: n.o.Cluster, Node: n.o.ID, Nodes: make([]NodeStatus, len(all))}
	done := make(chan struct{})
	for i, m := range all {
		p := Peer{m.ID, m.Address}
		go func() {
			defer func() { done <- struct{}{} }()
			if p.ID == n.o.ID {
				s.Nodes[i] = n.ownStatus()
				s.Nodes[i].Learner = m.Learner
				return
			}
			one, err := n.transport.askStatus(ctx, p)
			if err != nil {
				one.Error = err.Error()
			} else if one.Time != 0 {
				one.Ahead = one.Time - n.clocks.now().UnixMicro()
			}
			one.ID, one.Address, one.Learner = p.ID, p.Address, m.Learner
			s.Nodes[i] = one
		}()
	}
	for range all {
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
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	b, err := readFrame(c, maxHello)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// answerStatus answers askStatus of another node.
func (t *transport) answerStatus(c net.Conn) error {
	b, err := json.Marshal(t.node.ownStatus())
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(helloTimeout))
		_, err = c.Write(appendFrame(nil, b))
	}
	return err
}

// Request is a request on the socket of a node: a Change, or with the verb AskStatus none.
type Request struct{ Change }

// Answer is the answer to a Request: the state of the cluster after it, and why the change was not made.
type Answer struct {
	Status
	Error string `json:"error,omitempty"`
}

// AskStatus is the verb of a Request that changes nothing.
const AskStatus = "status"

// ServeRequests answers one Request on each connection, in JSON, until the listener is closed.
func (n *Node) ServeRequests(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(tick)
			continue
		}
		select {
		case n.requestSlots <- struct{}{}:
			n.goroutines.Go(func() {
				defer func() { <-n.requestSlots }()
				n.answerRequest(c)
			})
		default:
			_ = c.Close() // it was not read
		}
	}
}

// maxRequests is the most requests that are answered at a time: an operator needs one.
const maxRequests = 8

// answerRequest reads and answers the Request of a connection to the node's socket.
func (n *Node) answerRequest(c net.Conn) {
	defer func() { _ = c.Close() }() // a client that is gone needs no answer
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	var r Request
	if err := json.NewDecoder(io.LimitReader(c, maxHello)).Decode(&r); err != nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(changeTimeout + writeTimeout + 2*helloTimeout))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // a node that closes does not wait for a majority
		select {
		case <-n.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	var a Answer
	if r.Verb != AskStatus {
		if err := n.Change(ctx, r.Change); err != nil {
			a.Error = err.Error()
		}
	}
	a.Status = n.Status(ctx)
	_ = json.NewEncoder(c).Encode(&a)
}
