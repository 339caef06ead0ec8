package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
)

const (
	// slowSync is how long a leader's writes may take on average, if those of another node are much faster. Every
	// acknowledgement waits for the leader's disk, and at electionTicks for one write the others elect another leader.
	slowSync = 100 * time.Millisecond
	// fasterBy is how many times as fast the disk of the next leader must be: two nodes with slow disks keep their
	// roles.
	fasterBy = 4
	// minSyncs is how many writes make an average: a disk may take long for one.
	minSyncs = 8
)

// diskSpeed measures how long the writes to the log take until they are on disk.
type diskSpeed struct {
	sum, count atomic.Int64 // of the present interval; nanoseconds
	average    atomic.Int64 // of the interval before, in nanoseconds; 0: it had fewer than minSyncs writes

	mu     sync.Mutex
	others map[string]measuredSync // by the id of the node
}

// measuredSync is the average of another node.
type measuredSync struct {
	average    time.Duration
	measuredAt time.Time
}

// add adds a write.
func (d *diskSpeed) add(took time.Duration) {
	d.sum.Add(int64(took))
	d.count.Add(1)
}

// endInterval sets the average and begins the next interval.
func (d *diskSpeed) endInterval() {
	sum, count := d.sum.Swap(0), d.count.Swap(0)
	if count < minSyncs {
		sum = 0
	}
	d.average.Store(sum / max(count, 1))
}

// record records the average of another node.
func (d *diskSpeed) record(id string, average time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others[id] = measuredSync{average, time.Now()}
}

// faster returns which of the voters has the fastest disk, if the disk of this node is slow and that one's is not.
func (d *diskSpeed) faster(voters []string) (id string, average time.Duration) {
	own := time.Duration(d.average.Load())
	if own < slowSync {
		return "", 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, voter := range voters {
		m := d.others[voter]
		if m.average > 0 && m.average <= own/fasterBy && time.Since(m.measuredAt) < measurementValid && (id == "" || m.average < average) {
			id, average = voter, m.average
		}
	}
	return id, average
}

// judgeDisk gives the lead to another node if the disk of this one is slow and that one's is not.
func (n *Node) judgeDisk() {
	n.disk.endInterval()
	_, others := n.voters()
	id, average := n.disk.faster(others)
	if id == "" {
		return
	}
	n.call(func() {
		status := n.raft.Status()
		to := n.successor(&status, id)
		if status.RaftState != raft.StateLeader || to == 0 {
			return
		}
		n.log.Warn("the disk of this node is slow, so another node is to lead", "node", n.o.ID,
			"write", time.Duration(n.disk.average.Load()).Round(time.Millisecond), "next", id, "its-write", average.Round(time.Microsecond))
		n.updateState(n.endLeadership)
		n.raft.TransferLeader(to)
	})
}
