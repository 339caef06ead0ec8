package loop

import (
	"context"
	"fmt"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/cluster"
)

// farBehind is how many entries a node may lack before it needs attention. The nodes answer at different moments, so
// that followers of a busy leader always seem to lack some.
const farBehind = 10_000

// clusterState returns the state of the cluster as the API has it: the node asks all others. With node nil the server
// is alone, or has not joined yet.
func (s *Server) clusterState(ctx context.Context, node *cluster.Node) *codec.Cluster {
	if node == nil {
		return describeCluster(&cluster.Status{}, 0)
	}
	status := node.Status(ctx)
	return describeCluster(&status, s.o.Cluster.Clock)
}

// describeCluster describes a status in the messages of the API. A clock that is further than clockLimit from that of
// the node that has asked needs attention.
func describeCluster(status *cluster.Status, clockLimit time.Duration) *codec.Cluster {
	c := &codec.Cluster{Cluster: status.Cluster, Node: status.Node, Nodes: []codec.ClusterNode{}, Attention: []codec.Attention{}}
	leader := status.Leader()
	if leader != nil {
		c.Leader, c.Term = leader.ID, leader.Term
	}
	voters, answering := 0, 0
	for _, n := range status.Nodes {
		one := codec.ClusterNode{
			Node: n.ID, Address: n.Address, Role: n.Role, Leader: n.Leader, Term: n.Term, Last: n.Last, Stored: n.Applied,
			Contact: n.Contact, Ahead: n.Ahead / 1000, Write: n.Write, Error: n.Error,
		}
		if leader != nil && n.Role != "" {
			behind := max(n.Last, leader.Last) - n.Last
			one.Behind = &behind
		}
		if !n.Learner {
			if voters++; n.Error == "" {
				answering++
			}
		}
		c.Nodes = append(c.Nodes, one)
	}
	c.Spare = max(0, answering-(voters/2+1))
	judgeCluster(c, voters-answering, clockLimit)
	return c
}

// judgeCluster collects what needs attention. lost is how many nodes that count for a majority do not answer.
func judgeCluster(c *codec.Cluster, lost int, clockLimit time.Duration) {
	add := func(kind, format string, args ...any) {
		c.Attention = append(c.Attention, codec.Attention{Kind: kind, Text: fmt.Sprintf(format, args...)})
	}
	if c.Leader == "" && len(c.Nodes) > 0 {
		add("no-leader", "no node leads: a majority of the %d nodes must run and reach each other", len(c.Nodes))
	}
	for _, n := range c.Nodes {
		switch ahead := time.Duration(n.Ahead) * time.Millisecond; {
		case n.Error != "":
			add("node", "node %s does not answer: %s", n.Node, n.Error)
		case ahead.Abs() > clockLimit:
			add("clock", "the clock of node %s is %v from that of node %s: a node with a wrong clock does not lead", n.Node, ahead.Abs().Round(time.Second), c.Node)
		case n.Behind != nil && *n.Behind > farBehind:
			add("behind", "node %s lacks %d entries that the leader has", n.Node, *n.Behind)
		}
	}
	if c.Leader != "" && c.Spare == 0 && lost > 0 {
		add("majority", "no further node may be lost: the others would be no majority")
	}
}
