package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"treadle/loop/client"
)

// diskSize is the size of each node's disk in TestClusterFullDisk: what the node needs, --min-free and some jobs.
const diskSize = 448 << 20

// mount gives a node that does not run yet a disk of its own, in memory.
func (n *testNodes) mount(i int) {
	n.t.Helper()
	if err := os.MkdirAll(n.data(i), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", n.data(i), "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize)); err != nil {
		n.t.Skipf("cannot mount a disk: %v: only root can", err)
	}
	n.t.Cleanup(func() {
		n.killAll()
		if err := unix.Unmount(n.data(i), unix.MNT_DETACH); err != nil {
			n.t.Error(err)
		}
	})
}

// killAll kills all nodes.
func (n *testNodes) killAll() {
	for _, i := range n.up() {
		n.kill(i)
	}
}

// fill fills the disk of a node but for some bytes. free frees it.
func (n *testNodes) fill(i int, left int64) (free func()) {
	n.t.Helper()
	path := filepath.Join(n.data(i), "filler")
	f, err := os.Create(path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	var at unix.Statfs_t
	if err := unix.Statfs(n.data(i), &at); err != nil {
		n.t.Fatal(err)
	}
	if size := int64(at.Bavail)*at.Bsize - left; size > 0 {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
			n.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			n.t.Error(err)
		}
	}
}

// TestClusterFullDisk: when the disk of a follower is full, whichever node it is, the others take jobs and do them. The
// follower takes part again when its disk has room. A leader with less room than --min-free refuses jobs, and has the
// others done. No acknowledged job is lost.
func TestClusterFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for elections and failed nodes")
	}
	n := newNodes(t)
	serves := n.serves
	n.serves = func(i int) []string { return append(serves(i), "--min-free", "128MiB") }
	for i := range n.running {
		n.mount(i)
	}
	for i := range n.running {
		n.start(i)
	}
	s := &diskSite{testNodes: n, left: make(map[string]bool)}
	for i := range n.running {
		if lead, _ := n.settle(); lead == i { // a leader may refuse jobs, see below
			n.handOver(i)
			n.settle()
		}
		free := n.fill(i, 0)
		s.submit(100, n.up(i)...)
		s.work(len(s.left)-40, n.up(i)...)
		free()
		select {
		case <-n.running[i].drained:
			_ = n.running[i].Wait() // it has failed
			n.start(i)
		case <-time.After(time.Second): // it had room for what it had to write
		}
	}
	lead, _ := n.settle()
	free := n.fill(lead, 96<<20)
	refused := func() bool {
		err := s.try(lead, func(ctx context.Context, c *client.Client) error {
			return c.Explain(ctx, c.Submit(ctx, &client.Job{Func: "f", Name: "p"}))
		})
		return err != nil && strings.Contains(err.Error(), "disk")
	}
	for end := time.Now().Add(patience); !refused(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the leader refuses no job although its disk has less room than --min-free")
		}
	}
	s.work(len(s.left)-20, n.up()...)
	free()
	s.submit(1, n.up()...)
	s.work(0, n.up()...)
}

// diskSite is nodes with jobs of TestClusterFullDisk.
type diskSite struct {
	*testNodes
	sent int
	left map[string]bool // acknowledged and not done
}

// try does something over a connection to a node.
func (s *diskSite) try(i int, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := client.Dial(ctx, s.socket(i), client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}

// submit has jobs acknowledged by nodes in turn.
func (s *diskSite) submit(jobs int, nodes ...int) {
	s.t.Helper()
	for end := time.Now().Add(patience); jobs > 0; s.sent++ {
		name := fmt.Sprint(s.sent)
		err := s.try(nodes[s.sent%len(nodes)], func(ctx context.Context, c *client.Client) error {
			return c.Submit(ctx, &client.Job{Func: "f", Name: name, Workload: make([]byte, 64<<10)})
		})
		if err == nil {
			s.left[name] = true
			jobs--
		} else if time.Now().After(end) {
			s.t.Fatalf("%d jobs are not taken: %v", jobs, err)
		}
	}
}

// work does jobs of nodes in turn until at most so many are left.
func (s *diskSite) work(left int, nodes ...int) {
	s.t.Helper()
	for end, k := time.Now().Add(patience), 0; len(s.left) > left; k++ {
		err := s.do(nodes[k%len(nodes)], left)
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d jobs are left, want %d: %v", len(s.left), s.sent, left, err)
		}
	}
}

// do does jobs at one node until an error, or until at most so many are left.
func (s *diskSite) do(i, left int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	w, err := client.DialWorker(ctx, s.socket(i), client.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.CanDo(ctx, "f"); err != nil {
		return err
	}
	for len(s.left) > left {
		a, err := w.Grab(ctx)
		if err != nil {
			return err
		}
		delete(s.left, a.Job.Name) // an error says nothing of the report
		if err := w.Done(ctx, a, nil); err != nil {
			return err
		}
	}
	return w.Ping(ctx) // the reports are read
}
