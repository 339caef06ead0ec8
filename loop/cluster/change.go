package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// The verbs of a Change.
const (
	AddNode    = "add"      // of ID at Address, which may then join
	RemoveNode = "remove"   // of ID, for ever
	Transfer   = "transfer" // of the lead to ID, or to the node that has the most of the log
)

// Change is a change of a running cluster. The leader makes it, and any other node forwards it to the leader.
type Change struct {
	Verb    string `json:"verb"`
	ID      string `json:"id,omitempty"`
	Address string `json:"address,omitempty"`
}

// changeAnswer is the answer to a forwarded change.
type changeAnswer struct {
	Error string `json:"error,omitempty"`
	Again bool   `json:"again,omitempty"` // the node does not lead: ask the next leader
}

const (
	// changeTimeout bounds a change, with an election in between.
	changeTimeout = 15 * time.Second
	// commitTimeout bounds the time in which a majority agrees to a change.
	commitTimeout = 5 * time.Second
	// changePause is the time between two tries.
	changePause = 100 * time.Millisecond
	// learnerLag is how many entries a learner may lack when it is promoted: about what arrives during the promotion.
	learnerLag = 1000
)

// errRemoved is the failure of a node that was removed from its cluster.
var errRemoved = errors.New("this node was removed from the cluster: its data directory is of no more use to it")

// Change makes a change of the cluster and waits until it is made. It returns nil if the change was made before.
func (n *Node) Change(ctx context.Context, c Change) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for {
		err := n.tryChange(ctx, c)
		if !errors.Is(err, ErrNotLeader) {
			return err
		}
		select {
		case <-time.After(changePause):
		case <-n.closing:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the cluster has no leader that stays: %w", err)
		}
	}
}

// tryChange makes a change, or forwards it to the leader.
func (n *Node) tryChange(ctx context.Context, c Change) error {
	leader, err := n.Leader(ctx)
	if err != nil {
		return err
	}
	if leader == n.o.ID {
		return n.changeAsLeader(ctx, c)
	}
	return n.transport.askChange(ctx, leader, c)
}

// askChange asks the leader for a change.
func (t *transport) askChange(ctx context.Context, leader string, c Change) error {
	p, ok := t.node.member(leader)
	if !ok {
		return ErrNotLeader
	}
	conn, err := t.dial(ctx, p, t.hello(kindChange, p.ID))
	if err != nil {
		return fmt.Errorf("the leader %s cannot be reached: %w: %w", leader, ErrNotLeader, err)
	}
	defer func() { _ = conn.Close() }() // it was only used for this
	_ = conn.SetDeadline(time.Now().Add(changeTimeout))
	b, err := json.Marshal(&c)
	if err == nil {
		_, err = conn.Write(appendFrame(nil, b))
	}
	if err == nil {
		b, err = readFrame(conn, maxHello)
	}
	var answer changeAnswer
	if err == nil {
		err = json.Unmarshal(b, &answer)
	}
	switch {
	case err != nil:
		return fmt.Errorf("the leader %s does not answer: %w: %w", leader, ErrNotLeader, err)
	case answer.Again:
		return ErrNotLeader
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}

// answerChange makes a change that another node has forwarded.
func (t *transport) answerChange(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(changeTimeout))
	b, err := readFrame(c, maxHello)
	var asked Change
	if err == nil {
		err = json.Unmarshal(b, &asked)
	}
	if err != nil {
		return err
	}
	var answer changeAnswer
	if err := t.node.changeAsLeader(t.ctx, asked); err != nil {
		answer = changeAnswer{Error: err.Error(), Again: errors.Is(err, ErrNotLeader)}
	}
	if b, err = json.Marshal(&answer); err == nil {
		_, err = c.Write(appendFrame(nil, b))
	}
	return err
}

// changeAsLeader makes a change as the leader.
func (n *Node) changeAsLeader(ctx context.Context, c Change) error {
	switch c.Verb {
	case AddNode:
		if _, err := ParsePeers([]string{c.ID + "=" + c.Address}); err != nil {
			return err
		}
		if err := n.o.checkAddress(c.Address); err != nil {
			return err
		}
	case RemoveNode:
		if c.ID == n.o.ID {
			return n.transferAway(ctx)
		}
	case Transfer:
		return n.transferTo(ctx, c.ID)
	default:
		return fmt.Errorf("a cluster has no change %q", c.Verb)
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for {
		done, err := n.propose(ctx, c)
		if done || errors.Is(err, ErrNotLeader) {
			return err
		}
		select { // another change may be under way, and nodes answer now and then
		case <-time.After(changePause):
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("the cluster has not agreed within %v", commitTimeout))
		}
	}
}

// propose proposes a change of the members. It returns done if the change was made before or cannot be made.
func (n *Node) propose(ctx context.Context, c Change) (done bool, err error) {
	err = ErrNotLeader
	n.callUnless(ctx.Done(), func() {
		status, m := n.raft.Status(), n.members
		if status.RaftState != raft.StateLeader {
			return
		}
		var next *pb.ConfChange
		node, is := m.withID(c.ID)
		switch {
		case c.Verb == AddNode && is && node.Address == c.Address:
			done, err = true, nil
			return
		case c.Verb == AddNode:
			next, err = confChange(pb.ConfChangeAddLearnerNode, member{Number: m.Last + 1, ID: c.ID, Address: c.Address}), m.checkAddition(c.ID, c.Address)
			done = err != nil
		case !is:
			done, err = true, m.checkWasRemoved(c.ID)
			return
		default:
			next, err = confChange(pb.ConfChangeRemoveNode, node), m.checkRemoval(node, n.respondingNumbers())
		}
		if err != nil {
			return
		}
		if err = n.raft.ProposeConfChange(next); err != nil {
			err = fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
	})
	return done, err
}

// respondTicks is how many ticks the last answer of a node may be old if the node counts as reachable.
const respondTicks = electionTicks

// respondedLately reports whether another node has answered within respondTicks. Raft clears its own mark each time
// that it reads it. The owner calls it.
func (n *Node) respondedLately(number uint64) bool {
	at, ok := n.answeredAt[number]
	return ok && time.Since(at) < respondTicks*tick
}

// respondingNumbers returns the numbers of the nodes that have answered lately, and that of this node. The owner calls
// it.
func (n *Node) respondingNumbers() []uint64 {
	all := []uint64{n.number}
	for number := range n.answeredAt {
		if n.respondedLately(number) {
			all = append(all, number)
		}
	}
	return all
}

// promote gives a vote to a learner that has almost the whole log, if this node leads. The owner calls it.
func (n *Node) promote() {
	for _, m := range n.members.Nodes {
		if !m.Learner {
			continue
		}
		status := n.raft.Status()
		last, _ := n.storage.LastIndex() // of a MemoryStorage: it never fails
		p, ok := status.Progress[m.Number]
		if !ok || status.RaftState != raft.StateLeader || !n.respondedLately(m.Number) || p.State != tracker.StateReplicate || p.Match+learnerLag < last {
			continue
		}
		if err := n.raft.ProposeConfChange(confChange(pb.ConfChangeAddNode, m)); err != nil {
			n.log.Debug("a learner stays one for now", "node", m.ID, "error", err)
		}
		return // one at a time
	}
}

// changeMembers applies a committed change of the members. It returns true if this node was removed.
func (n *Node) changeMembers(e *pb.Entry) (removed bool) {
	next, c, err := n.members.withEntry(e)
	if err != nil { // the same on every node
		n.log.Error("a change of the nodes is left out", "entry", e.GetIndex(), "error", err)
		return false
	}
	n.raft.ApplyConfChange(c)
	if next == n.members {
		return false
	}
	before := n.members
	n.updateState(func() { n.members = next })
	n.links.update(next)
	number := c.GetNodeId()
	delete(n.answeredAt, number)
	switch c.GetType() {
	case pb.ConfChangeRemoveNode:
		n.log.Info("a node is removed from the cluster", "node", before.id(number), "nodes", next.ids())
		return number == n.number
	case pb.ConfChangeAddNode:
		n.log.Info("a new node has the whole log and counts from now on", "node", next.id(number), "nodes", next.ids())
	default:
		n.log.Info("a node is added to the cluster", "node", next.id(number), "nodes", next.ids())
	}
	return false
}

// member returns the node with an id.
func (n *Node) member(id string) (Peer, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.members.withID(id)
	return Peer{m.ID, m.Address}, ok
}

// nodes returns all nodes.
func (n *Node) nodes() []member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members.Nodes
}

// checkMember returns an error if no node of the cluster has the id.
func (n *Node) checkMember(id string) error {
	n.mu.Lock()
	m := n.members
	n.mu.Unlock()
	if slices.Contains(m.Removed, id) {
		return fmt.Errorf("node %q: %w", id, errPeerRemoved)
	}
	if _, ok := m.withID(id); !ok {
		return fmt.Errorf("node %q is none of the cluster, which has %s: treadle cluster add %s=HOST:PORT adds it", id, m.ids(), id)
	}
	return nil
}

// TransferLeadership transfers the lead to the follower that has the most of the log. It waits until another node
// leads, ctx ends, or two election times have passed.
func (n *Node) TransferLeadership(ctx context.Context) {
	_ = n.transferTo(ctx, "") // on an error Raft elects a node
}

// transferAway transfers the lead, so that the next leader can make a change that concerns this node.
func (n *Node) transferAway(ctx context.Context) error {
	if err := n.transferTo(ctx, ""); err != nil {
		return err
	}
	return ErrNotLeader
}

// transferTo transfers the lead to the node with an id, or without one to the follower that has the most of the log. It
// ends the Leadership of this node first, and waits until the other node leads.
func (n *Node) transferTo(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*electionTicks*tick)
	defer cancel()
	err := ErrNotLeader
	n.callUnless(ctx.Done(), func() {
		status := n.raft.Status()
		if status.RaftState != raft.StateLeader {
			return
		}
		if id == n.o.ID {
			err = nil
			return
		}
		to := n.successor(&status, id)
		last, _ := n.storage.LastIndex() // of a MemoryStorage: it never fails
		if to != 0 && id != "" && status.Progress[to].Match+learnerLag < last {
			err = fmt.Errorf("node %q lacks %d entries of the log: wait until it has them", id, last-status.Progress[to].Match)
			return
		}
		if to == 0 {
			err = errors.New("no such node follows that has the log: nobody can lead in the place of this one")
			return
		}
		err = nil
		n.updateState(n.endLeadership)
		n.raft.TransferLeader(to)
	})
	if err != nil || id == n.o.ID {
		return err
	}
	n.AwaitOtherLeader(ctx, n.o.ID)
	switch leader, err := n.Leader(ctx); {
	case leader == n.o.ID:
		return errors.New("the other node did not take over in time")
	case err != nil || id != "" && leader != id: // Change asks the next leader
		return ErrNotLeader
	}
	return nil
}

// successor returns the number of a node that can take over from this one, or 0: the node with the id, or without one
// the node that has the most of the log. The owner calls it.
func (n *Node) successor(s *raft.Status, id string) (to uint64) {
	var match uint64
	for number, p := range s.Progress {
		follows := number != n.number && !p.IsLearner && n.respondedLately(number) && p.State == tracker.StateReplicate
		if follows && p.Match >= match && (id == "" || n.members.id(number) == id) {
			to, match = number, p.Match
		}
	}
	return to
}
