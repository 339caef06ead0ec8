package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"treadle/loop/journal"
)

// TestMain checks that no goroutine is left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience bounds a test that hangs.
const patience = 30 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// testCluster is three nodes in memory. Their messages go through it.
type testCluster struct {
	t     *testing.T
	nodes [3]*Node
	mu    sync.Mutex
	cut   [3]bool // the node is alone
}

// memLinks are the links of one node.
type memLinks struct {
	c    *testCluster
	from int
}

func (l memLinks) send(m *pb.Message) {
	l.c.mu.Lock()
	to := int(m.GetTo()) - 1
	n, cut := l.c.nodes[to], l.c.cut[to] || l.c.cut[l.from]
	l.c.mu.Unlock()
	if n == nil || cut {
		return
	}
	select {
	case n.received <- m:
	default:
	}
}

func (l memLinks) sendSnapshot(*pb.Message, *journal.Snapshot) error { return errors.New("not here") }
func (l memLinks) update(*members)                                   {}
func (l memLinks) close()                                            {}

func testOptions(id string) Options {
	return Options{Cluster: "test", ID: id, Peers: []Peer{{"a", "127.0.0.1:1"}, {"b", "127.0.0.1:2"}, {"c", "127.0.0.1:3"}}, Log: testLog()}
}

func testLog() *slog.Logger {
	if os.Getenv("CLUSTER_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func newTestCluster(t *testing.T) *testCluster {
	c := &testCluster{t: t}
	for i, id := range []string{"a", "b", "c"} {
		o := testOptions(id)
		s, _, err := openStorage(testJournal(vfs.NewMem()), firstMembers(o.Peers))
		if err != nil {
			t.Fatal(err)
		}
		if c.nodes[i], err = newNode(o, s, uint64(i+1), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range c.nodes {
		n.start(memLinks{c, i})
		t.Cleanup(func() { _ = n.Close() })
	}
	return c
}

// leader waits until one of the nodes that are not alone leads.
func (c *testCluster) leader() (int, *Leadership) {
	c.t.Helper()
	type found struct {
		i    int
		lead *Leadership
	}
	ctx, cancel := context.WithCancel(soon(c.t))
	defer cancel()
	won := make(chan found, 3)
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	for i, n := range c.nodes {
		if !cut[i] {
			go func() {
				if lead, err := n.AwaitLeadership(ctx); err == nil {
					won <- found{i, lead}
				}
			}()
		}
	}
	select {
	case f := <-won:
		return f.i, f.lead
	case <-ctx.Done():
		c.t.Fatal("nobody leads")
		return 0, nil
	}
}

// openJournal opens the journal of a leader.
func openJournal(t *testing.T, n *Node, lead *Leadership) *journal.Journal {
	t.Helper()
	j, err := tryJournal(n, lead)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// tryJournal opens the journal of a leader. It fails when that no longer leads.
func tryJournal(n *Node, lead *Leadership) (*journal.Journal, error) {
	j, err := journal.Open(journal.Options{Dir: testDir, Replica: n.Replica(), Replicator: lead})
	if err == nil {
		err = j.Replay(journal.ReplayFuncs{})
	}
	return j, err
}

// put journals a job of each name and waits until they are committed.
func put(t *testing.T, j *journal.Journal, seq uint64, names ...string) {
	t.Helper()
	if err := tryPut(j, seq, names...); err != nil {
		t.Fatal(err)
	}
}

// tryPut is put. It fails when the leader no longer leads.
func tryPut(j *journal.Journal, seq uint64, names ...string) error {
	for _, name := range names {
		seq++
		j.Put(0, &journal.Record{Seq: seq, Space: 1, Queue: []byte("q"), Name: []byte(name)})
	}
	j.Flush(1)
	want := j.Group(0)
	for end := time.Now().Add(patience); j.Committed() < want; time.Sleep(time.Millisecond) {
		if why := j.Stats().LastError; why != "" || time.Now().After(end) {
			return fmt.Errorf("group %d is not committed: %v", want, why)
		}
	}
	return nil
}

// jobs returns the names of the jobs that a node has in its store once entry commit is in it.
func jobs(t *testing.T, n *Node, commit uint64) (names []string) {
	t.Helper()
	for end := time.Now().Add(patience); n.ownStatus().Commit < commit; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("entry %d is not committed on node %s", commit, n.o.ID)
		}
	}
	if err := n.applyCommitted(); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(journal.Options{Dir: testDir, Replica: n.Replica(), Replicator: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	err = j.Replay(journal.ReplayFuncs{Record: func(r *journal.Record) error { names = append(names, string(r.Name)); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	return names
}

// nowhere drops the group that every opening writes.
type nowhere struct{}

func (nowhere) Append([]byte) error { return nil }
func (nowhere) Sync() error         { return nil }
func (nowhere) Store() error        { return nil }

// TestTakeover: what a leader has acknowledged is in the store of the next one; what it could not bring to a majority
// is never acknowledged, and is gone.
func TestTakeover(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	first, lead := c.leader()
	j := openJournal(t, c.nodes[first], lead)
	put(t, j, 0, "kept", "kept too")

	c.mu.Lock()
	c.cut[first] = true
	c.mu.Unlock()
	acknowledged := j.Committed()
	j.Put(0, &journal.Record{Seq: 3, Space: 1, Queue: []byte("q"), Name: []byte("lost")})
	j.Flush(1)
	second, next := c.leader()
	<-lead.Lost() // it has heard of no majority
	if err := j.Close(); !errors.Is(err, ErrNotLeader) || j.Committed() != acknowledged {
		t.Errorf("the journal of a leader without followers: %v, committed up to %d, was %d", err, j.Committed(), acknowledged)
	}
	lead.ReleaseStore()

	k := openJournal(t, c.nodes[second], next)
	put(t, k, 3, "later")
	commit := c.nodes[second].ownStatus().Commit
	c.mu.Lock()
	c.cut[first] = false
	c.mu.Unlock()
	for i, n := range c.nodes {
		if got, want := jobs(t, n, commit), []string{"kept", "kept too", "later"}; !slices.Equal(got, want) {
			t.Errorf("node %d has %q, want %q", i, got, want)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	next.ReleaseStore()
}

// TestStale: the journal of a term that is over acknowledges nothing, even when its node leads again.
func TestStale(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	i, lead := c.leader()
	stale := &Leadership{n: c.nodes[i], term: lead.term - 1}
	stale.wake = sync.NewCond(&stale.mu)
	if err := stale.Append([]byte("x")); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	lead.ReleaseStore()
}

// freeAddress returns an address at which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startCluster starts three nodes with sockets. again starts one with its directory.
func startCluster(t *testing.T, change func(*Options)) (nodes [3]*Node, again func(i int) (*Node, error)) {
	t.Helper()
	var peers []Peer
	for _, id := range []string{"a", "b", "c"} {
		peers = append(peers, Peer{id, freeAddress(t)})
	}
	disks := [3]vfs.FS{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	again = func(i int) (*Node, error) {
		o := Options{Cluster: "test", ID: peers[i].ID, Peers: peers, Log: testLog(), Journal: testJournal(disks[i])}
		o.Journal.LogSize = 64 << 10
		if change != nil {
			change(&o)
		}
		n, err := Start(soon(t), o)
		if err == nil {
			t.Cleanup(func() { _ = n.Close() })
		}
		return n, err
	}
	for i := range nodes {
		n, err := again(i)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
	}
	return nodes, again
}

// TestSnapshot: a follower that was away for longer than the leader keeps its log takes the leader's store, and has
// all jobs after it; with a secret between the nodes.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, []byte(strings.Repeat("s3cret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, again := startCluster(t, func(o *Options) { o.Secret = secret })
	c := &testCluster{t: t, nodes: nodes}
	first, lead := c.leader()
	away := (first + 1) % 3
	if err := nodes[away].Close(); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, nodes[first], lead)
	var want []string
	for i := range 200 {
		name := fmt.Sprintf("%d %s", i, strings.Repeat("x", 2000))
		put(t, j, uint64(i), name)
		want = append(want, name)
	}
	for end := time.Now().Add(patience); nodes[first].Replica().Applied().Index < 50; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the leader keeps its whole log")
		}
	}
	n, err := again(away)
	if err != nil {
		t.Fatal(err)
	}
	if got := jobs(t, n, nodes[first].ownStatus().Commit); !slices.Equal(got, want) {
		t.Errorf("%d jobs, want %d", len(got), len(want))
	}
	if first, _ := n.storage.FirstIndex(); first < 50 {
		t.Errorf("its log begins with entry %d: it took no snapshot", first)
	}
	put(t, j, 200, "last")
	if got := jobs(t, n, nodes[first].ownStatus().Commit); len(got) != 201 {
		t.Errorf("%d jobs after one more", len(got))
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	lead.ReleaseStore()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err = again(away); err != nil {
		t.Fatal(err)
	}
	if got := jobs(t, n, n.ownStatus().Commit); len(got) < 200 {
		t.Errorf("%d jobs after a restart", len(got))
	}
}
