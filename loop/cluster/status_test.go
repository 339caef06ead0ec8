package cluster

import (
	"testing"
	"time"
)

// TestStatus: the status tells of a node that was added and does not run that it does not count yet and cannot be
// reached, and of the others when they have heard of the leader and that their clocks are the same.
func TestStatus(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, nil)
	c := &testCluster{t: t, nodes: nodes}
	first, lead := c.leader()
	defer lead.ReleaseStore()
	n := nodes[first]
	if err := n.Change(soon(t), Change{Verb: AddNode, ID: "d", Address: freeAddress(t)}); err != nil {
		t.Fatal(err)
	}
	s := n.Status(soon(t))
	if len(s.Nodes) != 4 || s.Leader() == nil {
		t.Fatalf("%+v", s)
	}
	for _, one := range s.Nodes {
		switch away := time.Duration(one.Ahead) * time.Microsecond; {
		case one.ID == "d":
			if !one.Learner || one.Error == "" || one.Role != "" {
				t.Errorf("the node that does not run: %+v", one)
			}
		case one.Learner || one.Error != "" || one.Contact > patience.Milliseconds() || away.Abs() > patience || one.ID != n.o.ID && away == 0:
			t.Errorf("%+v", one)
		}
	}
	for end := time.Now().Add(patience); n.Unreachable()["d"] == ""; time.Sleep(tick) {
		if time.Now().After(end) {
			t.Fatalf("the node that does not run is reached: %v", n.Unreachable())
		}
	}
}
