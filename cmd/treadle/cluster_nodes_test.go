package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
	"treadle/loop/cluster"
)

// testNodes are the nodes of a cluster of built servers. Node i has the directory i below dir.
type testNodes struct {
	t       *testing.T
	dir     string
	wires   *wires
	peers   []string             // those of the first nodes, and of each that was added
	own     []string             // where each node listens for the others
	asks    []string             // the --peers of each that was added
	first   int                  // the number of the first nodes
	serves  func(i int) []string // settings of a node beside those of the cluster
	within  func(i int) []string // the command that runs that of a node; nil: none
	running []*process           // nil: killed
}

// clusters bounds how many clusters there are at a time: more of them on two processors change leaders without a fault.
var clusters = make(chan struct{}, 2)

// newNodes returns a cluster of three whose nodes do not run yet, and serve Periodic alone.
func newNodes(t *testing.T) *testNodes {
	t.Helper()
	clusters <- struct{}{}
	t.Cleanup(func() { <-clusters }) // after the nodes have ended: the last cleanup is the first that is registered
	n := &testNodes{t: t, dir: t.TempDir(), first: 3, wires: newWires(t)}
	n.serves = func(i int) []string {
		return []string{"--periodic", "unix://" + n.socket(i), "--only", "periodic", "--http", "off"}
	}
	for range n.first {
		n.more()
	}
	return n
}

// more makes a node that does not run yet, and returns what names it in --peers. The others reach it through a wire.
func (n *testNodes) more() string {
	n.t.Helper()
	i, own := len(n.peers), freePort(n.t)
	peer := nodeID(i) + "=" + n.wires.to(nodeID(i), own)
	asks := peer
	for _, k := range n.up() {
		asks += "," + n.peers[k]
	}
	n.peers, n.own, n.asks, n.running = append(n.peers, peer), append(n.own, own), append(n.asks, asks), append(n.running, nil)
	return peer
}

// nodeID returns the id of node i: a to z, and then more letters.
func nodeID(i int) string {
	id := string(rune('a' + i%26))
	if i >= 26 {
		id = nodeID(i/26-1) + id
	}
	return id
}

// numberOf returns the number of the node with an id.
func (n *testNodes) numberOf(id string) int {
	for i := range n.peers {
		if nodeID(i) == id {
			return i
		}
	}
	n.t.Fatalf("no node is called %q", id)
	return 0
}

func (n *testNodes) data(i int) string   { return filepath.Join(n.dir, fmt.Sprint(i)) }
func (n *testNodes) socket(i int) string { return n.port(i, "p") }

// port returns the path of a socket of a node.
func (n *testNodes) port(i int, name string) string { return filepath.Join(n.dir, fmt.Sprint(name, i)) }

// args returns the command line of a node.
func (n *testNodes) args(i int) []string {
	args := append([]string{"serve", "--cluster", "test", "--node", nodeID(i), "--data", n.data(i), "--cluster-listen", n.own[i]}, n.serves(i)...)
	if i < n.first {
		return append(args, "--peers", strings.Join(n.peers[:n.first], ","))
	}
	return append(args, "--peers", n.asks[i], "--cluster-join")
}

// start starts a node that does not run, and waits until it takes part.
func (n *testNodes) start(i int) {
	n.t.Helper()
	select {
	case <-n.begin(i):
	case <-n.running[i].drained:
		n.t.Fatalf("node %s has ended", nodeID(i))
	}
}

// begin starts a node. The channel is closed when it takes part. A test that fails shows the last lines of each node.
func (n *testNodes) begin(i int) <-chan struct{} {
	n.t.Helper()
	const most = 12
	command := append([]string{binary}, n.args(i)...)
	if n.within != nil {
		command = append(n.within(i), command...)
	}
	p := startCommand(n.t, false, command[0], command[1:]...)
	p.timer.Stop() // whole tests may take longer, and bound themselves
	p.drained = make(chan struct{})
	n.running[i] = p
	var lines []string
	begun := make(chan struct{})
	begins := sync.OnceFunc(func() { close(begun) })
	go func() {
		defer close(p.drained)
		for p.lines.Scan() {
			if strings.Contains(p.lines.Text(), "this server is a node of a cluster") {
				begins()
			}
			if lines = append(lines, p.lines.Text()); len(lines) > most {
				lines = lines[1:]
			}
		}
	}()
	n.t.Cleanup(func() {
		if n.t.Failed() {
			_ = p.Process.Kill()
			<-p.drained
			n.t.Logf("node %s:\n%s", nodeID(i), strings.Join(lines, "\n"))
		}
	})
	return begun
}

// kill kills a node.
func (n *testNodes) kill(i int) {
	_ = n.running[i].Process.Signal(syscall.SIGKILL)
	_ = n.running[i].Wait()
	n.running[i] = nil
}

// up returns the nodes that run, without some.
func (n *testNodes) up(without ...int) (all []int) {
	for i, p := range n.running {
		if p != nil && !slices.Contains(without, i) {
			all = append(all, i)
		}
	}
	return all
}

// leader waits until a node leads that runs and answers, and returns it.
func (n *testNodes) leader() int {
	n.t.Helper()
	at, _ := n.leads()
	return at
}

// leads is leader that also returns the term.
func (n *testNodes) leads() (at int, term uint64) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		for _, i := range n.up() {
			status, err := askCluster(n.data(i), cluster.Change{Verb: cluster.AskStatus})
			if err != nil {
				continue
			}
			leader := status.Leader()
			if leader == nil {
				continue
			}
			if at = n.numberOf(leader.ID); n.running[at] == nil {
				continue
			}
			if c, err := client.Dial(ctx, n.socket(i), client.Options{}); err == nil {
				err = c.Ping(ctx)
				c.Close()
				if err == nil {
					return at, leader.Term
				}
			}
		}
	}
	n.t.Fatal("no node leads")
	return 0, 0
}

// probeTime is how long one try of await may take.
const probeTime = 250 * time.Millisecond

// await waits until a submission to some of the nodes is acknowledged, each in turn.
func (n *testNodes) await(nodes ...int) {
	n.t.Helper()
	try := func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		c, err := client.Dial(ctx, n.socket(i), client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Submit(ctx, &client.Job{Func: "probe", Name: "p"})
	}
	for end, i := time.Now().Add(patience), 0; ; i++ {
		err := try(nodes[i%len(nodes)])
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("no node serves: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settle waits until all nodes that run pass clients on, and returns which one leads, in which term.
func (n *testNodes) settle() (leader int, term uint64) {
	n.t.Helper()
	for _, i := range n.up() {
		n.await(i)
	}
	return n.leads()
}

// change asks a node for a change of the cluster.
func (n *testNodes) change(at int, c cluster.Change) {
	n.t.Helper()
	if _, err := askCluster(n.data(at), c); err != nil {
		n.t.Errorf("%+v at node %s: %v", c, nodeID(at), err)
	}
}

// handOver asks a node to have another one lead, until one that can has followed for long enough.
func (n *testNodes) handOver(at int) {
	n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, err := askCluster(n.data(at), cluster.Change{Verb: cluster.Transfer})
		if err == nil {
			return
		}
		if time.Now().After(end) || !strings.Contains(err.Error(), "nobody can lead") {
			n.t.Errorf("a transfer at node %s: %v", nodeID(at), err)
			return
		}
	}
}

// replace puts a new node in the place of one that does not run.
func (n *testNodes) replace(dead int) {
	n.t.Helper()
	at := n.leader()
	peer := n.more()
	id, address, _ := strings.Cut(peer, "=")
	n.change(at, cluster.Change{Verb: cluster.AddNode, ID: id, Address: address})
	n.start(len(n.peers) - 1)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, err := askCluster(n.data(len(n.peers)-1), cluster.Change{Verb: cluster.AskStatus})
		if err == nil && slices.ContainsFunc(status.Nodes, func(s cluster.NodeStatus) bool { return s.ID == id && s.Role == "follower" }) {
			break
		}
		if time.Now().After(end) {
			n.t.Fatalf("node %s does not count: %+v, %v", id, status, err)
		}
	}
	n.change(n.leader(), cluster.Change{Verb: cluster.RemoveNode, ID: nodeID(dead)})
}
