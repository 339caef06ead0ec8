package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// namespaces are networks of the kernel: one for each node of a cluster, which has an address there, and one with a
// bridge between them.
type namespaces struct {
	t      *testing.T
	prefix string // of their names
}

// newNamespaces makes the networks of nodes that do not run yet. The test is skipped where it may make none.
func newNamespaces(n *testNodes) *namespaces {
	n.t.Helper()
	s := &namespaces{t: n.t, prefix: fmt.Sprintf("treadle%d-", os.Getpid())}
	try := exec.Command("sh", "-ec", "ip netns add $0; ip netns exec $0 tc qdisc replace dev lo root tbf rate 8kbit burst 20b limit 20b; ip netns delete $0", s.name("try"))
	if out, err := try.CombinedOutput(); err != nil {
		n.t.Skipf("cannot make networks, as root can with ip and tc of iproute2: %v: %s", err, out)
	}
	s.add("bridge")
	s.run("ip", "-n", s.name("bridge"), "link", "add", "bridge", "type", "bridge")
	s.run("ip", "-n", s.name("bridge"), "link", "set", "bridge", "up")
	n.wires, n.within = nil, func(i int) []string { return []string{"ip", "netns", "exec", s.name(nodeID(i))} }
	for i := range n.peers {
		id := nodeID(i)
		s.add(id)
		s.run("ip", "-n", s.name(id), "link", "add", "out", "type", "veth", "peer", "name", "to-"+id, "netns", s.name("bridge"))
		s.run("ip", "-n", s.name(id), "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "out")
		s.run("ip", "-n", s.name(id), "link", "set", "out", "up")
		s.run("ip", "-n", s.name("bridge"), "link", "set", "to-"+id, "master", "bridge", "up")
		n.own[i] = fmt.Sprintf("10.77.0.%d:5200", i+1)
		n.peers[i] = id + "=" + n.own[i]
	}
	return s
}

func (s *namespaces) name(id string) string { return s.prefix + id }

// add makes a network, which ends with the test.
func (s *namespaces) add(id string) {
	s.t.Helper()
	s.run("ip", "netns", "add", s.name(id))
	s.t.Cleanup(func() { s.run("ip", "netns", "delete", s.name(id)) })
}

// run runs a command.
func (s *namespaces) run(command ...string) {
	s.t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		s.t.Errorf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// lossy is the rate of a link that drops all packets, without a word to either end: none is as short as burst.
var lossy = []string{"rate", "8kbit", "burst", "20b", "limit", "20b"}

// shape has the packets out of a node, those to it or both pass a link of a rate, which end ends.
func (s *namespaces) shape(node int, out, in bool, rate []string) (end func()) {
	var ends [][]string
	if out {
		ends = append(ends, []string{"tc", "-n", s.name(nodeID(node)), "qdisc", "VERB", "dev", "out", "root"})
	}
	if in {
		ends = append(ends, []string{"tc", "-n", s.name("bridge"), "qdisc", "VERB", "dev", "to-" + nodeID(node), "root"})
	}
	set := func(verb string, more ...string) {
		for _, end := range ends {
			end[4] = verb
			s.run(append(append([]string(nil), end...), more...)...)
		}
	}
	set("replace", append([]string{"tbf"}, rate...)...)
	return func() { set("delete") }
}

// faults are the faults of the networks.
func (s *namespaces) faults() []clusterFault {
	shaped := func(out, in bool, rate ...string) func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		return func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
			return n.up(leader), s.shape(leader, out, in, rate)
		}
	}
	return []clusterFault{
		{"the leader's packets are lost both ways", false, shaped(true, true, lossy...)},
		{"the packets of the leader are lost", false, shaped(true, false, lossy...)},
		{"the packets to the leader are lost", false, shaped(false, true, lossy...)},
		{"the leader's cable is drawn", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
			link := []string{"ip", "-n", s.name("bridge"), "link", "set", "to-" + nodeID(leader)}
			s.run(append(link, "down")...)
			return n.up(leader), func() { s.run(append(link, "up")...) }
		}},
		{"the leader's link is slow", true, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
			return n.up(), s.shape(leader, true, true, []string{"rate", "2mbit", "burst", "16kb", "latency", "200ms"})
		}},
		{"a follower's packets are lost", true, func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
			followers := n.up(leader)
			lost := followers[random.IntN(len(followers))]
			return n.up(lost), s.shape(lost, true, true, lossy)
		}},
	}
}

// TestClusterNamespaces is TestClusterHistories with nodes that have a network each, over faults of the networks.
// Unlike a wire of TestClusterHistories, which both ends see close, a link that loses packets tells neither end.
func TestClusterNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections and lost packets")
	}
	n := newNodes(t)
	s := newNamespaces(n)
	secret := filepath.Join(n.dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("a secret of a test ", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	faults := s.faults()
	newClusterSite(n, "--cluster-secret", secret).playRounds(t, faults, len(faults), *clusterFor)
}
