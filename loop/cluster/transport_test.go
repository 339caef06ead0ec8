package cluster

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestFrames: a frame reads back as it was written; no cut and no changed bit passes.
func TestFrames(t *testing.T) {
	t.Parallel()
	payload := []byte("some bytes")
	b := appendFrame(nil, payload)
	if got, err := readFrame(bytes.NewReader(b), len(payload)); err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := readFrame(bytes.NewReader(b), len(payload)-1); err == nil {
		t.Error("a frame over the limit is read")
	}
	for n := range b {
		if _, err := readFrame(bytes.NewReader(b[:n]), 1<<20); err == nil {
			t.Errorf("%d of %d bytes are a frame", n, len(b))
		}
	}
	for bit := range 8 * len(b) {
		forged := bytes.Clone(b)
		forged[bit/8] ^= 1 << (bit % 8)
		if _, err := readFrame(bytes.NewReader(forged), 1<<20); err == nil {
			t.Errorf("a frame with bit %d flipped is read", bit)
		}
	}
}

// stranger connects to a node's port.
func stranger(t *testing.T, n *Node) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.ownStatus().Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// TestStrangers: a connection that is not of a node of this cluster is refused with the reason, and takes no part.
func TestStrangers(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, nil)
	n := nodes[0]
	right := nodes[1].transport.hello(kindRaft, "a")
	f := func(what string, change func(*hello)) {
		t.Helper()
		c := stranger(t, n)
		h := right
		change(&h)
		if err := writeHello(c, &h); err != nil {
			t.Fatal(err)
		}
		if answer, err := readHello(c); err != nil || !strings.Contains(answer.Error, what) {
			t.Errorf("%+v: %+v, %v; want %q", h, answer, err, what)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%+v: the connection stays open: %v", h, err)
		}
	}
	f(`is of the cluster "other"`, func(h *hello) { h.Cluster = "other" })
	f("speaks version 9", func(h *hello) { h.Version = 9 })
	f("began in a cluster of", func(h *hello) { h.Origin = "a b" })
	f(`looks for node "c"`, func(h *hello) { h.To = "c" })
	f("treadle cluster add d=HOST:PORT", func(h *hello) { h.From = "d" })
	f(`no other node is called "a"`, func(h *hello) { h.From = "a" })
	f(`asks for "money"`, func(h *hello) { h.Kind = "money" })
	f("does not identify its data directory", func(h *hello) { h.Incarnation = "x" })
	nodes[1].AwaitOtherLeader(soon(t), "") // it knows the others
	f("has another data directory than before", func(h *hello) { h.Incarnation = strings.Repeat("0", identitySize) })

	for _, noise := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x05\x00\x00\x00\x00\x00\x00\x00hello", "\xff\xff\xff\xff\x00\x00\x00\x00"} {
		c := stranger(t, n)
		if _, err := c.Write([]byte(noise)); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); err == nil && bytes.Contains(b, []byte("cluster")) && !bytes.Contains(b, []byte("error")) {
			t.Errorf("%q is answered with %q", noise, b)
		}
	}
}

// TestForgedMessages: a connection ends with the first frame that is cut, altered, of another node or no message, and
// the node goes on.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, nil)
	n := nodes[0]
	message := func(from, to uint64, kind pb.MessageType) []byte {
		term := uint64(1 << 40) // a node that takes this message in steps down for good
		b, err := proto.Marshal(&pb.Message{Type: &kind, From: &from, To: &to, Term: &term})
		if err != nil {
			t.Fatal(err)
		}
		return appendFrame(nil, b)
	}
	altered := message(2, 1, pb.MsgHeartbeat)
	altered[len(altered)-1] ^= 1
	for what, b := range map[string][]byte{
		"altered": altered, "of another node": message(3, 1, pb.MsgHeartbeat), "to another node": message(2, 3, pb.MsgHeartbeat),
		"no message": appendFrame(nil, []byte("\xff\xff")), "too long": {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, "a snapshot": message(2, 1, pb.MsgSnap),
		"cut": message(2, 1, pb.MsgHeartbeat)[:12],
	} {
		c := stranger(t, n)
		h := nodes[1].transport.hello(kindRaft, "a")
		if err := writeHello(c, &h); err != nil {
			t.Fatal(err)
		}
		if answer, err := readHello(c); err != nil || answer.Error != "" {
			t.Fatalf("%+v, %v", answer, err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if what == "cut" {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := n.Leader(soon(t)); err != nil {
		t.Error(err)
	}
	if s := n.ownStatus(); s.Term > 1000 {
		t.Errorf("a forged message was taken in: %+v", s)
	}
}

// TestSecrets: nodes with another secret, or none, are not spoken with.
func TestSecrets(t *testing.T) {
	t.Parallel()
	file := func(text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	right, wrong := file(strings.Repeat("right", 8), 0o600), file(strings.Repeat("wrong", 8), 0o600)
	nodes, _ := startCluster(t, func(o *Options) { o.Secret = right })
	if _, err := nodes[0].Leader(soon(t)); err != nil {
		t.Fatal(err)
	}
	p := nodes[0].o.Peers[0]
	for name, secret := range map[string]string{"wrong": wrong, "none": ""} {
		o := Options{Cluster: "test", ID: "b", Peers: nodes[0].o.Peers, Secret: secret, Log: testLog()}
		other := &transport{o: &o, node: nodes[1], identity: nodes[1].transport.identity, incarnations: map[string]string{}, knownHosts: map[string]bool{}}
		var err error
		if other.server, other.client, err = o.tls(); err != nil {
			t.Fatal(err)
		}
		if _, err := other.dial(soon(t), p, other.hello(kindStatus, "a")); err == nil {
			t.Errorf("%s: it is spoken with", name)
		}
	}
	for secret, says := range map[string]string{
		file("short", 0o600): "needs 32 random ones", file(strings.Repeat("right", 8), 0o644): "other users can read the secret", "/nowhere": "cannot read the secret",
	} {
		o := Options{Cluster: "test", Secret: secret}
		if _, _, err := o.tls(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", secret, err)
		}
	}
}

// TestCheck: settings that cannot work are refused in one line.
func TestCheck(t *testing.T) {
	t.Parallel()
	f := func(says string, id string, peers ...string) {
		t.Helper()
		all, err := ParsePeers(peers)
		if err == nil {
			o := Options{Cluster: "test", ID: id, Peers: all}
			err = o.Check()
		}
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", peers, err, says)
		}
	}
	f("", "a", "a=127.0.0.1:1", "b=localhost:2", "c=[::1]:3")
	f("", "a", "a=127.0.0.1:1")
	f(`no peer has the id "d" of this node: a, b, c`, "d", "a=127.0.0.1:1", "b=localhost:2", "c=[::1]:3")
	f("", "a", "a=127.0.0.1:1", "b=127.0.0.1:2") // as later settings of a node that is there
	f("is beyond this machine", "a", "a=127.0.0.1:1", "b=127.0.0.1:2", "c=192.0.2.1:3")
	f("is not ID=HOST:PORT", "a", "a")
	f("is not ID=HOST:PORT", "a", "=127.0.0.1:1")
	f("is not ID=HOST:PORT", "a", "a=127.0.0.1:0")
	f("has the id or the address of a", "a", "a=127.0.0.1:1", "a=127.0.0.1:2")
	f("has the id or the address of a", "a", "a=127.0.0.1:1", "b=127.0.0.1:1")
}

// TestIdentity: a data directory stays that of one node in one cluster, and a node whose directory is new is refused
// under its old id.
func TestIdentity(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	o := testOptions("a")
	o.Peers = o.Peers[:1]
	o.Journal = testJournal(fs)
	s, fresh, err := openStorage(o.Journal, firstMembers(o.Peers))
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	first, err := identify(&o, s, fresh)
	if err != nil || len(first.incarnation) != identitySize || first.number != 1 || first.origin != "a" {
		t.Fatal(first, err)
	}
	o.Peers = testOptions("a").Peers // the nodes of a data directory are those that it has
	if again, err := identify(&o, s, false); err != nil || again != first {
		t.Errorf("%v, %v, want %v", again, err, first)
	}
	for _, change := range []func(*Options){func(o *Options) { o.Cluster = "other" }, func(o *Options) { o.ID = "b" }} {
		other := o
		change(&other)
		if _, err := identify(&other, s, false); err == nil || !strings.Contains(err.Error(), `is of node "a" in the cluster "test", not`) {
			t.Error(err)
		}
	}
	if err := s.replica.SetNote(identityNote, "treadle node 1\ncluster test\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := identify(&o, s, false); err == nil || !strings.Contains(err.Error(), "of another version of treadle") {
		t.Error(err)
	}
	if err := s.replica.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRemovedByAnother: a node does not believe a node of another cluster that it was removed.
func TestRemovedByAnother(t *testing.T) {
	t.Parallel()
	nodes, _ := startCluster(t, nil)
	h := nodes[1].transport.hello(kindRaft, "a")
	h.Error, h.Removed = "gone", true
	if err := nodes[0].transport.checkHello(&h); !errors.Is(err, errRemoved) {
		t.Error(err)
	}
	h.Origin = "a b"
	if err := nodes[0].transport.checkHello(&h); err == nil || errors.Is(err, errRemoved) {
		t.Error(err)
	}
	h.Origin, h.Cluster = nodes[0].transport.identity.origin, "other"
	if err := nodes[0].transport.checkHello(&h); err == nil || errors.Is(err, errRemoved) {
		t.Error(err)
	}
}
