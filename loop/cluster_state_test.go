package loop

import (
	"net/http"
	"slices"
	"testing"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/cluster"
)

// TestDescribeCluster: the API has the leader of the highest term, how far each node is behind it, how many more nodes
// may be lost, and what needs attention.
func TestDescribeCluster(t *testing.T) {
	t.Parallel()
	node := func(id, role string, last uint64) cluster.NodeStatus {
		return cluster.NodeStatus{ID: id, Role: role, Term: 7, Last: last}
	}
	lost := func(id string) cluster.NodeStatus { return cluster.NodeStatus{ID: id, Error: "refused"} }
	f := func(leader string, spare int, kinds []string, nodes ...cluster.NodeStatus) {
		t.Helper()
		c := describeCluster(&cluster.Status{Cluster: "jobs", Node: "a", Nodes: nodes}, time.Minute)
		var got []string
		for _, a := range c.Attention {
			got = append(got, a.Kind)
		}
		if c.Leader != leader || c.Spare != spare || !slices.Equal(got, kinds) || len(c.Nodes) != len(nodes) {
			t.Errorf("leader %q, spare %d, attention %q of %+v", c.Leader, c.Spare, got, nodes)
		}
	}
	a, b, c := node("a", "leader", 9), node("b", "follower", 9), node("c", "follower", 9)
	f("a", 1, nil, a, b, c)
	f("a", 0, []string{"node", "majority"}, a, b, lost("c"))
	f("", 0, []string{"no-leader", "node", "node"}, node("a", "candidate", 9), lost("b"), lost("c"))
	f("a", 0, nil, a)
	f("a", 0, nil, a, b)
	old, learner := a, lost("d")
	old.Term, learner.Learner = 6, true
	f("c", 1, nil, old, b, node("c", "leader", 9))
	f("a", 1, []string{"node"}, a, b, c, learner)
	fast := b
	fast.Ahead = -(2 * time.Minute).Microseconds()
	f("a", 1, []string{"clock"}, a, fast, c)
	f("a", 1, []string{"behind"}, node("a", "leader", farBehind+10), node("b", "follower", 9), node("c", "follower", 10))

	d := describeCluster(&cluster.Status{Nodes: []cluster.NodeStatus{a, node("b", "follower", 4), lost("c")}}, time.Minute)
	if d.Nodes[0].Behind == nil || *d.Nodes[0].Behind != 0 || *d.Nodes[1].Behind != 5 || d.Nodes[2].Behind != nil {
		t.Errorf("%+v", d.Nodes)
	}
}

// TestAPIClusterAlone: a server that is alone has no nodes.
func TestAPIClusterAlone(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	var c codec.Cluster
	if code := (api{t, r}).do(http.MethodGet, "/cluster", "", nil, &c); code != http.StatusOK || c.Cluster != "" || c.Nodes == nil || len(c.Nodes) != 0 || len(c.Attention) != 0 {
		t.Errorf("%d, %+v", code, c)
	}
}
