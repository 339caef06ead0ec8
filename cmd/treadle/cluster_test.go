package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
)

var (
	clusterKills = flag.Int("cluster.n", 4, "kills of TestClusterKills")
	clusterSeed  = flag.Uint64("cluster.seed", 1, "seed of TestClusterKills")
)

// testNodes are the nodes of a cluster of built servers. Node i has the data directory i below dir.
type testNodes struct {
	t       *testing.T
	dir     string
	peers   string
	running []*process // nil: killed
}

// newNodes returns a cluster of three whose nodes do not run yet.
func newNodes(t *testing.T) *testNodes {
	t.Helper()
	n := &testNodes{t: t, dir: t.TempDir(), running: make([]*process, 3)}
	var peers []string
	for i := range n.running {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		peers = append(peers, fmt.Sprintf("%c=%s", 'a'+i, l.Addr()))
	}
	n.peers = strings.Join(peers, ",")
	return n
}

func (n *testNodes) data(i int) string   { return filepath.Join(n.dir, fmt.Sprint(i)) }
func (n *testNodes) socket(i int) string { return filepath.Join(n.dir, fmt.Sprint("s", i)) }

// args returns the command line of a node.
func (n *testNodes) args(i int) []string {
	return []string{"serve", "--cluster", "test", "--node", string(rune('a' + i)), "--peers", n.peers, "--data", n.data(i),
		"--periodic", "unix://" + n.socket(i), "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--http", "off"}
}

// start starts a node that does not run.
func (n *testNodes) start(i int) {
	n.t.Helper()
	n.running[i] = start(n.t, false, n.args(i)...)
	n.running[i].until("this server is a node of a cluster")
	n.running[i].drain()
}

// kill kills a node.
func (n *testNodes) kill(i int) {
	_ = n.running[i].Process.Signal(syscall.SIGKILL)
	_ = n.running[i].Wait()
	n.running[i] = nil
}

// leader waits until a node leads that runs and answers, and returns it.
func (n *testNodes) leader() int {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		for i, p := range n.running {
			if p == nil {
				continue
			}
			status, err := askCluster(n.data(i))
			if err != nil {
				continue
			}
			leader, ok := leaderOf(status)
			if !ok || n.running[leader.ID[0]-'a'] == nil {
				continue
			}
			if c, err := client.Dial(ctx, n.socket(i), client.Options{}); err == nil {
				err = c.Ping(ctx)
				c.Close()
				if err == nil {
					return int(leader.ID[0] - 'a')
				}
			}
		}
	}
	n.t.Fatal("no node leads")
	return 0
}

// load runs clients and workers at all nodes until the victims are killed one after the other, a while after the first
// acknowledgement. A client whose connection ends goes to the next node.
func (n *testNodes) load(l *ledger, after time.Duration, victims ...int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	acknowledged := sync.OnceFunc(func() {
		time.AfterFunc(after, func() {
			for _, victim := range victims {
				n.kill(victim)
				time.Sleep(lonely)
			}
			time.AfterFunc(after, cancel) // some go on with the next leader
		})
	})
	var peers sync.WaitGroup
	each := func(k int, do func(ctx context.Context, socket string)) {
		peers.Go(func() {
			for i := k; ctx.Err() == nil; i++ {
				do(ctx, n.socket(i%len(n.running)))
				time.Sleep(time.Millisecond)
			}
		})
	}
	for k := range 6 {
		each(k, func(ctx context.Context, socket string) { submitUntilKilled(ctx, socket, l, k, acknowledged) })
	}
	each(0, func(ctx context.Context, socket string) { workUntilKilled(ctx, socket, l) })
	each(1, func(ctx context.Context, socket string) { workUntilKilled(ctx, socket, l) })
	each(2, func(ctx context.Context, socket string) { dropUntilKilled(ctx, socket, l) })
	each(0, func(ctx context.Context, socket string) { fillUntilKilled(ctx, socket, l) }) // entries of several parts, full logs
	peers.Wait()
}

// lonely is the time between two kills: a leader whose followers are gone leads on for about as long.
const lonely = 200 * time.Millisecond

// TestClusterKills checks that acknowledged means on a majority's disks. Clients use all three nodes over Periodic, and
// nodes are killed with SIGKILL: the one that leads, a follower, or both followers and then the leader. Every job with
// an acknowledged submission is there at the others, unless its removal, drop or completion was under way. A job with
// an acknowledged removal does not come back. Without the wait of cluster.Lead.Sync the test fails: a leader that is
// left alone acknowledges what its followers never see.
func TestClusterKills(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(*clusterSeed, 0))
	n := newNodes(t)
	for i := range n.running {
		n.start(i)
	}
	l := &ledger{jobs: make(map[string]*fate)}
	kept := 0
	for round := range *clusterKills {
		first := n.leader()
		second, third := (first+1)%len(n.running), (first+2)%len(n.running)
		victims := [][]int{{first}, {second, third, first}, {second}, {first}}[round%4]
		n.load(l, time.Duration(20+random.IntN(300))*time.Millisecond, victims...)
		for _, i := range victims {
			if i != first && len(victims) > 1 { // the old leader has what only it knows
				n.start(i)
			}
		}
		leader := n.leader()
		for i, p := range n.running {
			if p != nil {
				kept += audit(t, n.socket(i), l, round)
			}
		}
		t.Logf("round %d: %v killed, %d leads instead of %d", round, victims, leader, first)
		n.start(victims[len(victims)-1])
	}
	if kept == 0 {
		t.Error("no job ever had to survive: the load does not test anything")
	}
}

// TestClusterStatus: the status names leader and followers at each node, its exit code says whether a node leads, and a
// leader that is told to stop hands over.
func TestClusterStatus(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	for i := range n.running {
		n.start(i)
	}
	first := n.leader()
	for i := range n.running {
		out, errs, code := treadle(t, "", "cluster", "status", "--data", n.data(i))
		if code != 0 || errs != "" || strings.Count(out, "\n") != 4 || strings.Count(out, "  leader  ") != 1 || strings.Count(out, "  follower  ") != 2 {
			t.Errorf("node %d: %d, %q, %s", i, code, errs, out)
		}
		out, _, code = treadle(t, "", "cluster", "status", "--data", n.data(i), "--json")
		if code != 0 || strings.Count(out, `"role":"follower"`) != 2 || strings.Count(out, "\n") != 3 {
			t.Errorf("node %d: %d, %s", i, code, out)
		}
	}
	n.running[first].signal(syscall.SIGTERM)
	n.running[first].exit(0)
	n.running[first] = nil
	second := n.leader()
	n.kill(second)
	last := 3 - first - second
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, errs, code := treadle(t, "", "cluster", "status", "--data", n.data(last))
		if code == 1 && strings.Contains(errs, "a majority of its 3 nodes must run") && strings.Count(out, "  unreachable  ") == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d, %q, %s", code, errs, out)
		}
	}
	_, errs, code := treadle(t, "", "cluster", "status", "--data", t.TempDir())
	if code != 3 || !strings.Contains(errs, "no node of a cluster runs with the data directory") {
		t.Errorf("%d, %q", code, errs)
	}
}

// TestClusterRefusals: a node that cannot work says why in one line and does not start.
func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := func(says string, code int, args ...string) {
		t.Helper()
		args = append([]string{"serve", "--periodic", "unix://" + filepath.Join(dir, "s"), "--gloom-masters", "off", "--gloom-slaves", "off", "--dwork", "off",
			"--kts46", "off", "--kts46-json", "off", "--http", "off"}, args...)
		_, errs, got := treadle(t, "", args...)
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		if got != code || !strings.HasPrefix(lines[len(lines)-1], "treadle: ") || !strings.Contains(lines[len(lines)-1], says) {
			t.Errorf("%q: exit code %d, want %d and %q: %s", args[15:], got, code, says, errs)
		}
	}
	data := filepath.Join(dir, "data")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := l.Addr().String()
	l.Close()
	three := "a=" + own + ",b=127.0.0.1:1,c=127.0.0.1:2"
	f("--peers: name all nodes of the cluster", 2, "--data", data, "--cluster", "x", "--node", "a")
	f(`--peers: no peer has the id "d" of this node: a, b, c`, 2, "--data", data, "--cluster", "x", "--node", "d", "--peers", three)
	f("--peers: \"a\" is not ID=HOST:PORT", 2, "--data", data, "--cluster", "x", "--node", "a", "--peers", "a")
	f("is beyond this machine", 2, "--data", data, "--cluster", "x", "--node", "a", "--peers", "a=192.0.2.1:1,b=192.0.2.2:1,c=192.0.2.3:1")
	f("keeps its jobs in --data", 2, "--data", "none", "--cluster", "x", "--node", "a", "--peers", three)
	f("--sync: a cluster acknowledges", 2, "--data", data, "--sync", "never", "--cluster", "x", "--node", "a", "--peers", three)
	f("name the cluster", 2, "--data", data, "--peers", three)
	f("cannot read the secret", 1, "--data", data, "--cluster", "x", "--node", "a", "--peers", three, "--cluster-secret", filepath.Join(dir, "none"))

	n := newNodes(t)
	n.dir = filepath.Join(dir, "n")
	n.start(0)
	n.kill(0)
	f(`is of node "a" in the cluster "test"`, 1, "--data", n.data(0), "--cluster", "other", "--node", "a", "--peers", n.peers)
	f("only treadle serve --cluster can use it", 1, "--data", n.data(0))
	single := filepath.Join(dir, "single")
	s := start(t, false, "serve", "--periodic", "unix://"+filepath.Join(dir, "s"), "--only", "periodic", "--http", "off", "--data", single)
	s.until("listening")
	s.drain()
	s.stop()
	f("is of a single server", 1, "--data", single, "--cluster", "x", "--node", "a", "--peers", three)
}
