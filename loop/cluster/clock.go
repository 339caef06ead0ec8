package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
)

const (
	// measurePause is the time between two measurements: clocks drift slowly, steps are rare, and slow disks stay slow.
	measurePause = 10 * time.Second
	// measurementValid is how long a measurement counts.
	measurementValid = 3 * measurePause
)

// clocks has the clocks of the other nodes as offsets from the clock of this one. Due times are wall times, so a leader
// with a wrong clock would hand out jobs too early or too late.
type clocks struct {
	now   func() time.Time // time.Now
	limit time.Duration    // Options.ClockLimit
	wrong atomic.Bool      // the clock of this node is wrong, see isWrong

	mu      sync.Mutex
	offsets map[string]clockOffset // by the id of the node
}

// clockOffset is how far the clock of another node is ahead of the clock of this one.
type clockOffset struct {
	ahead      time.Duration
	measuredAt time.Time
}

// watchOthers measures the clocks and disks of the other nodes until the node is closed.
func (n *Node) watchOthers() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-n.closing
		cancel()
	}()
	for {
		var asked sync.WaitGroup
		for _, m := range n.nodes() {
			if m.ID == n.o.ID {
				continue
			}
			asked.Go(func() { n.measure(ctx, Peer{m.ID, m.Address}) })
		}
		asked.Wait()
		n.judgeClock()
		n.judgeDisk()
		select {
		case <-time.After(measurePause):
		case <-n.closing:
			return
		}
	}
}

// measure asks a node for its time and for the average of its writes.
func (n *Node) measure(ctx context.Context, p Peer) {
	s, err := n.transport.askStatus(ctx, p)
	if err == nil && s.Time != 0 { // the time is fresh: the node writes the answer after the hellos and sends it at once
		n.clocks.record(p.ID, time.UnixMicro(s.Time).Sub(n.clocks.now()))
		n.disk.record(p.ID, time.Duration(s.Write)*time.Microsecond)
	}
}

// record records how far the clock of a node is ahead.
func (c *clocks) record(id string, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offsets[id] = clockOffset{ahead, time.Now()}
}

// freshOffsets returns how far the clocks of nodes are ahead of this one, in ascending order. With ids nil it returns
// those of all other nodes. It leaves out old measurements.
func (c *clocks) freshOffsets(ids []string) (all []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, v := range c.offsets {
		if time.Since(v.measuredAt) < measurementValid && (ids == nil || slices.Contains(ids, id)) {
			all = append(all, v.ahead)
		}
	}
	slices.Sort(all)
	return all
}

// ahead returns how far this clock is ahead of the median of the others, or behind if it is negative.
func (c *clocks) ahead() time.Duration {
	all := c.freshOffsets(nil)
	if len(all) == 0 {
		return 0
	}
	return -all[len(all)/2]
}

// isWrong reports whether a majority of the voters agree about the time, and none of them agrees with this node. others
// are the ids of the other voters.
func (c *clocks) isWrong(majority int, others []string) bool {
	if len(others) == 0 {
		return false
	}
	all := c.freshOffsets(others)
	for i := 0; i+majority <= len(all); i++ {
		agreeing := all[i : i+majority]
		first, last := agreeing[0], agreeing[majority-1]
		if last-first <= c.limit && (first > c.limit || last < -c.limit) {
			return true
		}
	}
	return false
}

// voters returns how many voters there are, and the ids of those beside this node.
func (n *Node) voters() (voters int, others []string) {
	for _, m := range n.nodes() {
		if m.Learner {
			continue
		}
		if voters++; m.ID != n.o.ID {
			others = append(others, m.ID)
		}
	}
	return voters, others
}

// judgeClock decides whether the clock of this node is wrong. If it has become wrong, another node gets the lead if one
// can take over.
func (n *Node) judgeClock() {
	voters, others := n.voters()
	wrong := n.clocks.isWrong(voters/2+1, others)
	if n.clocks.wrong.Swap(wrong) == wrong {
		return
	}
	if !wrong {
		n.log.Info("the clock of this node is right again, so that it may lead", "node", n.o.ID)
		return
	}
	n.log.Warn("the clock of this node is wrong, so that it does not lead while others can: set it, or raise --cluster-clock",
		"node", n.o.ID, "ahead", n.clocks.ahead().Round(time.Millisecond), "cluster-clock", n.clocks.limit)
	n.call(func() {
		status := n.raft.Status()
		if to := n.successor(&status, ""); status.RaftState == raft.StateLeader && to != 0 {
			n.updateState(n.endLeadership)
			n.raft.TransferLeader(to)
		}
	})
}
