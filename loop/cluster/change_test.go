package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"treadle/loop/journal"
)

// TestMembers: a committed change has one result, and a change that does not fit has none.
func TestMembers(t *testing.T) {
	t.Parallel()
	m := threeMembers()
	f := func(want string, kind pb.ConfChangeType, n member) {
		t.Helper()
		b, err := proto.Marshal(confChange(kind, n))
		if err != nil {
			t.Fatal(err)
		}
		next, c, err := m.withEntry(&pb.Entry{Data: b})
		if err != nil {
			t.Fatal(err)
		}
		if fits := next != m; fits == (c.GetNodeId() == 0) {
			t.Errorf("%v of %+v: it fits: %v, and Raft is told of %d", kind, n, fits, c.GetNodeId())
		}
		m = next
		s := m.confState()
		if got := fmt.Sprintf("%s %v %v %v", m.ids(), s.GetVoters(), s.GetLearners(), m.Removed); got != want {
			t.Errorf("%v of %+v: %s, want %s", kind, n, got, want)
		}
		if again, err := parseMembers(m.stored()); err != nil || string(again.stored()) != string(m.stored()) {
			t.Errorf("%s, %v", again.stored(), err)
		}
	}
	d := member{Number: 4, ID: "d", Address: "127.0.0.1:4"}
	f("a b c [1 2 3] [] []", pb.ConfChangeAddNode, d) // it never learned
	f("a b c [1 2 3] [] []", pb.ConfChangeAddLearnerNode, member{Number: 3, ID: "d", Address: "127.0.0.1:4"})
	f("a b c d [1 2 3] [4] []", pb.ConfChangeAddLearnerNode, d)
	f("a b c d [1 2 3] [4] []", pb.ConfChangeAddLearnerNode, d)
	f("a b c d [1 2 3] [4] []", pb.ConfChangeAddLearnerNode, member{Number: 5, ID: "e", Address: "127.0.0.1:4"})
	f("a b c d [1 2 3 4] [] []", pb.ConfChangeAddNode, d)
	f("a c d [1 3 4] [] [b]", pb.ConfChangeRemoveNode, member{Number: 2, ID: "b"})
	f("a c d [1 3 4] [] [b]", pb.ConfChangeRemoveNode, member{Number: 2, ID: "b"})
	f("a c d [1 3 4] [] [b]", pb.ConfChangeAddLearnerNode, member{Number: 5, ID: "b", Address: "127.0.0.1:5"}) // its id is gone
	f("a c d e [1 3 4] [5] [b]", pb.ConfChangeAddLearnerNode, member{Number: 5, ID: "e", Address: "127.0.0.1:5"})
	c, _ := m.withID("c")
	for active, says := range map[string]string{"1": "only 1 of the other 2", "14": "", "1345": ""} {
		var all []uint64
		for _, digit := range active {
			all = append(all, uint64(digit-'0'))
		}
		if err := m.checkRemoval(c, all); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", active, err)
		}
	}
	if err := firstMembers(testOptions("a").Peers[:1]).checkRemoval(member{Number: 1, ID: "a"}, []uint64{1}); err == nil {
		t.Error("the only node is removed")
	}
}

// voters waits until the ids of the nodes that have a vote are these, as a node knows them.
func voters(t *testing.T, n *Node, want ...string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var ids []string
		for _, m := range n.nodes() {
			if !m.Learner {
				ids = append(ids, m.ID)
			}
		}
		if slices.Equal(ids, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("node %s knows %q, want %q: %v", n.o.ID, ids, want, n.Err())
		}
	}
}

// TestReplace: a node takes the place of one that has lost its disk, gets all jobs, and is needed for a majority from
// then on. The other one does not come back, under its id or with its directory. A new leader and a restart know who
// the nodes are.
func TestReplace(t *testing.T) {
	t.Parallel()
	nodes, again := startCluster(t, nil)
	c := &testCluster{t: t, nodes: nodes}
	first, lead := c.leader()
	leader, dead, third := nodes[first], (first+1)%3, nodes[(first+2)%3]
	j := openJournal(t, leader, lead)
	put(t, j, 0, "one", "two")
	deadID := nodes[dead].o.ID
	if err := nodes[dead].Close(); err != nil {
		t.Fatal(err)
	}
	f := func(says string, c Change) { // asked at the follower, which forwards it
		t.Helper()
		if err := third.Change(soon(t), c); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Fatalf("%+v: %v, want %q", c, err, says)
		}
	}
	address := freeAddress(t)
	f("is not ID=HOST:PORT", Change{Verb: AddNode, ID: "d e", Address: address})
	f("beyond this machine", Change{Verb: AddNode, ID: "d", Address: "192.0.2.1:1"})
	f("has this id or this address", Change{Verb: AddNode, ID: "d", Address: leader.ownStatus().Address})
	f(`has no node "x"`, Change{Verb: RemoveNode, ID: "x"})
	f(`no change "y"`, Change{Verb: "y"})
	time.Sleep(respondTicks * tick)
	f("could no longer decide anything", Change{Verb: RemoveNode, ID: third.o.ID})

	disk := vfs.NewMem()
	o := Options{
		Cluster: "test", ID: "d", Peers: []Peer{{"d", address}, {third.o.ID, third.ownStatus().Address}}, Join: true, Log: testLog(), Journal: testJournal(disk),
	}
	early, cancel := context.WithTimeout(context.Background(), 2*joinPause)
	defer cancel()
	if _, err := Start(early, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a node that was not added takes part: %v", err)
	}
	f("", Change{Verb: AddNode, ID: "d", Address: address})
	f("", Change{Verb: AddNode, ID: "d", Address: address})
	d, err := Start(soon(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	voters(t, d, "a", "b", "c", "d")
	f("", Change{Verb: RemoveNode, ID: deadID})
	f("", Change{Verb: RemoveNode, ID: deadID})
	f("take a new id", Change{Verb: AddNode, ID: deadID, Address: freeAddress(t)})
	put(t, j, 2, "three")
	if got, want := jobs(t, d, leader.ownStatus().Commit), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("the new node has %q, want %q", got, want)
	}
	gone, err := again(dead)
	if err != nil {
		t.Fatal(err)
	}
	<-gone.closing
	if err := gone.Err(); !errors.Is(err, errRemoved) {
		t.Errorf("the removed node ends with %v", err)
	}

	if err := third.Close(); err != nil { // two of three are left
		t.Fatal(err)
	}
	put(t, j, 3, "four")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	o.Join = false // as in the settings of a node that is there
	if again, err := Start(soon(t), o); err != nil {
		t.Fatal(err)
	} else {
		d = again
	}
	// The leader was alone until d was back, on a busy machine for longer than it may be: either of the two leads now.
	if err := j.Close(); err != nil && !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	lead.ReleaseStore()
	c.nodes = [3]*Node{leader, d, third}
	c.cut = [3]bool{2: true}
	for end := time.Now().Add(patience); ; {
		first, lead = c.leader()
		leader = c.nodes[first]
		if j, err = tryJournal(leader, lead); err == nil {
			err = tryPut(j, 4, "five")
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		if j != nil {
			_ = j.Close() // it says the same
		}
		lead.ReleaseStore()
	}
	if got := jobs(t, d, leader.ownStatus().Commit); len(got) != 5 {
		t.Errorf("the new node has %q after a restart", got)
	}
	if leader != d {
		if err := d.Change(soon(t), Change{Verb: Transfer, ID: "d"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil && !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	lead.ReleaseStore()
	if leader != d {
		next, err := d.AwaitLeadership(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		next.ReleaseStore()
	}
}

// TestAdopt: the data directory of a single server becomes that of the only node of a cluster, with its jobs, and the
// nodes that are added get them.
func TestAdopt(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	single, err := journal.Open(testJournal(disk))
	if err == nil {
		err = single.Replay(journal.ReplayFuncs{})
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, single, 0, "one", "two")
	if err := single.Close(); err != nil {
		t.Fatal(err)
	}
	two := Options{Cluster: "test", ID: "a", Peers: []Peer{{"a", freeAddress(t)}, {"b", freeAddress(t)}}, Journal: testJournal(vfs.NewMem())}
	if _, err := Start(soon(t), two); err == nil || !strings.Contains(err.Error(), "of two nodes none can be lost") {
		t.Error(err)
	}
	o := Options{Cluster: "test", ID: "a", Peers: []Peer{{"a", freeAddress(t)}}, Log: testLog(), Journal: testJournal(disk)}
	a, err := Start(soon(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	lead, err := a.AwaitLeadership(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, a, lead)
	put(t, j, 2, "three")
	for i, id := range []string{"b", "c"} {
		p := Peer{id, freeAddress(t)}
		if err := a.Change(soon(t), Change{AddNode, p.ID, p.Address}); err != nil {
			t.Fatal(err)
		}
		b, err := Start(soon(t), Options{Cluster: "test", ID: id, Peers: append([]Peer{p}, o.Peers...), Join: true, Log: testLog(), Journal: testJournal(vfs.NewMem())})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		voters(t, b, []string{"a", "b", "c"}[:i+2]...)
		if got, want := jobs(t, b, a.ownStatus().Commit), []string{"one", "two", "three"}; !slices.Equal(got, want) {
			t.Errorf("node %s has %q, want %q", id, got, want)
		}
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	lead.ReleaseStore()
}

// TestLease: the Leadership of a node that hears of no majority ends before another node can lead, also when the
// goroutine that owns Raft's state waits for a disk.
func TestLease(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	i, lead := c.leader()
	blocked, release := make(chan struct{}), make(chan struct{})
	go c.nodes[i].call(func() { close(blocked); <-release })
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	<-blocked
	began := time.Now()
	if !lead.Holds() {
		t.Error("it does not hold")
	}
	select {
	case <-lead.Lost():
	case <-time.After(patience):
		t.Fatal("it leads on")
	}
	if lasted := time.Since(began); lasted > electionTicks*tick+patience/10 { // the tests of other packages run beside it
		t.Errorf("it led for %v", lasted)
	}
	if lead.Holds() {
		t.Error("it holds after its end")
	}
	late := &Leadership{n: c.nodes[i], lost: make(chan struct{})} // nobody has looked at the clock
	late.lease.Store(1)
	if late.Holds() {
		t.Error("it holds after its lease")
	}
	lead.ReleaseStore()
	letGo()
	c.leader()
}

// TestInstallBesideAppend: a node takes a snapshot while the server of its ended Leadership still writes.
func TestInstallBesideAppend(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	i, lead := c.leader()
	n := c.nodes[i]
	n.updateState(n.endLeadership)
	blocked, release := make(chan struct{}), make(chan struct{})
	go n.call(func() { close(blocked); <-release }) // the owner waits for the server
	<-blocked
	if err := lead.Append([]byte("x")); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	close(release)
	lead.ReleaseStore()
}

// TestTransfer: a node that was asked to lead does so when the change is answered.
func TestTransfer(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, nil)
	c := &testCluster{t: t, nodes: nodes}
	i, lead := c.leader()
	for range 30 {
		lead.ReleaseStore()
		i = (i + 1) % len(nodes)
		next := nodes[i]
		for end := time.Now().Add(patience); ; time.Sleep(tick) { // it may not have the whole log yet
			err := nodes[(i+1)%len(nodes)].Change(soon(t), Change{Verb: Transfer, ID: next.o.ID})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		if own := next.ownStatus(); own.Role != "leader" {
			t.Fatalf("node %s was to lead, and is %+v", next.o.ID, own)
		}
		var err error
		if lead, err = next.AwaitLeadership(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	lead.ReleaseStore()
}
