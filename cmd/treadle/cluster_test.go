package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	clusterKills = flag.Int("cluster.n", 4, "kills of TestClusterKills")
	clusterSeed  = flag.Uint64("cluster.seed", 1, "seed of TestClusterKills and TestClusterHistories")
)

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
// an acknowledged removal does not come back. Without the wait of Leadership.Sync the test fails: a leader that is
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

// TestClusterReplace: a node takes the place of one that was killed, under load, and nothing that was acknowledged is
// lost when the leader is killed next. The removed node ends when it comes back.
func TestClusterReplace(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	for i := range n.running {
		n.start(i)
	}
	l := &ledger{jobs: make(map[string]*fate)}
	leader := n.leader()
	dead := (leader + 1) % 3
	n.load(l, 50*time.Millisecond, dead)
	command := func(want string, args ...string) {
		t.Helper()
		out, errs, code := treadle(t, "", append(append([]string{"cluster"}, args...), "--data", n.data(n.leader()))...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, %s%s", args, code, out, errs)
		}
	}
	command("unreachable", "add", n.more())
	n.start(3)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		out, _, _ := treadle(t, "", "cluster", "status", "--data", n.data(3))
		if strings.Count(out, "  follower  ") == 2 && strings.Count(out, "  unreachable  ") == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the new node does not count:\n%s", out)
		}
	}
	command("d     ", "remove", string(rune('a'+dead)))
	leader = n.leader()
	n.load(l, 50*time.Millisecond, leader)
	n.leader()
	kept := 0
	for i, p := range n.running {
		if p != nil {
			kept += audit(t, n.socket(i), l, 0)
		}
	}
	if kept == 0 {
		t.Error("no job had to survive")
	}
	n.start(leader)
	command("  leader  ", "transfer", "d")
	if now := n.leader(); now != 3 {
		t.Errorf("node %d leads", now)
	}
	gone := start(t, false, n.args(dead)...)
	gone.until("was removed from the cluster")
	gone.exit(1)
	out, errs, code := treadle(t, "", "cluster", "add", n.peers[dead], "--data", n.data(3))
	if code != 1 || !strings.Contains(errs, "take a new id") {
		t.Errorf("%d, %s%s", code, out, errs)
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
	f(`--cluster-listen: "here" is not HOST:PORT`, 2, "--data", data, "--cluster", "x", "--node", "a", "--peers", three, "--cluster-listen", "here")
	f("--cluster-listen: 192.0.2.1:1 is beyond this machine", 2, "--data", data, "--cluster", "x", "--node", "a", "--peers", three, "--cluster-listen", "192.0.2.1:1")
	f("is beyond this machine", 2, "--data", data, "--cluster", "x", "--node", "a", "--peers", "a=192.0.2.1:1,b=192.0.2.2:1,c=192.0.2.3:1")
	f("keeps its jobs in --data", 2, "--data", "none", "--cluster", "x", "--node", "a", "--peers", three)
	f("--sync: a cluster acknowledges", 2, "--data", data, "--sync", "never", "--cluster", "x", "--node", "a", "--peers", three)
	f("name the cluster", 2, "--data", data, "--peers", three)
	f("cannot read the secret", 1, "--data", data, "--cluster", "x", "--node", "a", "--peers", three, "--cluster-secret", filepath.Join(dir, "none"))

	n := newNodes(t)
	n.dir = filepath.Join(dir, "n")
	n.start(0)
	n.kill(0)
	f(`is of node "a" in the cluster "test"`, 1, "--data", n.data(0), "--cluster", "other", "--node", "a", "--peers", strings.Join(n.peers, ","))
	f("only treadle serve --cluster can use it", 1, "--data", n.data(0))
	single := filepath.Join(dir, "single")
	s := start(t, false, "serve", "--periodic", "unix://"+filepath.Join(dir, "s"), "--only", "periodic", "--http", "off", "--data", single)
	s.until("listening")
	s.drain()
	s.stop()
	f("is of a single server", 1, "--data", single, "--cluster", "x", "--node", "a", "--peers", three)
}
