package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxNodes is the most nodes of a cluster. More would slow each acknowledgement and add little safety.
const maxNodes = 9

// member is a node of the cluster. Its number is its id in Raft, and is never given to another node.
type member struct {
	Number  uint64 `json:"number"`
	ID      string `json:"id"`
	Address string `json:"address"`
	Learner bool   `json:"learner,omitempty"` // it receives the log, and does not count for a majority yet
}

// members are the nodes of the cluster after a committed entry. A value does not change: withEntry makes another one.
// It is stored as JSON, see journal.Replica.Members.
type members struct {
	Nodes   []member `json:"nodes"` // in the order of their numbers
	Last    uint64   `json:"last"`  // the highest number that was ever given
	Removed []string `json:"gone,omitempty"`
}

// firstMembers returns the nodes with which a cluster begins.
func firstMembers(peers []Peer) *members {
	m := &members{Last: uint64(len(peers))}
	for i, p := range peers {
		m.Nodes = append(m.Nodes, member{Number: uint64(i + 1), ID: p.ID, Address: p.Address})
	}
	return m
}

// parseMembers reads the stored form. A node that has joined and waits for its store has none, and gets no members.
func parseMembers(b []byte) (*members, error) {
	m := &members{}
	if len(b) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("the nodes of the cluster in the store cannot be read: %w", err)
	}
	return m, nil
}

// stored returns the stored form.
func (m *members) stored() []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// confState returns the members in the form of Raft.
func (m *members) confState() *pb.ConfState {
	s := &pb.ConfState{}
	for _, n := range m.Nodes {
		if n.Learner {
			s.Learners = append(s.Learners, n.Number)
		} else {
			s.Voters = append(s.Voters, n.Number)
		}
	}
	return s
}

// withID returns the node with an id.
func (m *members) withID(id string) (n member, ok bool) {
	i := slices.IndexFunc(m.Nodes, func(n member) bool { return n.ID == id })
	if i < 0 {
		return n, false
	}
	return m.Nodes[i], true
}

// id returns the id of the node with a number, or "".
func (m *members) id(number uint64) string {
	i := slices.IndexFunc(m.Nodes, func(n member) bool { return n.Number == number })
	if i < 0 {
		return ""
	}
	return m.Nodes[i].ID
}

// ids returns the ids of all nodes, separated by spaces.
func (m *members) ids() string {
	var all []string
	for _, n := range m.Nodes {
		all = append(all, n.ID)
	}
	return strings.Join(all, " ")
}

// confChange returns the change of Raft for a node that is added, promoted or removed.
func confChange(kind pb.ConfChangeType, n member) *pb.ConfChange {
	context, err := json.Marshal(n)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &pb.ConfChange{Type: kind.Enum(), NodeId: &n.Number, Context: context}
}

// withEntry returns the members after a committed entry, and the change for Raft. Every node gets the same result from
// the same entries. A change that does not fit the members changes nothing.
func (m *members) withEntry(e *pb.Entry) (*members, *pb.ConfChange, error) {
	c := &pb.ConfChange{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, nil, fmt.Errorf("a change of the nodes cannot be read: %w", err)
	}
	var n member
	if err := json.Unmarshal(c.GetContext(), &n); err != nil {
		return nil, nil, fmt.Errorf("a change of the nodes cannot be read: %w", err)
	}
	next := &members{slices.Clone(m.Nodes), m.Last, slices.Clone(m.Removed)}
	at := slices.IndexFunc(next.Nodes, func(o member) bool { return o.Number == n.Number })
	switch kind := c.GetType(); {
	case kind == pb.ConfChangeAddLearnerNode && at < 0 && n.Number > m.Last && m.checkAddition(n.ID, n.Address) == nil:
		n.Learner = true
		next.Nodes, next.Last = append(next.Nodes, n), n.Number
	case kind == pb.ConfChangeAddNode && at >= 0 && next.Nodes[at].Learner:
		next.Nodes[at].Learner = false
	case kind == pb.ConfChangeRemoveNode && at >= 0:
		next.Removed = append(next.Removed, next.Nodes[at].ID)
		next.Nodes = slices.Delete(next.Nodes, at, at+1)
	default:
		c.NodeId = new(uint64) // Raft does nothing either
		return m, c, nil
	}
	return next, c, nil
}

// checkAddition returns an error if a node cannot be added.
func (m *members) checkAddition(id, address string) error {
	if slices.Contains(m.Removed, id) {
		return fmt.Errorf("a node %q was removed from this cluster, and has acknowledged what another one has not: take a new id", id)
	}
	if len(m.Nodes) >= maxNodes {
		return fmt.Errorf("the cluster has %d nodes already, and more are no safer", maxNodes)
	}
	for _, n := range m.Nodes {
		if n.ID == id || n.Address == address {
			return fmt.Errorf("node %q has this id or this address: %s", n.ID, n.Address)
		}
	}
	return nil
}

// checkWasRemoved returns an error for an id that no node has, unless its node was removed.
func (m *members) checkWasRemoved(id string) error {
	if slices.Contains(m.Removed, id) {
		return nil
	}
	return fmt.Errorf("the cluster has no node %q: %s", id, m.ids())
}

// checkRemoval returns an error if a node cannot be removed. active has the numbers of the nodes that the leader hears
// of, its own included: a majority of the remaining nodes must be among them.
func (m *members) checkRemoval(n member, active []uint64) error {
	voters, alive := 0, 0
	for _, o := range m.Nodes {
		if o.Number == n.Number || o.Learner {
			continue
		}
		if voters++; slices.Contains(active, o.Number) {
			alive++
		}
	}
	switch {
	case voters == 0:
		return errors.New("it is the only node that has a vote")
	case alive <= voters/2:
		return fmt.Errorf("only %d of the other %d nodes can be reached, and they could no longer decide anything", alive, voters)
	}
	return nil
}
