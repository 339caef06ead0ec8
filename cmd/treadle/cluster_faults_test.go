package main

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// clusterFault is a fault that a cluster survives. It happens while all nodes take part. The nodes rest still serve;
// heal ends the fault, and all nodes take part again some time later.
type clusterFault struct {
	name   string
	keeps  bool // the leader may lead on for a while, or for good, with fewer connections and late requests
	happen func(n *testNodes, leader int, random *rand.Rand) (rest []int, heal func())
}

// clusterFaults are the faults of built servers. The leader always loses its place, or others could.
var clusterFaults = []clusterFault{
	{"the leader is killed", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		n.kill(leader)
		return n.up(), func() { n.start(leader) }
	}},
	{"the leader is cut off", false, cutOff(true, true)},
	{"the leader is told to stop", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		n.running[leader].signal(syscall.SIGTERM)
		rest := n.up(leader)
		return rest, func() {
			n.running[leader].exit(0)
			n.start(leader)
		}
	}},
	{"both followers are killed, then the leader", true, func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
		followers := n.up(leader)
		for _, i := range followers {
			n.kill(i)
			time.Sleep(time.Duration(random.Int64N(int64(lonely))))
		}
		n.kill(leader)
		for _, i := range followers { // the old leader has what only it knows
			n.start(i)
		}
		return followers, func() { n.start(leader) }
	}},
	{"all are killed", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		all := append([]int{leader}, n.up(leader)...) // a leader that lives on sees how the followers' connections end
		for _, i := range all {
			_ = n.running[i].Process.Signal(syscall.SIGKILL)
		}
		for _, i := range all {
			n.kill(i)
			n.start(i)
		}
		return all, func() {}
	}},
	{"the leader stops and continues", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		_ = n.running[leader].Process.Signal(syscall.SIGSTOP)
		return n.up(leader), func() { _ = n.running[leader].Process.Signal(syscall.SIGCONT) }
	}},
	{"the leader stutters", true, func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
		for range 8 {
			_ = n.running[leader].Process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			_ = n.running[leader].Process.Signal(syscall.SIGCONT)
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
		return n.up(leader), func() {}
	}},
	{"the leader does not hear", false, cutOff(false, true)},
	{"the leader is not heard", false, cutOff(true, false)},
	{"one wire of the leader is cut", true, func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
		followers := n.up(leader)
		cut := followers[random.IntN(len(followers))]
		a, b := []string{nodeID(leader)}, []string{nodeID(cut)}
		n.wires.set(true, a, b)
		n.wires.set(true, b, a)
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		return n.up(leader, cut), func() {
			n.wires.set(false, a, b)
			n.wires.set(false, b, a)
		}
	}},
	{"another node is to lead", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		n.handOver(n.up(leader)[0])
		return n.up(), func() {}
	}},
	{"the leader's disk is lost", false, func(n *testNodes, leader int, _ *rand.Rand) ([]int, func()) {
		n.kill(leader)
		rest := n.up()
		if err := os.RemoveAll(n.data(leader)); err != nil {
			n.t.Fatal(err)
		}
		n.begin(leader) // which the others refuse
		return rest, func() {
			n.kill(leader)
			n.replace(leader)
		}
	}},
	{"a bit of the leader's disk flips", false, func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
		n.kill(leader)
		rest := n.up()
		n.flip(leader, random)
		n.begin(leader)
		return rest, func() {
			n.kill(leader)
			n.replace(leader)
		}
	}},
}

// cutOff returns the fault of a leader whose wires to the others are cut: those out, those in or both.
func cutOff(out, in bool) func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
	return func(n *testNodes, leader int, random *rand.Rand) ([]int, func()) {
		rest, a, b := n.up(leader), []string{nodeID(leader)}, []string(nil)
		for _, i := range rest {
			b = append(b, nodeID(i))
		}
		set := func(cut bool) {
			if out {
				n.wires.set(cut, a, b)
			}
			if in {
				n.wires.set(cut, b, a)
			}
		}
		set(true)
		return rest, func() { set(false) }
	}
}

// flip flips a bit of a file of a node that does not run.
func (n *testNodes) flip(i int, random *rand.Rand) {
	n.t.Helper()
	var files []string
	err := filepath.WalkDir(n.data(i), func(path string, d fs.DirEntry, err error) error {
		if info, failed := d.Info(); err == nil && failed == nil && d.Type().IsRegular() && info.Size() > 0 {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		n.t.Fatal(len(files), err)
	}
	path := files[random.IntN(len(files))]
	b, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	at := random.IntN(len(b))
	b[at] ^= 1 << random.IntN(8)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.t.Logf("bit of byte %d of %d of %s", at, len(b), path)
}
